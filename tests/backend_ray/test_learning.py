"""Learning is scheduled by the loop, so a learner's results do not depend on the backend."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import runs

CPU = {"dtype": "float32", "device": "cpu"}


def speaker(path: Path) -> str:
    """A random Llama of 4 layers with a tokenizer of 97 words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1").save_pretrained(path)
    return str(path)


@pytest.mark.slow
def test_a_learner_learns_the_same_on_ray(tmp_path: Path) -> None:
    torch.set_num_threads(1)  # as in an actor
    student = {"model": "verifier", "drop": [0.25, 0.75], "trained": 1, "lesson": 12, **CPU}
    values = {
        "name": "small",
        "verifier": {"kind": "hf", "model": speaker(tmp_path / "model"), **CPU},
        "drafters": {
            "copy": {"kind": "copyist"},
            "four": {"kind": "overcorrector", **student},
            "six": {"kind": "mirror", "step_size": 0.01, **student},
        },
        "prompts": {"synthetic": 12, "length": 5},
        "rounds": {"prompts": 4, "max_new_tokens": 16},
        "engine": {"draft_length": 3, "lanes": 4, "learn_every": 2},
    }
    found = {}
    for kind in ("local", "ray"):
        runs.run(tmp_path / kind, {**values, "backend": {"kind": kind, "threads": 1}})
        learnt = sorted((tmp_path / kind).glob("snapshots/round=*/*/*"))
        assert learnt
        found[kind] = runs.files(tmp_path / kind) | {
            str(file.relative_to(tmp_path / kind)): file.read_bytes() for file in learnt
        }
    assert found["local"] == found["ray"]
