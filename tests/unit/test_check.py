"""`arena check`: a sound run agrees with itself, and no flipped byte or forged number goes unseen."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from arena import durable, seals, tables
from arena.check import check
from arena.cli import app
from arena.errors import RunError
from arena.recount import commits_of, verdicts_of
from arena.store import RunDirectory
from arena.tournament import Watcher

from ..runs import body, run

FLIPS = 4
"""Seeded random bytes flipped in each file."""


def values() -> dict[str, Any]:
    field = {
        "learner": {"kind": "sprinter", "order": 2},
        "near": body()["drafters"]["near"],
        "far": body()["drafters"]["far"],
        "copy": {"kind": "copyist"},
    }
    rounds = {"prompts": 4, "max_new_tokens": 10}
    return body(drafters=field, rounds=rounds, engine={"learn_every": 2, "contribution": True})


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check") / "run"
    run(path, values())
    return path


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def problems(path: Path) -> list[str]:
    return [f"{problem.file}: {problem.what}" for problem in check(path).problems]


def test_a_sound_run_agrees_with_itself(sound: Path) -> None:
    report = check(sound)
    assert (report.problems, report.notes, report.status) == ([], [], "complete")
    assert report.counts["rounds"] == 3
    assert report.counts["verdicts"] > 50


def test_a_run_that_goes_on_agrees_with_itself(tmp_path: Path) -> None:
    class Cut(Exception):
        pass

    def stop(record: Any) -> None:
        raise Cut

    with pytest.raises(Cut):
        run(tmp_path / "run", values(), Watcher(closed=stop))
    assert problems(tmp_path / "run") == []
    with open(tmp_path / "run" / "rounds.jsonl", "ab") as file:
        file.write(b'{"alive":["co')
    report = check(tmp_path / "run")
    assert not report.problems
    assert "torn last line" in report.notes[0]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "speculative"},
        {"rules": {"score": "point_mass", "commit": "point_mass"}},
        {"rules": {"score": "block", "commit": "traversal"}},
        {"sampling": {"temperature": 0.0}, "rules": {"score": "greedy"}},
        {"verifier": {"max_context": 12}},
        {"retirement": {"kind": "never"}, "rounds": {"prompts": 4, "max_new_tokens": 10, "max": 2}},
    ],
)
def test_every_rule_and_budget_can_be_made_again(tmp_path: Path, change: dict[str, Any]) -> None:
    change.pop("kind", None)
    run(tmp_path / "run", {**values(), **{k: {**values().get(k, {}), **v} for k, v in change.items()}})
    assert problems(tmp_path / "run") == []


def test_every_flipped_byte_is_found(copy: Path) -> None:
    rng, flipped, missed = random.Random(7), 0, []
    files = [path for path in sorted(copy.rglob("*")) if path.is_file() and path.name != ".lock"]
    kinds = {path.relative_to(copy).parts[0] for path in files}
    assert {"steps", "commits", "contributions", "timing", "snapshots", "seals"} <= kinds
    assert {
        "rounds.jsonl",
        "manifest.json",
        "champion.json",
        "config.resolved.yaml",
        "prompts.parquet",
    } <= kinds
    for path in files:
        whole = path.read_bytes()
        # The last byte too: a newline that is lost makes a whole line a torn one.
        for at in [*rng.sample(range(len(whole)), min(FLIPS, len(whole)) - 1), len(whole) - 1]:
            damaged = bytearray(whole)
            damaged[at] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(damaged))
            flipped += 1
            if not problems(copy):
                missed.append((path.name, at))
        path.write_bytes(whole)
    assert not missed
    assert flipped > 60
    assert not problems(copy)


def test_a_missing_file_is_found(copy: Path) -> None:
    for name in ("steps/round=002.parquet", "timing/round=001.parquet", "champion.json", "prompts.parquet"):
        data = (copy / name).read_bytes()
        (copy / name).unlink()
        assert problems(copy), name
        (copy / name).write_bytes(data)
    (copy / "manifest.json").unlink()
    with pytest.raises(RunError, match="not a run directory"):
        check(copy)


def forge(path: Path, number: int, *, steps: Any = None, commits: Any = None, record: Any = None) -> None:
    """Changes a round and seals everything again, as somebody would who wants to be believed."""
    directory = RunDirectory(path)
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    previous, out = "", []
    for index, line in enumerate(lines, start=1):
        body, digests = seals.bare(line), dict(line["seal"]["files"])
        if index == number:
            if steps is not None:
                rows = steps(verdicts_of(directory.read_table("steps", index).to_pylist()))
                tables.write(tables.steps(rows), directory.table_path("steps", index))
                digests["steps"] = seals.digest(directory.table_path("steps", index).read_bytes())
            if commits is not None:
                rows = commits(commits_of(directory.read_table("commits", index).to_pylist()))
                tables.write(tables.commits(rows), directory.table_path("commits", index))
                digests["commits"] = seals.digest(directory.table_path("commits", index).read_bytes())
            body = body if record is None else record(body)
        sealed = seals.close(body, files=digests, previous=previous)
        previous = seals.own(sealed)
        out.append(seals.canonical(sealed))
    durable.write(path / "rounds.jsonl", "\n".join(out) + "\n")


def first(change: Any) -> Any:
    return lambda rows: [change(rows[0]), *rows[1:]]


def unfinished(change: Any) -> Any:
    return lambda rows: [change(row) if not row.finish else row for row in rows]


def favoured(record: dict[str, Any]) -> dict[str, Any]:
    other = next(name for name in record["alive"] if name != record["retired"]["drafter"])
    return {**record, "retired": {**record["retired"], "drafter": other}}


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ({"steps": first(lambda v: replace(v, n_accepted=0 if v.n_accepted else 1))}, "seed give"),
        ({"steps": first(lambda v: replace(v, n_matched=v.n_matched + 1))}, "agree in"),
        ({"steps": first(lambda v: replace(v, expected_accepted=v.expected_accepted + 0.5))}, "give"),
        ({"steps": lambda rows: rows[1:]}, "sums of the steps table"),
        ({"commits": first(lambda c: replace(c, step=replace(c.step, start=1)))}, "expected start 0"),
        ({"commits": unfinished(lambda c: replace(c, finish="stop"))}, "end token"),
        ({"commits": lambda rows: [*rows[:-1], replace(rows[-1], finish="")]}, "finish"),
        ({"record": lambda r: {**r, "committed": r["committed"] + 1}}, "commits hold"),
        ({"record": favoured}, "by these counts"),
        ({"record": lambda r: {**r, "retired": None}}, "retired nobody"),
        ({"record": lambda r: {**r, "alive": [*r["alive"], "ghost"]}}, "ghost"),
        ({"record": lambda r: {**r, "walkover": True}}, "walkover"),
        ({"record": lambda r: {**r, "field": {**r["field"], "coverage": 0.5}}}, "coverage"),
        ({"record": lambda r: {**r, "counts": "none"}}, "what no round can"),
    ],
)
def test_forged_numbers_are_found_though_they_are_sealed(
    copy: Path, forged: dict[str, Any], said: str
) -> None:
    forge(copy, 2)
    assert problems(copy) == []  # sealing again alone changes nothing
    forge(copy, 2, **forged)
    found = problems(copy)
    assert any(said in problem for problem in found), found


def test_the_champion_is_crowned_again(copy: Path) -> None:
    body = json.loads((copy / "champion.json").read_text())
    body["champion"] = body["ranking"][1]
    (copy / "champion.json").write_text(json.dumps(body, sort_keys=True, indent=2) + "\n")
    assert any("not what the rounds say" in problem for problem in problems(copy))


def test_the_command_exits_with_1_and_names_the_file(copy: Path) -> None:
    good = CliRunner().invoke(app, ["check", str(copy), "-f", "json"])
    assert (good.exit_code, json.loads(good.stdout)["ok"]) == (0, True)
    path = copy / "steps" / "round=001.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    bad = CliRunner().invoke(app, ["check", str(copy)])
    assert bad.exit_code == 1
    assert "steps/round=001.parquet" in bad.stdout
    assert "Traceback" not in bad.output


def test_going_on_from_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    class Cut(Exception):
        pass

    def stop(record: Any) -> None:
        raise Cut

    path = tmp_path / "run"
    with pytest.raises(Cut):
        run(path, values(), Watcher(closed=stop))
    snapshot = next(p for p in (path / "snapshots" / "round=001").rglob("*") if p.is_file())
    whole = snapshot.read_bytes()
    snapshot.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RunError, match="missing or damaged"):
        run(path, values())
    snapshot.write_bytes(whole)
    assert run(path, values()) is not None


def test_a_seal_that_lists_no_files_is_damage_not_a_traceback(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(sound, path)
    seals.place(path, 1).write_text(seals.canonical(seals.close({"other": {}})) + "\n")
    with pytest.raises(RunError, match=r"is damaged: it lists no files"):
        RunDirectory.open(path).check_snapshots(1)
    assert any("it lists no files" in str(problem) for problem in check(path).problems)
