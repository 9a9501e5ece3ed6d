"""A tournament over a trace: same files whatever the workers, and the drafters' order is the live one's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena import config
from arena.check import check
from arena.commands.results import overview
from arena.errors import ConfigError
from arena.records import summary
from arena.store import RunDirectory
from arena.traces import load
from tests import runs


def replay(
    path: Path, trace: Path, workers: int = 2, starts: str = "own", more: dict[str, Any] | None = None
) -> RunDirectory:
    values = runs.body() | (more or {})
    values["drafters"] = {**values["drafters"], "learner": {"kind": "sprinter", "order": 2}}
    engine = {"kind": "replay", "trace": str(trace), "workers": workers, "starts": starts}
    values["engine"] = {**values["engine"], **engine}
    runs.run(path, values)
    return RunDirectory.open(path)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose rounds are the trace."""
    path = tmp_path_factory.mktemp("trace") / "run"
    runs.run(path)
    return path


@pytest.fixture(scope="module")
def played(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return replay(tmp_path_factory.mktemp("replayed") / "run", trace)


def test_the_number_of_workers_changes_no_byte(trace: Path, played: RunDirectory, tmp_path: Path) -> None:
    for workers in (1, 3):
        other = replay(tmp_path / str(workers), trace, workers)
        assert runs.files(other.path) == runs.files(played.path)


def test_every_drafter_is_scored_and_one_leaves_a_round(played: RunDirectory) -> None:
    rounds = played.rounds()
    assert [len(one["alive"]) for one in rounds] == [6, 5, 4, 3, 2]
    assert all(one["retired"] for one in rounds)
    assert played.champion()["champion"] == "near"
    assert "learner" in rounds[0]["counts"]
    steps = {name: counts["lane_steps"] for name, counts in rounds[0]["counts"].items()}
    assert steps["near"] < steps["copy"]  # each walks by blocks of its own


def test_show_works_and_claims_no_diversity(played: RunDirectory) -> None:
    found = overview(played)
    assert found["champion"] == "near"
    row = summary(played.rounds()[0])
    assert row["vendi"] != row["vendi"]
    assert row["union_coverage"] != row["union_coverage"]


def test_its_files_stand_the_check(played: RunDirectory) -> None:
    assert check(played.path).problems == []


def test_a_replayed_run_is_a_trace_again(trace: Path, played: RunDirectory) -> None:
    texts = {text.prompt_id: text for text in load(trace).traces}
    for again in load(played.path).traces:
        name = again.prompt_id.rsplit("-r", 1)[0]
        assert again.tokens == texts[name].tokens
        assert again.prompt == texts[name].prompt


def test_recorded_starts_score_all_at_the_same_steps(trace: Path, tmp_path: Path) -> None:
    run = replay(tmp_path / "joint", trace, starts="joint")
    first = run.rounds()[0]
    assert {counts["lane_steps"] for counts in first["counts"].values()} == {first["lane_steps"]}


def test_what_does_not_fit_is_refused(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="greedy"):
        replay(tmp_path / "a", trace, more={"sampling": {"temperature": 0.0}})
    with pytest.raises(ConfigError, match="go together"):
        config.build(runs.body(engine={"kind": "replay"}), "test")
