"""Attention without copies of shared heads: the same bits as transformers' own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from arena.models.attention import grouped_attention
from arena.models.lanes import LaneModel


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "queries", "reach"), [(1, 1, 40), (1, 25, 300), (3, 7, 130)])
def test_the_same_bits(dtype: torch.dtype, rows: int, queries: int, reach: int) -> None:
    torch.manual_seed(rows)
    layer = SimpleNamespace(num_key_value_groups=3, is_causal=True)
    query = torch.randn(rows, queries, 9, 64, dtype=dtype).transpose(1, 2)
    key, value = (torch.randn(rows, 3, reach + 9, 64, dtype=dtype)[:, :, :reach] for _ in range(2))
    hidden = torch.rand(rows, 1, queries, reach) < 0.3
    hidden[..., 0] = False
    mask = torch.where(hidden, torch.finfo(dtype).min, 0.0).to(dtype)
    theirs = sdpa_attention_forward(layer, query, key, value, mask, scaling=0.125)[0]
    ours = grouped_attention(layer, query, key, value, mask, scaling=0.125)[0]
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("lanes", [1, 8, 32])
def test_lanes_of_different_lengths_are_their_own_batch_of_one(tiny: Any, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    vocab = tiny.config.vocab_size
    texts = {lane: rng.integers(0, vocab, 3 + 2 * lane) for lane in range(lanes)}
    tree, parents = rng.integers(0, vocab, (lanes, 7)), np.tile([-1, 0, 0, 1, 1, 2, 5], (lanes, 1))
    counts = rng.integers(1, 8, lanes)
    together = LaneModel(tiny, lanes)
    together.prefill(texts)
    found = together.forward(list(texts), tree, parents, counts)
    alone = LaneModel(tiny, 1)
    for lane in range(0, lanes, 5):
        alone.clear()
        alone.prefill({0: texts[lane]})
        one = alone.forward([0], tree[lane : lane + 1], parents[lane : lane + 1], counts[lane : lane + 1])
        n = counts[lane]
        torch.testing.assert_close(found[lane, :n], one[0, :n], rtol=1e-4, atol=1e-5)
