"""Evidence that one drafter is better than another, valid whenever one looks.

E_ab = 1/4 sum over L in {.95, .5, .25, .1} of prod_t (1 + L D_t), D_t in [-1, 1] being
how much better b did than a on prompt t. While a is at least as good as b, each factor
has mean at most 1, so E_ab is a non-negative supermartingale from 1: it ever reaches c
with chance at most 1/c (Ville; Waudby-Smith & Ramdas 2023, arXiv 2010.09686, section 4).
Retiring a needs E_ab >= n(n-1)/delta for EVERY other alive b, n the starting roster:
then over the whole tournament the chance of ever retiring a drafter at least as good as
all others is at most delta. Asking it of the next-lowest alone is not valid: which b is
next-lowest is picked by the same data, and the worst of equals looks beaten by luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from arena.metrics import Counts
from arena.scoreboard import RoundTally
from arena.types import Floats

BETS = (0.95, 0.5, 0.25, 0.1)
"""Stakes L that the evidence is averaged over: large gaps pay a large stake, small ones a small."""


def differences(rates: npt.ArrayLike) -> Floats:
    """Gives D[..., t, a, b] = X_b - X_a of rates in [0, 1], float64[..., t, n]."""
    x = np.asarray(rates, dtype=np.float64)
    return np.asarray(x[..., None, :] - x[..., :, None])


def relative(speeds: npt.ArrayLike) -> Floats:
    """Gives D = (g_b - g_a) / (g_b + g_a) of speeds >= 0; 0 where neither moves."""
    g = np.asarray(speeds, dtype=np.float64)
    gap, total = g[..., None, :] - g[..., :, None], g[..., None, :] + g[..., :, None]
    return np.asarray(np.divide(gap, total, out=np.zeros_like(gap), where=total > 0))


def log_wealth(gaps: Floats) -> Floats:
    """Gives the log of each stake's capital after some prompts.

    Args:
        gaps: D, float64[..., t, a, b].

    Returns:
        float64[stakes, ..., a, b]; of prompts that follow, the logs add up.
    """
    return np.stack([np.log1p(stake * gaps).sum(axis=-3) for stake in BETS])


def evidence(wealth: Floats) -> Floats:
    """Gives E[..., a, b], the evidence that b is better than a, from the capitals' logs."""
    top = wealth.max(axis=0)
    mean = np.exp(wealth - top).mean(axis=0)
    return np.asarray(np.exp(np.minimum(top + np.log(mean), 700.0)))


def threshold(roster: int, delta: float) -> float:
    """Gives what every E_ab must reach: n (n - 1) / delta."""
    return roster * (roster - 1) / delta


def weakest_link(e: Floats, alive: npt.NDArray[np.bool_]) -> Floats:
    """Gives the least evidence against each drafter by any OTHER that is alive.

    Args:
        e: E, float64[..., n, n].
        alive: bool[..., n].

    Returns:
        float64[..., n]; -inf for those that are not alive, or alone.
    """
    n = e.shape[-1]
    others = alive[..., None, :] & ~np.eye(n, dtype=np.bool_)
    least = np.where(others, e, np.inf).min(axis=-1)
    return np.where(alive & others.any(axis=-1), least, -np.inf)


def separated(e: Floats, alive: npt.NDArray[np.bool_], needed: float) -> npt.NDArray[np.bool_]:
    """Tells who may be retired: beaten by every other that is alive."""
    return np.asarray(weakest_link(e, alive) >= needed)


def against_all(e: Floats) -> list[float]:
    """Gives the least evidence against each drafter by any other; all are alive."""
    return [float(value) for value in weakest_link(e, np.ones(e.shape[-1], dtype=np.bool_))]


def fold(n: int, rounds: Sequence[Sequence[Sequence[float]]], *, speeds: bool = False) -> Floats:
    """Gives E over the prompts of several rounds.

    Args:
        n: Drafters.
        rounds: For each round its prompts in key order, each with one value a drafter.
        speeds: The values are speeds rather than rates.
    """
    total = np.zeros((len(BETS), n, n))
    for prompts in rounds:
        if prompts:
            values = np.asarray(prompts, dtype=np.float64)
            total += log_wealth(relative(values) if speeds else differences(values))
    return evidence(total)


def gather(
    names: Sequence[str], tallies: Sequence[RoundTally], value: Callable[[str, Counts], float]
) -> list[list[list[float]]]:
    """Gives one value a round, prompt and drafter: prompts in key order, each of them once.

    A prompt that comes back in a later round is no new draw, and says nothing more.
    """
    seen: set[str] = set()
    found = []
    for tally in tallies:
        each = [tally.per_prompt.get(name, {}) for name in names]
        prompts = sorted(set[str]().union(*each) - seen)
        seen.update(prompts)
        found.append(
            [
                [value(name, mine.get(prompt, Counts())) for name, mine in zip(names, each, strict=True)]
                for prompt in prompts
            ]
        )
    return found


def waited(names: Sequence[str], tallies: Sequence[RoundTally]) -> int:
    """Gives how many rounds this very field has played since the last one left it."""
    same = takewhile(lambda tally: set(tally.per_drafter) == set(names), reversed(tallies))
    return sum(1 for _ in same)
