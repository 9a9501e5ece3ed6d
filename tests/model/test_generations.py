"""Generations on a tiny model: each champion becomes the verifier, and nothing is played twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arena import studies
from arena.errors import ConfigError

CPU = {"dtype": "float32", "device": "cpu"}


def values(speaker: str, folder: Path, **changes: Any) -> dict[str, Any]:
    student = {"model": "verifier", "drop": [0.25, 0.5], **CPU}
    base = {
        "name": "tiny",
        "verifier": {"kind": "hf", "model": speaker, **CPU},
        "drafters": {
            "copy": {"kind": "copyist"},
            "five": {"kind": "steady", **student},
            "six": {"kind": "mirror", "trained": 1, "step_size": 0.01, **student},
        },
        "prompts": {"synthetic": 30, "length": 5},
        "rounds": {"prompts": 4, "max_new_tokens": 10},
        "engine": {"draft_length": 3, "lanes": 4, "calibrate": False},
    }
    file = folder / "tiny.yaml"
    file.write_text(json.dumps(base))
    return {
        "name": "generations",
        "study": "generations",
        "base": str(file),
        "generations": 2,
        "held_out": {"prompts": 4, "new_tokens": 12},
        "backend": {"kind": "local"},
    } | changes


def test_two_generations_and_their_measures(speaker: str, tmp_path: Path) -> None:
    study = studies.build(values(speaker, tmp_path), "test")
    out = tmp_path / "out"
    out.mkdir()
    said: list[str] = []
    result = study.play(out, said.append)
    rows = result.rows
    assert [row["generation"] for row in rows] == [0, 1, 2]
    assert rows[0]["layers"] == 4
    assert rows[1]["layers"] == 3
    assert rows[0]["kl"] == 0.0
    assert rows[0]["tv"] == 0.0
    assert rows[0]["perplexity"] == pytest.approx(rows[0]["reference_perplexity"])
    assert rows[1]["kl"] > 0
    assert 0 < rows[1]["tv"] < 1
    assert all(0 < row["distinct_1"] <= row["distinct_3"] <= 1 for row in rows)
    assert all(1 <= row["vendi"] <= 3 for row in rows[:2])
    assert rows[1]["verifier"] == rows[0]["folder"]
    assert rows[0]["promoted"] in ("five", "six")
    card = json.loads((out / "generation=001" / "promoted" / "lineage.json").read_text())
    assert (card["generation"], len(card["parents"])) == (2, 2)
    assert {path.name for path in (out / "plots").iterdir()} == {
        "diversity.png",
        "drift.png",
        "lineage.png",
    }
    # No generation plays on a prompt that it is measured on.
    played, held = (
        set((out / "prompts" / f"{name}.jsonl").read_text().splitlines()) for name in ("played", "held_out")
    )
    assert (len(played), len(held), played & held) == (26, 4, set())
    # Again: nothing is played, promoted or measured twice.
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.suffix not in (".png", "")}
    again = study.play(out, said.append)
    assert again.rows == rows
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_verifier_that_is_no_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="its verifier is no language model"):
        studies.build({"name": "x", "study": "generations", "base": "toy"}, "test")
