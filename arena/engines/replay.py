"""Replay: the exact law of a speculative run, from recorded text alone. Pure; no drafter, no model.

Given a target's text x and its probabilities p, keeping x_j with a_j = min(1, q/p)
has exactly the joint law of (kept, emitted) in speculative sampling: for
P(kept, x) = p min(1, q/p) = min(p, q), and x ~ (p - q)+ where it is not kept
(Leviathan et al. 2211.17192, read backwards). So the block structure of a run with
any drafter is a walk along the text, and no coin is needed: with b[s] the chance that
a block starts at s, each start passes b[s] on to the starts that may follow it. Exact
expectations come of that, for every draft length, from one scoring of the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from arena.sampling import is_greedy
from arena.traces.records import Trace
from arena.types import Floats

Starts = Literal["own", "joint", "every"]
"""Where blocks start: at the drafter's own walk (the deployed rate), at the recorded steps, or everywhere."""

Accounting = Literal["arena", "engine"]
"""``arena`` asks for min(K, budget left - 1) tokens and nothing past an accepted end token; ``engine``
asks for K whatever is left, as vLLM's counters do."""


@dataclass(frozen=True, slots=True)
class StepDraft:
    """What a drafter does at one start.

    Attributes:
        chances: a_j of its draft's positions along the text, as many as it drafts at most.
        drafted: How many tokens it proposes, or None where the text alone cannot tell
            (a sampled chain may stop on tokens that are not in the text).
    """

    chances: Sequence[float]
    drafted: int | None = None


class Odds(Protocol):
    """One drafter along one text."""

    def at(self, start: int, k: int) -> StepDraft:
        """What it does at a start, asked for k tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Shape:
    """A text as the walk sees it.

    Attributes:
        length: Output tokens, the end token included.
        first: Position of the first step.
        budget: Tokens that the text could have had, or None where not known.
        stopped: Its last token stopped it: nothing was wanted after it.
        accounting: How many tokens a drafter is asked for.
    """

    length: int
    first: int = 0
    budget: int | None = None
    stopped: bool = False
    accounting: Accounting = "arena"

    def asked(self, start: int, k: int) -> int:
        """K_eff: of the budget, never of the text's own length, which would leak its end."""
        if self.accounting == "engine" or self.budget is None:
            return k
        return max(0, min(k, self.budget - start - 1))


def shape_of(trace: Trace, accounting: Accounting) -> Shape:
    """Gives a text's shape; an end token that was drawn but not logged counts as one more token."""
    unseen = unseen_end(trace)
    return Shape(
        len(trace.tokens) + unseen, trace.first, trace.max_tokens, trace.finish == "stop", accounting
    )


def unseen_end(trace: Trace) -> bool:
    """Whether an end token was drawn that the log does not hold: its a is unknown, 0 to 1."""
    return trace.finish == "stop" and not trace.end_logged and not trace.stopped_by_text


def fixed_starts(starts: Starts, trace: Trace, shape: Shape) -> Sequence[int] | None:
    """Gives the starts that are counted whatever the walk does; None where it walks the drafter's own."""
    if starts == "own":
        return None
    return trace.starts if starts == "joint" else range(shape.first, shape.length)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One way in which a step can go.

    Attributes:
        prob: Its chance given the text.
        accepted: Draft tokens kept.
        length: Tokens committed, at most those that the text still has.
        ended: An end token was kept: the text is over.
    """

    prob: float
    accepted: int
    length: int
    ended: bool


def outcomes(shape: Shape, start: int, k: int, chances: Sequence[float]) -> list[Outcome]:
    """Gives the law of one step along the text.

    Args:
        shape: The text.
        start: Where the step begins.
        k: Draft length.
        chances: a_j along the text from ``start`` on, as far as a draft goes.
    """
    most = min(len(chances), shape.asked(start, k), shape.length - start)
    found, live = [], 1.0
    for i in range(most):
        chance = chances[i]
        if chance < 1.0:
            found.append(Outcome(live * (1.0 - chance), i, i + 1, False))
            live *= chance
        if live == 0.0:
            return found
        if shape.stopped and start + i == shape.length - 1:
            found.append(Outcome(live, i + 1, i + 1, True))
            return found
    found.append(Outcome(live, most, min(most + 1, shape.length - start), False))
    return found


@dataclass(slots=True)
class Tally:
    """Expected counts over steps, given the text.

    Attributes:
        steps: Verifier steps.
        drafts: Of those, steps for which a draft was made.
        offered: Draft tokens asked for.
        drafted: Draft tokens proposed; nan where the text cannot tell.
        accepted: Steps that kept at least 1, 2, ... draft tokens.
        histogram: Steps that kept exactly 0, 1, ... draft tokens.
    """

    steps: float = 0.0
    drafts: float = 0.0
    offered: float = 0.0
    drafted: float = 0.0
    accepted: list[float] = field(default_factory=list)
    histogram: list[float] = field(default_factory=list)

    @property
    def kept(self) -> float:
        """Draft tokens kept in all."""
        return math.fsum(self.accepted)


def pool(parts: Iterable[Tally], k: int) -> Tally:
    """Adds tallies of one draft length up, exactly rounded, so that no order matters."""
    listed = list(parts)
    return Tally(
        math.fsum(part.steps for part in listed),
        math.fsum(part.drafts for part in listed),
        math.fsum(part.offered for part in listed),
        math.fsum(part.drafted for part in listed),
        [math.fsum(part.accepted[i] for part in listed) for i in range(k)],
        [math.fsum(part.histogram[i] for part in listed) for i in range(k + 1)],
    )


def expect(shape: Shape, odds: Odds, k: int, starts: Sequence[int] | None = None) -> Tally:
    """Walks one text without a coin.

    Args:
        shape: The text.
        odds: The drafter along it.
        k: Draft length, at least 1.
        starts: Fixed starts, each counted once; None walks the drafter's own.

    Returns:
        Exact expectations given the text.
    """
    here = [0.0] * (shape.length + 1)
    if starts is None:
        here[shape.first] = 1.0
    else:
        for start in starts:
            here[start] += 1.0
    tally = Tally(accepted=[0.0] * k, histogram=[0.0] * (k + 1))
    for start in range(shape.first, shape.length):
        weight = here[start]
        if weight == 0.0:
            continue
        asked = shape.asked(start, k)
        draft = odds.at(start, asked)
        tally.steps += weight
        if asked and draft.drafted != 0:
            tally.drafts += weight
        for way in outcomes(shape, start, k, draft.chances):
            mass = weight * way.prob
            whole = way.ended and shape.accounting == "arena"
            tally.offered += mass * (way.accepted if whole else asked)
            drafted = math.nan if draft.drafted is None else min(draft.drafted, asked)
            tally.drafted += mass * (way.accepted if whole and draft.drafted is not None else drafted)
            tally.histogram[way.accepted] += mass
            for i in range(way.accepted):
                tally.accepted[i] += mass
            if starts is None and not way.ended and start + way.length < shape.length:
                here[start + way.length] += mass
    return tally


@dataclass(frozen=True, slots=True)
class Walked:
    """One step of a walk with coins.

    Attributes:
        start: Where it began.
        offered: Draft tokens asked for.
        drafted: Draft tokens proposed, as far as the text can tell; else as many as asked.
        accepted: Draft tokens kept.
        length: Tokens committed.
        expected: Expectation of ``accepted`` given the text.
    """

    start: int
    offered: int
    drafted: int
    accepted: int
    length: int
    expected: float


def walk(
    shape: Shape, odds: Odds, k: int, coin: Callable[[int], float], starts: Sequence[int] | None = None
) -> list[Walked]:
    """Walks one text with a coin a step: one run, drawn from the exact law given the text.

    Args:
        shape: The text.
        odds: The drafter along it.
        k: Draft length, at least 1.
        coin: A number in [0, 1) for each start.
        starts: Fixed starts; None walks the drafter's own.
    """
    queue = list(starts) if starts is not None else [shape.first]
    steps = []
    while queue:
        start = queue.pop(0)
        asked = shape.asked(start, k)
        draft = odds.at(start, asked)
        ways = outcomes(shape, start, k, draft.chances)
        u, way = coin(start), ways[-1]
        for candidate in ways:
            u -= candidate.prob
            if u < 0:
                way = candidate
                break
        whole = way.ended and shape.accounting == "arena"
        drafted = asked if draft.drafted is None else min(draft.drafted, asked)
        expected = math.fsum(one.prob * one.accepted for one in ways)
        steps.append(
            Walked(
                start,
                way.accepted if whole else asked,
                way.accepted if whole else drafted,
                way.accepted,
                way.length,
                # Given the draft it cannot exceed what was drafted; given the text, rounding may.
                min(expected, float(way.accepted if whole else drafted)),
            )
        )
        if starts is None and not way.ended and start + way.length < shape.length:
            queue.append(start + way.length)
    return steps


def chances(trace: Trace, draft_logprobs: Floats, *, point: bool = False) -> list[float]:
    """Gives a_j = min(1, q / p) along a text; for a greedy target [argmax q = x].

    Args:
        trace: The text, of a law that ``law_fault`` passes.
        draft_logprobs: Log of the drafter's probability of each output token, -inf where excluded.
        point: The drafter sends point masses: whatever p is, a is 1 or 0.
    """
    sure = point or is_greedy(trace.sampling)
    target = [0.0] * len(trace.tokens) if sure else list(trace.logprobs)
    return [
        0.0 if q == -math.inf else math.exp(min(0.0, q - p))
        for q, p in zip(draft_logprobs.tolist(), target, strict=True)
    ]
