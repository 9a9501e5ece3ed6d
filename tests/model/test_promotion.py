"""Promotion: a folder that any process loads, with the champion's own logits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from arena import snapshots
from arena.cli import app
from arena.errors import ConfigError, RunError
from arena.promotion import candidates, promote, read_lineage
from arena.registry import load_class
from arena.store import RunDirectory
from tests import runs

CPU = {"dtype": "float32", "device": "cpu"}
TEXT = [3, 14, 15, 9, 26, 53, 58]
LOAD = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
assert not any(name.split(".")[0] in ("arena", "drafters") for name in sys.modules)
with torch.no_grad():
    logits = model(input_ids=torch.tensor([json.loads(sys.argv[2])])).logits[0]
print(json.dumps([logits.tolist(), tokenizer("w3 w4")["input_ids"], bool(tokenizer.chat_template)]))
"""


def body(speaker: str, **changes: Any) -> dict[str, Any]:
    field = {
        "copy": {"kind": "copyist"},
        "cut": {"kind": "steady", "model": "verifier", "drop": [0.25, 0.75], **CPU},
    }
    base: dict[str, Any] = {
        "name": "small",
        "verifier": {"kind": "hf", "model": speaker, **CPU},
        "drafters": field,
        "prompts": {"synthetic": 12, "length": 5},
        "rounds": {"prompts": 4, "max_new_tokens": 10},
        "engine": {"draft_length": 3, "lanes": 4},
        "backend": {"kind": "local"},
    }
    return base | changes


@pytest.fixture(scope="module")
def played(speaker: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("played") / "run"
    runs.run(path, body(speaker))
    return path


def test_the_folder_loads_in_a_plain_process_with_the_champions_logits(
    played: Path, speaker: str, tmp_path: Path
) -> None:
    done = promote(played, tmp_path / "model")
    assert done.drafter == "cut"
    words = [sys.executable, "-c", LOAD, str(done.folder), json.dumps(TEXT)]
    out = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout
    logits, ids, template = json.loads(out)
    champion = load_class("drafters.steady:Steady")(name="cut", model=speaker, drop=(0.25, 0.75), **CPU)
    with torch.no_grad():
        wanted = champion.model(input_ids=torch.tensor([TEXT])).logits[0].numpy()
    # Two processes may sum in another order (threads, kernels): equal to float32 rounding.
    assert np.abs(np.array(logits) - wanted).max() < 1e-5
    assert (ids, template) == ([3, 4], True)
    names = {path.name for path in done.folder.iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
        "README.md",
        "lineage.json",
    } <= names
    assert not [path for path in tmp_path.iterdir() if path != done.folder]  # no leftovers


def test_the_lineage_says_where_it_comes_from_and_how_far_it_went(played: Path, tmp_path: Path) -> None:
    done = promote(played, tmp_path / "model")
    found = read_lineage(done.folder)
    assert found == done.lineage
    assert (found["generation"], found["layers"], found["promoted"]) == (1, 2, "cut")
    assert len(found["parents"]) == 1
    assert found["config_hash"]
    assert found["drift"]["positions"] > 20
    assert 0 < found["drift"]["tv"] < 1
    assert found["drift"]["kl"] > 0
    card = (done.folder / "README.md").read_text()
    assert "The target law has changed" in card
    assert f"{found['drift']['kl']:.3f} nats" in card
    # It can be the next verifier, and its child knows both parents.
    again = tmp_path / "again"
    runs.run(again, body(str(done.folder), seed=3))
    child = promote(again, measure=False).lineage
    assert (child["generation"], child["layers"], child["drift"]) == (2, 1, None)
    assert [parent["generation"] for parent in child["parents"]] == [1, 0]


def test_nothing_is_overwritten(played: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty, and a model is never overwritten"):
        promote(played, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_who_may_be_promoted() -> None:
    champion = {"champion": "copy", "ranking": ["copy", "cut", "far"]}
    assert candidates(champion, "refuse") == ("copy",)
    assert candidates(champion, "best") == ("copy", "cut", "far")


@pytest.mark.parametrize("policy", ["refuse", "best"])
def test_a_champion_that_cannot_verify(speaker: str, tmp_path: Path, policy: str) -> None:
    run = tmp_path / "run"
    runs.run(run, body(speaker, on_unpromotable=policy))
    directory = RunDirectory.open(run)
    champion = directory.champion()
    assert champion
    directory.write_champion({**champion, "champion": "copy", "ranking": ["copy", "cut"]})
    if policy == "refuse":
        with pytest.raises(RunError, match=r"copy \(copyist\) is no language model.*on_unpromotable=best"):
            promote(run)
        assert not (run / "promoted").exists()
        return
    said: list[str] = []
    done = promote(run, note=said.append, measure=False)
    assert done.drafter == "cut"
    assert any("trying the next" in line for line in said)
    assert "the champion was copy" in (done.folder / "README.md").read_text()


def test_a_field_of_tables_and_an_unfinished_run_are_refused(tmp_path: Path) -> None:
    runs.run(tmp_path / "tables")
    with pytest.raises(RunError, match=r"none of .* can verify: nothing can be promoted"):
        promote(tmp_path / "tables")
    RunDirectory.create(tmp_path / "new", "name: x\n", {})
    with pytest.raises(RunError, match=r"has no champion yet \(status running\).*arena resume"):
        promote(tmp_path / "new")


def test_the_command_prints_the_folder(played: Path, tmp_path: Path) -> None:
    words = ["promote", str(played), "--to", str(tmp_path / "m"), "--no-measure", "-f", "json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["folder"] == str(tmp_path / "m")


def test_the_last_snapshot_of_every_learner_is_kept(tmp_path: Path) -> None:
    for number, alive in enumerate(("abc", "abc", "ab", "a", "a")):
        snapshots.write(tmp_path, number, {name: {"x": bytes([number])} for name in alive})
    found = {name: snapshots.last(tmp_path, name) for name in "abcd"}
    kept = {name: folder and (folder / "x").read_bytes()[0] for name, folder in found.items()}
    assert kept == {"a": 4, "b": 2, "c": 1, "d": None}
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == [
        "last",
        "round=003",
        "round=004",
    ]
