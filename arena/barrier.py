"""What lies between two rounds: where the tournament stands, and what a round leaves to be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena.engines.live import RoundPlay
from arena.engines.seats import Span
from arena.metrics import best_first
from arena.scoreboard import RoundTally


@dataclass(frozen=True, slots=True)
class Barrier:
    """Where a tournament stands between two rounds; all that the next one depends on.

    Attributes:
        alive: Sorted names.
        history: What each round came to, oldest first.
        snapshots: What each learner had learnt, as files.
    """

    alive: tuple[str, ...]
    history: tuple[RoundTally, ...]
    snapshots: Mapping[str, Mapping[str, bytes]]

    def ranks(self) -> dict[str, int] | None:
        """Standing by the last round's counts, for ``order: standing``; names break ties."""
        if not self.history:
            return None
        best = best_first(self.alive, self.history[-1].per_drafter)
        return {name: rank for rank, name in enumerate(best)}


@dataclass(frozen=True, slots=True)
class Closing:
    """A round that is played and judged, and not yet written.

    Attributes:
        record: Its line.
        played: What was played.
        tally: What it came to.
        learnt: What the learners that go on have learnt, as files.
        timing: Clock values.
    """

    record: dict[str, Any]
    played: RoundPlay
    tally: RoundTally
    learnt: Mapping[str, Mapping[str, bytes]]
    timing: Sequence[Mapping[str, Any]]


def timing_rows(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Rows of the timing table, in order of time."""
    return [
        {
            "who": span.worker,
            "stage": span.method,
            "start": span.start,
            "seconds": span.end - span.start,
            "lanes": span.lanes,
            "tokens": span.tokens,
            "bytes": span.payload,
        }
        for span in sorted(spans, key=lambda span: span.start)
    ]
