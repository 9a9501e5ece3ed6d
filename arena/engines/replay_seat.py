"""A worker that plays rounds by replay: some texts, all drafters that do not learn.

Texts are dealt to workers by their place, learners by their name, and every coin is
keyed by what it is for, so that the number of workers changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena import seeding
from arena.engines.forcing import in_key_order, lesson, odds_of
from arena.engines.health import Healthy
from arena.engines.replay import Starts, fixed_starts, shape_of, walk
from arena.engines.seats import DrafterSeat, Failure, Span
from arena.errors import DrafterFault
from arena.protocols import Capabilities
from arena.traces.records import Trace
from arena.types import LaneStep, Verdict


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """How a round is replayed.

    Attributes:
        key: Folded from seed, generation and round.
        draft_length: K.
        starts: Where blocks start.
        chunk: Texts that a learner predicts before it learns from them.
    """

    key: int
    draft_length: int
    starts: Starts
    chunk: int


class ReplaySeat(Healthy):
    """Holds all drafters of a roster; each is used here, or at its home if it learns.

    Args:
        drafters: Name to (``"module:Class"``, options).
    """

    def __init__(self, *, drafters: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
        self._seats = {
            name: DrafterSeat(name=name, target=target, options=options)
            for name, (target, options) in drafters.items()
        }
        self._spans: list[Span] = []

    def ready(self) -> dict[str, Capabilities]:
        """Answers once every drafter is built."""
        return {name: seat.ready() for name, seat in self._seats.items()}

    def of(self, drafter: str, method: str, *args: Any) -> Any:
        """Calls a method of one drafter's seat."""
        return getattr(self._seats[drafter], method)(*args)

    def rebuild(self, drafter: str, target: str, options: Mapping[str, Any]) -> None:
        """Takes a drafter back to its beginning."""
        self._seats[drafter] = DrafterSeat(name=drafter, target=target, options=options)

    def score(
        self, plan: ReplayPlan, names: Sequence[str], learners: Sequence[str], texts: Sequence[Trace]
    ) -> list[Verdict]:
        """Walks every text with every drafter, with a coin a step.

        Raises:
            DrafterFault: A drafter raised, or answered something unusable.
        """
        found: list[Verdict] = []
        for name in names:
            start, before = time.time(), len(found)
            drafter = self._seats[name].drafter
            ordered = in_key_order(texts, plan.key) if name in learners else list(texts)
            size = plan.chunk if name in learners else max(1, len(ordered))
            for first in range(0, len(ordered), size):
                chunk = ordered[first : first + size]
                for text in chunk:
                    try:
                        found.extend(_walk(name, drafter, text, plan))
                    except DrafterFault:
                        raise
                    except Exception as error:  # a third party's drafter may raise anything
                        raise DrafterFault(name, f"raised {type(error).__name__}: {error}") from error
                if name in learners:
                    answer = self._seats[name].learn(tuple(lesson(text) for text in chunk))
                    if isinstance(answer, Failure):
                        raise DrafterFault(name, answer.reason)
            drafted = sum(verdict.n_drafted for verdict in found[before:])
            self._spans.append(Span(name, "score", start, time.time(), len(texts), drafted))
        return found

    def spans(self) -> list[Span]:
        """Hands over the spans of all drafters since the last call."""
        mine, self._spans = self._spans, []
        return mine + [span for seat in self._seats.values() for span in seat.spans()]


def _walk(name: str, drafter: Any, text: Trace, plan: ReplayPlan) -> list[Verdict]:
    odds = odds_of(name, drafter, text, plan.draft_length, "arena", plan.key)
    shape = shape_of(text, "arena")
    fixed = fixed_starts(plan.starts, text, shape)
    key = seeding.fold(plan.key, text.prompt_id)

    def coin(start: int) -> float:
        return float(seeding.uniform(key, start, name, "replay"))

    return [
        Verdict(
            step=LaneStep(text.prompt_id, step.start),
            drafter=name,
            n_offered=step.offered,
            n_drafted=step.drafted,
            n_accepted=step.accepted,
            n_matched=step.accepted,
            expected_accepted=step.expected,
            tokens=(),
            target_probs=(),
            draft_probs=(),
        )
        for step in walk(shape, odds, plan.draft_length, coin, fixed)
    ]
