"""How a study plays tournaments: each in a folder of its own, several at a time, none twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from arena import config, provenance
from arena.config import BackendSection, Experiment
from arena.places import MANIFEST
from arena.store import RunDirectory

Play = Callable[["Job"], Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One tournament of a study.

    Attributes:
        values: Plain values of the experiment.
        path: Its run directory.
        costs: Prices to put into its manifest, so that none are measured (see
            :class:`arena.costs.Calibration`).
        label: What it is, for the study to know it by.
    """

    values: Mapping[str, Any]
    path: str
    costs: Mapping[str, Any] | None = None
    label: Mapping[str, Any] = field(default_factory=dict)


def base(
    name: str, changes: Sequence[str], backend: BackendSection, seed: int, *, where: str = "base"
) -> dict[str, Any]:
    """Reads the experiment that a study repeats, as checked plain values.

    Args:
        name: A packaged experiment, or a .yaml file.
        changes: Overrides, ``section.key=value``.
        backend: Where its workers run.
        seed: Replaces its seed.
        where: Named in errors.

    Raises:
        ConfigError: If there is none of that name, or a value is refused.
    """
    values = config.read(name, changes, seed)
    values["backend"] = backend.model_dump(mode="json")
    return config.build(values, f"{where}: {name}").plain()


def play(job: Job, closed: Callable[[Mapping[str, Any]], None] | None = None) -> list[dict[str, Any]]:
    """Plays a tournament, or what is left of it; gives the records of its rounds.

    Args:
        job: Which.
        closed: Called with the record of each round as it ends.
    """
    from arena.tournament import Tournament, Watcher, make_backend

    experiment = Experiment.model_validate(job.values)
    path = Path(job.path)
    if not (path / MANIFEST).exists():  # new, or cut short before it began
        shutil.rmtree(path, ignore_errors=True)
        facts = {"experiment": experiment.name, "seed": experiment.seed, "created": provenance.utc_now()}
        extra = {"costs": dict(job.costs)} if job.costs else {}
        RunDirectory.create(path, experiment.to_yaml(), {**facts, **extra})
    directory = RunDirectory.open(path)
    if directory.manifest["status"] != "complete":
        backend = make_backend(experiment)
        try:
            watcher = Watcher() if closed is None else Watcher(closed=closed)
            Tournament(experiment, directory, backend, watcher).run()
        finally:
            backend.shutdown()
    return directory.rounds()


def play_all(jobs: Sequence[Job], processes: int, done: Callable[[Job, Any], None], how: Play = play) -> None:
    """Plays tournaments, some at a time, and tells of each as it ends (in any order).

    Args:
        jobs: What to play.
        processes: Processes; with one, everything happens in this one.
        done: Called here with each job and what ``how`` gave.
        how: A module-level function of a job.
    """
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            done(job, how(job))
        return
    # Spawned: a fork would copy the threads' locks of whatever is loaded here.
    pool = ProcessPoolExecutor(min(processes, len(jobs)), mp_context=get_context("spawn"))
    try:
        waiting = {pool.submit(how, job): job for job in jobs}
        for future in as_completed(waiting):
            done(waiting[future], future.result())
    finally:
        pool.shutdown(cancel_futures=True)
