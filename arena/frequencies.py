"""Whether drafted tokens have the frequencies of the laws sent with them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arena import seeding
from arena.sampling import normalise
from arena.types import Draft, Floats, Ints

_LEAST_EXPECTED = 10.0
_BINS = 16


@dataclass(frozen=True, slots=True)
class Observation:
    """One token and the law that it is said to come from.

    Attributes:
        before: What was known when it was drawn; only equals are pooled.
        support: int32[m], the tokens of the law.
        law: float64[m], their probabilities.
        token: The token.
    """

    before: Hashable
    support: Ints
    law: Floats
    token: int


class _Pool(NamedTuple):
    law: Floats
    cells: list[int]


def observations(drafts: Iterable[Draft], position: int) -> list[Observation]:
    """Takes every token at a position (from 0) of some drafts, with the law that was sent beside it."""
    seen: list[Observation] = []
    for draft in drafts:
        laws = normalise(draft.probs[:, position])
        for row in np.flatnonzero(draft.lengths > position):
            before = tuple(draft.tokens[row, :position].tolist())
            token = int(draft.tokens[row, position])
            seen.append(Observation(before, draft.support[row, position], laws[row], token))
    return seen


def law_p_value(observations: Iterable[Observation], *, tolerance: float = 0.0) -> float:
    """Tests whether tokens have the frequencies of the laws they are said to come from.

    Two chi-square tests. The first pools observations with the same past and the same
    law, and compares counts with expectations (cells are joined until ten are
    expected in each). The second needs no equal laws: the randomised probability
    integral transform of each token must be uniform.

    Args:
        observations: Tokens and laws.
        tolerance: Laws that differ by at most this are pooled.

    Returns:
        The chance of frequencies as odd as these or odder, were the laws true (twice
        the smaller of the two tests', at most 1).
    """
    from scipy.stats import chi2

    seen = list(observations)
    noise = seeding.uniform(0, "transform", np.arange(len(seen)))
    pools: dict[Hashable, list[_Pool]] = {}
    transformed = np.zeros(len(seen))
    for number, each in enumerate(seen):
        order = np.argsort(each.support, kind="stable")
        order = order[each.law[order] > 0]
        support, law = each.support[order], each.law[order]
        where = int(np.searchsorted(support, each.token))
        transformed[number] = law[:where].sum() + noise[number] * law[where]
        # Equal laws meet in one list; near ones are sought where a tolerance is given.
        past = (each.before, support.tobytes(), b"" if tolerance else law.tobytes())
        known = pools.setdefault(past, [])
        for pool in known:
            if not tolerance or np.abs(pool.law - law).max() <= tolerance:
                pool.cells.append(where)
                break
        else:
            known.append(_Pool(law, [where]))
    statistic, freedom = 0.0, 0
    for pool in (pool for known in pools.values() for pool in known):
        counts = np.bincount(pool.cells, minlength=len(pool.law))
        value, df = _chi_square(counts, len(pool.cells) * pool.law)
        statistic, freedom = statistic + value, freedom + df
    bins = np.bincount(np.minimum((transformed * _BINS).astype(int), _BINS - 1), minlength=_BINS)
    spread = _chi_square(bins, np.full(_BINS, len(seen) / _BINS))
    tests = [(statistic, freedom), spread]
    return min(1.0, 2 * min(float(chi2.sf(value, df)) if df else 1.0 for value, df in tests))


def _chi_square(counts: Iterable[int], expected: Floats) -> tuple[float, int]:
    """Gives the statistic and its degrees of freedom, cells joined until enough is expected in each."""
    observed = np.asarray(counts)
    cells = [[0.0, 0.0]]
    for index in np.argsort(expected, kind="stable"):
        if cells[-1][1] >= _LEAST_EXPECTED:
            cells.append([0.0, 0.0])
        cells[-1][0] += float(observed[index])
        cells[-1][1] += float(expected[index])
    if len(cells) > 1 and cells[-1][1] < _LEAST_EXPECTED:
        last = cells.pop()
        cells[-1] = [cells[-1][0] + last[0], cells[-1][1] + last[1]]
    if len(cells) < 2:
        return 0.0, 0
    return sum((seen - mean) ** 2 / mean for seen, mean in cells), len(cells) - 1
