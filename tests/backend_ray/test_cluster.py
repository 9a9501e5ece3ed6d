"""A cluster of three nodes on this machine: drafters spread, and one node lost in the middle of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

from arena.check import check
from arena.errors import BackendError
from arena.tournament import Watcher

from ..runs import files, run
from ..unit.test_chaos import values


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    nodes = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    for _ in range(2):
        nodes.add_node(**small)
    nodes.wait_for_nodes()
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def spread(**backend: Any) -> dict[str, Any]:
    body = values()
    body["backend"] = {
        "kind": "ray",
        "placement": "SPREAD",
        "worker_cpus": 0.2,
        "call_timeout": 30,
        "start_timeout": 60,
        **backend,
    }
    return body


def test_a_node_is_lost_in_the_middle_of_a_run(cluster: Cluster, tmp_path: Path) -> None:
    run(tmp_path / "calm", values())
    notes: list[str] = []
    before: list[set[str]] = []

    def lose_a_node(record: Any) -> None:
        if record["round"] == 1:
            groups = placement_group_table().values()
            before.append({node for one in groups for node in one["bundles_to_node_id"].values()})
            cluster.remove_node(cluster.worker_nodes.copy().pop())

    began = time.monotonic()
    run(tmp_path / "run", spread(), Watcher(closed=lose_a_node, note=notes.append))
    assert time.monotonic() - began < 120
    assert len(before[0]) == 3  # workers were spread over all of them
    assert sum(node["Alive"] for node in ray.nodes()) == 2
    assert any("rebuilding" in note for note in notes)  # somebody lived there
    assert files(tmp_path / "run") == files(tmp_path / "calm")
    assert not check(tmp_path / "run").problems


def test_a_cluster_that_is_too_small_is_told_wanted_against_available(
    cluster: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match=r"wanted .*CPU.*12.* available .*CPU"):
        run(tmp_path / "run", spread(worker_cpus=2, start_timeout=3))
