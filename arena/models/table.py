"""Exact synthetic language models: an order-n law over a small vocabulary.

The law after a context is a pure function of the seed and the last ``order``
tokens, so any process can compute it, and a test can enumerate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from arena import seeding
from arena.sampling import warp
from arena.types import Floats, Sampling, Vocabulary

_START = 0xFFFFFFFF
"""Stands for the positions before the first token of a context."""

_HELD = 1 << 16
"""Laws of at most this many logits in all are worked out once and looked up."""


@dataclass(frozen=True, slots=True)
class TableLaw:
    """A random order-n law, reproducible from its numbers.

    Attributes:
        vocab: Vocabulary size V.
        order: How many last tokens the law depends on.
        seed: Which law.
        sharpness: Standard deviation of the logits, nats; 0 is uniform.
        eos: Token that ends a text, or None.
    """

    vocab: int
    order: int = 2
    seed: int = 0
    sharpness: float = 2.0
    eos: int | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens: the integers below ``vocab``."""
        return Vocabulary(self.vocab, f"table-{self.vocab}", () if self.eos is None else (self.eos,))

    def logits(self, contexts: npt.NDArray[np.integer]) -> Floats:
        """Gives the logits after each context.

        Args:
            contexts: int[..., L], the last tokens of each context; the last
                ``order`` count, and -1 stands for "before the text".

        Returns:
            float64[..., V], independent standard normals times ``sharpness``.
        """
        contexts = np.asarray(contexts, dtype=np.int64)
        if (self.vocab + 1) ** self.order * self.vocab > _HELD or contexts.max(initial=-1) >= self.vocab:
            return self._hashed(contexts)
        row = np.zeros(contexts.shape[:-1], dtype=np.int64)
        for back in range(1, min(self.order, contexts.shape[-1]) + 1):
            row += (np.maximum(contexts[..., -back], -1) + 1) * (self.vocab + 1) ** (back - 1)
        return np.asarray(_every(self.vocab, self.order, self.seed, self.sharpness)[row])

    def _hashed(self, contexts: npt.NDArray[np.integer]) -> Floats:
        key = np.broadcast_to(seeding.fold(self.seed, "table", self.order), contexts.shape[:-1])
        for back in range(1, self.order + 1):
            if back <= contexts.shape[-1]:
                word = contexts[..., -back]
            else:
                word = np.full(contexts.shape[:-1], -1)
            key = seeding.fold(key, np.where(word < 0, _START, word))
        tokens = np.arange(self.vocab)
        radius = np.sqrt(-2.0 * np.log1p(-seeding.uniform(key[..., None], tokens, "radius")))
        angle = 2.0 * np.pi * seeding.uniform(key[..., None], tokens, "angle")
        return np.asarray(self.sharpness * radius * np.cos(angle))

    def law(self, context: Sequence[int], sampling: Sampling) -> Floats:
        """Gives the warped law after one context, float64[V]."""
        return warp(
            self.logits(np.asarray(context[-self.order :] if self.order else [], dtype=np.int64)), sampling
        )


@lru_cache(maxsize=64)
def _every(vocab: int, order: int, seed: int, sharpness: float) -> Floats:
    """The logits after every context of ``order`` tokens, -1 among them; float64[(V + 1)^order, V]."""
    return TableLaw(vocab, order, seed, sharpness)._hashed(every_context(vocab, order))


def every_context(vocab: int, order: int) -> npt.NDArray[np.int64]:
    """Gives all contexts of ``order`` tokens, -1 among them, int64[(V + 1)^order, order].

    Row r is r written in base V + 1, the oldest token first, -1 as the digit 0.
    """
    rows = np.arange((vocab + 1) ** order)
    contexts = [rows // (vocab + 1) ** (back - 1) % (vocab + 1) - 1 for back in range(order, 0, -1)]
    return np.stack(contexts, axis=-1) if order else np.empty((1, 0), dtype=np.int64)


def at_overlap(target: Floats, other: Floats, overlap: float) -> Floats:
    """Moves a law towards another until its overlap with where it began is a given number.

    With q = (1 - m) p + m r, the overlap sum min(p, q) is 1 - m TV(p, r), exactly: m is
    chosen to hit the number. Where that needs m > 1, r is replaced by the point mass on
    p's least probable token (and an overlap below that token's probability cannot be had).

    Args:
        target: float64[..., V], p.
        other: float64[..., V], r.
        overlap: In [0, 1].

    Returns:
        float64[..., V], q.
    """
    least = np.zeros_like(target)
    np.put_along_axis(least, target.argmin(axis=-1)[..., None], 1.0, axis=-1)
    apart = 0.5 * np.abs(target - other).sum(axis=-1, keepdims=True)
    far = np.where(apart >= 1.0 - overlap, other, least)
    apart = 0.5 * np.abs(target - far).sum(axis=-1, keepdims=True)
    weight = np.minimum(1.0, np.divide(1.0 - overlap, apart, out=np.zeros_like(apart), where=apart > 0))
    return np.asarray((1.0 - weight) * target + weight * far)
