"""Killed at any moment, a run goes on to the same bytes; and two processes never play one run."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from arena import durable, lock, snapshots
from arena.check import check
from arena.commands import play
from arena.errors import RunError

from ..killing import survive, values
from ..runs import files, run

KILLS, CUTS = 20, 12


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("whole") / "run"
    run(path, values())
    return files(path)


@pytest.mark.parametrize("engine", ["live", "replay"])
def test_kill_9_at_random_moments_changes_no_byte(engine: str, tmp_path: Path) -> None:
    # The learner's snapshots are part of it: four drafters, three rounds, seeded moments.
    survive(tmp_path, seed=11, kills=KILLS, engine=engine, kind="local")


class PowerCut(BaseException):
    """Nothing after it is executed, not even a handler of errors."""


def test_a_power_cut_at_any_write_changes_no_byte(
    whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = _Moments()
    moments.install(monkeypatch)
    run(tmp_path / "counted", values())
    total = moments.count
    assert total > 40
    for cut in sorted(random.Random(3).sample(range(8, total), CUTS)):
        path = tmp_path / f"cut-{cut}"
        moments.count, moments.at = 0, cut
        with pytest.raises(PowerCut):
            run(path, values())
        moments.at = None
        run(path, values())
        assert files(path) == whole, f"cut at write {cut} of {total}"
        assert not check(path).problems
        assert not [p for p in path.rglob("*.tmp") if p.is_file()]


class _Moments:
    """Counts renames and syncs, and cuts the power at one of them: before it, or when half is written."""

    def __init__(self) -> None:
        self.count, self.at = 0, None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (durable, snapshots):
            monkeypatch.setattr(module, "os", self)

    def __getattr__(self, name: str) -> Any:
        if name not in ("fsync", "replace"):
            return getattr(os, name)

        def wrapped(*args: Any) -> Any:
            self.count += 1
            if self.at is not None and self.count > self.at:
                raise PowerCut
            return getattr(os, name)(*args)

        return wrapped


def test_a_run_is_played_by_one_process(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    code = (
        "import sys, time; from pathlib import Path; from arena import lock\n"
        "with lock.hold(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(RunError, match=rf"process {other.pid} on .*arena resume"),
            lock.hold(tmp_path / "run"),
        ):
            pass
    finally:
        other.kill()
        other.wait()
    with lock.hold(tmp_path / "run"), lock.hold(tmp_path / "run"):  # a killed process leaves no lock behind
        pass


def test_a_run_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot lock"), lock.hold(tmp_path / "nowhere"):
        pass


def test_ctrl_c_ends_cleanly_and_the_printed_command_goes_on(tmp_path: Path) -> None:
    arguments = [
        "--backend",
        "local",
        "engine.calibrate=false",
        "rounds.prompts=4",
        "rounds.max_new_tokens=16",
    ]
    path = tmp_path / "run"
    command = [sys.executable, "-m", "arena.cli", "run", "toy", "--out", str(path), *arguments]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell are born deaf to Ctrl-C, and so would be their children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (path / "steps" / "round=001.parquet").exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.005)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert json.loads((path / "manifest.json").read_text())["status"] == "interrupted"
    found = re.search(r"arena resume (\S+)", err)
    assert found is not None
    again = subprocess.run(
        [sys.executable, "-m", "arena.cli", "resume", found[1]], capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    assert json.loads((path / "manifest.json").read_text())["status"] == "complete"
    whole = subprocess.run(
        [*command[:4], "toy", "--out", str(tmp_path / "whole"), *arguments], capture_output=True, timeout=120
    )
    assert whole.returncode == 0
    assert files(path) == files(tmp_path / "whole")
    assert not check(path).problems


def test_a_polite_request_to_end_is_taken_for_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def end_politely() -> None:
        with play._stoppable():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        end_politely()
    assert signal.getsignal(signal.SIGTERM) == before


def test_ctrl_c_before_anything_began_exits_with_130(tmp_path: Path) -> None:
    code = "import arena.cli as c; c.app = lambda: (_ for _ in ()).throw(KeyboardInterrupt); c.main()"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert got.returncode == 130
    assert "Traceback" not in got.stderr
