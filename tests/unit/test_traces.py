"""Reading logs: what is used, what is refused and why; nothing is guessed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from arena.traces import Trace, law_fault, load, tables
from arena.traces.laws import sampled_logprob
from arena.traces.logs import Reading
from arena.traces.words import Unusable
from arena.types import Sampling
from tests import runs


def chat(ids: list[int], finish: str = "length", **request: Any) -> dict[str, Any]:
    """A line as vLLM and the chat API give it; the token 9 ends texts and is not in the content."""
    words = [f"w{token} " if token != 9 else "<end>" for token in ids]
    content = [
        {"token": word, "logprob": -0.5, "top_logprobs": [{"token": word, "logprob": -0.5}]} for word in words
    ]
    return {
        "request": {"messages": [], "max_tokens": 8, "temperature": 1.0, **request},
        "response": {
            "system_fingerprint": "vllm-0",
            "prompt_token_ids": [1, 2, 3],
            "choices": [
                {
                    "message": {"content": "".join(word for word in words if word != "<end>")},
                    "token_ids": ids,
                    "logprobs": {"content": content},
                    "finish_reason": finish,
                    "stop_reason": None,
                }
            ],
        },
        "category": "qa",
    }


def read(folder: Path, *lines: Any, reading: Reading | None = None) -> Any:
    path = folder / "log.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return load(path, reading)


class Words:
    """Stands in for a tokenizer: the word w7 is the token 7."""

    fingerprint = "words"
    eos = (9,)

    def encode(self, messages: Any, text: str | None) -> list[int]:
        return [1, 2, 3]

    def again(self, text: str, pieces: Any) -> list[int]:
        if "?" in text:
            raise Unusable("its text does not round-trip through the tokenizer")
        return [int(word[1:]) for word in text.split()]

    def confirm(self, ids: Any, text: Any) -> None:
        if text is not None and [i for i in ids if i != 9] != self.again(text, []):
            raise Unusable("its token ids do not spell its text")


def test_a_chat_line_with_ids(tmp_path):
    (one,) = read(tmp_path, chat([4, 5, 6])).traces
    assert (one.prompt, one.tokens, one.logprobs) == ((1, 2, 3), (4, 5, 6), (-0.5,) * 3)
    assert (one.finish, one.end_logged, one.max_tokens, one.prefilled) == ("length", False, 8, True)
    assert (one.law, one.source, one.category) == ("raw", "vllm", "qa")
    assert law_fault(one) is None


def test_the_end_token_is_found_and_known_to_all_lines(tmp_path):
    first, second = read(tmp_path, chat([4, 9], "stop"), chat([4, 5], "stop")).traces
    assert (first.end_logged, second.end_logged) == (True, False)
    assert first.eos == second.eos == (9,)
    assert second.prompt_id == f"{first.prompt_id}-1"
    assert first.cluster == second.cluster


def test_a_stop_string_is_no_end_token(tmp_path):
    line = chat([4, 5], "stop")
    line["response"]["choices"][0]["stop_reason"] = "\n\n"
    (one,) = read(tmp_path, line).traces
    assert (one.stopped_by_text, one.end_logged) == (True, False)


def test_llama_server_keeps_ids_beside_each_token(tmp_path):
    line = chat([4, 5])
    choice = line["response"]["choices"][0]
    for item, token in zip(choice["logprobs"]["content"], choice.pop("token_ids"), strict=True):
        item["id"] = token
    del line["response"]["prompt_token_ids"]
    with pytest.raises(ConfigError, match="--model"):
        read(tmp_path, line)
    (one,) = read(tmp_path, line, reading=Reading(Words())).traces  # type: ignore[arg-type]
    assert (one.tokens, one.fingerprint) == ((4, 5), "words")


def test_post_sampling_probs_are_of_the_sampled_law(tmp_path):
    line = chat([4, 5], temperature=0.7)
    for item in line["response"]["choices"][0]["logprobs"]["content"]:
        item["prob"] = math.exp(item.pop("logprob"))
    (one,) = read(tmp_path, line).traces
    assert one.law == "sampled"
    assert one.logprobs == pytest.approx((-0.5, -0.5))


def test_a_completion_line(tmp_path):
    line = {
        "request": {"prompt": [1, 2], "max_tokens": 4, "temperature": 1},
        "response": {
            "choices": [
                {
                    "text": "w3 w4",
                    "finish_reason": "length",
                    "logprobs": {"tokens": ["token_id:3", "token_id:4"], "token_logprobs": [-1.0, -2.0]},
                }
            ]
        },
    }
    (one,) = read(tmp_path, line).traces
    assert (one.prompt, one.tokens, one.logprobs) == ((1, 2), (3, 4), (-1.0, -2.0))


def test_a_request_output(tmp_path):
    line = {
        "prompt_token_ids": [1, 2],
        "sampling_params": {"temperature": 0.0, "max_tokens": 4},
        "outputs": [
            {
                "index": 0,
                "token_ids": [3, 9],
                "text": "w3",
                "finish_reason": "stop",
                "stop_reason": None,
                "logprobs": [{"3": {"logprob": -0.1, "rank": 1}}, {"9": {"logprob": -0.2, "rank": 1}}],
            }
        ],
    }
    (one,) = read(tmp_path, line).traces
    assert (one.tokens, one.logprobs, one.end_logged) == ((3, 9), (-0.1, -0.2), True)
    del line["sampling_params"]
    with pytest.raises(ConfigError, match="--assume"):
        read(tmp_path, line)
    (one,) = read(tmp_path, line, reading=Reading(assume=Sampling(0.0))).traces
    assert one.sampling == Sampling(0.0)


def test_plain_text_serves_greedy_targets_and_point_masses(tmp_path):
    line = {"prompt": "hello", "text": "w3 w4", "temperature": 0}
    (one,) = read(tmp_path, line, reading=Reading(Words())).traces  # type: ignore[arg-type]
    assert (one.tokens, one.law) == ((3, 4), "none")
    assert law_fault(one) is None
    (one,) = read(tmp_path, {**line, "temperature": 1}, reading=Reading(Words())).traces  # type: ignore[arg-type]
    assert "logprobs" in str(law_fault(one))


def test_what_cannot_be_used_is_counted_and_said(tmp_path):
    server_error = {"request": {}, "response": {"error": {"message": "no"}}}
    uneven = chat([4, 5])
    uneven["response"]["choices"][0]["logprobs"]["content"].pop()
    found = read(tmp_path, chat([4]), "{", "[]", {"a": 1}, server_error, uneven, chat([]))
    assert len(found.traces) == 1
    assert len(found.unusable) == 6
    for number, why in enumerate(("not JSON", "object", "expected", "error", "stand beside", "ids"), start=2):
        assert f"line {number}" in found.unusable[number - 2]
        assert why in found.unusable[number - 2]


@pytest.mark.parametrize(
    "spoil",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"temperature": "hot"},
        {"max_tokens": "many"},
    ],
)
def test_settings_without_meaning_spoil_a_line_and_not_the_log(tmp_path, spoil):
    found = read(tmp_path, chat([4]), chat([4], **spoil))
    assert (len(found.traces), len(found.unusable)) == (1, 1)


@pytest.mark.parametrize("ids", [[-1, 4], [2**31, 4], ["x", 4], [None, 4], [True, 4], [[4], 4]])
def test_ids_that_are_none_spoil_a_line(tmp_path, ids):
    line = chat([4, 5])
    line["response"]["choices"][0]["token_ids"] = ids
    found = read(tmp_path, chat([4]), line, "[" * 100000)
    assert (len(found.traces), len(found.unusable)) == (1, 2)


def test_text_that_does_not_round_trip_is_refused(tmp_path):
    line = {"prompt": "p", "text": "w3 ?", "temperature": 0}
    with pytest.raises(ConfigError, match="round-trip"):
        read(tmp_path, line, reading=Reading(Words()))  # type: ignore[arg-type]


def test_a_raw_law_is_refused_where_it_was_not_sampled(tmp_path):
    (one,) = read(tmp_path, chat([4, 5], temperature=0.7)).traces
    assert "processed_logprobs" in str(law_fault(one))
    (one,) = read(tmp_path, chat([4, 5], temperature=0.7), reading=Reading(stated="processed")).traces
    assert law_fault(one) is None
    (one,) = read(tmp_path, chat([4, 5], min_p=0.1)).traces
    assert "min_p" in str(law_fault(one))


def test_logged_top_tokens_give_the_warped_law_exactly_under_top_k():
    law = [0.5, 0.3, 0.15, 0.05]
    value = sampled_logprob(math.log(0.3), [math.log(p) for p in law[:3]], Sampling(0.5, top_k=2))
    assert value is not None
    assert value == (pytest.approx(math.log(0.09 / 0.34)), 0.0)


def test_the_unseen_tail_is_bounded_or_the_line_is_refused():
    law = [0.9, 0.09, 0.009, 0.001]
    logs = [math.log(p) for p in law[:3]]
    value = sampled_logprob(logs[0], logs, Sampling(0.5))
    assert value is not None
    truth = math.log(0.81 / sum(p * p for p in law))
    assert value[0] == pytest.approx(truth, abs=value[1] + 1e-12)
    assert sampled_logprob(logs[0], logs[:1], Sampling(0.5)) is None
    assert sampled_logprob(logs[0], logs, Sampling(1.3)) is None
    assert sampled_logprob(logs[0], logs, Sampling(0.5, top_p=0.95)) is not None


def test_a_trace_is_kept_whole_in_parquet(tmp_path):
    one = Trace(
        "ab", (1, 2), (3, 4), (-0.1, -0.2), "sampled", Sampling(0.7, 5, 0.9), "", "stop", True, False, None,
        True, "print", "vllm", "qa", (0, 1), (4,),
    )  # fmt: skip
    tables.write([one], tmp_path / "a.parquet")
    tables.write([one], tmp_path / "b.parquet")
    assert load(tmp_path / "a.parquet").traces == (one,)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "c.parquet").write_bytes(b"no")
    with pytest.raises(ConfigError, match="arena trace"):
        load(tmp_path / "c.parquet")


def test_a_run_is_a_trace(tmp_path):
    runs.run(tmp_path / "run")
    found = load(tmp_path / "run").traces
    assert len(found) == 4 * 6  # rounds and their prompts
    for one in found:
        assert one.starts[0] == 0
        assert len(one.logprobs) == len(one.tokens) <= 14
        assert one.eos == (0,)
        assert (one.tokens[-1] == 0) == one.end_logged
        assert law_fault(one) is None
    with pytest.raises(ConfigError, match="no log at"):
        load(tmp_path / "nothing")
