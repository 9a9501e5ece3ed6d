"""Drafters compared on one log: rates, intervals over prompts, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtrit

from arena.engines.forcing import Ended, in_key_order, lesson, odds_of, refusal, unfit
from arena.engines.replay import (
    Accounting,
    Odds,
    Starts,
    Tally,
    expect,
    fixed_starts,
    pool,
    shape_of,
    unseen_end,
)
from arena.errors import ConfigError
from arena.metrics import LEVEL, interval, ratio, require
from arena.protocols import Drafter
from arena.traces.records import Trace, describe
from arena.types import Sampling

Group = tuple[Sampling, str, int]
"""A sampling, a drafter and a draft length."""


@dataclass(slots=True)
class Scored:
    """What replay found, text by text.

    Attributes:
        low: Group to text to tally; an end token that was not logged counts as refused.
        high: The same, with such an end token kept.
        texts: Id and sampling of every text to the text.
        refused: Drafter to one sentence a text that it could not be scored on.
    """

    low: dict[Group, dict[str, Tally]] = field(default_factory=dict)
    high: dict[Group, dict[str, Tally]] = field(default_factory=dict)
    texts: dict[tuple[Sampling, str], Trace] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)


def score(
    traces: Sequence[Trace],
    drafters: Mapping[str, Drafter],
    ks: Sequence[int],
    *,
    starts: Starts = "own",
    accounting: Callable[[Trace], Accounting] = lambda trace: "arena",
    note: Callable[[str], None] = lambda text: None,
) -> Scored:
    """Scores every drafter on every text, for every draft length at once.

    A learner sees the texts in key order, and learns from each once it was scored on it.

    Raises:
        ConfigError: A drafter cannot be replayed, or the log holds no recorded starts.
    """
    if starts == "joint" and not all(trace.starts for trace in traces):
        raise ConfigError(
            "--starts joint needs recorded steps, which only a run of `arena run` keeps; use own."
        )
    found = Scored(texts={(trace.sampling, trace.prompt_id): trace for trace in traces})
    ordered = in_key_order(traces)
    for name, drafter in drafters.items():
        if reason := refusal(name, drafter.capabilities):
            raise ConfigError(reason)
        for number, trace in enumerate(ordered, start=1):
            if reason := unfit(drafter.capabilities, trace):
                found.refused.setdefault(name, []).append(f"{trace.prompt_id}: {reason}")
                continue
            odds = odds_of(name, drafter, trace, max(ks), accounting(trace))
            _fold(found, name, trace, odds, ks, starts, accounting(trace))
            if drafter.capabilities.learns:
                drafter.learn((lesson(trace),))
            if number % 10 == 0 or number == len(ordered):
                note(f"{name}: {number} of {len(ordered)} texts")
    return found


def _fold(
    found: Scored,
    name: str,
    trace: Trace,
    odds: Odds,
    ks: Sequence[int],
    starts: Starts,
    accounting: Accounting,
) -> None:
    shape = shape_of(trace, accounting)
    fixed = fixed_starts(starts, trace, shape)
    unseen = unseen_end(trace)
    for k in ks:
        group = trace.sampling, name, k
        for side, value in ((found.low, 0.0), (found.high, 1.0)):
            end = Ended(odds, len(trace.tokens), value) if unseen else odds
            if side is found.high and not unseen:
                tally = found.low[group][trace.prompt_id]
            else:
                tally = expect(shape, end, k, fixed)
            side.setdefault(group, {})[trace.prompt_id] = tally


def rows(found: Scored, *, by_category: bool = False) -> list[dict[str, Any]]:
    """Gives one row a sampling, drafter and draft length (and category)."""
    made = []
    for (sampling, name, k), tallies in found.low.items():
        high = found.high[sampling, name, k]
        category = {text: found.texts[sampling, text].category for text in tallies}
        for kind in sorted(set(category.values())) if by_category else [None]:
            chosen = [text for text in tallies if kind is None or category[text] == kind]
            row = _row(
                k,
                {text: tallies[text] for text in chosen},
                {text: high[text] for text in chosen},
                found,
                sampling,
            )
            head = {"drafter": name, "k": k, "sampling": describe(sampling)}
            made.append(head | ({} if kind is None else {"category": kind}) | row)
    return made


def _row(
    k: int, low: Mapping[str, Tally], high: Mapping[str, Tally], found: Scored, sampling: Sampling
) -> dict[str, Any]:
    total, most = pool(low.values(), k), pool(high.values(), k)
    clusters = _clusters(low, found, sampling)
    bottom, _ = interval(*_sums(clusters, low), highest=k)
    _, top = interval(*_sums(clusters, high), highest=k)
    length, rate = 1 + ratio(total.kept, total.steps), ratio(total.kept, total.offered)
    slack = 1e-9
    require(not length < 1 - slack and not length > k + 1 + slack, f"acceptance length {length} at K={k}")
    require(math.isnan(rate) or -slack <= rate <= 1 + slack, f"hit rate {rate}")
    return {
        "hit_rate": rate,
        "position_rates": [ratio(value, total.steps) for value in total.accepted],
        "acceptance_length": length,
        "low": 1 + bottom,
        "high": 1 + top,
        "precision": ratio(total.kept, total.drafted) if total.drafted == total.drafted else math.nan,
        "steps": total.steps,
        "drafts": total.drafts,
        "offered": total.offered,
        "drafted": total.drafted,
        "accepted": total.accepted,
        "histogram": total.histogram,
        "bracket": [length, 1 + ratio(most.kept, most.steps)],
        "texts": len(low),
        "prompts": len(clusters),
    }


def _sums(clusters: Sequence[Sequence[str]], tallies: Mapping[str, Tally]) -> tuple[list[float], list[float]]:
    """Kept tokens and steps of each cluster."""
    kept = [math.fsum(tallies[text].kept for text in texts) for texts in clusters]
    return kept, [math.fsum(tallies[text].steps for text in texts) for texts in clusters]


def _clusters(tallies: Iterable[str], found: Scored, sampling: Sampling) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for text in sorted(tallies):
        groups.setdefault(found.texts[sampling, text].cluster, []).append(text)
    return list(groups.values())


def pairs(found: Scored) -> list[dict[str, Any]]:
    """Gives each two drafters' difference in acceptance length, on the texts both were scored on."""
    made = []
    kinds = {(sampling, k) for sampling, _, k in found.low}
    for sampling, k in sorted(kinds, key=lambda one: (describe(one[0]), one[1])):
        names = [name for s, name, other in found.low if (s, other) == (sampling, k)]
        for a, b in combinations(names, 2):
            mine, other = found.low[sampling, a, k], found.low[sampling, b, k]
            clusters = _clusters(mine.keys() & other.keys(), found, sampling)
            counts = np.array(
                [
                    [
                        math.fsum(value(side[t]) for t in texts)
                        for side in (mine, other)
                        for value in _KEPT_STEPS
                    ]
                    for texts in clusters
                ]
            ).reshape(-1, 4)
            diff, low, high = paired_difference(counts)
            made.append(
                {
                    "a": a,
                    "b": b,
                    "k": k,
                    "sampling": describe(sampling),
                    "diff": diff,
                    "low": low,
                    "high": high,
                }
            )
    return made


_KEPT_STEPS: tuple[Callable[[Tally], float], Callable[[Tally], float]] = (
    lambda tally: tally.kept,
    lambda tally: tally.steps,
)


def paired_difference(counts: Any, level: float = LEVEL) -> tuple[float, float, float]:
    """Gives the difference of two ratios over the same clusters, with an interval.

    The linearised estimator of :func:`arena.metrics.interval` for a difference: with r =
    Σa/Σb of each side, e_i = (a_i - r b_i) / Σb, side one less side two, and
    var = n/(n-1) Σe_i².

    Args:
        counts: float[n, 4], a and b of side one, a and b of side two, one row a prompt.
        level: Confidence level.

    Returns:
        Difference, low and high end; nan where fewer than two clusters say anything.
    """
    table = np.asarray(counts, dtype=np.float64)
    table = table[(table[:, 1] > 0) & (table[:, 3] > 0)]
    n = len(table)
    if n == 0:
        return math.nan, math.nan, math.nan
    a, b, c, d = (math.fsum(column) for column in table.T)
    first, second = a / b, c / d
    if n < 2:
        return first - second, math.nan, math.nan
    e = (table[:, 0] - first * table[:, 1]) / b - (table[:, 2] - second * table[:, 3]) / d
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * math.sqrt(n / (n - 1) * math.fsum(e * e))
    return first - second, first - second - half, first - second + half
