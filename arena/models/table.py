"""Exact synthetic language models: an order-n law over a small vocabulary.

The law after a context is a pure function of the seed and the last ``order``
tokens, so any process can compute it, and a test can enumerate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arena import seeding
from arena.sampling import warp
from arena.types import Floats, Sampling, Vocabulary

_START = 0xFFFFFFFF
"""Stands for the positions before the first token of a context."""


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
