"""``arena replay`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from arena.cli import app
from arena.commands.fields import parse
from arena.errors import ConfigError
from arena.forecast import forecast
from arena.store import RunDirectory
from arena.traces import Trace, tables
from arena.types import Sampling
from tests import runs

TABLE = "table:vocab=12,order=2,seed=3,sharpness=1.5"


def call(*arguments: str) -> str:
    answer = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "run"
    runs.run(path)
    return path


def test_json_has_the_documented_shape(played: Path) -> None:
    near, sure = f"near={TABLE},mix=0.1,other_seed=5", f"sure={TABLE},argmax=true"
    body = json.loads(
        call("replay", str(played), "--drafter", near, "--drafter", sure, "-k", "1,3", "-f", "json")
    )
    assert [(row["drafter"], row["k"]) for row in body["rows"]] == [
        ("near", 1), ("near", 3), ("sure", 1), ("sure", 3),
    ]  # fmt: skip
    row = body["rows"][1]
    assert {"hit_rate", "position_rates", "acceptance_length", "low", "high", "drafts", "drafted"} <= set(row)
    assert len(row["accepted"]) == 3
    assert row["acceptance_length"] == pytest.approx(1 + sum(row["position_rates"]))
    assert row["low"] < row["acceptance_length"] < row["high"]
    assert row["precision"] is None  # a sampled chain may stop on tokens that the text does not hold
    (pair,) = [pair for pair in body["pairs"] if pair["k"] == 3]
    assert pair["diff"] == pytest.approx(row["acceptance_length"] - body["rows"][3]["acceptance_length"])
    assert pair["low"] < pair["diff"] < pair["high"]
    assert body["starts"] == "own"


def test_costs_name_the_best_k(played: Path) -> None:
    arguments = ["--drafter", f"near={TABLE},mix=0.1", "--target-ms", "10", "--draft-ms", "1"]
    body = json.loads(call("replay", str(played), *arguments, "-f", "json"))
    assert set(body["best_k"]) == {"near T=1"}
    row = body["rows"][0]
    step = 10 + row["offered"] / row["steps"]  # near a budget's end fewer are asked for
    assert row["speedup"] == pytest.approx(10 / step * row["acceptance_length"])
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
    assert body["costs"]["near"] == {
        "fixed": 10, "draft": 1, "verify": 0, "lanes": 1, "source": "given",
    }  # fmt: skip
    assert "speed-up" in call("replay", str(played), *arguments)


def test_what_a_draft_costs_is_measured_where_it_is_not_given(played: Path) -> None:
    arguments = ["--drafter", f"near={TABLE},mix=0.1", "--drafter", "ngram", "--target-ms", "1000"]
    body = json.loads(call("replay", str(played), *arguments, "-f", "json"))
    assert {one["source"] for one in body["costs"].values()} == {"measured"}
    assert all(0 < one["draft"] < 1000 for one in body["costs"].values())


def test_costs_of_a_run_are_its_clock_values(played: Path) -> None:
    name = "near"
    found = forecast(RunDirectory.open(played))
    body = json.loads(
        call("replay", str(played), "--drafter", f"{name}=copyist", "--drafter", "late=copyist",
             "--costs", str(played), "-f", "json")
    )  # fmt: skip
    mine, late = body["costs"][name], body["costs"]["late"]
    assert (mine["fixed"], mine["verify"], mine["lanes"]) == (found.fixed, found.verify, found.lanes)
    assert mine["draft"] == next(one.draft_ms for one in found.drafters if one.drafter == name)
    assert (mine["source"], late["source"]) == ("run", "measured")


def test_contradictory_costs_are_refused(played: Path) -> None:
    one = ("replay", str(played), "--drafter", "ngram")
    assert "add --target-ms" in refused(*one, "--draft-ms", "1")
    assert "leave one out" in refused(*one, "--target-ms", "5", "--costs", str(played))
    assert "more than a whole pass" in refused(*one, "--target-ms", "5", "--verify-ms", "6")


def test_joint_starts_are_the_recorded_ones(played: Path) -> None:
    body = json.loads(call("replay", str(played), "--drafter", "ngram", "--starts", "joint", "-f", "json"))
    every = json.loads(call("replay", str(played), "--drafter", "ngram", "--starts", "every", "-f", "json"))
    assert body["rows"][0]["steps"] < every["rows"][0]["steps"]


def refused(*arguments: str) -> str:
    answer = CliRunner().invoke(app, list(arguments))
    assert isinstance(answer.exception, ConfigError), answer.output
    return str(answer.exception)


def test_errors_say_what_to_do(played: Path, tmp_path: Path) -> None:
    assert "'ngram'" in refused("replay", str(played), "--drafter", "ngrma")
    assert "at least one --drafter" in refused("replay", str(played))
    assert "draft lengths" in refused("replay", str(played), "--drafter", "ngram", "-k", "0")
    assert "no log at" in refused("replay", str(tmp_path / "no"), "--drafter", "ngram")
    assert "max_ngram" in refused("replay", str(played), "--drafter", "ngram:max_gram=2")
    log = tmp_path / "log.parquet"
    tables.write([Trace("a", (1,), (2, 3), (-1.0, -1.0), "raw", Sampling(0.7), max_tokens=2)], log)
    assert "processed_logprobs" in refused("replay", str(log), "--drafter", TABLE)
    assert "recorded" in refused("replay", str(log), "--drafter", "ngram", "--starts", "joint")
    # Point masses need no law: the same text serves them.
    assert json.loads(call("replay", str(log), "--drafter", "ngram", "-f", "json"))["rows"]


def test_an_unlogged_end_is_bracketed(tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    texts = [Trace(name, (1,), (2, 3), (-1.0, -1.0), "raw", finish="stop", max_tokens=9) for name in "ab"]
    tables.write(texts, log)
    body = json.loads(call("replay", str(log), "--drafter", TABLE, "-k", "4", "-f", "json"))
    low, high = body["rows"][0]["bracket"]
    assert low < high


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("copyist", ("copyist", "copyist", {})),
        ("a=hf:drop=[0.4,0.5],argmax=true", ("a", "hf", {"drop": [0.4, 0.5], "argmax": True})),
        ("./mine.py:Mine:x=1", ("./mine.py:Mine:x=1", "./mine.py:Mine", {"x": 1})),
        ("./mine.py:Mine", ("./mine.py:Mine", "./mine.py:Mine", {})),
    ],
)
def test_a_drafter_is_named_on_the_command_line(text: str, want: Any) -> None:
    assert parse(text) == want


def test_an_unknown_benchmark_lists_those_there_are() -> None:
    assert "rank" in refused("bench", "rnk")
    assert "prompts" in refused("bench", "rank", "propmts=2")
