"""Breeding: students warmed on their verifier's own text, once, and found by content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from arena import breeding, config, snapshots
from arena.cli import app
from arena.errors import ConfigError, RunError
from arena.store import RunDirectory
from tests import runs

CPU = {"dtype": "float32", "device": "cpu"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFT_ARENA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cohorts"


def body(speaker: str, tokens: int = 300, **changes: Any) -> dict[str, Any]:
    student = {"drop": [0.25, 0.75], **CPU}
    base: dict[str, Any] = {
        "name": "bred",
        "verifier": {"kind": "hf", "model": speaker, **CPU},
        "cohort": {"warm_tokens": tokens},
        "drafters": {
            "two": {**student},
            "four": {**student, "trained": 1},
            "five": {**student},
            "six": {**student, "trained": 1, "step_size": 0.01},
        },
        "prompts": {"synthetic": 40, "length": 5},
        "rounds": {"prompts": 4, "max_new_tokens": 8, "max": 1},
        "engine": {"draft_length": 2, "lanes": 4, "calibrate": False},
        "backend": {"kind": "local"},
    }
    return base | changes


def test_a_cohort_is_bred_once_and_loaded_before_round_one(speaker: str, cache: Path, tmp_path: Path) -> None:
    said: list[str] = []
    bred = breeding.breed(config.build(body(speaker), "test"), said.append)
    assert set(bred.students) == {"three", "four", "six"}  # the sprinter's table too
    assert bred.tokens >= 300
    assert any("decoded" in line for line in said)
    files = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    run = tmp_path / "run"
    runs.run(run, body(speaker))
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()} == files
    learnt = snapshots.read(run, 0)
    assert set(learnt) == set(bred.students)
    assert (
        learnt["six"]["pupil.safetensors"] == (Path(bred.students["six"]) / "pupil.safetensors").read_bytes()
    )
    assert json.loads((run / "bred.json").read_text())["tokens"] == bred.tokens
    # What was bred plays: the same tournament without it goes another way.
    cold = tmp_path / "cold"
    runs.run(cold, body(speaker, tokens=0))
    warm, plain = (RunDirectory.open(path).rounds()[0]["counts"] for path in (run, cold))
    assert warm["six"] != plain["six"]
    assert not (cold / "snapshots" / "round=000").exists()


def test_breeding_goes_on_where_it_was_cut_short(
    speaker: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = config.build(body(speaker, tokens=600), "test")
    whole = breeding.breed(found)
    parts = sorted(Path(whole.folder).iterdir())
    assert len(parts) > 1
    first = {path.name: path.read_bytes() for path in parts}
    parts[-1].unlink()
    for folder in whole.students.values():
        for file in Path(folder).iterdir():
            file.unlink()
        Path(folder).rmdir()
    said: list[str] = []
    again = breeding.breed(found, said.append)
    assert sum("decoded" in line for line in said) == 1  # the part that was missing, no other
    assert {path.name: path.read_bytes() for path in sorted(Path(again.folder).iterdir())} == first
    assert again.students == whole.students
    parts[0].write_bytes(b"damaged")
    with pytest.raises(RunError, match=r"damaged .*delete it and breed again"):
        breeding.breed(found)


def test_other_content_is_other_breeding(speaker: str, tiny: Any, tmp_path: Path) -> None:
    import shutil

    other = tmp_path / "other"
    shutil.copytree(speaker, other)
    assert breeding.content(str(other)) == breeding.content(speaker)  # the same files elsewhere
    config_file = other / "config.json"
    config_file.write_text(config_file.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    assert breeding.content(str(other)) != breeding.content(speaker)


def test_the_command_and_its_refusals(speaker: str, tmp_path: Path) -> None:
    file = tmp_path / "bred.yaml"
    file.write_text(json.dumps(body(speaker, tokens=0)))
    result = CliRunner().invoke(app, ["breed", str(file), "--tokens", "100", "-f", "json"])
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["students"]) == {"three", "four", "six"}
    with pytest.raises(ConfigError, match=r"nothing to breed.*cohort.warm_tokens=2000"):
        breeding.breed(config.build(body(speaker, tokens=0), "test"))
