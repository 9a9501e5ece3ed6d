"""What a run's clock values say: costs, rates by position, best K; printed and drawn."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from arena.commands.predict import predict
from arena.costs import StepCosts, time_per_token
from arena.errors import ConfigError, RunError
from arena.forecast import draft_cost, fit_passes, forecast, position_rates
from arena.plot_numbers import pass_numbers, token_numbers
from arena.store import RunDirectory
from arena.types import Commit, LaneStep, Verdict

from ..runs import run
from .conftest import make_round

app = typer.Typer()
app.command()(predict)


def call(*arguments: str) -> str:
    answer = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def timing(fixed: float, verify: float, draft: dict[str, float], k: int = 4) -> list[dict[str, Any]]:
    """Clock values of exactly these costs, but for one pass that took in prompts."""
    rows = []
    for i in range(40):
        nodes = 8 + 3 * i
        ms = fixed + verify * nodes + 0.1 * (i % 3) + (900 if i == 0 else 0)
        rows.append({"who": "verifier", "stage": "verify", "seconds": ms / 1000, "lanes": 8, "tokens": nodes})
        for name, cost in draft.items():
            rows.append(
                {"who": name, "stage": "propose", "seconds": cost * k / 1000, "lanes": 8, "tokens": 9}
            )
    return [{"start": float(i), "bytes": 0, **row} for i, row in enumerate(rows)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    directory = RunDirectory.create(
        tmp_path_factory.mktemp("made") / "run", "name: x\nengine: {draft_length: 4}\n", {}
    )
    made_round = make_round(1, ["five", "two"])
    directory.append_round(
        made_round.record(),
        made_round.verdicts,
        made_round.commits,
        timing(50, 1.5, {"five": 2.0, "two": 8.0}),
    )
    return directory


def test_position_rates_use_only_what_was_offered() -> None:
    offered = np.array([3, 3, 3, 1, 1])
    accepted = np.array([3, 1, 0, 1, 0])
    # 3 of 5 kept the first; of the two that were offered a second after it, one kept it.
    assert position_rates(offered, accepted) == pytest.approx((3 / 5, 3 / 10, 3 / 10))
    assert position_rates(np.zeros(2, int), np.zeros(2, int)) == ()
    assert position_rates(np.array([2]), np.array([0])) == (0.0, 0.0)


def test_passes_that_took_in_prompts_are_left_out() -> None:
    passes = [(n, 40.0 + 2 * n + 0.01 * (n % 5)) for n in range(5, 60)] + [(20, 900.0), (33, 2000.0)]
    fixed, verify, kept = fit_passes(passes)
    assert (fixed, verify) == pytest.approx((40, 2), rel=0.01)
    assert len(kept) == 55
    assert draft_cost([{"seconds": 0.008}, {"seconds": 0.012}, {"seconds": 5.0}], 4) == 3.0
    assert draft_cost([], 4) == 0.0


def test_costs_and_best_k_of_a_run(made: RunDirectory) -> None:
    found = forecast(made)
    assert (found.fixed, found.verify) == pytest.approx((50, 1.5), rel=0.02)
    assert found.left_out >= 1
    assert found.lanes == 8
    five, two = found.drafters
    assert (five.drafter, five.draft_ms, two.draft_ms) == ("five", pytest.approx(2), pytest.approx(8))
    costs = StepCosts(found.fixed, five.draft_ms, found.verify, 8)
    for row in five.rows:
        assert row.ms_per_token == pytest.approx(time_per_token(row.k, five.rates, costs))
    assert five.rows[five.best_k].ms_per_token == min(row.ms_per_token for row in five.rows)
    alone = forecast(made, lanes=1)
    assert alone.drafters[0].rows[4].speedup > five.rows[4].speedup
    assert alone.drafters[0].paying_lanes == five.paying_lanes


def test_a_real_run_can_be_read(tmp_path: Path) -> None:
    run(tmp_path / "run")
    said = call(str(tmp_path / "run"), "--plot", str(tmp_path / "speed.svg"))
    assert "a verifier pass takes" in said
    assert (tmp_path / "speed.svg").stat().st_size > 5000
    found = json.loads(call(str(tmp_path / "run"), "-f", "json"))
    assert list(found) == ["run", "lanes", "costs", "rows", "drafters"]
    assert {row["drafter"] for row in found["rows"]} == {"near", "middle", "far", "sure", "copy"}
    assert len(found["rows"]) == 5 * 4
    rates = {one["drafter"]: one["rates"] for one in found["drafters"]}
    assert all(all(a >= b for a, b in itertools.pairwise(r)) for r in rates.values())
    # `near` keeps about .9 of each token, whatever K_eff was at the ends of texts.
    assert rates["near"][0] == pytest.approx(0.9, abs=0.12)
    rows = list(csv.DictReader(io.StringIO(call(str(tmp_path / "run"), "-f", "csv"))))
    assert set(rows[0]) == {"drafter", "k", "tokens_per_step", "ms_per_token", "speedup"}


def test_what_is_drawn(made: RunDirectory, tmp_path: Path) -> None:
    found = forecast(made)
    points, line = pass_numbers(found)
    assert len(points.x) == len(found.passes)
    assert line.y[0] == found.fixed
    assert list(token_numbers(found)) == ["five", "two"]
    assert token_numbers(found)["two"].x == (0, 1, 2, 3, 4)
    call(str(made.path), "--plot", str(tmp_path / "p.png"))
    assert (tmp_path / "p.png").stat().st_size > 5000


def test_what_is_refused(made: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"leave out --alpha, --verify-ms"):
        call(str(made.path), "--alpha", "0.5", "--verify-ms", "1")
    with pytest.raises(ConfigError, match=r"missing --target-ms, --draft-ms"):
        call("--alpha", "0.5")
    with pytest.raises(ConfigError, match="name a RUN"):
        call("--alpha", "0.5", "--plot", "x.png")
    with pytest.raises(ConfigError, match=r"unknown plot file type '.bmp'"):
        call(str(made.path), "--plot", str(tmp_path / "p.bmp"))
    study = RunDirectory.create(tmp_path / "study", "study: x\n", {})
    with pytest.raises(RunError, match="is a study"):
        forecast(study)
    with pytest.raises(RunError, match="no clock values"):
        forecast(RunDirectory.create(tmp_path / "empty", "name: x\n", {}))


def test_a_run_of_one_lane_step_still_gives_numbers(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run", "name: x\nengine: {draft_length: 2}\n", {})
    step = LaneStep("p", 0)
    verdict = Verdict(step, "five", 2, 2, 1, 1, 1.0, (1, 2), (0.5, 0.5), (0.5, 0.5))
    made_round = make_round(1, ["five"])
    made_round.verdicts, made_round.steps = [verdict], made_round.steps[:1]
    made_round.commits = [Commit(made_round.steps[0].step, (1, 2), (0.0, 0.0), 1, "length")]
    directory.append_round(
        made_round.record(), made_round.verdicts, made_round.commits, timing(10, 0, {"five": 1.0}, 2)[:2]
    )
    (five,) = forecast(directory).drafters
    assert five.rates == (1.0, 0.0)
    assert five.paying_lanes == float("inf")
