"""The scoreboard: a fold over verdicts, idempotent, in any order.

A verdict is known by (prompt_id, start, drafter) within its round, so one that
arrives twice counts once, and sums do not depend on lanes, backends or timing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arena.errors import RunError
from arena.metrics import Counts, best_first, pool, require, standing
from arena.types import Verdict

__all__ = ["Counts", "RoundTally", "Scoreboard"]

_Key = tuple[str, int, str]
_Entry = tuple[int, int, int, int, float]


@dataclass(frozen=True, slots=True)
class RoundTally:
    """What a round came to.

    Attributes:
        per_drafter: Name to counts over the whole round, in order of name.
        per_prompt: Name to prompt_id to counts, both in order.
    """

    per_drafter: Mapping[str, Counts]
    per_prompt: Mapping[str, Mapping[str, Counts]]

    @classmethod
    def of(cls, per_prompt: Mapping[str, Mapping[str, Counts]]) -> RoundTally:
        """Pools the counts by prompt, both levels in order."""
        pooled = {name: pool(list(parts.values())).check(name) for name, parts in per_prompt.items()}
        return cls(pooled, per_prompt)


class Scoreboard:
    """Counts whose tokens the verifier keeps. Can be asked while a round goes on."""

    def __init__(self) -> None:
        self._rounds: dict[int, dict[_Key, _Entry]] = {}
        self._current: int | None = None

    def begin(self, round: int) -> None:
        """Opens a round; ``fold`` counts into it from now on.

        A round that is opened again starts from nothing: it is replayed from its barrier.
        """
        self._rounds[round] = {}
        self._current = round

    def clear(self, round: int) -> None:
        """Forgets a round (a round that is stored need not stay in memory)."""
        self._rounds.pop(round, None)
        if self._current == round:
            self._current = None

    def fold(self, verdicts: Sequence[Verdict]) -> None:
        """Counts verdicts into the open round; a verdict that was counted before changes nothing.

        Raises:
            RunError: If no round is open.
            InvariantError: If a verdict's counts are impossible, or differ from those of
                the same verdict delivered before.
        """
        if self._current is None:
            raise RunError("the scoreboard has no open round: call begin(round) before fold.")
        entries = self._rounds[self._current]
        for verdict in verdicts:
            key = (verdict.step.prompt_id, verdict.step.start, verdict.drafter)
            entry = _entry(verdict)
            if key not in entries:
                _as_counts([entry]).check(f"verdict {key}")
            known = entries.setdefault(key, entry)
            require(known == entry, f"verdict {key} came twice and differs: {known}, then {entry}")

    def tally(self, round: int) -> RoundTally:
        """Sums a round up, in an order of its own.

        Raises:
            RunError: If the round was never begun, or was cleared.
        """
        if round not in self._rounds:
            raise RunError(f"the scoreboard holds no round {round}; it holds {sorted(self._rounds)}.")
        groups: dict[str, dict[str, list[_Entry]]] = defaultdict(lambda: defaultdict(list))
        for (prompt_id, _, drafter), entry in self._rounds[round].items():
            groups[drafter][prompt_id].append(entry)
        per_prompt = {
            name: {prompt: _as_counts(groups[name][prompt]) for prompt in sorted(groups[name])}
            for name in sorted(groups)
        }
        return RoundTally.of(per_prompt)

    def standings(self) -> list[dict[str, Any]]:
        """Gives the open round's rows for people to look at, best first; empty between rounds."""
        if self._current is None:
            return []
        tally = self.tally(self._current)
        return [
            {"round": self._current}
            | asdict(standing(name, tally.per_prompt[name]))
            | {"lane_steps": tally.per_drafter[name].lane_steps}
            for name in best_first(tally.per_drafter, tally.per_drafter)
        ]


def _entry(verdict: Verdict) -> _Entry:
    return (
        verdict.n_offered,
        verdict.n_drafted,
        verdict.n_accepted,
        verdict.n_matched,
        verdict.expected_accepted,
    )


def _as_counts(entries: Sequence[_Entry]) -> Counts:
    return Counts(
        lane_steps=len(entries),
        offered=sum(entry[0] for entry in entries),
        drafted=sum(entry[1] for entry in entries),
        accepted=sum(entry[2] for entry in entries),
        matched=sum(entry[3] for entry in entries),
        expected=math.fsum(entry[4] for entry in entries),
    )
