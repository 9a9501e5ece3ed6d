"""What a worker says of its memory."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena import config
from arena.engines import health
from arena.errors import WorkerLost
from arena.lives import Lives

from ..runs import body

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
    # Other pages come to be shared too, those of the interpreter: some megabytes.
    assert alone - before == pytest.approx(64, abs=12)
    assert alone - together == pytest.approx(32, abs=12)
    assert whole - own > 30


def test_where_the_system_tells_less_it_is_what_is_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(path: Path, **how: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", absent)
    assert health.own_mb() == health.memory_mb() > 1


class Told:
    """A backend whose workers say what they hold."""

    def submit(self, worker: str, method: str) -> str:
        assert method == "health"
        return worker

    def wait(self, tickets: list[str], *, timeout: float) -> list[dict[str, float]]:
        return [{"memory_mb": 900.0, "own_mb": 100.0} for _ in tickets]


@pytest.mark.parametrize("limit", [None, 500, 1000])
def test_what_is_shared_counts_once_in_the_sum_and_whole_against_the_limit(limit: int | None) -> None:
    made = body(backend={"kind": "ray", **({"memory_limit_mb": limit} if limit else {})})
    lives = Lives(config.build(made, "test"), Told(), {}, lambda text: None)  # type: ignore[arg-type]
    if limit == 500:
        with pytest.raises(WorkerLost, match=r"held 900 MiB of memory; .*memory_limit_mb is 500"):
            lives.memory_mb(["a", "b"])
    else:
        assert lives.memory_mb(["a", "b"]) == pytest.approx(200 + health.own_mb(), abs=3)
