"""Survival: who left when, over one run and over many seeds.

Being retired is the event. A champion, a drafter that was withdrawn, and all that are
alive when a run is cut short are censored: they did not lose at the round at which
they are last seen. Drafters of one seed compete for the same places, so two of them
are compared by a paired test on the round at which they left, not by a log-rank test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arena import seeding

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Departure:
    """When one drafter of one run was last seen.

    Attributes:
        drafter: Its name.
        round: Retirements that it faced, the one that took it included; 0 if
            withdrawn in round 1.
        retired: True for the event, False if censored.
        withdrawn: Whether it is censored because it crashed or was unusable.
    """

    drafter: str
    round: int
    retired: bool
    withdrawn: bool = False

    @property
    def left(self) -> int:
        """The round that it left after; one that was not retired counts as leaving a round later."""
        return self.round if self.retired else self.round + 1


@dataclass(frozen=True, slots=True)
class Curve:
    """A survival curve, a right-continuous staircase.

    Attributes:
        rounds: float64[n], the rounds at which it is given, from 0.
        survival: float64[n], the share still alive after each.
    """

    rounds: Array
    survival: Array


def survivors(records: Sequence[Mapping[str, Any]]) -> list[int]:
    """Gives the staircase of one run: how many are alive at the start and after each round."""
    if not records:
        return []
    first = records[0]
    alive = [len(first["alive"]) + len(first["withdrawn"])]
    return alive + [len(record["alive"]) - bool(record["retired"]) for record in records]


def departures(records: Sequence[Mapping[str, Any]]) -> list[Departure]:
    """Gives one entry for each drafter of a run, in order of leaving, then of name.

    One that was withdrawn in round r did not play it to its end, so it is censored at
    r - 1. Those alive at the end are censored at the last round.
    """
    gone: list[Departure] = []
    alive: list[str] = []
    for record in records:
        alive = list(record["alive"])
        number = int(record["round"])
        gone += [Departure(one["drafter"], number - 1, False, True) for one in record["withdrawn"]]
        if record["retired"]:
            alive.remove(record["retired"]["drafter"])
            gone.append(Departure(record["retired"]["drafter"], number, True))
    return gone + [Departure(name, len(records), False) for name in sorted(alive)]


def kaplan_meier(times: Sequence[float], retired: Sequence[bool]) -> Curve:
    """Gives the product-limit estimate (Kaplan & Meier 1958) by ``scipy.stats.ecdf``.

    Args:
        times: Rounds at which each was last seen.
        retired: True for an event, False for a censored one.

    Returns:
        The curve from round 0 on, at each time that occurs.
    """
    from scipy import stats

    seen, event = np.asarray(times, dtype=np.float64), np.asarray(retired, dtype=bool)
    sample = stats.CensoredData(uncensored=seen[event], right=seen[~event])
    estimate = stats.ecdf(sample).sf
    rounds = np.asarray(estimate.quantiles, dtype=np.float64)
    values = np.asarray(estimate.probabilities, dtype=np.float64)
    later = rounds > 0  # nobody is retired before the first retirement
    return Curve(np.append(0.0, rounds[later]), np.append(1.0, values[later]))


def curve_of(runs: Sequence[Sequence[Departure]], drafter: str) -> Curve:
    """Gives one drafter's survival curve over runs (seeds)."""
    seen = [departure for run in runs for departure in run if departure.drafter == drafter]
    return kaplan_meier([one.round for one in seen], [one.retired for one in seen])


def at(curve: Curve, rounds: npt.ArrayLike) -> Array:
    """Reads a curve at given rounds: what is left just after each."""
    place = np.searchsorted(curve.rounds, np.asarray(rounds, dtype=np.float64), side="right") - 1
    return curve.survival[np.maximum(place, 0)]


def band(
    runs: Sequence[Sequence[Departure]],
    drafter: str,
    last: int,
    *,
    level: float = 0.95,
    draws: int = 2000,
    key: int = 0,
) -> tuple[Array, Array]:
    """Gives a pointwise interval of a drafter's curve by the bootstrap over seeds (percentiles).

    Args:
        runs: One list of departures a seed; whole seeds are drawn with replacement.
        drafter: Its name.
        last: The last round to look at.
        level: Confidence level.
        draws: Bootstrap samples.
        key: Of the keyed randomness.

    Returns:
        Low and high survival after rounds 0, 1, ..., ``last``; nan with fewer than two seeds.
    """
    if len(runs) < 2:
        return np.full(last + 1, np.nan), np.full(last + 1, np.nan)
    grid = np.arange(last + 1)
    at_risk = np.zeros((len(runs), last + 1))
    events = np.zeros((len(runs), last + 1))
    for row, run in enumerate(runs):
        for one in run:
            if one.drafter == drafter:
                at_risk[row] += one.round >= grid
                events[row] += (one.round == grid) & one.retired
    picks = (seeding.uniform(key, "bootstrap", np.arange(draws * len(runs))) * len(runs)).astype(np.int64)
    weights = np.zeros((draws, len(runs)))
    np.add.at(weights, (np.repeat(np.arange(draws), len(runs)), picks), 1.0)
    exposed = weights @ at_risk
    hazard = np.divide(weights @ events, exposed, out=np.zeros_like(exposed), where=exposed > 0)
    curves = np.cumprod(1.0 - hazard, axis=1)
    tail = (1.0 - level) / 2
    low, high = np.quantile(curves, [tail, 1.0 - tail], axis=0)
    return low, high


def paired_rounds(runs: Sequence[Sequence[Departure]], a: str, b: str) -> list[int]:
    """Gives, a seed, how many rounds later drafter ``a`` left than ``b``.

    One that was alive at the end counts as leaving a round after the last. Seeds in
    which either is absent or was withdrawn say nothing about the pair and are left out.
    """
    differences = []
    for run in runs:
        found = {one.drafter: one for one in run}
        if a in found and b in found and not (found[a].withdrawn or found[b].withdrawn):
            differences.append(found[a].left - found[b].left)
    return differences


def sign_flip(differences: Sequence[int]) -> float:
    """Tests that paired differences are symmetric about 0, two-sided and exact.

    Under the hypothesis each difference is as likely as its negative; the law of their
    sum over all 2^n signs is a convolution, since the differences are whole numbers.

    Returns:
        The chance of a sum at least as far from 0; 1 where all differences are 0, nan
        without any.
    """
    if not len(differences):
        return math.nan
    sizes = [abs(int(difference)) for difference in differences]
    law = np.ones(1)  # of the sum, at -total..total as steps are added
    for size in sizes:
        wider = np.zeros(len(law) + 2 * size)
        wider[: len(law)] += law / 2
        wider[2 * size :] += law / 2
        law = wider
    reach = np.abs(np.arange(len(law)) - sum(sizes))
    return min(1.0, math.fsum(law[reach >= abs(sum(int(one) for one in differences))]))
