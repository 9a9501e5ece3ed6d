"""One experiment over many seeds: how often each drafter left when, beside what a story says.

A single tournament is an anecdote. Here the claims of a story ("two leaves first", "six
wins") become shares over seeds with exact intervals, drafters are compared in pairs, and
what is not reproduced is said as plainly as what is.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from arena import durable
from arena.config import BackendSection, Count
from arena.errors import ConfigError, one_of
from arena.metrics import ratio
from arena.plot_numbers import Played, survival_numbers
from arena.seals import canonical
from arena.studies.base import Note, Result, Study
from arena.studies.playing import Job, base, play, play_all
from arena.survival import Departure, departures, paired_rounds, sign_flip

LINES = "replicates.jsonl"


class Replicates(Study):
    """Repeats a tournament over seeds.

    Attributes:
        base: The experiment: a packaged name, or a .yaml file.
        changes: Overrides of it, ``section.key=value``.
        replicates: Seeds: ``seed``, ``seed + 1``, ...
        processes: Tournaments that are played at a time.
        keep: Whether each seed's run directory stays, below ``runs/``; then a seed that
            was cut short goes on from its last round. Else only its outcome stays.
        story: Drafter to the round in which it leaves in the story that is told; the
            winner has the last round + 1. Drafters that the story does not place are absent.
        backend: Where workers run.
    """

    base: str = "story"
    changes: tuple[str, ...] = ()
    replicates: Count = 8
    processes: Count = 1
    keep: bool = True
    story: dict[str, Count] = Field(default_factory=dict)
    backend: BackendSection = BackendSection(kind="local")

    @model_validator(mode="after")
    def _known(self) -> Replicates:
        drafters = self._values(self.seed)["drafters"]
        for name, place in self.story.items():
            if name not in drafters:
                raise ConfigError("story: " + one_of("drafter", name, drafters))
            if place > len(drafters):
                raise ConfigError(f"story.{name} is {place}; expected a round from 1 to {len(drafters)}.")
        return self

    def play(self, out: Path, note: Note) -> Result:
        """Plays the seeds that are not played yet, and sums all of them up."""
        lines = Lines(out / LINES)
        wanted = range(self.seed, self.seed + self.replicates)
        left = [seed for seed in wanted if seed not in lines.found]
        if len(left) < self.replicates:
            note(f"{self.replicates - len(left)} seeds are played already, {len(left)} are left")
        jobs = [
            Job(self._values(seed), str(out / "runs" / f"seed={seed:04d}") if self.keep else "")
            for seed in left
        ]

        def done(job: Job, records: list[dict[str, Any]]) -> None:
            lines.add(job.values["seed"], records)
            if len(lines.found) % max(1, self.replicates // 20) == 0:
                note(f"{len(lines.found)} of {self.replicates} seeds; the last: {_order(records)}")

        play_all(jobs, self.processes, done, outcome)
        runs = [lines.found[seed] for seed in wanted]
        return self._sum_up(runs, out)

    def _values(self, seed: int) -> dict[str, Any]:
        return base(self.base, self.changes, self.backend, seed)

    def _sum_up(self, runs: Sequence[list[dict[str, Any]]], out: Path) -> Result:
        gone = [departures(run) for run in runs]
        names = sorted({one.drafter for run in gone for one in run})
        last = max(len(run) for run in runs)
        table = leaving(gone, names, last)
        pairs = comparisons(gone, names)
        claims = [claim(gone, name, place, last, len(names)) for name, place in self.story.items()]
        claims.sort(key=lambda row: (row["round"], row["drafter"]))
        curves = survival_numbers([Played(self.base, run) for run in runs])
        self._draw(runs, curves, table, out / "plots" / "replicates.png")
        rounds = [f"out_{number}" for number in range(1, last + 1)]
        rows = [
            {"drafter": name, "story": self._placed(name, last)} | row | {"first_hit_rate": _rate(runs, name)}
            for name, row in table.items()
        ]
        return Result(
            title=f"{self.base} over {len(runs)} seeds: in how many each drafter left after which round",
            columns=("drafter", "story", *rounds, "wins", "withdrawn", "mean_round", "first_hit_rate"),
            rows=rows,
            notes=[
                "mean_round: a drafter alive at the end counts as leaving after the last round",
                *(row["said"] for row in claims),
                *_whole(gone, self.story, last),
                *(_pair_note(row) for row in _neighbours(pairs, rows)),
                f"figure: {out / 'plots' / 'replicates.png'}",
            ],
            more={
                "claims": claims,
                "pairs": pairs,
                "curves": {n: {"y": c.y, "low": c.low, "high": c.high} for n, c in curves.items()},
            },
        )

    def _placed(self, name: str, last: int) -> str:
        place = self.story.get(name)
        return "-" if place is None else "wins" if place > last else f"round {place}"

    def _draw(
        self, runs: Sequence[Any], curves: Mapping[str, Any], table: Mapping[str, Any], path: Path
    ) -> None:
        from arena import study_plots

        study_plots.replicates(curves, table, self.story, len(runs), path)


class Lines:
    """Outcomes on disk, a line a seed; a torn last line is played again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            durable.write(path, "")
        whole = path.read_bytes().split(b"\n")[:-1]
        self._end = sum(len(line) + 1 for line in whole)
        self.found = {line["seed"]: line["rounds"] for line in map(json.loads, whole)}

    def add(self, seed: int, records: list[dict[str, Any]]) -> None:
        """Keeps one outcome."""
        self.add_all({seed: records})

    def add_all(self, outcomes: Mapping[int, list[dict[str, Any]]]) -> None:
        """Keeps outcomes, by seed, with one write."""
        lines = "".join(canonical({"seed": seed, "rounds": r}) + "\n" for seed, r in outcomes.items())
        durable.append(self._path, lines.encode(), self._end)
        self._end += len(lines.encode())
        self.found.update(outcomes)


def outcome(job: Job) -> list[dict[str, Any]]:
    """Plays a job (in a folder that goes, if it has none); gives what matters of its rounds."""
    if job.path:
        return [brief(record) for record in play(job)]
    with tempfile.TemporaryDirectory() as folder:
        return [brief(record) for record in play(Job(job.values, f"{folder}/run"))]


def brief(record: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps of a round who was there, who left, and the counts of each."""
    counts = {
        name: {"accepted": part["accepted"], "offered": part["offered"]}
        for name, part in record["counts"].items()
    }
    left = record["retired"] and {"drafter": record["retired"]["drafter"]}
    gone = [{"drafter": one["drafter"]} for one in record["withdrawn"]]
    kept = {key: record[key] for key in ("round", "alive", "lane_steps", "committed")}
    return {**kept, "retired": left, "withdrawn": gone, "counts": counts}


def leaving(
    gone: Sequence[Sequence[Departure]], names: Sequence[str], last: int
) -> dict[str, dict[str, Any]]:
    """Counts, for each drafter, after which round it left, in how many seeds; by mean round."""
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        mine = [one for run in gone for one in run if one.drafter == name]
        row: dict[str, Any] = {
            f"out_{number}": sum(one.retired and one.round == number for one in mine)
            for number in range(1, last + 1)
        }
        row["wins"] = sum(not one.retired and not one.withdrawn for one in mine)
        row["withdrawn"] = sum(one.withdrawn for one in mine)
        row["mean_round"] = ratio(math.fsum(one.left for one in mine), len(mine))
        found[name] = row
    return dict(sorted(found.items(), key=lambda item: (item[1]["mean_round"], item[0])))


def comparisons(gone: Sequence[Sequence[Departure]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Compares each two drafters by the round they left, paired by seed: exact sign-flip, Holm-adjusted.

    Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    rows: list[dict[str, Any]] = []
    for a, b in itertools.combinations(names, 2):
        differences = paired_rounds(gone, a, b)
        rows.append(
            {
                "a": a,
                "b": b,
                "seeds": len(differences),
                "a_later": sum(one > 0 for one in differences),
                "mean_rounds_later": ratio(math.fsum(differences), len(differences)),
                "p": sign_flip(differences),
            }
        )
    ranked, floor = sorted(rows, key=lambda row: row["p"]), 0.0
    for place, row in enumerate(ranked):
        floor = max(floor, min(1.0, (len(rows) - place) * row["p"]))
        row["p_holm"] = floor
    return rows


def claim(gone: Sequence[Sequence[Departure]], name: str, place: int, last: int, size: int) -> dict[str, Any]:
    """Sets one sentence of the story beside the seeds.

    It counts as reproduced if it holds in more than half of the seeds; as no better than
    chance if the exact 95% interval of its share (Clopper & Pearson 1934) holds 1 / size.
    """
    from scipy.stats import binomtest

    mine = [one for run in gone for one in run if one.drafter == name and not one.withdrawn]
    times = sum(one.left == place for one in mine)
    row: dict[str, Any] = {"drafter": name, "round": place, "times": times, "seeds": len(mine)}
    what = f"{name} wins" if place > last else f"{name} leaves after round {place}"
    if not mine:
        return row | {"verdict": "withdrawn", "said": f"{what}: it was withdrawn in every seed"}
    span = binomtest(times, len(mine)).proportion_ci(0.95, method="exact")
    low, high = float(span.low), float(span.high)
    if times * 2 > len(mine):
        verdict = "reproduced" if low > 1 / size else "reproduced, but too few seeds to rule out chance"
    elif low <= 1 / size <= high:
        verdict = "NOT reproduced: no more often than chance"
    else:
        verdict = "NOT reproduced" + (", though more often than chance" if low > 1 / size else "")
    said = f"story: {what}; here in {times} of {len(mine)} seeds (95% {low:.2f} to {high:.2f}): {verdict}"
    return row | {"low": low, "high": high, "verdict": verdict, "said": said}


def _whole(gone: Sequence[Sequence[Departure]], story: Mapping[str, int], last: int) -> list[str]:
    if len(story) < 2:
        return []
    whole = sum(all(one.left == story[one.drafter] for one in run if one.drafter in story) for run in gone)
    first = [
        sum(one.drafter == name and one.left == place for run in gone for one in run)
        for name, place in story.items()
    ]
    held = sum(2 * times > len(gone) for times in first)
    return [
        f"the whole order of the story: in {whole} of {len(gone)} seeds; "
        f"{held} of its {len(story)} places hold in more than half of them"
    ]


def _neighbours(pairs: Sequence[dict[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The comparisons of drafters that follow each other in mean round."""
    order = [row["drafter"] for row in rows]
    sets = [{a, b} for a, b in itertools.pairwise(order)]
    found = [next(row for row in pairs if {row["a"], row["b"]} == pair) for pair in sets]
    return found


def _pair_note(row: Mapping[str, Any]) -> str:
    later, sooner = (row["a"], row["b"]) if row["mean_rounds_later"] >= 0 else (row["b"], row["a"])
    verdict = "told apart" if row["p_holm"] < 0.05 else "not told apart"
    return (
        f"{later} outlasts {sooner} by {abs(row['mean_rounds_later']):.2f} rounds on average: {verdict} "
        f"(sign-flip over {row['seeds']} seeds, p = {row['p']:.3g}, Holm {row['p_holm']:.3g})"
    )


def _rate(runs: Sequence[Sequence[Mapping[str, Any]]], name: str) -> float:
    """Hit rate of the first rounds of all seeds, pooled: before anybody has left."""
    parts = [run[0]["counts"].get(name) for run in runs if run]
    known = [part for part in parts if part]
    return ratio(sum(part["accepted"] for part in known), sum(part["offered"] for part in known))


def _order(records: Sequence[Mapping[str, Any]]) -> str:
    left = [record["retired"]["drafter"] for record in records if record["retired"]]
    return " ".join(left)
