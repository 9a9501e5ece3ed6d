"""What a worker says of its memory."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.engines import health

CHILD = """
import mmap, sys
from arena.engines import health
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    sum(mapped[::4096])
    print(health.memory_mb(), health.own_mb(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="this system does not tell")
def test_pages_that_two_processes_map_are_counted_once_over_both(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(64 << 20))
    before = health.own_mb()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        sum(mapped[::4096])
        alone = health.own_mb()
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            whole, own = map(float, child.stdout.readline().split())
            together = health.own_mb()
            child.communicate("", timeout=60)
    assert alone - before == pytest.approx(64, abs=4)
    assert together - before == pytest.approx(32, abs=4)
    assert whole - own > 30


def test_where_the_system_tells_less_it_is_what_is_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(path: Path, **how: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", absent)
    assert health.own_mb() == health.memory_mb() > 1
