"""What a wider field costs: 6 to 48 table and n-gram drafters, and a long run's memory.

Time is that of the local backend, one process, so that it is arithmetic and not messages;
it is set against the nodes of the trees. Memory is what the process grows by as drafters
are built and play, and what the driver grows by over a run of many prompts.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arena import config, seeding
from arena import prompts as prompt_sets
from arena.backends.local import LocalBackend
from arena.engines.live import RoundPlan, RoundPlay
from arena.engines.live import play as play_round
from arena.roster import resolve, worker_specs
from arena.store import RunDirectory
from arena.tournament import Tournament, Watcher

Note = Callable[[str], None]
LAW = {"kind": "table", "vocab": 32, "order": 2, "seed": 1}


def field(drafters: int) -> dict[str, Any]:
    """Half tables, from near to far; half n-grams of orders 2 to 5."""
    found: dict[str, Any] = {}
    for index in range(drafters // 2):
        found[f"table-{index:02d}"] = {**LAW, "mix": 0.1 + 0.8 * index / drafters, "other_seed": 50 + index}
        found[f"gram-{index:02d}"] = {"kind": "sprinter", "order": 2 + index % 4}
    return found


def play(
    *,
    drafters: str = "6,12,24,48",
    prompts: int = 8,
    tokens: int = 24,
    driver_prompts: int = 2000,
    note: Note = lambda text: None,
) -> Any:
    """Plays a round of each size.

    Args:
        drafters: Sizes of the field, with commas between.
        prompts: Of each round.
        tokens: New tokens a prompt.
        driver_prompts: Prompts of the run whose memory is watched; 0 leaves it out.
        note: Told how far it is.
    """
    rows: list[dict[str, Any]] = []
    cost: list[tuple[int, float, float]] = []
    _round(field(4), 2, 8)  # imports and first allocations; not counted
    for size in (int(part) for part in drafters.split(",")):
        seconds, nodes, steps, grown = _round(field(size), prompts, tokens)
        cost.append((size, seconds / steps, nodes / steps))
        note(f"{size} drafters: {1000 * seconds / steps:.2f} ms a lane-step")
        rows += [
            {"name": f"{size} drafters: a lane-step", "value": 1000 * seconds / steps, "unit": "ms"},
            {"name": f"{size} drafters: nodes of a tree", "value": nodes / steps, "unit": "nodes"},
            {"name": f"{size} drafters: a node", "value": 1e6 * seconds / nodes, "unit": "us"},
            {"name": f"{size} drafters: memory of a drafter", "value": grown / size / 1024, "unit": "KiB"},
        ]
    (_, first_time, first_nodes), (_, last_time, last_nodes) = cost[0], cost[-1]
    ratios = {
        "time_growth": last_time / first_time,
        "node_growth": last_nodes / first_nodes,
        "time_over_nodes": (last_time / first_time) / (last_nodes / first_nodes),
    }
    if driver_prompts:
        early, late = _memory(driver_prompts)
        rows.append({"name": f"driver, after {driver_prompts // 4} prompts", "value": early, "unit": "MiB"})
        rows.append({"name": f"driver, after {driver_prompts} prompts", "value": late, "unit": "MiB"})
        ratios["memory_growth"] = late / early
    return {"title": "scale: wider fields, local backend", "rows": rows, "ratios": ratios}


def _plan(body: dict[str, Any], prompts: int, tokens: int) -> tuple[LocalBackend, RoundPlan]:
    found = config.build(
        {
            "name": "scale",
            "verifier": LAW,
            "drafters": body,
            "prompts": {"synthetic": prompts, "length": 8},
            "rounds": {"prompts": prompts, "max_new_tokens": tokens},
            "engine": {"lanes": 8, "calibrate": False},
            "rules": {"measure_bound": False},
            "backend": {"kind": "local"},
        },
        "bench scale",
    )
    backend = LocalBackend()
    roster = resolve(found)
    answers = backend.start(worker_specs(found, roster, cpus=1, gpus=0.0, lanes=8), timeout=60)
    key = int(seeding.fold(found.seed, 0))
    made = prompt_sets.synthetic(prompts, 8, 32, key)
    names = tuple(roster.drafters)
    plan = RoundPlan(
        number=1,
        key=key,
        names=names,
        learners=tuple(name for name in names if answers[name].learns),
        prompts=tuple((prompt.id, prompt.tokens) for prompt in made),
        sampling=found.sampling.record(),
        draft_length=4,
        max_new_tokens=tokens,
        max_context=1 << 20,
        lanes=8,
        in_flight=1,
        learn_every=8,
        feedback_top=64,
        ranks=None,
        timeout=600.0,
    )
    return backend, plan


def _round(body: dict[str, Any], prompts: int, tokens: int) -> tuple[float, int, int, float]:
    """Seconds, tree nodes, lane-steps and bytes grown by of one round."""
    gc.collect()
    before = _resident()
    backend, plan = _plan(body, prompts, tokens)
    began = time.perf_counter()
    done: RoundPlay = play_round(plan, backend, lambda plan, played: None)
    seconds = time.perf_counter() - began
    spans = backend.wait([backend.submit("verifier", "spans")], timeout=60)[0]
    gc.collect()
    return seconds, sum(span.tokens for span in spans), len(done.commits), _resident() - before


def _memory(prompts: int) -> tuple[float, float]:
    """Driver memory (MiB) after a quarter of a tournament's prompts and after all, 50 a round."""
    values = {
        "name": "scale",
        "verifier": LAW,
        "drafters": {"near": {**LAW, "mix": 0.2}, "copy": {"kind": "copyist"}},
        "prompts": {"synthetic": prompts, "length": 8},
        "rounds": {"prompts": 50, "max_new_tokens": 12, "max": prompts // 50},
        "retirement": {"kind": "never"},
        "engine": {"lanes": 8, "calibrate": False},
        "rules": {"measure_bound": False},
        "backend": {"kind": "local"},
    }
    found = config.build(values, "bench scale")
    seen: list[float] = []

    def closed(record: Mapping[str, Any]) -> None:
        if record["round"] in (prompts // 200, prompts // 50):
            gc.collect()
            seen.append(_resident() / 2**20)

    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", found.to_yaml(), {"seed": found.seed})
        Tournament(found, directory, LocalBackend(), Watcher(closed=closed)).run()
    return seen[0], seen[-1]


def _resident() -> float:
    """Bytes of memory that the process holds."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
