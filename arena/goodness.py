"""How well samples fit a law: the G-test, with its odds of a false alarm."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from scipy.special import gammaincc

Cell = TypeVar("Cell", bound=Hashable)

LEAST_EXPECTED = 5.0
"""Cells with fewer expected samples are pooled: the chi-squared law holds for the others."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A G-test.

    Attributes:
        samples: How many.
        cells: Cells after pooling.
        statistic: G = 2 sum O ln(O / E); infinite if something came that the law excludes.
        p: Odds of a statistic at least this large if the law is right.
    """

    samples: int
    cells: int
    statistic: float
    p: float


def g_test(observed: Mapping[Cell, int], law: Mapping[Cell, float]) -> Fit:
    """Tests samples against a law (likelihood ratio; Sokal & Rohlf, Biometry, chapter 17).

    Args:
        observed: How often each outcome came.
        law: Probability of outcomes; those it does not name share what is left of 1.
    """
    n = sum(observed.values())
    common = {cell: prob for cell, prob in law.items() if prob * n >= LEAST_EXPECTED}
    cells = [(observed.get(cell, 0), prob * n) for cell, prob in common.items()]
    rest = n * max(0.0, 1.0 - math.fsum(common.values()))
    others = n - sum(count for count, _ in cells)
    impossible = any(count and law.get(cell) == 0.0 for cell, count in observed.items())
    if rest >= LEAST_EXPECTED or not cells:
        cells.append((others, rest))
    else:  # too little is left for a cell of its own: it joins the rarest
        rarest = min(range(len(cells)), key=lambda i: cells[i][1])
        cells[rarest] = (cells[rarest][0] + others, cells[rarest][1] + rest)
    terms = [count * math.log(count / expected) for count, expected in cells if count and expected > 0]
    statistic = math.inf if impossible else max(0.0, 2.0 * math.fsum(terms))
    degrees = len(cells) - 1
    p = 1.0 if degrees == 0 else float(gammaincc(degrees / 2.0, statistic / 2.0))
    return Fit(n, len(cells), statistic, 0.0 if impossible else p)
