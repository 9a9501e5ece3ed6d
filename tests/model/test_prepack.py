"""Prepacked weights: the same numbers but for rounding, and the very same for one row."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from arena.generate import Generator
from arena.models.prepack import PrepackedLinear, prepack
from arena.types import Sampling
from arena.verifiers.hf import HFVerifier
from drafters.copyist import Copyist


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 48), (1, 2, 48), (5, 48), (3, 7, 48)])
def test_a_layer_gives_what_it_gave(bias: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(48, 80, bias=bias), torch.randn(shape)
    with torch.no_grad():
        plain, packed = layer(x), PrepackedLinear(layer)(x)
    torch.testing.assert_close(packed, plain, rtol=1e-5, atol=1e-5)
    assert x.numel() > 48 or torch.equal(packed, plain)


def test_a_model_keeps_its_logits_and_shares_its_weights(tiny: Any) -> None:
    model = copy.deepcopy(tiny)
    assert prepack(model)
    assert sum(isinstance(one, PrepackedLinear) for one in model.modules()) == 4 * 7 + 1
    assert sum(one.numel() for one in model.parameters()) == sum(one.numel() for one in tiny.parameters())
    ids = torch.arange(2, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, tiny(ids).logits, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_prepacked_is_left_alone(tiny: Any) -> None:
    model = copy.deepcopy(tiny).to(torch.bfloat16)
    assert not prepack(model)
    assert not any(isinstance(one, PrepackedLinear) for one in model.modules())


def test_greedy_text_is_that_of_plain_decoding(speaker: str) -> None:
    prompt, n = np.arange(2, 30).tolist(), 40
    texts = [
        Generator(HFVerifier(model=speaker, lanes=1, prepack=way), field, k=k)
        .generate(prompt, n, Sampling(0.0))
        .tokens
        for way, field, k in ((False, {}, 1), (True, {"copy": Copyist(name="copy")}, 4))
    ]
    assert texts[0] == texts[1]
