"""Learning curves from stored steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.learning import learning_numbers
from arena.plots import plot
from arena.store import RunDirectory


def test_the_curve_is_made_of_the_stored_counts(finished: RunDirectory) -> None:
    records = finished.rounds()
    for pieces in (1, 3):
        found = learning_numbers(finished.path, pieces)
        assert len(found["six"].x) == pieces * len(records)
        assert list(found["six"].x) == sorted(found["six"].x)
        assert all(0 <= y <= 1 for line in found.values() for y in line.y)
    whole = learning_numbers(finished.path, 1)
    seen = 0
    for number, record in enumerate(records):
        counts = record["counts"]["six"]
        assert whole["six"].y[number] == pytest.approx(counts["accepted"] / counts["offered"])
        assert whole["six"].x[number] == pytest.approx(seen + record["committed"] / 2)
        seen += record["committed"]


def test_it_is_drawn(finished: RunDirectory, tmp_path: Path) -> None:
    path = plot([finished.path], "learning", tmp_path / "learning.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
