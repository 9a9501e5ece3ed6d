"""Drafts on their way between processes: few bytes, and the same draft at the other end."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from arena.packing import pack, size_of
from arena.types import Draft


def draft(vocab: int, m: int = 64, **changes: Any) -> Draft:
    rng = np.random.default_rng(vocab)
    support = rng.integers(-1, vocab, (8, 4, m)).astype(np.int32)
    parts: dict[str, Any] = {
        "tokens": support[:, :, 0].copy(),
        "lengths": np.full(8, 4, dtype=np.int32),
        "support": support,
        "probs": rng.random((8, 4, m)).astype(np.float32),
    }
    return Draft(**{**parts, **changes})


@pytest.mark.parametrize("vocab", [2, 49_152, 0xFFFE, 0xFFFF, 151_936, 1 << 24, (1 << 31) - 1])
def test_it_arrives_as_it_was(vocab: int) -> None:
    sent = draft(vocab)
    sent.support[0, 0, :2] = -1, vocab - 1
    got = pickle.loads(pickle.dumps(sent))
    for name in ("tokens", "lengths", "support", "probs"):
        mine, theirs = getattr(sent, name), getattr(got, name)
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_nonsense_travels_too() -> None:
    for support in (
        None,
        np.zeros((8, 4, 3)),
        np.full((8, 4, 3), -7, dtype=np.int32),
        np.zeros((8, 4, 3), np.uint8),
    ):
        got = pickle.loads(pickle.dumps(draft(9, support=support)))
        np.testing.assert_array_equal(got.support, support)


@pytest.mark.parametrize("vocab", [49_152, 151_936])
def test_eight_lanes_of_four_tokens_fit_sixteen_kib(vocab: int) -> None:
    assert draft(vocab).nbytes <= 16 << 10
    assert len(pickle.dumps(draft(vocab), protocol=5)) <= 16 << 10


@pytest.mark.parametrize("vocab", [2, 0xFFFF, 1 << 24, (1 << 31) - 1])
def test_it_is_weighed_as_it_is_packed(vocab: int) -> None:
    for ids in (draft(vocab).support, np.zeros((0, 4, 3), np.int32), np.full((2, 3), -7, np.int32)):
        assert size_of(ids) == pack(ids).nbytes
