"""Whatever it is fed, it ends in a result or in an error with a next step: no traceback, no hang.

Seeded by hypothesis' derandomised search, so that a failure is found again; raise
ARENA_FUZZ (inputs a test) to look longer.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from arena import config, roster, studies
from arena.check import check
from arena.cli import app
from arena.commands.results import overview
from arena.engines.seats import VerifierSeat, VerifyLane, VerifyRequest
from arena.errors import ArenaError
from arena.store import RunDirectory
from arena.traces import load as load_trace
from arena.types import Draft, LaneStep, PassResult, Sampling
from arena.validation import validate_draft

from ..runs import body, run

INPUTS = int(os.environ.get("ARENA_FUZZ", "60"))
fuzz = settings(
    max_examples=INPUTS,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)

TEXT = st.text(max_size=40) | st.sampled_from(
    [
        "",
        "null",
        "~",
        "!!python/object:os.system",
        "&a [*a]",
        "{",
        "- -",
        "1e999",
        ".nan",
        "0x10",
        "\0",
        "\ud83d",
    ]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)


def paths(values: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every place in nested sections."""
    found = [at] if at else []
    if isinstance(values, dict):
        for key, inner in values.items():
            found += paths(inner, (*at, str(key)))
    return found


FULL = config.build(body(chaos={"faults": [{"who": "near", "what": "dies"}]}), "full").plain()
PLACES = paths(FULL)


def refused_or(result: Any) -> None:
    """Runs; an error that was raised on purpose must say something."""
    said = None
    try:
        result()
    except ArenaError as error:
        said = str(error)
    assert said is None or len(said) > 15


@fuzz
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_text_as_an_experiment(text: str) -> None:
    refused_or(lambda: roster.resolve(config.build(config.parse(text, "fuzz"), "fuzz")))


@fuzz
@given(st.sampled_from(PLACES), VALUE, st.booleans())
def test_any_value_at_any_place_of_an_experiment(place: tuple[str, ...], value: Any, more: bool) -> None:
    values = copy.deepcopy(FULL)
    section: Any = values
    for key in place[:-1]:
        section = section[key]
    section[place[-1] + ("x" if more else "")] = value
    refused_or(lambda: roster.resolve(config.build(values, "fuzz")))
    refused_or(lambda: studies.build({**values, "study": value}, "fuzz"))


@settings(fuzz, max_examples=INPUTS // 3)
@given(st.sampled_from(PLACES), TEXT, st.text(max_size=12))
def test_any_override(place: tuple[str, ...], value: str, junk: str) -> None:
    for override in (f"{'.'.join(place)}={value}", f"{'.'.join(place)}{junk}={value}", junk):
        refused_or(lambda override=override: roster.resolve(config.load("toy", [override])))


@settings(fuzz, max_examples=INPUTS // 6)
@given(st.lists(st.text(alphabet=st.characters(blacklist_characters="\0"), max_size=20), max_size=3))
def test_any_words_on_the_command_line(words: list[str]) -> None:
    for command in ("validate", "show", "check", "resume", "replay", "doctor", "predict", "promote"):
        result = CliRunner().invoke(app, [command, "--", *words])
        assert result.exception is None or isinstance(result.exception, ArenaError | SystemExit), (
            command,
            words,
            repr(result.exception),
        )


CHAT = {
    "prompt": "a b",
    "choices": [
        {
            "message": {"role": "assistant", "content": "x y"},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "x", "logprob": -0.5, "top_logprobs": []}]},
        }
    ],
    "tokens": [1, 2, 3],
    "token_ids": [4, 5],
    "logprobs": [-1.0, -0.5],
}


@fuzz
@given(st.binary(max_size=300), st.sampled_from([".jsonl", ".parquet", ".json", ".txt"]))
def test_any_bytes_as_a_trace(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    path.write_bytes(data)
    refused_or(lambda: load_trace(path))


@fuzz
@given(
    st.lists(st.dictionaries(st.sampled_from(sorted(CHAT)) | TEXT, VALUE, max_size=5), max_size=3), st.data()
)
def test_any_json_as_a_trace(tmp_path: Path, lines: list[dict[str, Any]], data: st.DataObject) -> None:
    line = copy.deepcopy(CHAT)
    place = data.draw(st.sampled_from(sorted(line)))
    line[place] = data.draw(VALUE)
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in (*lines, line)), encoding="utf-8")
    refused_or(lambda: load_trace(path))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("played") / "run"
    run(path, body(rounds={"prompts": 3, "max_new_tokens": 6}, engine={"calibrate": False}))
    return path


@settings(fuzz, max_examples=INPUTS // 2)
@given(st.data())
def test_any_bytes_in_a_run_directory(played: Path, data: st.DataObject) -> None:
    files = sorted(path for path in played.rglob("*") if path.is_file() and path.name != ".lock")
    path = data.draw(st.sampled_from(files))
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.binary(max_size=30))
    try:
        path.write_bytes(whole[:cut] + junk + whole[cut + data.draw(st.integers(0, 20)) :])
        changed = path.read_bytes() != whole
        report = check(played)
        assert bool(report.problems) == changed
        refused_or(lambda: load_trace(played))
        refused_or(lambda: RunDirectory.open(played).rounds())
        refused_or(lambda: overview(RunDirectory.open(played)))
    finally:
        path.write_bytes(whole)


SEAT = VerifierSeat(
    target="arena.verifiers.table:TableVerifier",
    options={"vocab": 12, "order": 2, "seed": 3, "eos": 0},
    score="speculative",
    commit="recursive",
    rule_options={},
    sampling=Sampling(),
)
DTYPES = st.sampled_from([np.int32, np.int64, np.uint8, np.float32, np.float64, np.bool_, np.object_])


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], likely: Any) -> Any:
    """An array that is nearly always of the right kind."""
    if draw(st.integers(0, 19)) == 0:
        return draw(VALUE)
    sizes = tuple(max(0, n + draw(st.sampled_from([0] * 9 + [1, -1]))) for n in shape)
    flat = draw(st.lists(likely, min_size=1, max_size=4))
    dtype = np.float32 if isinstance(flat[0], float) else np.int64
    if draw(st.integers(0, 19)) == 0:
        dtype = draw(DTYPES)
    with np.errstate(all="ignore"):
        return np.resize(np.array(flat, dtype=np.float64), sizes).astype(dtype)


TOKEN = st.integers(-1, 11) | st.integers(-(1 << 31), (1 << 31) - 1)
PROB = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(width=32)


@settings(fuzz, max_examples=4 * INPUTS)
@given(st.data())
def test_any_answer_of_a_drafter(data: st.DataObject) -> None:
    lanes, k, m = 2, 3, data.draw(st.integers(0, 3))
    sound = data.draw(st.booleans())
    tokens = np.ones((lanes, k), np.int32)
    answer: Any = Draft(
        tokens if sound else data.draw(arrays((lanes, k), TOKEN)),
        np.full(lanes, k, np.int32) if sound else data.draw(arrays((lanes,), st.integers(-2, 5))),
        data.draw(arrays((lanes, k, m), TOKEN)),
        data.draw(arrays((lanes, k, m), PROB)),
    )
    if data.draw(st.integers(0, 30)) == 0:
        answer = data.draw(VALUE)
    reason = validate_draft(answer, [k] * lanes, 12)
    assert reason is None or (len(reason) > 10 and reason.endswith("."))
    request = VerifyRequest(
        key=1,
        lanes=tuple(VerifyLane(i, LaneStep(f"p{i}", 0), (1, 2, 3), 3, k, 9) for i in range(lanes)),
        names=("a",),
    )
    result = SEAT.step(request, answer)
    assert isinstance(result, PassResult)
    assert bool(result.faults) == (reason is not None)
    if not result.faults:
        assert all(0 <= token < 12 for commit in result.commits for token in commit.tokens)


def test_no_yaml_runs_code() -> None:
    with pytest.raises(ArenaError, match="not YAML"):
        config.parse("name: !!python/object/apply:os.system ['true']", "fuzz")
    assert yaml.safe_load is not yaml.load
