"""The two drivers of a rule's choice points: keyed uniforms, and every outcome in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from arena import sampling, seeding
from arena.protocols import Choices
from arena.types import Floats

T = TypeVar("T")
Ordering = Callable[[Sequence[int], int], list[int]]

_BLOCK = 16
"""Depths whose uniforms are computed at a time."""


class KeyedChoices:
    """Chance in a run: uniforms that are pure functions of what they are for.

    The acceptance uniform of a drafter at a depth is the same in its standalone
    score and in the joint commit, so that a roster of one commits its verdict.

    Args:
        key: The run's key with the lane-step folded in.
        names: The drafters' names, in the order of their indices.
    """

    def __init__(self, key: int, names: Sequence[str]) -> None:
        self._key = key
        self._names = np.array([seeding.name_word(name) for name in names], dtype=np.uint64)
        self._tables: dict[tuple[int, str], Floats] = {}

    def accept(self, prob: float, depth: int, drafter: int) -> bool:
        """Says yes with probability ``prob``: u < prob, with u in [0, 1)."""
        return self._uniform(depth, drafter, "accept") < prob

    def draw(self, law: Floats, depth: int) -> int:
        """Draws a token by inversion; one draw a depth."""
        return int(sampling.draw(law, seeding.uniform(self._key, depth, "draw")))

    def order(self, drafters: Sequence[int], depth: int) -> list[int]:
        """Sorts drafters by a uniform of their own: not by name, roster place or token."""
        return sorted(drafters, key=lambda drafter: self._uniform(depth, drafter, "order"))

    def _uniform(self, depth: int, drafter: int, purpose: str) -> float:
        block = depth // _BLOCK
        table = self._tables.get((block, purpose))
        if table is None:
            # One call for all drafters and sixteen depths: a hash a time would cost 20 us each.
            depths = np.arange(block * _BLOCK, (block + 1) * _BLOCK)[:, None]
            table = seeding.uniform(self._key, depths, self._names, purpose)
            self._tables[block, purpose] = table
        return float(table[depth % _BLOCK, drafter])


class _Script:
    """Answers choice points from a list, and lengthens it with the first open branch."""

    def __init__(self, taken: list[tuple[int, Sequence[float]]], ordering: Ordering) -> None:
        self.taken = taken
        self._next = 0
        self._ordering = ordering

    def _choose(self, probs: Sequence[float]) -> int:
        if self._next == len(self.taken):
            self.taken.append((next(i for i, prob in enumerate(probs) if prob > 0), probs))
        self._next += 1
        return self.taken[self._next - 1][0]

    def accept(self, prob: float, depth: int, drafter: int) -> bool:
        return self._choose((1.0 - prob, prob)) == 1

    def draw(self, law: Floats, depth: int) -> int:
        return self._choose((law / law.sum()).tolist())

    def order(self, drafters: Sequence[int], depth: int) -> list[int]:
        return self._ordering(drafters, depth)


class Enumerator:
    """Chance in the audit: runs a rule once for every outcome that has probability.

    Depth-first over prefixes of scripted answers; the rule is run again from its
    start for each leaf, so it needs no support for being enumerated. Orders are not
    chosen at random here: a rule is lossless only if it is so under every order.

    Args:
        ordering: Stands in for ``Choices.order``; as given, when absent.
    """

    def __init__(self, ordering: Ordering | None = None) -> None:
        self._ordering: Ordering = ordering or (lambda drafters, depth: list(drafters))

    def outcomes(self, run: Callable[[Choices], T]) -> Iterator[tuple[float, T]]:
        """Yields (probability, result) for every path through the choice points.

        Args:
            run: A pure function of the choices it is given.
        """
        taken: list[tuple[int, Sequence[float]]] = []
        while True:
            result = run(_Script(taken, self._ordering))
            weight = 1.0
            for answer, probs in taken:
                weight *= probs[answer]
            yield weight, result
            while taken:
                answer, probs = taken.pop()
                later = next((i for i in range(answer + 1, len(probs)) if probs[i] > 0), None)
                if later is not None:
                    taken.append((later, probs))
                    break
            else:
                return
