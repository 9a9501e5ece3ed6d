"""Kills a tournament again and again at seeded random moments; run as a script by tests.

``python -m tests.killing FOLDER SEED KILLS live|replay BACKEND``: plays a run whole, then
forks a child that plays it anew, kills the child (SIGKILL) at a random moment of its start,
of one of its rounds or of its end, and goes on with ``arena resume`` in other children until
the run is complete. BACKEND is that section of the experiment, as JSON. Prints one JSON object.

This process loads everything and runs nothing, so that its forks are safe and quick.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401

import arena.check
import arena.engines.replay_seat
import arena.replayed
import arena.verifiers.table
import drafters.copyist
import drafters.sprinter
import drafters.table  # noqa: F401
from arena.commands.play import resume
from tests.runs import body, files, run

ROOT = Path(__file__).parents[1]
MARK = "DRAFT_ARENA_KILLING"
"""In the environment of whatever the children start, e.g. a cluster: the folder they play in."""


def values(trace: Path | None = None, **backend: Any) -> dict[str, Any]:
    """A learner and three others; by replay of ``trace``, if one is given."""
    field = {
        "learner": {"kind": "sprinter", "order": 2},
        "near": body()["drafters"]["near"],
        "far": body()["drafters"]["far"],
        "copy": {"kind": "copyist"},
    }
    rounds = {"prompts": 4, "max_new_tokens": 12}
    engine: dict[str, Any] = {"learn_every": 2, "calibrate": False}
    if trace is not None:
        engine |= {"kind": "replay", "trace": str(trace)}
    return body(drafters=field, rounds=rounds, engine=engine, backend=backend)


def survive(
    folder: Path, seed: int, kills: int, engine: str = "live", timeout: float = 240, **backend: Any
) -> dict[str, Any]:
    """Has runs killed, by a process of their own, and asserts that their files do not show it."""
    arguments = [str(folder), str(seed), str(kills), engine, json.dumps(backend)]
    killer = subprocess.Popen(
        [sys.executable, "-m", "tests.killing", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = killer.communicate(timeout=timeout)
    finally:
        if killer.poll() is None:
            os.killpg(killer.pid, signal.SIGKILL)  # its child too
            killer.wait()
        bury(folder, wait=0)
    assert killer.returncode == 0, err[-2000:]
    result: dict[str, Any] = json.loads(out)
    assert result["killed"] >= kills, result
    assert (result["different"], result["problems"]) == ([], []), result
    # A few kills may miss a round; many must not.
    assert kills < 20 or set(result["rounds"]) >= set(range(result["of"])), result
    return result


def bury(folder: Path, wait: float = 10.0) -> int:
    """Waits for the end of all that the children started; gives how many had to be killed for it."""
    end = time.monotonic() + wait
    while (rest := _marked(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    for process in rest:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return len(rest)


def _marked(folder: Path) -> list[int]:
    found, wanted = [], f"{MARK}={folder}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended, or is somebody else's
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _held(path: Path) -> dict[str, bytes]:
    """All that must be the same: rounds, steps, commits, what was learnt, who won."""
    learnt = (file for file in path.glob("snapshots/**/*") if file.is_file())
    more = {str(f.relative_to(path)): f.read_bytes() for f in (path / "champion.json", *learnt)}
    return files(path) | more


class _Child:
    """Plays a run, or goes on with it.

    Attributes:
        reached: When each stage began: the start, the rounds, the end. One more is when it ended.
    """

    def __init__(self, path: Path, body: dict[str, Any]) -> None:
        self._path, self._before = path, _stamp(path)
        self.reached = [time.monotonic()]
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(2, 1)  # our own stdout is for one JSON object
            try:
                if (path / "manifest.json").exists():
                    resume(str(path))
                else:
                    run(path, body)
                os._exit(0)
            except BaseException as error:
                print(f"child: {error!r}", file=sys.stderr)
                os._exit(1)

    def live(self, stage: int | None = None, seconds: float = 0.0) -> bool:
        """Waits; if a stage is given, until so long after it began. Says whether it was killed then."""
        while True:
            done, status = os.waitpid(self._pid, os.WNOHANG)
            now = time.monotonic()
            if len(self.reached) > 1 or _stamp(self._path) != self._before:
                missing = 2 + _lines(self._path) - len(self.reached)
                self.reached += [now] * missing
            if done:
                assert os.waitstatus_to_exitcode(status) == 0, f"the child failed at {self._path}"
                self.reached.append(now)
                return False
            if stage is not None and stage < len(self.reached) and now - self.reached[stage] >= seconds:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                return True
            time.sleep(0.0005)


def _stamp(path: Path) -> int:
    """Changes when the workers of a run are up: its prompts are written then."""
    try:
        return (path / "prompts.parquet").stat().st_mtime_ns
    except OSError:
        return 0


def _lines(path: Path) -> int:
    try:
        return (path / "rounds.jsonl").read_bytes().count(b"\n")
    except OSError:
        return -1


def _moments(rng: random.Random, whole: Sequence[float]) -> Iterator[tuple[int, float]]:
    """Stages, each with a part of the seconds that it took: dealt in turn, rounds twice as often."""
    end = len(whole) - 2
    while True:
        stages = [0, *range(1, end), *range(1, end), end]
        rng.shuffle(stages)
        for stage in stages:
            yield stage, rng.random() * (whole[stage + 1] - whole[stage])


def main(folder: Path, seed: int, kills: int, engine: str, backend: dict[str, Any]) -> None:
    os.environ[MARK] = str(folder)
    rng, body_ = random.Random(seed), values(**backend)
    if engine == "replay":
        _Child(folder / "trace", body()).live()
        body_ = values(folder / "trace", **backend)
    _Child(folder / "first", body_).live()  # files and code come from the disk once
    whole = _Child(folder / "whole", body_)
    whole.live()
    bury(folder)
    wanted, stages = _held(folder / "whole"), whole.reached
    moments, strays = _moments(rng, stages), 0
    rounds: list[int] = []
    different: list[str] = []
    bad: list[str] = []
    attempt = 0
    while len(rounds) < kills and attempt < 3 * kills:
        attempt += 1
        path = folder / f"run-{attempt}"
        # Now and then a run is killed twice or three times before it may end.
        for _ in range(rng.choice((1, 1, 2, 3))):
            if not _Child(path, body_).live(*next(moments)):
                break
            rounds.append(_lines(path))
            if not (path / "manifest.json").exists():  # killed while it made its directory
                shutil.rmtree(path, ignore_errors=True)
        _Child(path, body_).live()  # at once: what the killed ones had started may still be dying
        strays += bury(folder)
        if _held(path) != wanted:
            different.append(path.name)
        bad += [f"{path.name}: {p.file}: {p.what}" for p in arena.check.check(path).problems]
    result = {
        "killed": len(rounds),
        "runs": attempt,
        "rounds": rounds,
        "of": _lines(folder / "whole"),
        "different": different,
        "problems": bad,
        "strays": strays,
        "stages_s": [round(later - one, 3) for one, later in pairwise(stages)],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
