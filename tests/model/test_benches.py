"""Benchmarks play at their smallest: the numbers are worth nothing here, but none may be broken."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from typer.testing import CliRunner

from arena.cli import app
from arena.commands.bench import benchmarks
from experiments.bench import overhead

SMALLEST = {
    "generate": ("prompts=1", "tokens=3", "assisted=1"),
    "scale": ("drafters=2,4", "prompts=1", "tokens=4", "driver_prompts=200"),
    "simulate": ("replicates=8", "workers=1", "compared=1"),
    "step": ("contexts=9", "repeats=1", "lanes=2"),
}
SHOWN = {
    "generate": {"generate_over_best_transformers", "generate_over_plain"},
    "scale": {"time_over_nodes", "arena_over_nodes", "memory_growth"},
    "simulate": {"tournaments_per_minute"},
    "step": {"step_over_forward", "step_over_one_token"},
}


MODELS = {"generate", "step"}
LONG = {"overhead", "rank"}
"""Left out: they load many models, in a quarter of a minute and more. What the first sums up is tested."""


def test_no_other_is_left_out() -> None:
    assert set(benchmarks()) == set(SMALLEST) | LONG


def row(who: str, stage: str, start: float, seconds: float, size: int = 0) -> dict[str, Any]:
    return {"who": who, "stage": stage, "start": start, "seconds": seconds, "bytes": size}


PASSES = [
    row("fast", "propose", 10.0, 0.2, 50),
    row("slow", "propose", 10.1, 0.5, 80),
    row("verifier", "verify", 10.7, 0.4),
    row("slow", "learn", 11.2, 0.2),
    row("fast", "propose", 11.5, 0.3, 50),
    row("slow", "propose", 11.9, 0.1, 90),
    row("verifier", "verify", 12.0, 0.4),
]


def test_overhead_is_what_neither_verifier_nor_slowest_drafter_takes() -> None:
    critical = 0.5 + 0.4 + 0.2 + 0.3 + 0.4  # somebody works for 0.2 longer: drafters began apart
    assert overhead.critical_path(PASSES) == pytest.approx(critical)
    assert overhead.busy(PASSES) == pytest.approx(critical + 0.2)
    found = overhead.report([PASSES], 8.0, 12.5, overhead.experiment(8, 1, 1, 1, 2, 0), 30)
    assert found["ratios"]["overhead_share"] == pytest.approx(0.7 / 2.5)
    assert found["ratios"]["idle_share"] == pytest.approx(0.5 / 2.5)
    assert found["ratios"]["startup_seconds"] == pytest.approx(2.0)
    assert found["ratios"]["payload_over_16_kib"] == pytest.approx(90 / 16384)
    assert next(line["value"] for line in found["rows"] if line["name"] == "committed") == 30 / 2.5


def test_passes_that_overlap_count_once() -> None:
    table = [
        row("one", "propose", 0.0, 1.0),
        row("one", "propose", 1.0, 1.0),
        row("verifier", "verify", 1.0, 1.0),
        row("verifier", "verify", 2.0, 1.0),
    ]
    assert overhead.critical_path(table) == pytest.approx(3.0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.model] * (name in MODELS)) for name in sorted(SMALLEST)]
)
def test_a_benchmark_plays(name: str, request: pytest.FixtureRequest) -> None:
    if name in MODELS:
        request.getfixturevalue("smollm2")
    out = CliRunner().invoke(app, ["bench", name, *SMALLEST[name], "-f", "json"], catch_exceptions=False)
    assert out.exit_code == 0, out.output
    body = json.loads(out.stdout)
    assert SHOWN[name] <= set(body["ratios"])
    assert all(math.isfinite(value) and value > 0 for value in body["ratios"].values()), body["ratios"]
    assert all(row["name"] and math.isfinite(row["value"]) for row in body["rows"])
    wrong = [line for line in body["rows"] if "differ" in line["name"] or "by a fault" in line["name"]]
    assert len(wrong) == (name in ("generate", "simulate"))
    assert all(line["value"] == 0 for line in wrong)
