"""The one module in which counts become ratios.

Counts are stored, ratios are computed here, late, and always pooled: a ratio of
sums over lane-steps, never a mean of per-prompt ratios. Intervals treat prompts as
clusters, since the lane-steps of one prompt are alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arena.errors import ArenaError

_SLACK = 1e-9
"""Relative rounding allowed in a sum of expectations."""

LEVEL = 0.95
"""Confidence level of every interval that is shown, unless asked otherwise."""


class InvariantError(ArenaError, AssertionError):
    """Counts or rates that cannot be: a fault of the code that made them, never of the user."""


def require(holds: bool, message: str) -> None:
    """Stops on a broken invariant, also under ``python -O``.

    Raises:
        InvariantError: If ``holds`` is false.
    """
    if not holds:
        raise InvariantError(f"{message}. This is a fault in an engine or a rule: please report it.")


@dataclass(frozen=True, slots=True)
class Counts:
    """What one drafter did over some lane-steps.

    Attributes:
        lane_steps: Lane-steps in which it was scored.
        offered: Draft tokens asked for.
        drafted: Draft tokens proposed.
        accepted: Draft tokens kept by the score rule, its chain tested alone.
        matched: Leading committed tokens that it had proposed.
        expected: Expectation of ``accepted`` given the drafts, tokens.
    """

    lane_steps: int = 0
    offered: int = 0
    drafted: int = 0
    accepted: int = 0
    matched: int = 0
    expected: float = 0.0

    def check(self, whose: str) -> Counts:
        """Gives itself back if the counts are possible (always on).

        Raises:
            InvariantError: Naming ``whose`` counts are not.
        """
        require(
            self.offered >= self.drafted >= self.accepted >= 0 and self.lane_steps >= 0,
            f"{whose}: expected offered >= drafted >= accepted >= 0, got {self}",
        )
        require(0 <= self.matched <= self.drafted, f"{whose}: expected 0 <= matched <= drafted, got {self}")
        slack = _SLACK * (1 + self.drafted)
        require(  # NaN fails the comparison
            -slack <= self.expected <= self.drafted + slack,
            f"{whose}: expected acceptance must lie in [0, drafted], got {self}",
        )
        return self


@dataclass(frozen=True, slots=True)
class Standing:
    """One row of a table of standings.

    Attributes:
        drafter: Its name.
        offered: Draft tokens asked for.
        drafted: Draft tokens proposed.
        accepted: Draft tokens kept.
        hit_rate: accepted / offered, in [0, 1]; nan if nothing was offered.
        precision: accepted / drafted, in [0, 1]; nan if nothing was drafted.
        acceptance_length: 1 + accepted / lane-steps, tokens a pass; nan if none.
        low: Lower end of the interval of the hit rate; nan with fewer than two prompts.
        high: Upper end.
        goodput: Tokens that a lane gains a millisecond with it alone, by costs stored
            beforehand; nan where none were.
    """

    drafter: str
    offered: int
    drafted: int
    accepted: int
    hit_rate: float
    precision: float
    acceptance_length: float
    low: float
    high: float
    goodput: float = math.nan


def ratio(numerator: float, denominator: float) -> float:
    """Divides; 0/0 is nan.

    Raises:
        InvariantError: If something is divided by nothing.
    """
    if denominator == 0:
        require(numerator == 0, f"expected 0 of 0, got {numerator} of 0")
        return math.nan
    return numerator / denominator


def _rate(numerator: int, denominator: int, what: str) -> float:
    value = ratio(numerator, denominator)
    require(math.isnan(value) or 0.0 <= value <= 1.0, f"{what} must lie in [0, 1], got {value}")
    return value


def hit_rate(counts: Counts) -> float:
    """Accepted / offered: silence never wins."""
    return _rate(counts.accepted, counts.offered, "hit rate")


def precision(counts: Counts) -> float:
    """Accepted / drafted: a drafter that seldom speaks may have a high one."""
    return _rate(counts.accepted, counts.drafted, "precision")


def acceptance_length(counts: Counts, k: int | None = None) -> float:
    """Gives 1 + accepted / lane-steps, tokens a verifier pass.

    Args:
        counts: Of one drafter.
        k: Draft length asked for, tokens; without it, the mean number offered
            bounds the result.
    """
    value = 1.0 + ratio(counts.accepted, counts.lane_steps)
    most = 1.0 + (ratio(counts.offered, counts.lane_steps) if k is None else k)
    require(
        math.isnan(value) or 1.0 <= value <= most,
        f"acceptance length must lie in [1, K+1] = [1, {most}], got {value}",
    )
    return value


def goodput(counts: Counts, step_ms: float) -> float:
    """Gives the tokens that a lane gains a millisecond: acceptance length by the time of a step.

    Args:
        counts: Of one drafter.
        step_ms: Time of a step with it alone, ms; see :class:`arena.costs.Calibration`.
    """
    return acceptance_length(counts) / step_ms


def interval(
    numerators: Sequence[float],
    denominators: Sequence[float],
    level: float = LEVEL,
    *,
    lowest: float = 0.0,
    highest: float = 1.0,
) -> tuple[float, float]:
    """Gives a confidence interval of a ratio of sums over clusters (prompts).

    The linearised ratio estimator (Cochran, Sampling Techniques, 3rd ed., 6.3): with
    r = Σa/Σb and e_i = a_i - r b_i, var(r) = n/(n-1) Σe_i² / (Σb)², and a t quantile
    of n - 1 degrees of freedom.

    Args:
        numerators: One a cluster, e.g. accepted tokens.
        denominators: One a cluster, e.g. offered tokens; clusters with 0 say nothing
            and are left out.
        level: Confidence level, between 0 and 1.
        lowest: Least possible ratio, to clip at.
        highest: Greatest possible ratio, to clip at.

    Returns:
        Low and high end; nan, nan with fewer than two clusters.
    """
    a = np.asarray(numerators, dtype=np.float64)
    b = np.asarray(denominators, dtype=np.float64)
    a, b = a[b > 0], b[b > 0]
    n = len(b)
    if n < 2:
        return math.nan, math.nan
    from scipy.special import stdtrit  # late: the light commands need no interval

    total = math.fsum(b)
    centre = math.fsum(a) / total
    variance = n / (n - 1) * math.fsum((a - centre * b) ** 2) / total**2
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * math.sqrt(variance)
    return max(lowest, centre - half), min(highest, centre + half)


def pool(parts: Sequence[Counts]) -> Counts:
    """Adds counts up, whatever their order."""
    return Counts(
        lane_steps=sum(part.lane_steps for part in parts),
        offered=sum(part.offered for part in parts),
        drafted=sum(part.drafted for part in parts),
        accepted=sum(part.accepted for part in parts),
        matched=sum(part.matched for part in parts),
        expected=math.fsum(part.expected for part in parts),
    )


def standing(
    name: str, per_prompt: Mapping[str, Counts], level: float = LEVEL, *, goodput: float = math.nan
) -> Standing:
    """Sums a drafter's counts up, with an interval of its hit rate.

    Args:
        name: The drafter.
        per_prompt: prompt_id to counts; prompts are the clusters of the interval.
        level: Confidence level of the interval.
        goodput: Tokens per millisecond, where costs are known.
    """
    parts = [per_prompt[prompt] for prompt in sorted(per_prompt)]
    total = pool(parts).check(name)
    low, high = interval([part.accepted for part in parts], [part.offered for part in parts], level)
    return Standing(
        drafter=name,
        offered=total.offered,
        drafted=total.drafted,
        accepted=total.accepted,
        hit_rate=hit_rate(total),
        precision=precision(total),
        acceptance_length=acceptance_length(total),
        low=low,
        high=high,
        goodput=goodput,
    )


def rank_key(name: str, counts: Counts) -> tuple[float, float, float, str]:
    """Sorts drafters by hit rate, the worst first, so that no two are equal.

    Lowest hit rate first; then lower precision (of two that kept as much, the one
    that wasted more); then lower expected acceptance a lane-step; then the name that
    comes first in code-point order. A rate of 0/0 counts as below 0: silence never
    wins.
    """

    def or_below(value: float) -> float:
        return -1.0 if math.isnan(value) else value

    expected = or_below(ratio(counts.expected, counts.lane_steps))
    return or_below(hit_rate(counts)), or_below(precision(counts)), expected, name


def best_first(names: Iterable[str], counts: Mapping[str, Counts]) -> list[str]:
    """Orders drafters by :func:`rank_key`, the best first; who was never scored has zeros."""
    return sorted(names, key=lambda name: rank_key(name, counts.get(name, Counts())), reverse=True)
