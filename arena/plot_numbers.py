"""The numbers behind each plot, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.forecast import Forecast
from arena.records import standings_of, summary
from arena.survival import Departure, at, band, curve_of, departures


@dataclass(frozen=True, slots=True)
class Played:
    """What a plot is made of.

    Attributes:
        label: The run, in few words.
        records: Of its rounds, oldest first; at least one.
        path: Of the run directory, for plots that need its steps.
    """

    label: str
    records: Sequence[Mapping[str, Any]]
    path: Path | None = None

    @property
    def names(self) -> list[str]:
        """All drafters that ever were alive, sorted."""
        return sorted({one.drafter for one in departures(self.records)})


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: ``y`` over ``x``, and an interval of it (nan where there is none)."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def hit_rate_numbers(run: Played) -> dict[str, Series]:
    """Gives each drafter's hit rate in each round it played, with prompt-clustered intervals."""
    rows = [(record["round"], row) for record in run.records for row in standings_of(record)]
    found = {}
    for name in run.names:
        mine = [(number, row) for number, row in rows if row.drafter == name]
        found[name] = Series(
            x=tuple(number for number, _ in mine),
            y=tuple(row.hit_rate for _, row in mine),
            low=tuple(row.low for _, row in mine),
            high=tuple(row.high for _, row in mine),
        )
    return found


def diversity_numbers(run: Played) -> dict[str, Series]:
    """Gives the mean pairwise √JSD and the union coverage of the depth-1 laws in each round."""
    rows = [summary(record) for record in run.records]
    rounds = tuple(row["round"] for row in rows)
    return {
        key: Series(rounds, tuple(row[key] for row in rows)) for key in ("mean_distance", "union_coverage")
    }


def survival_numbers(runs: Sequence[Played]) -> dict[str, Series]:
    """Gives each drafter's survival curve over runs, with a bootstrap interval over them."""
    gone: list[list[Departure]] = [departures(run.records) for run in runs]
    last = max(len(run.records) for run in runs)
    rounds = tuple(float(number) for number in range(last + 1))
    found = {}
    for name in sorted({one.drafter for run in gone for one in run}):
        curve = curve_of(gone, name)
        low, high = band(gone, name, last)
        found[name] = Series(rounds, *(tuple(part.tolist()) for part in (at(curve, rounds), low, high)))
    return found


def ends_of(run: Played) -> dict[str, str]:
    """How it ended for each drafter, the last standing first."""
    gone = departures(run.records)
    stay = "champion" if sum(not (one.retired or one.withdrawn) for one in gone) == 1 else "alive"
    return {
        one.drafter: f"out, round {one.round}"
        if one.retired
        else f"withdrawn, round {one.round + 1}"
        if one.withdrawn
        else stay
        for one in sorted(gone, key=lambda one: (one.retired or one.withdrawn, -one.round, one.drafter))
    }


def pass_numbers(found: Forecast) -> tuple[Series, Series]:
    """Gives the measured verifier passes (ms over nodes), and the line that was fitted to them."""
    nodes = tuple(float(count) for count, _ in found.passes)
    ends = (0.0, max(nodes))
    line = Series(ends, tuple(found.fixed + found.verify * end for end in ends))
    return Series(nodes, tuple(ms for _, ms in found.passes)), line


def token_numbers(found: Forecast) -> dict[str, Series]:
    """Gives each drafter's time a token over K, the fastest drafter first."""
    return {
        one.drafter: Series(
            tuple(float(row.k) for row in one.rows), tuple(row.ms_per_token for row in one.rows)
        )
        for one in found.drafters
    }
