"""The same field under several retirement rules: what elimination costs it.

Each rule plays the same seeds, and in a seed every rule's round r has the same prompts,
so rules are compared in pairs. Besides what each roster did, the round without
elimination prices it: its stored sums of v(S) say what every sub-roster
would have been worth on the contexts of the whole field.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from arena import retirement
from arena.acceptance.contribution import best_roster, worth_of
from arena.config import BackendSection, Count, Strict
from arena.costs import Calibration
from arena.errors import ConfigError, one_of
from arena.metrics import interval, ratio
from arena.store import RunDirectory
from arena.studies.base import Note, Result, Study
from arena.studies.field_rounds import MEASURES, rounds_of
from arena.studies.playing import Job, base, play, play_all

FULL = "never"
LENGTH = "acceptance_length"
DRAWN = (LENGTH, "tokens_per_s", "union_coverage", "vendi")
COLUMNS = (
    "rule",
    "round",
    "alive",
    "length",
    "low",
    "high",
    "vs_full",
    "vs_low",
    "vs_high",
    "per_s",
    "coverage",
    "vendi",
    "worth",
    "best",
)
LEGEND = (
    "length: joint tokens a pass (low, high: 95% over seeds); vs_full: less than no elimination on the same "
    "seeds; per_s: tokens a second and lane; worth: share of the whole field's value that the roster is "
    "worth on its contexts, best: of the best roster of that size. The last row of a rule is its champion, "
    "priced and not played."
)
Cell = tuple[str, int]  # rule and round


class Costs(Strict):
    """Prices given beforehand, ms: a verifier pass, one node in it, one token of each drafter; one lane."""

    fixed: Annotated[float, Field(gt=0)]
    verify: Annotated[float, Field(ge=0)] = 0.0
    draft: dict[str, Annotated[float, Field(ge=0)]]


class SelectionRules(Study):
    """Plays one field under several retirement rules, over seeds.

    Attributes:
        base: The experiment that gives the field: a packaged name, or a .yaml file.
        changes: Overrides of it, ``section.key=value``.
        rules: Retirement rules; ``never`` is the field without elimination.
        replicates: Seeds: ``seed``, ``seed + 1``, ...
        processes: Tournaments that are played at a time.
        costs: Prices; without them they are measured before the first round of all.
        backend: Where workers run.
    """

    base: str = "clones"
    changes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ("lowest_hit_rate", "lowest_goodput", "lowest_contribution", FULL)
    replicates: Count = 1
    processes: Count = 1
    costs: Costs | None = None
    backend: BackendSection = BackendSection(kind="local")

    @model_validator(mode="after")
    def _known(self) -> SelectionRules:
        for rule in self.rules:
            if rule not in retirement.RULES:
                raise ConfigError("rules: " + one_of("retirement rule", rule, retirement.RULES))
        drafters = self._values(FULL, self.seed)["drafters"]
        if self.costs and (missing := sorted(set(drafters) - set(self.costs.draft))):
            raise ConfigError(f"costs.draft: no price for {missing[0]!r}; expected one for each drafter.")
        return self

    def play(self, out: Path, note: Note) -> Result:
        """Plays every rule on every seed, measures each round, and compares in pairs."""
        jobs = [
            Job(
                self._values(rule, seed),
                str(out / "runs" / rule / f"seed={seed:04d}"),
                label={"rule": rule, "seed": seed},
            )
            for seed in range(self.seed, self.seed + self.replicates)
            for rule in self.rules
        ]
        costs = self._prices(jobs[0], note)
        jobs = [replace(job, costs=costs.plain()) for job in jobs]
        found: dict[tuple[str, int], list[dict[str, Any]]] = {}

        def done(job: Job, rows: list[dict[str, Any]]) -> None:
            found[job.label["rule"], job.label["seed"]] = rows
            note(f"{job.label['rule']}, seed {job.label['seed']}: {len(found)} of {len(jobs)} played")

        play_all(jobs, self.processes, done, measured)
        self._price(found)
        cells = {(rule, row["round"]): row for (rule, _), rows in found.items() for row in rows}
        rows = [
            self._row(found, cell) for cell in sorted(cells, key=lambda c: (self.rules.index(c[0]), c[1]))
        ]
        orders = {rule: _orders(found, rule) for rule in self.rules if rule != FULL}
        paired = self._costs_of_hit_rate(found)
        picture = out / "plots" / "selection.png"
        self._draw(found, rows, picture)
        return Result(
            title=f"{self.base} under {len(self.rules)} retirement rules, {self.replicates} seeds",
            columns=COLUMNS,
            rows=rows,
            notes=[LEGEND, *self._notes(paired), *_order_notes(orders), f"figure: {picture}"],
            more={"orders": orders, "costs": costs.plain(), "cost_of_hit_rate": paired},
        )

    def _values(self, rule: str, seed: int) -> dict[str, Any]:
        changes = [*self.changes, "engine.contribution=true", "rules.measure_bound=false"]
        changes += ["engine.calibrate=true"] if self.costs else []  # then nothing is measured
        values = base(self.base, changes, self.backend, seed)
        values["retirement"] = {"kind": rule}
        values["rounds"] = {**values["rounds"], "max": max(1, len(values["drafters"]) - 1)}
        return values

    def _prices(self, first: Job, note: Note) -> Calibration:
        """The prices that all rules share: given, or measured before the first round of the first job."""
        engine = first.values["engine"]
        if self.costs is not None:
            part = self.costs
            return Calibration(1, engine["draft_length"], part.fixed, part.verify, part.draft)
        note("playing the first tournament, whose prices all others use")
        play(first)
        found = Calibration.of(RunDirectory.open(first.path).manifest.get("costs"))
        if found is None:
            raise ConfigError(
                "costs: none were measured, since engine.calibrate is false; set it true, or give costs."
            )
        return found

    def _price(self, found: Mapping[tuple[str, int], list[dict[str, Any]]]) -> None:
        """Adds what each roster is worth on the whole field's contexts of the same seed and round."""
        for (_, seed), rows in found.items():
            full = {row["round"]: row for row in found.get((FULL, seed), [])}
            for row in rows:
                # The champion is not played alone: it is priced on the last round of the whole field.
                there = full.get(row["round"]) or full.get(row["round"] - 1)
                row["worth_kept"] = row["best_kept"] = math.nan
                if there and there["worths"][-1]:
                    worths, names = there["worths"], there["alive"]
                    best = best_roster(worths, names, len(row["alive"]))
                    row["worth_kept"] = worth_of(worths, names, row["alive"]) / worths[-1]
                    row["best_kept"] = worth_of(worths, names, best) / worths[-1]

    def _pairs(self, found: Mapping[Any, Any], a: Cell, b: Cell, key: str) -> list[float]:
        """Differences of a measure between two cells, one a seed."""
        pairs = []
        for seed in range(self.seed, self.seed + self.replicates):
            one, other = (
                next((row for row in found.get((rule, seed), []) if row["round"] == number), None)
                for rule, number in (a, b)
            )
            if one and other and math.isfinite(one[key]) and math.isfinite(other[key]):
                pairs.append(one[key] - other[key])
        return pairs

    def _column(self, found: Mapping[Any, Any], cell: Cell, key: str) -> list[float]:
        return [row[key] for (rule, _), rows in found.items() for row in rows if (rule, row["round"]) == cell]

    def _row(self, found: Mapping[Any, Any], cell: Cell) -> dict[str, Any]:
        rule, number = cell
        some = next(row for (r, _), rows in found.items() for row in rows if (r, row["round"]) == cell)
        measures = {key: mean_of(self._column(found, cell, key)) for key in MEASURES}
        low, high = spread(self._column(found, cell, LENGTH))
        lost = self._pairs(found, cell, (FULL, number), LENGTH) if rule != FULL else []
        lost_low, lost_high = spread(lost)
        return {
            "rule": rule,
            "round": number,
            "alive": len(some["alive"]),
            "length": measures["acceptance_length"],
            "low": low,
            "high": high,
            "vs_full": mean_of(lost),
            "vs_low": lost_low,
            "vs_high": lost_high,
            "per_s": measures["tokens_per_s"],
            "coverage": measures["union_coverage"],
            "vendi": measures["vendi"],
            "worth": measures["worth_kept"],
            "best": measures["best_kept"],
            **{key: measures[key] for key in ("priced_length", "tokens_per_s_serial", "mean_distance")},
        }

    def _costs_of_hit_rate(self, found: Mapping[Any, Any]) -> list[dict[str, Any]]:
        """Elimination by hit rate against the other rules, paired by seed, at each number of drafters."""
        rows = []
        rounds = sorted({row["round"] for one in found.values() for row in one})
        for rule in self.rules:
            if rule == "lowest_hit_rate" or "lowest_hit_rate" not in self.rules:
                continue
            for number in rounds:
                cells = (("lowest_hit_rate", number), (rule, number))
                for key in DRAWN:
                    pairs = self._pairs(found, *cells, key)
                    if pairs:
                        low, high = spread(pairs)
                        rows.append(
                            {"against": rule, "round": number, "measure": key}
                            | {"seeds": len(pairs), "difference": mean_of(pairs), "low": low, "high": high}
                        )
        return rows

    def _notes(self, paired: Sequence[Mapping[str, Any]]) -> list[str]:
        size, notes = len(self._values(FULL, self.seed)["drafters"]), []
        for row in paired:
            if row["measure"] != LENGTH or row["against"] == "lowest_goodput" or row["round"] < 2:
                continue
            other = "the whole field" if row["against"] == FULL else f"{row['against']} at the same size"
            what = "may be chance" if row["low"] <= 0 <= row["high"] else "holds"
            span = f"{row['low']:+.3f} to {row['high']:+.3f}; {what}" if row["seeds"] > 1 else "one seed"
            notes.append(
                f"elimination by hit rate, {size - row['round'] + 1} left: {row['difference']:+.3f} tokens a "
                f"pass against {other} ({span})"
            )
        return notes

    def _draw(self, found: Mapping[Any, Any], rows: Sequence[Mapping[str, Any]], path: Path) -> None:
        from arena import study_plots
        from arena.plot_numbers import Series

        numbers: dict[str, dict[str, Series]] = {}
        for key in DRAWN:
            numbers[key] = {}
            for rule in self.rules:
                rounds = [row["round"] for row in rows if row["rule"] == rule]
                columns = {number: self._column(found, (rule, number), key) for number in rounds}
                known = [number for number in rounds if math.isfinite(mean_of(columns[number]))]
                spans = [spread(columns[number]) for number in known]
                numbers[key][rule] = Series(
                    x=tuple(known),
                    y=tuple(mean_of(columns[number]) for number in known),
                    low=tuple(span[0] for span in spans),
                    high=tuple(span[1] for span in spans),
                )
        size = max(row["alive"] for row in rows)
        study_plots.selection(numbers, size, self.replicates, path)


def measured(job: Job) -> list[dict[str, Any]]:
    """Plays a job and measures its rounds."""
    play(job)
    return rounds_of(RunDirectory.open(job.path))


def mean_of(values: Sequence[float]) -> float:
    """The mean; nan without values, or where one is not known."""
    return ratio(math.fsum(values), len(values))


def spread(values: Sequence[float]) -> tuple[float, float]:
    """A 95% t interval of a mean over seeds; nan with fewer than two."""
    if any(math.isnan(value) for value in values):
        return math.nan, math.nan
    return interval(values, [1.0] * len(values), lowest=-math.inf, highest=math.inf)


def _orders(found: Mapping[Any, Any], rule: str) -> dict[str, int]:
    seen = Counter(
        " ".join(row["left"] for row in rows if row["left"]) for (r, _), rows in found.items() if r == rule
    )
    return dict(seen.most_common())


def _order_notes(orders: Mapping[str, Mapping[str, int]]) -> list[str]:
    notes = []
    for rule, seen in orders.items():
        order, times = next(iter(seen.items()))
        notes.append(f"order out by {rule}, most often: {order} ({times} of {sum(seen.values())} seeds)")
    return notes
