"""Kills a tournament again and again at seeded random moments; run as a script by a test.

``python killing.py FOLDER SEED KILLS``: plays a run whole, then forks a child that plays
it anew, kills the child (SIGKILL) after a random part of the time that the whole run
took, and goes on in another child until the run is complete. Prints one JSON object.

This process loads everything and runs nothing, so that its forks are safe and quick.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401

import arena.check
import arena.verifiers.table
import drafters.copyist
import drafters.sprinter
import drafters.table  # noqa: F401
from tests.runs import body, files, run


def values() -> dict[str, Any]:
    field = {
        "learner": {"kind": "sprinter", "order": 2},
        "near": body()["drafters"]["near"],
        "far": body()["drafters"]["far"],
        "copy": {"kind": "copyist"},
    }
    rounds = {"prompts": 4, "max_new_tokens": 12}
    return body(drafters=field, rounds=rounds, engine={"learn_every": 2, "calibrate": False})


def forked(path: Path, seconds: float | None) -> bool:
    """Plays (on) in a child; kills it after ``seconds``. Says whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            run(path, values())
            os._exit(0)
        except BaseException as error:
            print(f"child: {error!r}", file=sys.stderr)
            os._exit(1)
    end = None if seconds is None else time.monotonic() + seconds
    while end is None or time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, f"the child failed at {path}"
            return False
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main(folder: Path, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    forked(folder / "first", None)  # files and code come from the disk once
    began = time.monotonic()
    forked(folder / "whole", None)
    took = time.monotonic() - began
    wanted = files(folder / "whole")
    killed, rounds, different, bad = 0, [], [], []
    attempt = 0
    while killed < kills and attempt < 3 * kills:
        attempt += 1
        path = folder / f"run-{attempt}"
        # Now and then a run is killed twice or three times before it may end.
        for _ in range(rng.choice((1, 1, 2, 3))):
            if not forked(path, rng.random() * took):
                break
            killed += 1
            lines = path / "rounds.jsonl"
            rounds.append(lines.read_bytes().count(b"\n") if lines.exists() else -1)
            if not (path / "manifest.json").exists():  # killed while it made its directory
                shutil.rmtree(path, ignore_errors=True)
        forked(path, None)
        if files(path) != wanted:
            different.append(path.name)
        bad += [f"{path.name}: {p.file}: {p.what}" for p in arena.check.check(path).problems]
    print(
        json.dumps({"killed": killed, "rounds": rounds, "different": different, "problems": bad, "s": took})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
