"""What drafters said last, and strangest, beside what the verifier said instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from arena.errors import RunError, one_of
from arena.store import RunDirectory

BEFORE = 12
"""Tokens of the text before a draft that are shown."""


@dataclass(frozen=True, slots=True)
class Words:
    """One draft of a drafter's last round.

    Attributes:
        drafter: Who said it.
        round: Its last round.
        retired: Whether it left after it (else it won, or the run was cut short).
        kind: ``"strangest"``, a draft with one of the tokens that the target found least
            likely in their context; or ``"last"``, a draft of the step that ended a text.
        prompt_id: The prompt.
        start: Where in the output the draft begins, tokens.
        before: Output tokens before it, the last few.
        drafted: What it proposed.
        committed: What the verifier committed there instead.
        place: Position in ``drafted`` of the least likely token.
        target_prob: The target's probability of that token.
    """

    drafter: str
    round: int
    retired: bool
    kind: Literal["strangest", "last"]
    prompt_id: str
    start: int
    before: tuple[int, ...]
    drafted: tuple[int, ...]
    committed: tuple[int, ...]
    place: int
    target_prob: float


def last_words(
    directory: RunDirectory, drafters: Sequence[str] = (), *, strangest: int = 3, last: int = 2
) -> list[Words]:
    """Reads the last words of a run from its steps and commits.

    Args:
        directory: A run with at least one round.
        drafters: Whose; by default all that were retired, in order of leaving.
        strangest: How many of the drafts with the least likely tokens.
        last: How many of the drafts at the ends of texts that were not kept whole.

    Raises:
        RunError: If nothing was played, or a drafter never was in the run.
    """
    records = directory.rounds()
    if not records:
        raise RunError(f"{str(directory.path)!r} has no finished round yet: nobody has said a last word.")
    ends = {name: record["round"] for record in records for name in record["alive"]}
    left = [record["retired"]["drafter"] for record in records if record["retired"]]
    for name in drafters:
        if name not in ends:
            raise RunError(one_of("drafter of this run", name, sorted(ends)))
    found: list[Words] = []
    for name in drafters or left:
        texts, drafts = _round(directory, ends[name], name)
        weakest = sorted(drafts, key=lambda row: (min(row["target_prob"]), row["prompt_id"], row["start"]))
        closing = [row for row in drafts if texts.ends(row) and row["n_accepted"] < len(row["tokens"])]
        chosen = [("strangest", row) for row in _apart(weakest, strangest)]
        chosen += [("last", row) for row in closing[-last:] if last]
        found += [_words(name, ends[name], name in left, kind, row, texts) for kind, row in chosen]
    return found


class _Texts:
    """The committed text of one round."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._commits = {(row["prompt_id"], row["start"]): row for row in rows}
        self._tokens: dict[str, list[int]] = {}
        for row in sorted(rows, key=lambda row: (row["prompt_id"], row["start"])):
            self._tokens.setdefault(row["prompt_id"], []).extend(row["tokens"])

    def ends(self, row: Mapping[str, Any]) -> bool:
        """Whether the text ended in the lane-step of a draft."""
        return bool(self._commits[row["prompt_id"], row["start"]]["finish"])

    def committed(self, row: Mapping[str, Any]) -> tuple[int, ...]:
        """What was committed there."""
        return tuple(self._commits[row["prompt_id"], row["start"]]["tokens"])

    def before(self, row: Mapping[str, Any]) -> tuple[int, ...]:
        """The output before it."""
        return tuple(self._tokens[row["prompt_id"]][max(0, row["start"] - BEFORE) : row["start"]])


def _round(directory: RunDirectory, number: int, name: str) -> tuple[_Texts, list[dict[str, Any]]]:
    columns = ["prompt_id", "start", "drafter", "n_accepted", "tokens", "target_prob"]
    steps = directory.read_table("steps", number).select(columns).to_pylist()
    drafts = [row for row in steps if row["drafter"] == name and row["tokens"]]
    return _Texts(directory.read_table("commits", number).to_pylist()), drafts


def _apart(rows: Sequence[dict[str, Any]], wanted: int) -> list[dict[str, Any]]:
    """Takes the first rows whose least likely tokens differ: one word said often is one word."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["tokens"][_weakest(row)], row)
    return list(found.values())[:wanted]


def _weakest(row: Mapping[str, Any]) -> int:
    return min(range(len(row["tokens"])), key=lambda place: (row["target_prob"][place], place))


def _words(name: str, number: int, retired: bool, kind: Any, row: Mapping[str, Any], texts: _Texts) -> Words:
    place = _weakest(row)
    return Words(
        drafter=name,
        round=number,
        retired=retired,
        kind=kind,
        prompt_id=row["prompt_id"],
        start=row["start"],
        before=texts.before(row),
        drafted=tuple(row["tokens"]),
        committed=texts.committed(row),
        place=place,
        target_prob=row["target_prob"][place],
    )
