"""The audit over torch: a tiny random llama passes, and uniforms stuck at 0 do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arena import model_audit, seeding
from arena.models.lanes import LaneModel
from arena.types import Vocabulary
from arena.verifiers.hf import HFVerifier

HERE = f"{Path(__file__)}:Tiny"
OPTIONS = {"samples": 100, "lanes": 50}


class Tiny(HFVerifier):
    """A random llama without a tokenizer: bytes are tokens."""

    def __init__(self) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
            initializer_range=0.4, attn_implementation="sdpa",
        )  # fmt: skip
        net = LlamaForCausalLM(config).eval().requires_grad_(False)
        self._vocabulary = Vocabulary(97, "tiny")
        self._lanes = LaneModel(net, 50)
        self._trees = {}

    def encode(self, messages: Any, text: str) -> list[int]:
        joined = "\n".join(content for _, content in messages) + text
        return [byte % 97 for byte in joined.encode()][:24]


def test_a_sound_build_passes() -> None:
    found = model_audit.audit_model(HERE, {}, **OPTIONS)  # type: ignore[arg-type]
    assert found.passed
    assert (found.dtype, found.tolerance) == ("float32", 1e-3)
    assert found.rules[0].acceptance_length > 1.3


def test_uniforms_stuck_at_zero_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding, "uniform", lambda *words: np.zeros(np.shape(seeding.fold(*words))))
    found = model_audit.audit_model(HERE, {}, **OPTIONS)  # type: ignore[arg-type]
    assert not found.passed
    assert found.rules[0].first.p < 1e-9


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_embedded_model_passes(smollm2: Any) -> None:
    found = model_audit.audit_model(
        "arena.verifiers.hf:HFVerifier", {"model": "smollm2-135m", "lanes": 32}, samples=200
    )
    assert found.passed
