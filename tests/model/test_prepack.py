"""Prepacked weights: the same numbers but for rounding, and the very same for too few rows."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from arena.generate import Generator
from arena.models.load import auto_dtype
from arena.models.prepack import PrepackedLinear, least_rows, prepack
from arena.types import Sampling
from arena.verifiers.hf import HFVerifier
from drafters.copyist import Copyist


def able(dtype: torch.dtype) -> bool:
    return dtype == torch.float32 or auto_dtype("cpu") == "bfloat16"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 48), (1, 2, 48), (5, 48), (3, 7, 48)])
def test_a_layer_gives_what_it_gave(dtype: torch.dtype, bias: bool, shape: tuple[int, ...]) -> None:
    if not able(dtype):
        pytest.skip("this processor does not multiply bf16")
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(48, 80, bias=bias, dtype=dtype), torch.randn(shape).to(dtype)
    within = 1e-5 if dtype == torch.float32 else 1e-2
    with torch.no_grad():
        plain = layer(x)
        for least in (1, 2, 5):
            packed = PrepackedLinear(layer, least)(x)
            assert packed.dtype == dtype
            torch.testing.assert_close(packed, plain, rtol=within, atol=within)
            assert x.numel() >= least * 48 or torch.equal(packed, plain)


def test_from_how_many_rows_it_pays() -> None:
    assert least_rows(torch.float32, bfloat16=False, avx512=False) == 2
    assert least_rows(torch.float32, bfloat16=True, avx512=True) == 4
    assert least_rows(torch.bfloat16, bfloat16=True, avx512=True) == 1
    assert least_rows(torch.bfloat16, bfloat16=False, avx512=True) is None
    assert least_rows(torch.float16, bfloat16=True, avx512=True) is None


def test_a_model_keeps_its_logits_and_shares_its_weights(tiny: Any) -> None:
    model = copy.deepcopy(tiny)
    assert prepack(model)
    assert sum(isinstance(one, PrepackedLinear) for one in model.modules()) == 4 * 7 + 1
    assert sum(one.numel() for one in model.parameters()) == sum(one.numel() for one in tiny.parameters())
    ids = torch.arange(2, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, tiny(ids).logits, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_prepacked_is_left_alone(tiny: Any) -> None:
    model = copy.deepcopy(tiny).to(torch.float16)
    assert not prepack(model)
    assert not any(isinstance(one, PrepackedLinear) for one in model.modules())


@pytest.mark.parametrize(
    ("dtype", "fast", "capability", "least"),
    [
        (torch.float32, "float32", "AVX2", 2),
        (torch.float32, "bfloat16", "AVX512", 4),
        (torch.bfloat16, "float32", "AVX512", None),
    ],
)
def test_the_processor_is_asked(
    tiny: Any,
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    fast: str,
    capability: str,
    least: int | None,
) -> None:
    monkeypatch.setattr("arena.models.prepack.auto_dtype", lambda device: fast)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    model = copy.deepcopy(tiny).to(dtype)
    assert prepack(model) == (least is not None)
    found = {one._least for one in model.modules() if isinstance(one, PrepackedLinear)}
    assert found == ({least} if least else set())


@pytest.mark.skipif(not able(torch.bfloat16), reason="this processor does not multiply bf16")
def test_a_model_in_bf16_keeps_its_logits(tiny: Any) -> None:
    model = copy.deepcopy(tiny).to(torch.bfloat16)
    plain = copy.deepcopy(model)
    assert prepack(model)
    ids = torch.arange(2, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, plain(ids).logits, rtol=0.05, atol=0.05)


def test_greedy_text_is_that_of_plain_decoding(speaker: str) -> None:
    prompt, n = np.arange(2, 30).tolist(), 40
    texts = [
        Generator(HFVerifier(model=speaker, lanes=1, prepack=way), field, k=k)
        .generate(prompt, n, Sampling(0.0))
        .tokens
        for way, field, k in ((False, {}, 1), (True, {"copy": Copyist(name="copy")}, 4))
    ]
    assert texts[0] == texts[1]
