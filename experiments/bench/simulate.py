"""Whole tournaments a minute: six drafters, five rounds of 200 lane-steps, K = 4, 64 tokens.

What is counted is the time of the simulation itself, its tables included, spread over
processes of this machine by Ray; the start of Ray is told apart. A few seeds are played by
the scalar engine too and compared count by count.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from arena import config, simulate
from arena.backends.ray import RayBackend
from arena.protocols import WorkerSpec
from arena.studies.playing import Job
from arena.studies.playing import play as play_job

Note = Callable[[str], None]
SAME = ("alive", "retired", "counts", "prompts", "lane_steps", "committed")


def experiment(prompts: int = 18) -> dict[str, Any]:
    """Six drafters from near to far, one of them a copyist, over 64 tokens."""
    law = {"kind": "table", "vocab": 64, "order": 2, "seed": 1}
    field: dict[str, Any] = {
        f"mix {weight}": {**law, "mix": weight, "other_seed": 10 + index}
        for index, weight in enumerate((0.15, 0.3, 0.45, 0.6))
    }
    field = {name.replace(" 0.", "-"): options for name, options in field.items()}
    field |= {"argmax": {**law, "argmax": True}, "copyist": {"kind": "copyist"}}
    values = {
        "name": "simulate",
        "verifier": law,
        "drafters": field,
        "prompts": {"synthetic": 5 * prompts, "length": 8},
        "rounds": {"prompts": prompts, "max_new_tokens": 43},
        "engine": {"draft_length": 4, "calibrate": False},
        "backend": {"kind": "local"},
    }
    return config.build(values, "bench simulate").plain()


def play(
    *, replicates: int = 2048, workers: int = 0, compared: int = 2, note: Note = lambda text: None
) -> Any:
    """Measures tournaments a minute, twice: N and N / 2 replicates.

    Args:
        replicates: Tournaments of the larger measurement.
        workers: Processes; the cores of the machine if 0.
        compared: Seeds that the scalar engine plays as well.
        note: Told how far it is.
    """
    values, count = experiment(), workers or os.cpu_count() or 1
    began = time.perf_counter()
    backend = RayBackend(num_cpus=count)
    names = [f"simulator {index}" for index in range(count)]
    spec = WorkerSpec("arena.simulate:Simulator", {"values": values}, threads=1)
    try:
        backend.start(dict.fromkeys(names, spec), timeout=180)
        start = time.perf_counter() - began
        _measure(backend, names, range(count * 8))  # warms; not counted
        half, _ = _measure(backend, names, range(replicates // 2))
        note(f"{replicates // 2} replicates in {half:.1f} s")
        whole, runs = _measure(backend, names, range(replicates))
        note(f"{replicates} replicates in {whole:.1f} s")
    finally:
        backend.shutdown()
    steps = sum(record["lane_steps"] for run in runs for record in run)
    rounds = sum(len(run) for run in runs)
    note(f"the scalar engine plays {compared} of them")
    began = time.perf_counter()
    different = sum(not _same(values, seed, runs[seed]) for seed in range(compared))
    scalar = (time.perf_counter() - began) / max(1, compared)
    rows: list[dict[str, Any]] = [
        {"name": "start of Ray and workers, tables included", "value": start, "unit": "s"},
        {"name": f"{replicates // 2} tournaments", "value": half, "unit": "s"},
        {"name": f"{replicates} tournaments", "value": whole, "unit": "s"},
        {"name": "processes", "value": count, "unit": ""},
        {"name": "lane-steps a round", "value": steps / rounds, "unit": ""},
        {"name": "rounds a tournament", "value": rounds / replicates, "unit": ""},
        {"name": "lane-steps a second", "value": steps / whole, "unit": "1/s"},
        {"name": "one tournament by the scalar engine, local backend", "value": scalar, "unit": "s"},
        {"name": f"seeds that differ from the scalar engine, of {compared}", "value": different, "unit": ""},
    ]
    ratios = {
        "tournaments_per_minute": 60 * replicates / whole,
        "cost_of_twice_as_many": whole / half,
        "scalar_over_simulated": scalar * replicates / whole,
    }
    return {"title": "simulate: whole tournaments on table models", "rows": rows, "ratios": ratios}


def _measure(backend: RayBackend, names: list[str], seeds: range) -> tuple[float, list[Any]]:
    """Plays all seeds, every worker as soon as it is free; gives the time and the records by seed."""
    began = time.perf_counter()
    size = min(simulate.AT_ONCE, max(1, len(seeds) // len(names)))
    waiting = list(simulate.batches(seeds, size))[::-1]
    flying: list[tuple[str, Any, Any]] = []
    idle, found = list(names), {}
    while waiting or flying:
        while waiting and idle:
            name, batch = idle.pop(), waiting.pop()
            flying.append((name, batch, backend.submit(name, "play", list(batch))))
        name, batch, ticket = flying.pop(backend.first([one[2] for one in flying], timeout=300))
        found.update(zip(batch, backend.wait([ticket], timeout=300)[0], strict=True))
        idle.append(name)
    return time.perf_counter() - began, [found[seed] for seed in seeds]


def _same(values: dict[str, Any], seed: int, mine: list[Any]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        theirs = play_job(Job({**values, "seed": seed}, f"{folder}/run"))
    return len(mine) == len(theirs) and all(
        a[key] == b[key] for a, b in zip(mine, theirs, strict=True) for key in SAME
    )
