"""A tournament on table models over thousands of seeds, simulated exactly: ``--replicates``."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import model_validator

from arena import config, simulate
from arena.config import BackendSection, Count
from arena.metrics import ratio
from arena.protocols import Backend, WorkerSpec
from arena.studies.base import Note, Result, Study
from arena.studies.playing import base
from arena.studies.replicates import LINES, Lines, brief, leaving
from arena.survival import departures

Z = 1.959963984540054
"""Of a two-sided interval of 95%."""


class Simulated(Study):
    """Repeats a tournament on table models over seeds, in arrays; see :mod:`arena.simulate`.

    Attributes:
        base: The experiment: a packaged name, or a .yaml file.
        changes: Overrides of it, ``section.key=value``.
        replicates: Seeds: ``seed``, ``seed + 1``, ...
        workers: Processes that play; the cores of the machine by default.
        backend: Where they run.
    """

    base: str = "toy"
    changes: tuple[str, ...] = ()
    replicates: Count = 1000
    workers: Count | None = None
    backend: BackendSection = BackendSection()

    @model_validator(mode="after")
    def _can(self) -> Simulated:
        simulate.check(config.build(self._values(), self.base))
        return self

    def _values(self) -> dict[str, Any]:
        return base(self.base, self.changes, self.backend, self.seed)

    def play(self, out: Path, note: Note) -> Result:
        """Simulates the seeds that are not simulated yet, and sums all of them up."""
        lines = Lines(out / LINES)
        wanted = range(self.seed, self.seed + self.replicates)
        left = [seed for seed in wanted if seed not in lines.found]
        if left:
            began = time.monotonic()
            self._simulate(left, lines, note)
            seconds = time.monotonic() - began
            note(f"{len(left)} tournaments in {seconds:.1f} s: {60 * len(left) / seconds:.0f} a minute")
        return self._sum_up([lines.found[seed] for seed in wanted])

    def _simulate(self, left: Sequence[int], lines: Lines, note: Note) -> None:
        from arena.tournament import make_backend

        count = 1 if self.backend.kind == "local" else self.workers or os.cpu_count() or 1
        values = self._values()
        experiment = config.build(values, self.base)
        spec = WorkerSpec("arena.simulate:Simulator", {"values": values}, threads=1)
        names = [f"simulator {index}" for index in range(count)]
        backend = make_backend(experiment)
        try:
            backend.start(dict.fromkeys(names, spec), timeout=self.backend.start_timeout)
            self._spread(backend, names, left, lines, note)
        finally:
            backend.shutdown()

    def _spread(
        self, backend: Backend, names: Sequence[str], left: Sequence[int], lines: Lines, note: Note
    ) -> None:
        """Keeps every worker busy; what is done is on disk, a batch at a time."""
        size = max(1, min(simulate.AT_ONCE, math.ceil(len(left) / len(names))))
        waiting = list(simulate.batches(left, size))[::-1]
        flying: list[tuple[str, Sequence[int], Any]] = []
        idle, told = list(names), 0
        while waiting or flying:
            while waiting and idle:
                seeds, name = waiting.pop(), idle.pop()
                flying.append((name, seeds, backend.submit(name, "play", list(seeds))))
            tickets = [ticket for _, _, ticket in flying]
            name, seeds, ticket = flying.pop(backend.first(tickets, timeout=self.backend.call_timeout))
            runs = backend.wait([ticket], timeout=self.backend.call_timeout)[0]
            idle.append(name)
            found = [[brief(record) for record in run] for run in runs]
            lines.add_all(dict(zip(seeds, found, strict=True)))
            if 10 * len(lines.found) // self.replicates > told:
                told = 10 * len(lines.found) // self.replicates
                note(f"{len(lines.found)} of {self.replicates} seeds")

    def _sum_up(self, runs: Sequence[list[dict[str, Any]]]) -> Result:
        gone = [departures(run) for run in runs]
        names = sorted({one.drafter for run in gone for one in run})
        last = max(len(run) for run in runs)
        rows = []
        for name, row in leaving(gone, names, last).items():
            low, high = wilson(row["wins"], len(runs))
            share = ratio(row["wins"], len(runs))
            rows.append({"drafter": name} | row | {"win_share": share, "low": low, "high": high})
        rounds = [f"out_{number}" for number in range(1, last + 1)]
        return Result(
            title=f"{self.base} over {len(runs)} seeds: in how many each drafter left after which round",
            columns=("drafter", *rounds, "wins", "mean_round", "win_share", "low", "high"),
            rows=rows,
            notes=[
                "low, high: 95% interval of the share of wins over seeds (Wilson 1927)",
                "mean_round: a drafter alive at the end counts as leaving after the last round",
            ],
        )


def wilson(wins: int, n: int) -> tuple[float, float]:
    """Gives the 95% interval of a share (Wilson 1927)."""
    share, shrink = wins / n, 1 + Z * Z / n
    centre = (share + Z * Z / (2 * n)) / shrink
    half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n)) / shrink
    return max(0.0, centre - half), min(1.0, centre + half)
