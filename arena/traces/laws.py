"""Log-probabilities of the raw law turned into those of the sampled one, where that can be done.

Servers log the law before temperature and truncation. With the next most probable
tokens logged beside the sampled one, the missing normaliser is known exactly under
top-k, and up to a stated bound where the unseen tail can weigh only so much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from arena.types import Sampling

TAIL_TOLERANCE = 0.01
"""Largest relative uncertainty of a probability that is accepted."""


def sampled_logprob(logprob: float, tops: Sequence[float], sampling: Sampling) -> tuple[float, float] | None:
    """Warps one raw log-probability.

    With r the mass of the tokens not logged and t the least probable logged one, each
    unseen token has at most t, so that their warped weight sum p^(1/T) is at most
    r t^(1/T - 1) for T <= 1.

    Args:
        logprob: Of the sampled token under the raw law.
        tops: Of the most probable tokens, most probable first; the raw law's.
        sampling: Temperature (not greedy), top-k, top-p.

    Returns:
        The log-probability under the sampled law and the bound on its relative error, or
        None where what was logged does not say enough.
    """
    if not tops or (sampling.top_p < 1 and sampling.temperature > 1):
        return None
    power = 1.0 / sampling.temperature
    weights = [math.exp(power * top) for top in tops]
    if 0 < sampling.top_k <= len(tops):
        weights, unseen = weights[: sampling.top_k], 0.0
    elif sampling.temperature <= 1:
        rest = max(0.0, 1.0 - math.fsum(math.exp(top) for top in tops))
        unseen = rest * math.exp((power - 1.0) * tops[-1])
    else:
        return None
    if sampling.top_p < 1:
        nucleus = _nucleus(weights, unseen, sampling.top_p)
        if nucleus is None:
            return None
        weights, unseen = nucleus, 0.0
    total = math.fsum(weights) + unseen / 2
    error = unseen / 2 / total
    value = power * logprob - math.log(total)
    return (min(0.0, value), error) if error <= TAIL_TOLERANCE else None


def _nucleus(weights: Sequence[float], unseen: float, top_p: float) -> list[float] | None:
    """Keeps the smallest set whose mass reaches ``top_p``; None if the tail could change it."""
    mass = math.fsum(weights)
    for size in range(1, len(weights) + 1):
        held = math.fsum(weights[:size])
        if held >= top_p * (mass + unseen):
            return list(weights[:size])
        if held >= top_p * mass:  # the answer depends on a tail that was not logged
            return None
    return None
