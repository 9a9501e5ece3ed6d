"""Prompts: the loader's layouts and refusals, ids, random prompts, and the dealing of rounds."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arena.errors import ConfigError, PromptError
from arena.prompts import load, round_slice, synthetic

SPEC_BENCH = os.environ.get("DRAFT_ARENA_SPEC_BENCH", "")
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, *lines: object, name: str = "p.jsonl") -> Path:
    """Writes a prompt file; bytes and text as they are, other values as JSON."""
    path = folder / name
    parts = [
        line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()
        for line in lines
    ]
    path.write_bytes(b"\n".join(parts) + b"\n")
    return path


# --- layouts ---


def test_all_layouts(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"question_id": 81, "category": "writing", "turns": ["First.", "Second."]},
        {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Hi", "name": "x"}]},
        "",
        {"category": "plain", "prompt": " spaced "},
        {"text": "Once upon", "category": None},
        {"tokens": [0, 5, 7]},
    )
    loaded = load(path)
    assert [(p.category, p.messages, p.text, p.tokens) for p in loaded.prompts] == [
        ("writing", (("user", "First."),), "", ()),
        ("other", (("system", ""), ("user", "Hi")), "", ()),
        ("plain", (("user", " spaced "),), "", ()),
        ("other", (), "Once upon", ()),
        ("other", (), "", (0, 5, 7)),
    ]
    assert loaded.skipped == ()
    assert loaded.origins == tuple(f"{path}, line {n}" for n in (1, 2, 4, 5, 6))
    assert load(str(path)) == loaded


def test_text_file(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbfOne\r\n\r\n   \nTwo \xc3\xa9", name="p.TXT")
    loaded = load(path)
    assert [p.messages for p in loaded.prompts] == [(("user", "One"),), (("user", "Two é"),)]
    assert [where.rsplit(" ", 1)[1] for where in loaded.origins] == ["1", "4"]


def test_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    plain = load(write(tmp_path, b'{"prompt": "a"}\n{"prompt": "b"}'))
    marked = load(write(tmp_path, b'\xef\xbb\xbf{"prompt": "a"}\r\n{"prompt": "b"}\r'))
    assert marked.prompts == plain.prompts


def test_line_separators_inside_a_string_do_not_split_it(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": "a\u2028b\x85c"}, ensure_ascii=False), encoding="utf-8")
    assert load(path).prompts[0].messages == (("user", "a\u2028b\x85c"),)


def test_limit_stops_reading(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "a"}, {"prompt": "b"}, b"\xff broken")
    assert len(load(path, limit=2).prompts) == 2
    with pytest.raises(PromptError):
        load(path, limit=3)


def test_records_are_frozen_and_picklable(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, {"prompt": "a"}))
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.prompts[0].id = "x"  # type: ignore[misc]


# --- ids ---


def test_id_is_a_golden_content_hash(tmp_path: Path) -> None:
    """Ids are keys of stored results: a change of the hash must be seen."""
    lines = [{"prompt": "Hello"}, {"text": "Hello"}, {"tokens": [1, 2]}]
    ids = [p.id for p in load(write(tmp_path, *lines)).prompts]
    assert ids == ["2b7d02fb6a94c2ae", "8426a27f1d6d9591", "6be14b82fb379fe4"]
    assert all(len(i) == 16 and int(i, 16) >= 0 for i in ids)


def test_layouts_of_one_conversation_have_one_id(tmp_path: Path) -> None:
    prompts = load(
        write(
            tmp_path,
            {"prompt": "x"},
            {"turns": ["x", "y"]},
            {"messages": [{"content": "x", "role": "user"}]},
            {"text": "x"},
        )
    ).prompts
    base = prompts[0].id
    assert [p.id for p in prompts[:3]] == [base, f"{base}-1", f"{base}-2"]
    assert not prompts[3].id.startswith(base)


def test_shuffling_a_file_keeps_every_prompt(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i % 7}", "category": f"c{i % 3}"} for i in range(40)]
    before = load(write(tmp_path, *rows)).prompts
    random.Random(1).shuffle(rows)
    after = load(write(tmp_path, *rows, name="q.jsonl")).prompts
    assert before != after
    assert set(before) == set(after)
    assert round_slice(before, 3, 12, 5) == round_slice(after, 3, 12, 5)


# --- refusals ---

BAD = [
    (b"\xff\xfe{", "utf-8"),
    (b'{"prompt": "a"', "delimiter at column 15"),
    (b"[]", "expected an object"),
    (b'"prompt"', "expected an object"),
    (b"NaN", "unknown layout"),
    (b"null", "unknown layout"),
    (b"{}", "exactly one of turns, messages, prompt, text, tokens"),
    (b'{"question": "a"}', "'question'"),
    (b'{"prompt": "a", "text": "b"}', "exactly one"),
    (b'{"prompt": ""}', "not empty"),
    (b'{"prompt": " \\n\\t"}', "not empty"),
    (b'{"prompt": 5}', "5"),
    (b'{"prompt": NaN}', "nan"),
    (b'{"prompt": ["a"]}', "expected a text"),
    (b'{"prompt": "\\ud800"}', "surrogate"),
    (b'{"prompt": "a", "category": 3}', "category is 3"),
    (b'{"prompt": "a", "category": "\\udfff"}', "category"),
    (b'{"text": null}', "text is None"),
    (b'{"turns": []}', "turns is []"),
    (b'{"turns": "a"}', "expected a list"),
    (b'{"turns": [""]}', "turns[0]"),
    (b'{"turns": [{"a": 1}]}', "turns[0]"),
    (b'{"messages": []}', "messages is []"),
    (b'{"messages": ["a"]}', "role and content"),
    (b'{"messages": [{"role": "user"}]}', "role and content"),
    (b'{"messages": [{"role": "human", "content": "a"}]}', "system, developer, user, assistant, tool"),
    (b'{"messages": [{"role": ["user"], "content": "a"}]}', "role"),
    (b'{"messages": [{"role": "user", "content": null}]}', "content is None"),
    (b'{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": " "}]}', "empty prompt"),
    (b'{"tokens": []}', "tokens is []"),
    (b'{"tokens": {"0": 1}}', "expected a list"),
    (b'{"tokens": [1, -1]}', "-1"),
    (b'{"tokens": [true]}', "True"),
    (b'{"tokens": [1.0]}', "1.0"),
    (b'{"tokens": [1e999]}', "inf"),
    (b'{"tokens": ["1"]}', "'1'"),
    (b'{"tokens": [2147483648]}', "2147483647"),
    (b'{"tokens": [' + b"9" * 5000 + b"]}", "4300"),
    (b'{"prompt": ' + b"[" * 100_000, "expected a JSON object"),
    (b'{"tokens": [' + b"[" * 300 + b"]" * 300 + b"]}", "token id"),
]


@pytest.mark.parametrize(("line", "words"), BAD, ids=[bad[0][:40].decode("latin1") for bad in BAD])
def test_bad_line(tmp_path: Path, line: bytes, words: str) -> None:
    path = write(tmp_path, {"prompt": "good"}, line, {"prompt": "better"})
    with pytest.raises(PromptError) as refusal:
        load(path)
    message = str(refusal.value)
    assert message.startswith(f"{path}, line 2: ")
    assert words in message
    assert "expected" in message
    assert "on_error=skip" in message
    assert len(message) < len(str(path)) + 600  # however much garbage the line held
    message.encode()  # can be printed

    loaded = load(path, on_error="skip")
    assert [p.messages[0][1] for p in loaded.prompts] == ["good", "better"]
    (skipped,) = loaded.skipped
    assert skipped.startswith(f"{path}, line 2: ")
    assert words in skipped
    assert [where.rsplit(" ", 1)[1] for where in loaded.origins] == ["1", "3"]


@pytest.mark.parametrize("line", [b"\xff", b"\xc2\xa0"])
def test_bad_line_of_text(tmp_path: Path, line: bytes) -> None:
    path = write(tmp_path, b"good", line, name="p.txt")
    with pytest.raises(PromptError, match="line 2"):
        load(path)
    assert len(load(path, on_error="skip").skipped) == 1


def test_file_without_usable_prompts(tmp_path: Path) -> None:
    for name in ("p.jsonl", "p.txt"):
        with pytest.raises(PromptError, match="empty file"):
            load(write(tmp_path, b"\n \n", name=name), on_error="skip")
    with pytest.raises(PromptError, match=r"2 bad lines, the first: .*line 1"):
        load(write(tmp_path, b"{}", b"{}"), on_error="skip")


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for path in (tmp_path / "absent.jsonl", tmp_path / "folder.jsonl", "nul\0.txt"):
        with pytest.raises(PromptError, match="expected a readable file"):
            load(path)


@pytest.mark.parametrize("path", ["mixd", "p.csv", "sub/mixed", "", ".", "/", "mixed\0"])
def test_unknown_set(path: str) -> None:
    with pytest.raises(PromptError, match=r"unknown prompt set .*Known: .*mixed") as refusal:
        load(path)
    assert refusal.value.exit_code == 2
    if path == "mixd":
        assert "Did you mean 'mixed'?" in str(refusal.value)


def test_bad_arguments() -> None:
    with pytest.raises(ConfigError, match="refuse or skip"):
        load("mixed", on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="limit"):
        load("mixed", limit=0)


# --- fuzz: a result or a PromptError, never anything else ---

KEYS = st.sampled_from(["turns", "messages", "prompt", "text", "tokens", "category", "role", "content"])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["user", "\ud800"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def check_never_a_traceback(path: Path) -> None:
    for on_error in ("refuse", "skip"):
        try:
            loaded = load(path, on_error=on_error)
        except PromptError:
            continue
        assert loaded.prompts
        assert len(loaded.origins) == len(loaded.prompts)
        assert len({p.id for p in loaded.prompts}) == len(loaded.prompts)
        for p in loaded.prompts:
            assert bool(p.messages) + bool(p.text) + bool(p.tokens) == 1


@FUZZ
@given(data=st.binary(max_size=200), name=st.sampled_from(["p.jsonl", "p.txt"]))
def test_fuzz_bytes(tmp_path: Path, data: bytes, name: str) -> None:
    check_never_a_traceback(write(tmp_path, data, name=name))


@FUZZ
@given(lines=st.lists(st.dictionaries(KEYS, VALUES, max_size=2) | VALUES, max_size=4))
def test_fuzz_json(tmp_path: Path, lines: list[object]) -> None:
    check_never_a_traceback(write(tmp_path, *map(json.dumps, lines)))


# --- sets ---


def test_packaged_set() -> None:
    loaded = load("mixed")
    counts = Counter(p.category for p in loaded.prompts)
    assert counts == dict.fromkeys(["chat", "code", "story", "summary", "maths", "translation"], 12)
    assert loaded.origins[0] == "mixed.jsonl, line 1"
    assert all("-" not in p.id for p in loaded.prompts)
    for p in loaded.prompts:
        ((role, content),) = p.messages
        assert role == "user"
        assert content == content.strip()
        assert 8 <= len(content.split()) <= 120
    # Any first few lines are a mixture.
    assert len({p.category for p in load("mixed", limit=6).prompts}) == 6


@pytest.mark.skipif(not os.path.isfile(SPEC_BENCH), reason="DRAFT_ARENA_SPEC_BENCH names no file")
def test_spec_bench() -> None:
    loaded = load(SPEC_BENCH)
    rows = [json.loads(line) for line in Path(SPEC_BENCH).read_text(encoding="utf-8").splitlines()]
    assert len(loaded.prompts) == len(rows) == 480
    for prompt, row in zip(loaded.prompts, rows, strict=True):
        assert prompt.messages == (("user", row["turns"][0]),)
        assert prompt.category == row["category"]
    assert len({p.id for p in loaded.prompts}) == 480


# --- random prompts ---


def test_synthetic_is_keyed_by_index_and_position() -> None:
    few, many = synthetic(3, 4, 50, 7), synthetic(9, 6, 50, 7)
    assert all(p.tokens == q.tokens[:4] for p, q in zip(few, many, strict=False))
    assert synthetic(3, 4, 50, 7) == few
    assert synthetic(3, 4, 50, 8) != few
    assert {p.category for p in many} == {"synthetic"}
    assert all(not p.messages and not p.text for p in many)


def test_synthetic_fills_the_vocabulary_and_numbers_equals() -> None:
    prompts = synthetic(100, 1, 3, 0)
    assert {p.tokens for p in prompts} == {(0,), (1,), (2,)}
    assert len({p.id for p in prompts}) == 100
    assert {p.tokens for p in synthetic(2, 3, 1, 0)} == {(0, 0, 0)}


def test_synthetic_ids_match_loaded_ones(tmp_path: Path) -> None:
    prompts = synthetic(5, 3, 9, 1)
    again = load(write(tmp_path, *[{"tokens": p.tokens, "category": p.category} for p in prompts]))
    assert again.prompts == prompts


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 1)])
def test_synthetic_refuses(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        synthetic(*numbers, 0)


# --- rounds ---


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 12), data=st.data(), key=st.integers(0, 2**64 - 1))
def test_rounds_are_fair_and_pure(n: int, data: st.DataObject, key: int) -> None:
    per_round = data.draw(st.integers(1, n))
    prompts = synthetic(n, 8, 1000, 3)
    shuffled = data.draw(st.permutations(prompts))
    rounds = [round_slice(prompts, r, per_round, key) for r in range(2 * n)]
    for r, played in enumerate(rounds):
        assert len({p.id for p in played}) == per_round
        assert round_slice(shuffled, r, per_round, key) == played
    # Every pass over the set plays every prompt once, wherever the rounds cut it.
    row = [p.id for played in rounds for p in played]
    for begin in range(0, len(row) - n + 1, n):
        assert len(set(row[begin : begin + n])) == n


def test_passes_have_fresh_orders_and_depend_on_the_key() -> None:
    prompts = synthetic(20, 4, 1000, 3)
    first, second = (round_slice(prompts, r, 20, 1) for r in (0, 1))
    assert first != second
    assert set(first) == set(second)
    assert round_slice(prompts, 0, 20, 2) != first
    # The first pass is one order, whatever the length of a round.
    assert round_slice(prompts, 0, 7, 1) + round_slice(prompts, 1, 7, 1) == first[:14]


def test_first_prompt_is_uniform() -> None:
    prompts = synthetic(5, 4, 1000, 3)
    # Round 1 of 3 out of 5 spans two passes: its last prompt is the head of the second.
    counts = Counter(round_slice(prompts, 1, 3, key)[-1].id for key in range(1000))
    assert len(counts) == 5
    assert max(abs(count - 200) for count in counts.values()) < 60  # 4.7 standard deviations


def test_far_rounds_are_cheap() -> None:
    prompts = synthetic(50, 4, 1000, 3)
    assert len(set(round_slice(prompts, 10**9, 33, 1))) == 33


def test_round_slice_refuses() -> None:
    prompts = synthetic(4, 4, 1000, 3)
    for round_index, per_round in ((0, 5), (0, 0), (-1, 2)):
        with pytest.raises(ConfigError, match="4 loaded; expected a round from 0 and 1 to 4"):
            round_slice(prompts, round_index, per_round, 0)
    with pytest.raises(ConfigError):
        round_slice((), 0, 1, 0)
    with pytest.raises(ConfigError, match="same id"):
        round_slice((*prompts, prompts[0]), 0, 2, 0)
