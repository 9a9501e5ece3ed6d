"""``arena doctor``: it convicts broken speculation and acquits sound, from logs alone."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from arena.cli import app
from arena.models.table import TableLaw
from arena.sampling import warp
from arena.traces import Trace, tables
from arena.types import Sampling

LOGITS = TableLaw(64, 1, 5, 2.5).logits(np.arange(64)[:, None])
RAW = warp(LOGITS, Sampling())
TEXTS, LENGTH = 40, 40


def text(number: int, seed: int, sampling: Sampling, broken: float = 0.0) -> Trace:
    """A text of the table law; a broken engine keeps a share of uniform tokens."""
    rng = np.random.default_rng([number, seed])
    prompt = tuple(int(token) for token in np.random.default_rng(number).integers(0, 64, 6))
    laws, last = warp(LOGITS, sampling), prompt[-1]
    tokens: list[int] = []
    logs: list[float] = []
    for _ in range(LENGTH):
        token = int(rng.integers(64)) if rng.random() < broken else int(rng.choice(64, p=laws[last]))
        tokens.append(token)
        logs.append(math.log(RAW[last, token]))
        last = token
    return Trace(
        f"p{number:02d}", prompt, tuple(tokens), tuple(logs), "raw", sampling, finish="length",
        max_tokens=LENGTH, prefilled=True, source="vllm",
    )  # fmt: skip


def log(folder: Path, name: str, texts: Sequence[Trace]) -> str:
    tables.write(texts, folder / f"{name}.parquet")
    return str(folder / f"{name}.parquet")


def ask(*words: str) -> tuple[int, dict[str, dict[str, object]], str]:
    answer = CliRunner().invoke(app, ["doctor", *words, "-f", "json"])
    assert answer.exit_code in (0, 1), answer.output
    body = json.loads(answer.stdout)
    assert {"verdict", "checks"} <= set(body)
    assert {"name", "statistic", "p", "verdict"} <= set(body["checks"][0])
    return answer.exit_code, {check["name"]: check for check in body["checks"]}, body["verdict"]


def many(seed: int, temperature: float = 1.0, broken: float = 0.0) -> list[Trace]:
    return [text(number, seed, Sampling(temperature), broken) for number in range(TEXTS)]


def test_a_broken_sampler_is_convicted_by_its_log_alone(tmp_path):
    code, checks, verdict = ask(log(tmp_path, "a", many(1, broken=0.5)), "--vocabulary", "64")
    assert (code, verdict, checks["rarity"]["verdict"]) == (1, "convicted", "convicted")
    code, checks, verdict = ask(log(tmp_path, "b", many(1)), "--vocabulary", "64")
    assert (code, verdict, checks["rarity"]["verdict"]) == (0, "acquitted", "healthy")


def test_log_probabilities_that_moved_are_found_against_a_plain_log(tmp_path):
    plain = log(tmp_path, "plain", many(2))
    code, checks, _ = ask(log(tmp_path, "bad", many(1, broken=0.1)), "--plain", plain)
    assert (code, checks["plain"]["verdict"]) == (1, "convicted")
    code, checks, _ = ask(log(tmp_path, "good", many(1)), "--plain", plain)
    assert (code, checks["plain"]["verdict"]) == (0, "healthy")


def test_sound_engines_are_convicted_no_more_often_than_stated():
    from arena.engines.diagnosis import paired, rarity

    p = [paired(many(seed), many(seed + 100)).p for seed in range(10, 22)]
    assert min(p) > 0.005
    assert max(p) > 0.3
    assert rarity(many(3), 64).p > 0.5


def test_greedy_texts_part_at_ties_only(tmp_path):
    plain = many(1, temperature=0.0)
    path = log(tmp_path, "plain", plain)
    tie, fault = list(plain), list(plain)
    for texts, gap in ((tie, 0.1), (fault, 3.0)):
        one = texts[0]
        other = (*one.tokens[:5], (one.tokens[5] + 1) % 64, *one.tokens[6:])
        logs = (*one.logprobs[:5], one.logprobs[5] - gap, *one.logprobs[6:])
        texts[0] = replace(one, tokens=other, logprobs=logs)
    code, checks, verdict = ask(log(tmp_path, "tie", tie), "--plain", path)
    assert (code, checks["greedy"]["statistic"], verdict) == (0, 0.0, "acquitted")
    code, checks, verdict = ask(log(tmp_path, "fault", fault), "--plain", path)
    assert (code, checks["greedy"]["statistic"], verdict) == (1, 1.0, "convicted")


METRICS = """# HELP vllm:spec_decode_num_drafts_total Number of drafts
vllm:spec_decode_num_drafts_total{engine="0"} %d
vllm:spec_decode_num_draft_tokens_total{engine="0"} %d
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} %d
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} %d
"""


def test_counters_must_be_those_of_a_replay(tmp_path):
    path = log(tmp_path, "a", many(1))
    found = CliRunner().invoke(app, ["replay", path, "--drafter", "ngram", "-k", "2", "-f", "json"])
    row = json.loads(found.stdout)["rows"][0]
    drafts, drafted, (one, two) = int(row["drafts"]), int(row["drafted"]), map(int, row["accepted"])
    assert one > 30
    good, bad = tmp_path / "good.txt", tmp_path / "bad.json"
    good.write_text(METRICS % (drafts, drafted, one + 3, two))
    bad.write_text(json.dumps({"drafts": drafts, "draft_tokens": drafted, "accepted": [one // 3, 0]}))
    code, checks, _ = ask(path, "--counters", str(good), "-k", "2")
    assert (code, checks["acceptance"]["verdict"]) == (0, "healthy")
    code, checks, _ = ask(path, "--counters", str(bad), "-k", "2", "--plain", log(tmp_path, "p", many(2)))
    assert (code, checks["acceptance"]["verdict"]) == (1, "convicted")
    assert "acceptance_plain" in checks
    (tmp_path / "none").write_text("hello")
    answer = CliRunner().invoke(app, ["doctor", path, "--counters", str(tmp_path / "none")])
    assert "draft_tokens" in str(answer.exception)


@pytest.mark.skipif("DRAFT_ARENA_LOGS" not in os.environ, reason="DRAFT_ARENA_LOGS names no folder of logs")
def test_real_engines():
    logs = Path(os.environ["DRAFT_ARENA_LOGS"])
    plain = ["--plain", str(logs / "vllm_plain.jsonl")]
    for more in ([], plain):
        assert ask(str(logs / "vllm_ngram4_t1.jsonl"), *more)[2] == "convicted"
        assert ask(str(logs / "vllm_ngram4_greedy.jsonl"), *more)[2] == "acquitted"
