"""What speculation costs and when it pays: tokens a step against time a step.

Acceptance alone does not rank speed. A step that drafts K tokens takes
fixed + K draft + nodes verify, and gives 1 + sum_{k <= K} a_k tokens, a_k being the
share of steps that keep their k-th draft token (alpha^k where every token is kept
with the same chance alpha, independently). All times are in one unit, milliseconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from arena.errors import ConfigError
from arena.types import Floats

MAX_K = 16
"""Longest draft that is considered unless told otherwise."""

Rates = float | Sequence[float]
"""Acceptance: one alpha for every token, or a_1, a_2, ... by position (cumulative)."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """The time a step takes.

    Attributes:
        fixed: A verifier pass before any node is counted, ms. At small batches this is
            nearly all of it: the weights are read once.
        draft: One drafted token, all lanes together, ms.
        verify: One node of a tree in the pass, ms.
        lanes: Lanes that share the pass; each brings its own nodes.
    """

    fixed: float
    draft: float
    verify: float = 0.0
    lanes: int = 1

    def __post_init__(self) -> None:
        times = (self.fixed, self.draft, self.verify)
        if not all(math.isfinite(time) and time >= 0 for time in times) or self.lanes < 1:
            raise ConfigError(f"costs are {self}; expected finite times >= 0 and at least one lane.")
        if self.fixed + self.verify <= 0:
            raise ConfigError("a verifier pass costs nothing; expected a positive time.")

    @classmethod
    def of_pass(cls, target: float, draft: float, verify: float, lanes: int) -> StepCosts:
        """Splits the time of a pass over one token a lane into its fixed part and its nodes.

        Raises:
            ConfigError: The nodes cost more than the pass.
        """
        if verify * lanes > target:
            raise ConfigError(
                f"nodes of {verify} ms on {lanes} lanes cost more than a whole pass, {target} ms; expected "
                "--verify-ms to be the part of --target-ms that each node of a lane costs."
            )
        return cls(target - verify * lanes, draft, verify, lanes)

    def step(self, k: int) -> float:
        """Gives the time of a step with drafts of length k, ms; k = 0 is plain decoding."""
        return self.fixed + k * self.draft + self.lanes * (k + 1) * self.verify


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the workers of a run cost, as its manifest keeps it.

    Attributes:
        lanes: Lanes that share a pass.
        draft_length: K.
        fixed: A verifier pass before any node is counted, ms.
        verify: One node in the pass, ms.
        draft: One drafted token of each drafter, all lanes together, ms.
    """

    lanes: int
    draft_length: int
    fixed: float
    verify: float
    draft: Mapping[str, float]

    def plain(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return {**asdict(self), "unit": "ms"}

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Calibration | None:
        """Reads what :meth:`plain` wrote; None where nothing was stored."""
        if not stored:
            return None
        return cls(**{name: stored[name] for name in ("lanes", "draft_length", "fixed", "verify", "draft")})

    def step_ms(self) -> dict[str, float]:
        """Gives the time of a step with each drafter alone: fixed + K draft + lanes (K + 1) verify."""
        k = self.draft_length
        return {
            name: StepCosts(self.fixed, draft, self.verify, self.lanes).step(k)
            for name, draft in self.draft.items()
        }


@dataclass(frozen=True, slots=True)
class Row:
    """What one draft length gives.

    Attributes:
        k: Draft length; 0 is plain decoding.
        tokens_per_step: Expected tokens that a lane gains in a step.
        ms_per_token: Time of a step by those tokens (a lane's own wait).
        speedup: Against plain decoding.
    """

    k: int
    tokens_per_step: float
    ms_per_token: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Point:
    """A measured step: tokens drafted one after the other, nodes in the pass, time in ms."""

    drafted: int
    nodes: int
    ms: float


def tokens_per_step(rates: Rates, k: int) -> float:
    """Gives the expected tokens a step, the correction or bonus token included.

    (1 - alpha^{k+1}) / (1 - alpha) (Leviathan et al. 2023, arXiv 2211.17192, equation
    1), or 1 + sum of the first k position rates.

    Args:
        rates: Alpha, or position rates.
        k: Draft length.

    Raises:
        ConfigError: Rates outside [0, 1], or fewer of them than k.
    """
    if k < 0:
        raise ConfigError(f"draft length is {k}; expected 0 or more.")
    if isinstance(rates, int | float):
        known: Sequence[float] = [float(rates) ** (j + 1) for j in range(k)]
        given: Sequence[float] = [float(rates)]
    else:
        known = given = rates
    if not all(0.0 <= rate <= 1.0 for rate in given):
        raise ConfigError(f"acceptance is {rates}; expected numbers in [0, 1].")
    if len(known) < k:
        raise ConfigError(f"position rates go to K={len(known)}; a draft length of {k} needs {k} of them.")
    return 1.0 + math.fsum(known[:k])


def time_per_token(k: int, rates: Rates, costs: StepCosts) -> float:
    """Gives the expected time a lane waits for a token, ms."""
    return costs.step(k) / tokens_per_step(rates, k)


def curve(rates: Rates, costs: StepCosts, max_k: int = MAX_K) -> list[Row]:
    """Gives the time and the speed-up for every draft length from 0.

    Args:
        rates: Alpha, or position rates (the curve ends where they do).
        costs: The time a step takes.
        max_k: Longest draft.
    """
    if not isinstance(rates, int | float):
        max_k = min(max_k, len(rates))
    plain = costs.step(0)
    rows = []
    for k in range(max_k + 1):
        time = time_per_token(k, rates, costs)
        rows.append(Row(k, tokens_per_step(rates, k), time, plain / time))
    return rows


def best_k(rates: Rates, costs: StepCosts, max_k: int = MAX_K) -> int:
    """Gives the draft length with the least time a token; 0 where speculation does not pay."""
    return min(curve(rates, costs, max_k), key=lambda row: (row.ms_per_token, row.k)).k


def alpha_for(tokens: float, k: int) -> float | None:
    """Gives the alpha at which a step of draft length k gives that many tokens.

    None where no alpha does: a step gives 1 to k + 1 tokens.
    """
    if not 1.0 <= tokens <= k + 1:
        return None
    low, high = 0.0, 1.0
    while (middle := 0.5 * (low + high)) not in (low, high):
        low, high = (middle, high) if tokens_per_step(middle, k) < tokens else (low, middle)
    return high


def required_alpha(k: int, ms_per_token: float, target_ms: float, draft_ms: float) -> float | None:
    """Gives the alpha that a claimed time a token needs, where verifying is one target pass.

    Args:
        k: Draft length.
        ms_per_token: The claim.
        target_ms: One verifier pass.
        draft_ms: One drafted token.

    Returns:
        None where no alpha in [0, 1] gives it.
    """
    return alpha_for(StepCosts(target_ms, draft_ms).step(k) / ms_per_token, k)


def break_even(costs: StepCosts, max_k: int = MAX_K) -> float | None:
    """Gives the smallest alpha at which some draft length is as fast as plain decoding.

    None where not even alpha = 1 is.
    """
    plain = costs.step(0)
    needed = [alpha_for(costs.step(k) / plain, k) for k in range(1, max_k + 1)]
    return min((alpha for alpha in needed if alpha is not None), default=None)


def paying_lanes(rates: Rates, costs: StepCosts, max_k: int = MAX_K) -> float:
    """Gives the number of lanes at which speculation stops paying.

    With E tokens a step, B lanes and draft length k, speculation pays as long as
    fixed + k draft + B (k + 1) verify < E (fixed + B verify), that is
    B < ((E - 1) fixed - k draft) / (verify (k + 1 - E)); the best k is taken.

    Returns:
        A real number: it pays with fewer lanes than this; 0 where it never pays, inf
        where it always does. ``costs.lanes`` plays no part.
    """
    longest = max_k if isinstance(rates, int | float) else min(max_k, len(rates))
    most = 0.0
    for k in range(1, longest + 1):
        tokens = tokens_per_step(rates, k)
        saved = (tokens - 1.0) * costs.fixed - k * costs.draft
        spent = costs.verify * (k + 1.0 - tokens)
        if saved > 0:
            most = max(most, saved / spent if spent > 0 else math.inf)
    return most


def fit(points: Sequence[Point]) -> StepCosts:
    """Fits fixed, draft and verify to measured steps by non-negative least squares.

    Raises:
        ConfigError: Fewer than three points, or draft lengths and node counts that do
            not vary enough to tell the three costs apart.
    """
    design = np.array([[1.0, point.drafted, point.nodes] for point in points]).reshape(-1, 3)
    times = np.array([point.ms for point in points])
    if np.linalg.matrix_rank(design) < 3:
        raise ConfigError(
            f"{len(points)} measured steps cannot tell fixed, draft and verify costs apart; "
            "expected at least three, with draft lengths and node counts that vary apart from each other."
        )
    fixed, draft, verify = _non_negative(design, times).tolist()
    return StepCosts(fixed, draft, verify)


def fit_pass(passes: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Fits fixed and verify costs to passes, each (nodes, ms), by non-negative least squares.

    Where all passes are of one size, all of their time is taken as fixed.
    """
    nodes, times = (np.array(column, dtype=np.float64) for column in zip(*passes, strict=True))
    if len(np.unique(nodes)) < 2:
        return float(times.mean()), 0.0
    fixed, verify = _non_negative(np.stack([np.ones_like(nodes), nodes], axis=1), times).tolist()
    return fixed, verify


def _non_negative(design: Floats, times: Floats) -> Floats:
    """Tries every set of unknowns as the positive ones; the best admissible fit is exact."""
    n = design.shape[1]
    best, best_error = np.zeros(n), float(times @ times)
    for size in range(1, n + 1):
        for subset in itertools.combinations(range(n), size):
            part = np.linalg.lstsq(design[:, subset], times, rcond=None)[0]
            error = float(((design[:, subset] @ part - times) ** 2).sum())
            if (part >= 0).all() and error < best_error:
                best, best_error = np.zeros(n), error
                best[list(subset)] = part
    return best
