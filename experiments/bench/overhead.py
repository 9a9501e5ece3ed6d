"""What a Ray tournament adds to its own critical path, what its drafts weigh, and how it starts.

The critical path of a pass is its verifier step and its slowest drafter; the rest of the
wall time of a run, from the first call to the last barrier, is overhead: messages, the loop
in the driver, folding, and what is written at barriers. Clock values come from the run's
own timing files.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena import config
from arena.store import RunDirectory
from arena.tournament import Tournament, Watcher, make_backend

Note = Callable[[str], None]
CHEAP = {
    "lookup": {"kind": "copyist"},
    "early": {"kind": "copyist", "prefer": "earliest"},
    "three": {"kind": "sprinter", "order": 3, "learns": False},
    "four": {"kind": "sprinter", "order": 4, "learns": False},
}
NEURAL = {
    "cut": {"kind": "hf", "model": "verifier", "drop": [0.4, 0.5334]},
    "deep cut": {"kind": "hf", "model": "verifier", "drop": [0.2667, 0.6667]},
}


def experiment(
    lanes: int, in_flight: int, rounds: int, prompts: int, tokens: int, neural: int
) -> config.Experiment:
    """Six drafters before SmolLM2, some of them models."""
    models = {name.replace(" ", "-"): options for name, options in [*NEURAL.items()][:neural]}
    field: dict[str, Any] = {**CHEAP, **models}
    spare = {"five": {"kind": "sprinter", "order": 5, "learns": False}, "six": {"kind": "copyist"}}
    for name, options in spare.items():
        if len(field) < 6:
            field[name] = options
    return config.build(
        {
            "name": "overhead",
            "verifier": {"kind": "hf", "model": "smollm2-135m"},
            "drafters": field,
            "prompts": {"path": "mixed"},
            "rounds": {"prompts": prompts, "max_new_tokens": tokens, "max": rounds},
            "engine": {"lanes": lanes, "in_flight": in_flight, "calibrate": False, "draft_length": 4},
            "backend": {"kind": "ray"},
        },
        "bench overhead",
    )


def play(
    *,
    lanes: int = 8,
    in_flight: int = 1,
    rounds: int = 2,
    prompts: int = 8,
    tokens: int = 24,
    neural: int = 2,
    note: Note = lambda text: None,
) -> Any:
    """Plays a short tournament on Ray and takes its timing files apart.

    Args:
        lanes: Of a group.
        in_flight: Groups whose passes may overlap.
        rounds: Played, at most five.
        prompts: A round.
        tokens: New tokens a prompt.
        neural: Drafters that are models, 0 to 2; the others read only text.
        note: Told how far it is.
    """
    found = experiment(lanes, in_flight, rounds, prompts, tokens, neural)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", found.to_yaml(), {"seed": found.seed})
        began = time.time()
        backend = make_backend(found)
        closed: list[float] = []
        committed = 0

        def on_close(record: Mapping[str, Any]) -> None:
            nonlocal committed
            closed.append(time.time())
            committed += record["committed"]
            note(f"round {record['round']} is over")

        try:
            Tournament(found, directory, backend, Watcher(closed=on_close, note=note)).run()
        finally:
            backend.shutdown()
        tables = [directory.read_table("timing", n).to_pylist() for n in range(1, len(closed) + 1)]
    return report(tables, began, closed[-1], found, committed)


def report(
    tables: Sequence[Sequence[Mapping[str, Any]]],
    began: float,
    ended: float,
    found: config.Experiment,
    committed: int,
) -> dict[str, Any]:
    """Sums the timing files up."""
    rows = [row for table in tables for row in table]
    first = min(row["start"] for row in rows)
    critical = sum(critical_path(table) for table in tables)
    wall = ended - first
    verify = [row for row in rows if row["stage"] == "verify"]
    propose = [row for row in rows if row["stage"] == "propose"]
    by_drafter: dict[str, list[Mapping[str, Any]]] = {}
    for row in propose:
        by_drafter.setdefault(row["who"], []).append(row)
    out: list[dict[str, Any]] = [
        {"name": "start-up: Ray, actors, model, prompts", "value": first - began, "unit": "s"},
        {"name": "wall, first call to last barrier", "value": wall, "unit": "s"},
        {"name": "committed", "value": committed / wall, "unit": "tokens/s"},
        {"name": "critical path", "value": critical, "unit": "s"},
        {"name": "passes", "value": len(verify), "unit": ""},
        {"name": "overhead a pass", "value": 1000 * (wall - critical) / len(verify), "unit": "ms"},
        {"name": "somebody works", "value": busy(rows), "unit": "s"},
        {"name": "verifier, a pass", "value": 1000 * _mean(verify, "seconds"), "unit": "ms"},
    ]
    for name, mine in sorted(by_drafter.items()):
        out.append({"name": f"{name}, a pass", "value": 1000 * _mean(mine, "seconds"), "unit": "ms"})
        out.append({"name": f"{name}, payload a pass", "value": _mean(mine, "bytes"), "unit": "bytes"})
    most = max(row["bytes"] for row in propose)
    out.append({"name": "largest payload of a draft", "value": most, "unit": "bytes"})
    shape = f"{found.engine.lanes} lanes, {found.engine.in_flight} in flight"
    title = f"overhead: {len(by_drafter)} drafters on Ray, {shape}"
    ratios = {
        "overhead_share": (wall - critical) / wall,
        "idle_share": (wall - busy(rows)) / wall,
        "payload_over_16_kib": most / 16384,
        "startup_seconds": first - began,
    }
    return {"title": title, "rows": out, "ratios": ratios}


def critical_path(table: Sequence[Mapping[str, Any]]) -> float:
    """Sums, over the passes of a round, the verifier's time and the slowest drafter's.

    A drafter's n-th call and the verifier's n-th belong together: calls are made in the
    order of passes. Where groups overlap, time in which two of them work counts once.
    """
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(table, key=lambda row: row["start"]):
        if row["stage"] in ("propose", "verify"):
            calls.setdefault(row["who"], []).append(row)
    verify = calls.pop("verifier", [])
    total = 0.0
    for n, step in enumerate(verify):
        total += step["seconds"] + max((mine[n]["seconds"] for mine in calls.values()), default=0.0)
    total += sum(row["seconds"] for row in table if row["stage"] == "learn")
    return min(total, busy(table))


def busy(rows: Sequence[Mapping[str, Any]]) -> float:
    """Seconds in which at least one worker works."""
    total, until = 0.0, 0.0
    for row in sorted(rows, key=lambda row: row["start"]):
        end = row["start"] + row["seconds"]
        total += max(0.0, end - max(row["start"], until))
        until = max(until, end)
    return total


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(sum(row[key] for row in rows)) / len(rows)
