"""How fast drafters answered in a run, from its timing files. No decision reads it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena.metrics import ratio
from arena.store import RunDirectory


@dataclass(frozen=True, slots=True)
class Pace:
    """One drafter's pace over a run.

    Attributes:
        drafter: Its name.
        ms_per_token: Milliseconds of drafting by tokens drafted, all lanes together; nan
            if it drafted nothing.
        answered_first: Share of the passes it took part in that it answered before all
            others, counted from when each was asked; an empty draft is no answer. nan
            where no pass can be compared.
        passes: Passes it took part in.
    """

    drafter: str
    ms_per_token: float
    answered_first: float
    passes: int


def pace(directory: RunDirectory, records: Iterable[Mapping[str, Any]] | None = None) -> list[Pace]:
    """Gives every drafter's pace, the fastest a token first.

    Args:
        directory: The run.
        records: Its rounds; read if absent.
    """
    seconds: dict[str, float] = defaultdict(float)
    tokens: dict[str, int] = defaultdict(int)
    asked: dict[str, int] = defaultdict(int)
    compared: dict[str, int] = defaultdict(int)
    first: dict[str, int] = defaultdict(int)
    for record in directory.rounds() if records is None else records:
        rows = directory.read_table("timing", record["round"]).to_pylist()
        calls = _calls(rows, record["alive"])
        for name, mine in calls.items():
            seconds[name] += math.fsum(row["seconds"] for row in mine)
            tokens[name] += sum(row["tokens"] for row in mine)
            asked[name] += len(mine)
        if len({len(mine) for mine in calls.values()}) == 1:  # else a crash left calls without a pass
            for together in zip(*calls.values(), strict=True):
                for row in together:
                    compared[row["who"]] += 1
                if winner := _first(together):
                    first[winner] += 1
    found = [
        Pace(
            name,
            1000.0 * ratio(seconds[name], tokens[name]) if tokens[name] else math.nan,
            ratio(first[name], compared[name]),
            asked[name],
        )
        for name in asked
    ]
    return sorted(found, key=lambda row: (math.isnan(row.ms_per_token), row.ms_per_token, row.drafter))


def _calls(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Each drafter's calls in a round, in order: its n-th is its part in the n-th pass."""
    calls: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    for row in sorted(rows, key=lambda row: row.get("start") or 0.0):
        if row.get("stage") == "propose" and row["who"] in calls:
            calls[row["who"]].append(row)
    return {name: mine for name, mine in calls.items() if mine}


def _first(together: Sequence[Mapping[str, Any]]) -> str | None:
    """Who took least time: in one process drafters are asked in turn, so the clock alone says nothing."""
    answers = [row for row in together if row["tokens"]]
    return min(answers, key=lambda row: (row["seconds"], row["who"]))["who"] if answers else None
