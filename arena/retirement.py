"""Who is retired after a round: small pure functions of the standings.

A rule returns a value and touches nothing. It sees only the drafters that are alive
at the barrier: one that was withdrawn (crashed, unusable) is censored, not beaten,
and is never named here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from arena import confident
from arena.errors import ConfigError, one_of
from arena.metrics import Counts, acceptance_length, goodput, hit_rate, pool, precision, rank_key, ratio
from arena.scoreboard import RoundTally


@dataclass(frozen=True, slots=True)
class Retirement:
    """One drafter leaves.

    Attributes:
        drafter: Its name.
        reason: Why, for people to read.
        numbers: What the decision rests on; finite values only.
    """

    drafter: str
    reason: str
    numbers: Mapping[str, float]

    def plain(self) -> dict[str, Any]:
        """Plain values, as a round's record holds them."""
        return {"drafter": self.drafter, "reason": self.reason, "numbers": dict(self.numbers)}


@dataclass(frozen=True, slots=True)
class Standings:
    """All that a retirement rule may look at.

    Attributes:
        round: Number of the round that has just been played, from 1.
        alive: Names that played it to its end, in any order.
        tally: What that round came to.
        earlier: What the rounds before it came to, oldest first.
        step_ms: Time of a step with each drafter alone, ms, as stored before round 1;
            empty where nothing was calibrated.
        contribution: Sum of each drafter's Shapley values over the round, tokens; empty
            where nothing was priced.
    """

    round: int
    alive: tuple[str, ...]
    tally: RoundTally
    earlier: tuple[RoundTally, ...] = ()
    step_ms: Mapping[str, float] = field(default_factory=dict)
    contribution: Mapping[str, float] = field(default_factory=dict)

    def counts(self, name: str) -> Counts:
        """Gives a drafter's counts of this round; zeros if it was never scored."""
        return self.tally.per_drafter.get(name, Counts())


class RetirementRule(Protocol):
    """Answers once a round, at the barrier."""

    def retire(self, standings: Standings) -> Retirement | None:
        """Names who leaves, or None to keep all. With one alive there is nobody to retire."""
        ...


@dataclass(frozen=True, slots=True)
class LowestHitRate:
    """Retires the lowest accepted / offered of the round.

    Ties go by lower precision, then by lower expected acceptance a lane-step, then
    by the name that comes first in code-point order (:func:`arena.metrics.rank_key`).
    """

    def retire(self, standings: Standings) -> Retirement | None:
        """Names the lowest of the round."""
        if len(standings.alive) < 2:
            return None
        ranked = sorted(standings.alive, key=lambda name: rank_key(name, standings.counts(name)))
        lowest, following = (standings.counts(name) for name in ranked[:2])
        return Retirement(ranked[0], _why(lowest, following, ranked[1]), _numbers(lowest, following))


@dataclass(frozen=True, slots=True)
class LowestGoodput:
    """Retires the lowest acceptance length a millisecond, by costs stored before round 1.

    A drafter that could not be priced counts as below all others. Ties go as they do
    for :class:`LowestHitRate`. Needs ``engine.calibrate``.
    """

    def retire(self, standings: Standings) -> Retirement | None:
        """Names the lowest of the round."""
        if len(standings.alive) < 2:
            return None

        def speed(name: str) -> float:
            step_ms = standings.step_ms.get(name)
            value = math.nan if step_ms is None else goodput(standings.counts(name), step_ms)
            return -1.0 if math.isnan(value) else value

        ranked = sorted(
            standings.alive, key=lambda name: (speed(name), *rank_key(name, standings.counts(name)))
        )
        lowest, following = ranked[:2]
        shown = "without a price" if speed(lowest) < 0 else f"{speed(lowest):.4f} tokens/ms"
        reason = f"lowest goodput: {shown}, next {following!r} {max(0.0, speed(following)):.4f}"
        numbers = {
            "goodput": speed(lowest),
            "next_goodput": speed(following),
            "step_ms": standings.step_ms.get(lowest, math.nan),
            "next_step_ms": standings.step_ms.get(following, math.nan),
            "acceptance_length": acceptance_length(standings.counts(lowest)),
            "next_acceptance_length": acceptance_length(standings.counts(following)),
        }
        return Retirement(lowest, reason, {key: value for key, value in numbers.items() if value == value})


@dataclass(frozen=True, slots=True)
class LowestContribution:
    """Retires the lowest Shapley value of the joint accepted length: who adds least to the field.

    A drafter that is good, but whose tokens others propose as well, adds little; a
    weak one that finds what nobody else does adds much. Values may be negative. Ties go
    as they do for :class:`LowestHitRate`. Needs ``engine.contribution``.
    """

    def retire(self, standings: Standings) -> Retirement | None:
        """Names the lowest of the round."""
        if len(standings.alive) < 2:
            return None
        worth = standings.contribution
        ranked = sorted(
            standings.alive,
            key=lambda name: (worth.get(name, -math.inf), *rank_key(name, standings.counts(name))),
        )
        lowest, following = ranked[:2]
        steps = max(1, standings.counts(lowest).lane_steps)
        mine, other = (worth.get(name, 0.0) / steps for name in (lowest, following))
        reason = f"lowest contribution: {mine:+.4f} tokens a step (Shapley), next {following!r} {other:+.4f}"
        return Retirement(lowest, reason, {"contribution": mine, "next_contribution": other})


@dataclass(frozen=True, slots=True)
class Confident:
    """Retires who is beaten by EVERY other drafter alive, with stated odds of a mistake.

    Evidence is gathered prompt by prompt and kept over rounds, so that a round of few
    prompts may retire nobody. The chance of ever retiring a drafter that is at least as
    good as all others is at most ``delta`` over the whole tournament
    (:mod:`arena.confident`). Where the field has not come apart after
    ``cap`` rounds, the lowest by all counts so far leaves, marked ``unseparated``.

    Attributes:
        delta: Odds of a mistake, over the whole tournament.
        cap: Rounds without a retirement after which the point estimate decides.
        by: What is compared: ``hit_rate``, or ``goodput`` by costs stored before round 1.
    """

    delta: float = 0.05
    cap: int = 8
    by: str = "hit_rate"

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1 or self.cap < 1 or self.by not in ("hit_rate", "goodput"):
            raise ConfigError(
                f"retirement confident: delta={self.delta}, cap={self.cap}, by={self.by!r}; "
                "expected delta in (0, 1), cap of at least 1 round, by hit_rate or goodput."
            )

    def retire(self, standings: Standings) -> Retirement | None:
        """Names who is beaten by all; at the cap, the lowest; else nobody."""
        if len(standings.alive) < 2:
            return None
        names, rounds = sorted(standings.alive), (*standings.earlier, standings.tally)
        values = confident.gather(names, rounds, lambda name, counts: self._value(name, counts, standings))
        e = confident.fold(len(names), values, speeds=self.by == "goodput")
        needed = confident.threshold(len(rounds[0].per_drafter), self.delta)
        least = dict(zip(names, confident.against_all(e), strict=True))
        total = {name: pool([one.per_drafter.get(name, Counts()) for one in rounds]) for name in names}
        ranked = sorted(names, key=lambda n: (self._value(n, total[n], standings), *rank_key(n, total[n])))
        beaten = [name for name in ranked if least[name] >= needed]
        waited = confident.waited(names, rounds)
        if not beaten and waited < self.cap:
            return None
        leaves = beaten[0] if beaten else ranked[0]
        why = f"unseparated after {waited} rounds; lowest {self.by} so far"
        if beaten:
            why = f"beaten by every other alive: evidence {least[leaves]:.3g}, needed {needed:.3g}"
        numbers = {
            "evidence": least[leaves],
            "needed": needed,
            "rounds": float(waited),
            "rounds_saved": float(self.cap - waited),
            "prompts": float(sum(map(len, values))),
        }
        return Retirement(leaves, why, numbers)

    def _value(self, name: str, counts: Counts, standings: Standings) -> float:
        """A drafter's rate or speed; what cannot be told counts as 0."""
        step_ms = standings.step_ms.get(name)
        value = hit_rate(counts)
        if self.by == "goodput":
            value = math.nan if step_ms is None else goodput(counts, step_ms)
        return 0.0 if math.isnan(value) else value


@dataclass(frozen=True, slots=True)
class Never:
    """Keeps all: a field without elimination, to compare with."""

    def retire(self, standings: Standings) -> Retirement | None:
        """Names nobody."""
        return None


def _why(lowest: Counts, following: Counts, name: str) -> str:
    lost = rank_key("", lowest)
    won = rank_key("", following)
    by = ("hit rate", "precision", "expected acceptance")
    for what, mine, other in zip(by, lost[:3], won[:3], strict=True):
        if mine < other:
            shown = "nothing drafted" if mine < 0 else f"{mine:.4f}"
            tie = "" if what == by[0] else f"tied with {name!r} on {by[by.index(what) - 1]}; "
            return f"{tie}lowest {what}: {shown}, next {name!r} {other:.4f}"
    return f"tied with {name!r} on every count; first by name"


def _numbers(lowest: Counts, following: Counts) -> dict[str, float]:
    numbers = {
        "hit_rate": hit_rate(lowest),
        "next_hit_rate": hit_rate(following),
        "precision": precision(lowest),
        "next_precision": precision(following),
        "expected_per_step": ratio(lowest.expected, lowest.lane_steps),
        "next_expected_per_step": ratio(following.expected, following.lane_steps),
    }
    return {key: value for key, value in numbers.items() if value == value}


RULES: dict[str, Callable[..., RetirementRule]] = {
    "confident": Confident,
    "lowest_goodput": LowestGoodput,
    "lowest_contribution": LowestContribution,
    "lowest_hit_rate": LowestHitRate,
    "never": Never,
}
"""Retirement rules by the name that a config gives them."""


def get(kind: str, **options: Any) -> RetirementRule:
    """Builds a retirement rule from config values.

    Args:
        kind: A name in ``RULES``.
        **options: Fields of the rule.

    Raises:
        ConfigError: If the name or an option is not known.
    """
    if kind not in RULES:
        raise ConfigError(one_of("retirement rule", kind, RULES))
    known = getattr(RULES[kind], "__dataclass_fields__", {})
    for option in options:
        if option not in known:
            raise ConfigError(one_of(f"option of retirement rule {kind!r}", option, known))
    return RULES[kind](**options)
