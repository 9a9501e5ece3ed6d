"""What a wider field costs: 6 to 48 table and n-gram drafters, and a long run's memory.

Time is that of the local backend, one process, so that it is arithmetic and not messages;
it is set against the nodes of the trees. A part of it is the drafters' own, who draft each
for itself whatever the tree then shares (on Ray, beside each other); the rest is the
arena's: merging, laws, rules, verdicts, the driver's loop. Memory is what another
drafter holds after a round, and what the driver grows by over a run of many prompts.
"""

from __future__ import annotations

import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena import config, seeding
from arena import prompts as prompt_sets
from arena.backends.local import LocalBackend
from arena.engines.health import memory_mb
from arena.engines.live import RoundPlan, RoundPlay
from arena.engines.live import play as play_round
from arena.errors import ConfigError
from arena.models import table
from arena.roster import resolve, worker_specs
from arena.store import RunDirectory
from arena.tournament import Tournament, Watcher

Note = Callable[[str], None]
LAW = {"kind": "table", "vocab": 32, "order": 2, "seed": 1}


def field(drafters: int) -> dict[str, Any]:
    """Half tables, from near to far; half n-grams of orders 2 to 4: a larger field of the same kind."""
    found: dict[str, Any] = {}
    for index in range(drafters // 2):
        found[f"table-{index:02d}"] = {**LAW, "mix": 0.1 + 0.8 * index / drafters, "other_seed": 50 + index}
        found[f"gram-{index:02d}"] = {"kind": "sprinter", "order": 2 + index % 3}
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
    sizes = [int(part) for part in drafters.split(",")]
    if any(size < 2 or size % 2 for size in sizes):
        raise ConfigError(f"drafters={drafters}: half are tables, half n-grams; expected even numbers.")
    rows: list[dict[str, Any]] = []
    found: list[Round] = []
    _round(4, 2, 8)  # imports and first allocations; not counted
    for size in sizes:
        one = min((_round(size, prompts, tokens) for _ in range(3)), key=lambda one: one.seconds)
        found.append(one)
        step, own = 1000 * one.seconds / one.steps, 1000 * one.arena / one.steps
        note(f"{size} drafters: {step:.2f} ms a lane-step")
        rows += [
            {"name": f"{size} drafters: a lane-step", "value": step, "unit": "ms"},
            {"name": f"{size} drafters: of it the arena's", "value": own, "unit": "ms"},
            {"name": f"{size} drafters: nodes of a tree", "value": one.nodes / one.steps, "unit": "nodes"},
            {"name": f"{size} drafters: a node", "value": 1e6 * one.seconds / one.nodes, "unit": "us"},
        ]
    more = _held(sizes[-1] + 2, prompts, tokens) - _held(sizes[-1], prompts, tokens)
    rows.append({"name": "memory of another drafter", "value": more / 2048, "unit": "KiB"})
    first, last = found[0], found[-1]
    growth = {
        "time_growth": (last.seconds / last.steps) / (first.seconds / first.steps),
        "arena_growth": (last.arena / last.steps) / (first.arena / first.steps),
        "node_growth": (last.nodes / last.steps) / (first.nodes / first.steps),
    }
    ratios = growth | {
        "time_over_nodes": growth["time_growth"] / growth["node_growth"],
        "arena_over_nodes": growth["arena_growth"] / growth["node_growth"],
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


@dataclass(frozen=True, slots=True)
class Round:
    """What a round took: seconds, the arena's own among them; tree nodes and lane-steps."""

    seconds: float
    arena: float
    nodes: int
    steps: int


def _round(size: int, prompts: int, tokens: int) -> Round:
    gc.collect()
    backend, plan = _plan(field(size), prompts, tokens)
    began = time.perf_counter()
    done: RoundPlay = play_round(plan, backend, lambda plan, played: None)
    seconds = time.perf_counter() - began
    asked = [backend.submit(who, "spans") for who in ("verifier", *plan.names)]
    verifier, *drafters = backend.wait(asked, timeout=60)
    theirs = sum(span.end - span.start for spans in drafters for span in spans)
    return Round(seconds, seconds - theirs, sum(span.tokens for span in verifier), len(done.commits))


def _held(size: int, prompts: int, tokens: int) -> float:
    """Bytes that a field and its verifier hold once a round is played, the tables of their laws included."""
    table._every.cache_clear()
    gc.collect()
    tracemalloc.start()
    backend, plan = _plan(field(size), prompts, tokens)
    play_round(plan, backend, lambda plan, played: None)
    gc.collect()
    held, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return float(held)


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
            seen.append(memory_mb())

    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", found.to_yaml(), {"seed": found.seed})
        Tournament(found, directory, LocalBackend(), Watcher(closed=closed)).run()
    return seen[0], seen[-1]
