"""Laws of table models as arrays: what a simulation looks up instead of working out.

A law after the same last tokens is the same in every lane-step of every replicate, so
each is worked out once, by the very code that a run calls, and kept with whatever else
is derived from it: running sums to draw by, and the order in which a run adds it up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.errors import ConfigError
from arena.models.table import TableLaw, every_context
from arena.sampling import normalise, warp
from arena.types import Floats, Sampling

MOST_LOGITS = 1 << 24
"""Largest table that is held, in numbers."""

Places = npt.NDArray[np.int64]


class TargetTable:
    """The verifier's law after every context.

    Attributes:
        laws: float64[C, V].
        total: float64[C], their sums as a residual takes them.
        span: C: a state modulo it is a row.
    """

    def __init__(self, law: TableLaw, sampling: Sampling) -> None:
        self.order = law.order
        self.span = _span(law.vocab, law.order, "the verifier")
        self.laws: Floats = warp(law.logits(every_context(law.vocab, law.order)), sampling)
        self.total: Floats = self.laws.sum(axis=-1)
        self._draws = Sums(self.laws)

    def draw(self, rows: Places, uniforms: Floats) -> Places:
        """Draws a token from each row's law, as :func:`arena.sampling.draw` does."""
        return self._draws.draw(rows, uniforms)


class DraftTables:
    """The laws that table drafters send, stacked: one row a drafter and context.

    Attributes:
        point: bool[D], whether a drafter sends point masses alone.
        reach: int[D], last tokens that a law depends on.
        span: int64[D], rows of a drafter.
        offset: int64[D], its first row: in ``token`` for point masses, else in ``law``.
        token: int64[P], the tokens of point masses.
        support: int64[C, m], tokens by falling probability.
        law: float64[C, m], their probabilities as the verifier divides by them.
        dense: float64[C, V], the same by token.
        live: int64[C], tokens of positive probability.
    """

    def __init__(self, drafters: Sequence[Any], vocab: int, sampling: Sampling) -> None:
        n = len(drafters)
        self.point = np.zeros(n, dtype=np.bool_)
        self.reach, self.span = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
        self.offset = np.zeros(n, dtype=np.int64)
        tokens, supports, laws = [np.zeros(1, np.int64)], [], []
        points, rows = 1, 0
        found: dict[int, tuple[int, Any]] = {}
        for d, drafter in enumerate(drafters):
            reach, law = drafter.tabulate(sampling)
            self.span[d] = _span(vocab, reach, f"drafter {drafter.name!r}")
            found[d] = reach, law
        width = max((law[0].shape[1] for _, law in found.values()), default=1)
        for d, (reach, (support, probs)) in found.items():
            self.reach[d] = reach
            if support.shape[1] == 1:
                self.point[d], self.offset[d] = True, points
                tokens.append(support[:, 0].astype(np.int64))
                points += len(support)
                continue
            self.offset[d] = rows
            rows += len(support)
            pad = ((0, 0), (0, width - support.shape[1]))
            supports.append(np.pad(np.maximum(support, 0).astype(np.int64), pad))
            laws.append(np.pad(normalise(probs), pad))
        self.token = np.concatenate(tokens)
        self.support = np.concatenate(supports) if supports else np.zeros((1, width), dtype=np.int64)
        self.law = np.concatenate(laws) if laws else np.ones((1, width))
        self.live = (self.law > 0).sum(axis=1)
        self.dense = np.zeros((len(self.law), vocab))
        row, column = np.nonzero(self.law > 0)
        self.dense[row, self.support[row, column]] = self.law[row, column]
        self._draws = Sums(self.law)

    def draw(self, rows: Places, uniforms: Floats) -> tuple[Places, Floats]:
        """Draws a token from each law, and gives its probability there."""
        at = self._draws.draw(rows, uniforms)
        flat = rows * self.support.shape[1] + at
        return self.support.reshape(-1)[flat], self.law.reshape(-1)[flat]


class Sums:
    """Running sums of laws, to draw from by bisection what :func:`arena.sampling.draw` draws."""

    def __init__(self, laws: Floats) -> None:
        mass = np.cumsum(laws, axis=-1)
        self._total = mass[:, -1].copy()
        self._most = np.nextafter(self._total, 0.0)
        self._width = 1 << (laws.shape[1] - 1).bit_length()
        padded = np.full((len(laws), self._width), np.inf)
        padded[:, : laws.shape[1]] = mass
        self._mass = padded.reshape(-1)

    def draw(self, rows: Places, uniforms: Floats) -> Places:
        """Gives the first index of each row whose running sum exceeds u times the total."""
        goal = np.minimum(uniforms * self._total[rows], self._most[rows])
        first = rows * self._width
        at, step = first.copy(), self._width >> 1
        while step:
            at += step * (self._mass[at + (step - 1)] <= goal)
            step >>= 1
        return np.asarray(at - first)


def check_settings(settings: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuses an experiment that has no exact simulation; each setting is (value, expected)."""
    for place, (value, expected) in settings.items():
        if value != expected:
            raise ConfigError(
                f"{place} is {value!r}; a simulation of many replicates expects {expected!r}. "
                "Repeat the tournament itself over seeds with `study: story_replicates`."
            )


def _span(vocab: int, reach: int, whose: str) -> int:
    rows = (vocab + 1) ** int(reach)
    if rows * vocab > MOST_LOGITS:
        raise ConfigError(
            f"{whose}: a table of {vocab} tokens after {reach} others has {rows * vocab} entries; "
            f"a simulation holds at most {MOST_LOGITS}. Take a smaller vocab or order."
        )
    return int(rows)
