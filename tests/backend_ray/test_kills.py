"""Drivers on Ray are killed at seeded random moments, and `arena resume` gives the same bytes.

``ARENA_RAY_KILLS=20 pytest tests/backend_ray/test_kills.py`` kills 20 drivers a test and takes half
an hour: a cluster of one's own has to be started after every kill.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from ..killing import survive

KILLS = int(os.environ.get("ARENA_RAY_KILLS", "0"))
SECONDS = 180 + 75 * KILLS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not KILLS, reason="takes half an hour; ARENA_RAY_KILLS says how many drivers to kill"),
    pytest.mark.timeout(SECONDS + 60),
]


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No cluster of anybody else is found or joined; what killed drivers leave on disk goes."""
    folder = tempfile.mkdtemp(prefix="rk-")  # short: Ray puts sockets below it
    monkeypatch.setenv("RAY_TMPDIR", folder)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("engine", ["live", "replay"])
def test_drivers_with_a_cluster_of_their_own(engine: str, apart: None, tmp_path: Path) -> None:
    print(json.dumps(survive(tmp_path, 7, KILLS, engine, SECONDS, kind="ray", num_cpus=2)))


def test_drivers_on_a_cluster_that_goes_on(cluster: str, tmp_path: Path) -> None:
    print(json.dumps(survive(tmp_path, 8, KILLS, "live", SECONDS, kind="ray", address=cluster)))
    end = time.monotonic() + 60
    while ray.available_resources().get("CPU") != ray.cluster_resources()["CPU"]:
        assert time.monotonic() < end, "a killed driver's workers keep their places"
        time.sleep(0.5)
