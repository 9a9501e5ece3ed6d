"""Plays rounds for minutes on Ray and watches memory, descriptors and the object store.

``python -m experiments.soak [--seconds 300] [--experiment toy] [section.key=value ...]``. One
JSON object on stdout; exit code 1 if anything grew. Nobody is retired, so that the same
workers, a learner among them, live from the first round to the last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from arena import config
from arena.check import check
from arena.engines.health import Healthy
from arena.store import RunDirectory
from arena.tournament import Tournament, Watcher, make_backend

LEARNERS = {"toy": ["drafters.gil={kind: sprinter, order: 2}"]}
"""What an experiment needs for a learner to be in its field."""
MB_ALLOWED, SHARE_ALLOWED, FILES_ALLOWED = 12.0, 0.06, 4
"""Growth of a process between the second and the last quarter that is still called flat."""


class Enough(Exception):
    """The time is up."""


def store_mb() -> float:
    """Memory that the object store has touched, MiB: the shared pages of the raylet started here."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            facts = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except (OSError, ValueError):
            continue
        if facts.get("Name") == "raylet" and int(facts.get("PPid", "0")) == os.getpid():
            return int(facts["RssShmem"].split()[0]) / 1024
    return -1.0


def growth(values: list[float]) -> float:
    """Median of the last quarter less that of the second: what is loaded first does not count."""
    quarter = max(1, len(values) // 4)
    return statistics.median(values[-quarter:]) - statistics.median(values[quarter : 2 * quarter])


def main() -> int:
    """Plays until the time is up and prints what grew; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--backend", choices=("ray", "local"), default="ray")
    parser.add_argument("--experiment", default="toy", help="a name or a YAML file")
    parser.add_argument("changes", nargs="*", metavar="section.key=value", help="of the experiment")
    parser.add_argument("--keep", type=Path, help="keep the run directory here")
    wanted = parser.parse_args()
    experiment = config.load(
        wanted.experiment,
        [
            f"backend.kind={wanted.backend}",
            "retirement.kind=never",
            "rounds.max=1000000",
            "engine.calibrate=false",
            *LEARNERS.get(wanted.experiment, ()),
            *wanted.changes,
        ],
    )
    folder = wanted.keep or Path(tempfile.mkdtemp(prefix="soak-")) / "run"
    directory = RunDirectory.create(folder, experiment.to_yaml(), {"experiment": "soak"})
    backend = make_backend(experiment)
    seen: dict[str, list[dict[str, float]]] = {}
    store: list[float] = []
    began, rounds, tokens = time.monotonic(), 0, 0

    def closed(record: Any) -> None:
        nonlocal rounds, tokens
        rounds, tokens = rounds + 1, tokens + record["committed"]
        seen.setdefault("driver", []).append(Healthy().health())
        for name in ("verifier", "scoreboard", *record["alive"]):
            seen.setdefault(name, []).append(backend.wait([backend.submit(name, "health")], timeout=60)[0])
        store.append(store_mb())
        if time.monotonic() - began > wanted.seconds:
            raise Enough

    try:
        Tournament(experiment, directory, backend, Watcher(closed=closed)).run()
    except Enough:
        pass
    finally:
        backend.shutdown()
    grew = []
    workers: dict[str, dict[str, float]] = {}
    for name, rows in seen.items():
        memory, files = [row["memory_mb"] for row in rows], [row["files"] for row in rows]
        more, opened = growth(memory), growth(files)
        workers[name] = {
            "memory_mb_first": round(memory[0], 1),
            "memory_mb_last": round(memory[-1], 1),
            "memory_mb_growth": round(more, 2),
            "files_first": files[0],
            "files_last": files[-1],
        }
        if more > max(MB_ALLOWED, SHARE_ALLOWED * memory[0]) or opened > FILES_ALLOWED:
            grew.append(name)
    if growth(store) > MB_ALLOWED:
        grew.append("object store")
    report = check(folder)
    print(
        json.dumps(
            {
                "seconds": round(time.monotonic() - began, 1),
                "rounds": rounds,
                "tokens": tokens,
                "workers": workers,
                "object_store_mb": {"first": store[0], "largest": max(store), "growth": growth(store)},
                "grew": grew,
                "problems": [f"{one.file}: {one.what}" for one in report.problems],
            },
            indent=2,
        )
    )
    if wanted.keep is None:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return 1 if grew or report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
