"""Faults on real actors: processes that die, hang and grow, and a driver that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from arena.check import check
from arena.tournament import Watcher

from ..runs import files, run
from ..unit.test_chaos import as_if_never_there, lines, values

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calm") / "run"
    run(path, values())
    return path


def on_ray(*faults: dict[str, Any], **backend: Any) -> dict[str, Any]:
    body = values(*faults)
    body["backend"] = {"kind": "ray", "max_restarts": 1, **backend}
    return body


def test_processes_die_and_hang_and_leave_no_trace(cluster: str, calm: Path, tmp_path: Path) -> None:
    faults = [
        {"who": "near", "what": "hangs", "call": 2},
        {"who": "learner", "what": "dies", "call": 4},
        {"who": "verifier", "what": "dies", "call": 6},
        {"who": "scoreboard", "what": "dies", "call": 8},
    ]
    notes: list[str] = []
    run(tmp_path / "run", on_ray(*faults, call_timeout=4), Watcher(note=notes.append))
    lost = [note.partition(" ")[0] for note in notes if "rebuilding" in note]
    assert sorted(lost) == ["learner", "near", "scoreboard", "verifier"]
    assert any("near was lost (no answer within 4 s)" in note for note in notes)
    assert files(tmp_path / "run") == files(calm)
    assert not check(tmp_path / "run").problems


def test_a_leak_is_rebuilt_once_and_then_withdrawn(cluster: str, tmp_path: Path) -> None:
    leak = {"who": "near", "what": "leaks", "call": 1, "mb": 300, "lives": 9}
    notes: list[str] = []
    run(tmp_path / "run", on_ray(leak, memory_limit_mb=700), Watcher(note=notes.append))
    assert sum("rebuilding" in note for note in notes) == 1
    gone = lines(tmp_path / "run")[0]["withdrawn"]
    assert [item["drafter"] for item in gone] == ["near"]
    assert "MiB of memory; backend.memory_limit_mb is 700" in gone[0]["reason"]
    run(tmp_path / "calm", values(without="near"))
    as_if_never_there(tmp_path / "run", tmp_path / "calm", "near")


def test_a_driver_that_is_killed_goes_on_to_the_same_bytes(cluster: str, calm: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.runs import run; from tests.unit.test_chaos import values\n"
        "body = values(); body['backend'] = {'kind': 'ray', 'address': sys.argv[2]}\n"
        "run(Path(sys.argv[1]), body)"
    )
    path = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path), cluster], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not (path / "steps" / "round=001.parquet").exists():
        assert child.poll() is None
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert (path / "rounds.jsonl").read_bytes().count(b"\n") < len(lines(calm))
    run(path, on_ray())
    assert files(path) == files(calm)
    assert json.loads((path / "manifest.json").read_text())["status"] == "complete"
