"""Costs measured once before round 1: stored, used again, and without a trace in the results."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from arena import calibrate
from arena.commands.results import overview
from arena.costs import Calibration, fit_pass
from arena.engines.probe import ProbePlan
from arena.errors import DrafterFault
from arena.frames import load
from arena.store import RunDirectory
from arena.tournament import Watcher
from arena.types import Sampling

from ..runs import body, files, run

FAULTY = str(Path(__file__).parent / "faulty.py")
LEARNER = {**body()["drafters"], "learner": {"kind": "sprinter", "order": 2}}


def costs_of(path: Path) -> Calibration:
    found = Calibration.of(RunDirectory.open(path).manifest["costs"])
    assert found is not None
    return found


def test_costs_are_stored_and_leave_no_trace_in_the_results(tmp_path: Path) -> None:
    values = body(drafters=LEARNER, engine={"learn_every": 2})
    run(tmp_path / "with", values)
    run(tmp_path / "without", {**values, "engine": {**values["engine"], "calibrate": False}})
    assert files(tmp_path / "with") == files(tmp_path / "without")
    found = costs_of(tmp_path / "with")
    assert set(found.draft) == set(LEARNER)
    assert (found.lanes, found.draft_length) == (3, 3)
    assert found.fixed + found.verify > 0
    assert min(found.draft.values()) > 0
    assert "costs" not in RunDirectory.open(tmp_path / "without").manifest


def test_goodput_is_shown_by_the_stored_costs(tmp_path: Path) -> None:
    run(tmp_path / "run", body(rounds={"max": 1}))
    directory = RunDirectory.open(tmp_path / "run")
    stored = Calibration(3, 3, 60.0, 2.0, {"near": 5.0, "copy": 0.0})
    directory.update_manifest(costs=stored.plain())
    rows = {row["drafter"]: row for row in overview(directory)["rounds"][0]["standings"]}
    assert rows["near"]["goodput"] == pytest.approx(rows["near"]["acceptance_length"] / (60 + 15 + 3 * 4 * 2))
    assert rows["copy"]["goodput"] == pytest.approx(rows["copy"]["acceptance_length"] / (60 + 24))
    assert rows["far"]["goodput"] != rows["far"]["goodput"]
    frame = load(tmp_path / "run").standings.set_index("drafter")
    assert frame.goodput["near"] == rows["near"]["goodput"]


def test_a_resumed_run_prices_by_what_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Calibration(3, 3, 10.0, 1.0, {"near": 90.0, "middle": 1.0, "far": 1.0, "sure": 1.0, "copy": 0.0})
    monkeypatch.setattr(calibrate, "measure", lambda *_, **__: stored)
    values = body(retirement={"kind": "lowest_goodput"})
    run(tmp_path / "whole", values)
    assert RunDirectory.open(tmp_path / "whole").rounds()[0]["retired"]["drafter"] == "near"

    class Cut(Exception):
        pass

    def stop(record: object) -> None:
        raise Cut

    with pytest.raises(Cut):
        run(tmp_path / "cut", values, Watcher(closed=stop))
    monkeypatch.setattr(calibrate, "measure", lambda *_, **__: pytest.fail("measured twice"))
    run(tmp_path / "cut", values)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_who_cannot_be_probed_has_no_price() -> None:
    def call(worker: str, method: str, plan: ProbePlan) -> object:
        assert method == "probe"
        if worker == "bad":
            raise DrafterFault("bad", "out of ideas")
        return [(3, 13.0), (6, 16.0)] if worker == "verifier" else 2.5

    numbers = {"key": 1, "sampling": Sampling(), "lanes": 3, "draft_length": 1, "vocab": 9}
    found = calibrate.measure(call, "verifier", ("bad", "good"), max_context=100, **numbers)  # type: ignore[arg-type]
    assert found is not None
    assert found.draft == {"good": 2.5}
    assert (found.fixed, found.verify) == pytest.approx((10.0, 1.0))
    assert Calibration.of(found.plain()) == found
    assert calibrate.measure(call, "verifier", (), max_context=9, **numbers) is None  # type: ignore[arg-type]
    assert calibrate.measure(call, "bad", ("good",), max_context=99, **numbers) is None  # type: ignore[arg-type]


def test_a_slow_drafter_is_not_probed_for_long() -> None:
    from arena.engines.probe import MOST_REPEATS, _median_ms

    calls = []
    _median_ms(lambda: (calls.append(0), time.sleep(0.02))[0], 0.01)
    assert len(calls) == 1
    _median_ms(lambda: calls.append(0), 10.0)
    assert len(calls) == 1 + MOST_REPEATS


def test_passes_of_one_size_are_all_fixed_cost() -> None:
    assert fit_pass([(8, 10.0), (8, 12.0)]) == (11.0, 0.0)
    assert fit_pass([(8, 10.0), (16, 10.0)]) == pytest.approx((10.0, 0.0))
