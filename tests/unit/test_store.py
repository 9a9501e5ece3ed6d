from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena import durable, frames
from arena.errors import ConfigError, RunError
from arena.store import RunDirectory

Maker = Callable[..., Any]
NAMES = ("one", "two", "six")
TABLES = ("steps", "commits", "timing")


def files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
    }


def fresh(path: Path, **manifest: Any) -> RunDirectory:
    return RunDirectory.create(path, "seed: 0\n", {"experiment": "made", "seed": 0, **manifest})


def append(run: RunDirectory, made: Any) -> None:
    run.append_round(made.record(), made.verdicts, made.commits, [{"who": "verifier", "seconds": 0.25}])


def test_two_runs_leave_the_same_bytes_whatever_the_order(made_round: Maker, tmp_path: Path) -> None:
    runs = [fresh(tmp_path / name) for name in ("a", "b")]
    for number in (1, 2):
        made = made_round(number, NAMES)
        append(runs[0], made)
        for part in (made.verdicts, made.commits, made.steps):
            random.Random(number).shuffle(part)
        append(runs[1], made)
    assert files(runs[0].path) == files(runs[1].path)
    assert sorted(files(runs[0].path)) == sorted(
        [f"{kind}/round=00{n}.parquet" for kind in TABLES for n in (1, 2)]
        + [f"seals/round=00{n}.json" for n in (1, 2)]
        + ["config.resolved.yaml", "manifest.json", "rounds.jsonl"]
    )


def test_other_contents_leave_other_bytes(made_round: Maker, tmp_path: Path) -> None:  # negative control
    runs = [fresh(tmp_path / name) for name in ("a", "b")]
    for run, seed in zip(runs, (0, 1), strict=True):
        append(run, made_round(1, NAMES, seed))
    first, second = (files(run.path) for run in runs)
    assert {name for name in first if first[name] != second[name]} == {
        "steps/round=001.parquet",
        "commits/round=001.parquet",
        "rounds.jsonl",
    }


def test_frames_hold_what_was_stored(made_round: Maker, tmp_path: Path) -> None:
    run = fresh(tmp_path / "run")
    rounds = [made_round(1, NAMES), made_round(2, ("one", "six"))]
    for made in rounds:
        append(run, made)
    loaded = frames.load(run.path)
    assert loaded.rounds["retired"].tolist() == ["two", "one"]
    assert loaded.standings.groupby("round").size().tolist() == [3, 2]
    assert list(loaded.steps.columns) == [
        "round", "prompt_id", "start", "drafter", "n_offered", "n_drafted", "n_accepted", "n_matched",
        "expected_accepted", "tokens", "target_prob", "draft_prob",
    ]  # fmt: skip
    assert len(loaded.steps) == sum(len(made.verdicts) for made in rounds)
    keys = loaded.steps[["round", "prompt_id", "start", "drafter"]].apply(tuple, axis=1).tolist()
    assert keys == sorted(keys)
    verdict = min(rounds[0].verdicts, key=lambda v: (v.step.prompt_id, v.step.start, v.drafter))
    row = loaded.steps.iloc[0]
    assert tuple(row["target_prob"]) == verdict.target_probs
    assert row["expected_accepted"] == verdict.expected_accepted
    assert loaded.commits["finish"].value_counts()["length"] == 12
    assert sum(map(len, loaded.commits["tokens"])) == loaded.rounds["committed"].sum()
    assert loaded.timing["seconds"].tolist() == [0.25, 0.25]
    summed = loaded.steps.groupby(["round", "drafter"])["n_accepted"].sum()
    for row in loaded.standings.itertuples():
        assert summed[row.round, row.drafter] == row.accepted


def test_a_run_without_rounds_loads_too(tmp_path: Path) -> None:
    loaded = frames.load(fresh(tmp_path / "run").path)
    assert len(loaded.rounds) == len(loaded.steps) == len(loaded.timing) == 0
    assert "drafter" in loaded.steps.columns


def test_a_torn_last_line_is_ignored_and_cut_off(made_round: Maker, tmp_path: Path) -> None:
    run, (first, second) = fresh(tmp_path / "run"), (made_round(1, NAMES), made_round(2, NAMES[1:]))
    append(run, first)
    whole_first = (run.path / "rounds.jsonl").read_bytes()
    append(run, second)
    whole = files(run.path)
    line = whole["rounds.jsonl"][len(whole_first) :]
    for kept in (0, 1, len(line) // 2, len(line) - 1):
        (run.path / "rounds.jsonl").write_bytes(whole_first + line[:kept])
        again = RunDirectory.open(run.path)
        assert [record["round"] for record in again.rounds()] == [1]
        append(again, second)
        assert files(run.path) == whole


def test_tables_without_their_line_are_leftovers(made_round: Maker, tmp_path: Path) -> None:
    run = fresh(tmp_path / "run")
    for kind in TABLES:
        run.table_path(kind, 1).write_bytes(b"half a file")  # type: ignore[arg-type]
    assert len(frames.load(run.path).steps) == 0
    append(run, made_round(1, NAMES))
    assert len(frames.load(run.path).steps) > 0


def test_a_damaged_line_in_the_middle_is_named(made_round: Maker, tmp_path: Path) -> None:
    run = fresh(tmp_path / "run")
    append(run, made_round(1, NAMES))
    append(run, made_round(2, NAMES[1:]))
    lines = (run.path / "rounds.jsonl").read_bytes().split(b"\n")
    for wrong in (b"{", b"[]", lines[1]):
        (run.path / "rounds.jsonl").write_bytes(b"\n".join([wrong, *lines[1:]]))
        with pytest.raises(RunError, match="line 1 is damaged"):
            run.rounds()


def test_nothing_is_played_twice(made_round: Maker, tmp_path: Path) -> None:
    run = fresh(tmp_path / "run")
    with pytest.raises(RunError, match="does not follow"):
        append(run, made_round(2, NAMES))
    append(run, made_round(1, NAMES))
    before = files(run.path)
    with pytest.raises(RunError, match="nothing is played twice"):
        append(run, made_round(1, NAMES))
    assert files(run.path) == before


@pytest.mark.parametrize("fails_at", range(9))
def test_a_full_disk_at_any_moment_leaves_a_run_that_can_go_on(
    made_round: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    run, made = fresh(tmp_path / "run"), made_round(1, NAMES)
    calls = iter(range(100))
    real = durable.os.fsync

    def full(handle: int) -> None:
        if next(calls) == fails_at:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(RunError, match=r"No space left.*arena resume"):
        append(run, made)
    monkeypatch.undo()
    assert run.rounds() == []
    assert not list(run.path.rglob("*.tmp"))
    append(run, made)
    clean = fresh(tmp_path / "clean")
    append(clean, made)
    assert files(run.path) == files(clean.path)


def test_a_directory_is_never_reused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    fresh(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"never reused.*--out"):
        fresh(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("x" * 4096), tmp_path / "a\0b"):
        with pytest.raises(ConfigError, match="cannot make a run directory"):
            fresh(bad)


def test_the_manifest_changes_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fresh(tmp_path / "run")
    assert run.manifest["status"] == "running"
    run.update_manifest(status="complete", costs={"fixed": 1.5})
    assert RunDirectory.open(run.path).manifest["costs"] == {"fixed": 1.5}
    assert run.manifest["experiment"] == "made"
    with pytest.raises(RunError, match="Did you mean 'complete'"):
        run.update_manifest(status="completed")

    def fail(*_: object) -> None:
        raise OSError("cut")

    monkeypatch.setattr(durable.os, "replace", fail)
    with pytest.raises(OSError, match="cut"):
        run.update_manifest(status="failed")
    assert run.manifest["status"] == "complete"


def test_what_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        RunDirectory.open(tmp_path)
    for content in ("{", "[]", "\xff"):
        (tmp_path / "manifest.json").write_bytes(content.encode("latin-1"))
        with pytest.raises(RunError, match=r"cannot be read|damaged"):
            RunDirectory.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema_version": 99}')
    with pytest.raises(RunError, match="schema version 99"):
        RunDirectory.open(tmp_path)


def test_a_damaged_table_is_named(made_round: Maker, tmp_path: Path) -> None:
    run = fresh(tmp_path / "run")
    append(run, made_round(1, NAMES))
    run.table_path("steps", 1).write_bytes(b"PAR1 no")
    with pytest.raises(RunError, match=r"steps/round=001\.parquet"):
        frames.load(run.path)


def test_the_champion_is_kept(tmp_path: Path) -> None:
    run = fresh(tmp_path / "run")
    assert run.champion() is None
    run.write_champion({"champion": "six"})
    assert run.champion() == {"champion": "six"}


def test_storing_needs_none_of_the_heavy_packages() -> None:
    heavy = {"ray", "torch", "transformers", "pandas", "matplotlib", "pyarrow"}
    modules = "arena.store, arena.records, arena.survival, arena.provenance, arena.commands.results"
    code = f"import sys, {modules}; print(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
