"""One small cluster a module; a backend joins it and leaves it running."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster of two cores on this machine; gives its address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=128 << 20,
    )
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
