"""The cost model: hand-made numbers, its own inverses, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import nnls

from arena.costs import (
    Point,
    StepCosts,
    alpha_for,
    best_k,
    break_even,
    curve,
    fit,
    paying_lanes,
    required_alpha,
    time_per_token,
    tokens_per_step,
)
from arena.errors import ConfigError


def test_tokens_per_step() -> None:
    assert tokens_per_step(0.5, 0) == 1.0
    assert tokens_per_step(0.5, 2) == 1.75
    assert tokens_per_step(1.0, 4) == 5.0
    assert tokens_per_step(0, 4) == 1.0
    for alpha in (0.1, 0.6, 0.95):
        assert tokens_per_step(alpha, 7) == pytest.approx((1 - alpha**8) / (1 - alpha))
    assert tokens_per_step([0.7, 0.5, 0.4], 2) == pytest.approx(2.2)


@pytest.mark.parametrize("rates", [-0.1, 1.1, math.nan, [0.5, 1.2], [0.5]])
def test_rates_that_cannot_be(rates: float | list[float]) -> None:
    with pytest.raises(ConfigError):
        tokens_per_step(rates, 2)


def test_no_cost_is_negative_and_a_pass_is_not_free() -> None:
    for bad in [(-1, 0, 0), (math.nan, 1, 1), (0, 1, 0)]:
        with pytest.raises(ConfigError):
            StepCosts(*bad)
    with pytest.raises(ConfigError):
        StepCosts(1, 1, 1, lanes=0)


def test_a_step_counts_the_nodes_of_all_lanes() -> None:
    assert StepCosts(50, 2, 1.5, lanes=8).step(3) == 50 + 6 + 8 * 4 * 1.5
    assert time_per_token(1, 0.5, StepCosts(100, 20)) == pytest.approx(80)


def test_one_draft_breaks_even_at_its_own_cost() -> None:
    # With K = 1 and no cost of nodes, 1 + alpha tokens must pay for 1 + c steps.
    assert break_even(StepCosts(100, 10)) == pytest.approx(0.1)
    assert break_even(StepCosts(10, 20)) is None
    costs = StepCosts(60, 5, 2)
    alpha = break_even(costs)
    assert alpha is not None
    assert best_k(alpha - 1e-6, costs) == 0
    assert best_k(alpha + 1e-6, costs) > 0


def test_inverses_agree() -> None:
    for k in (1, 4, 8):
        for alpha in (0.05, 0.5, 0.99):
            assert alpha_for(tokens_per_step(alpha, k), k) == pytest.approx(alpha)
    assert alpha_for(5.01, 4) is None
    assert alpha_for(0.99, 4) is None
    assert required_alpha(4, 27.9, 100, 10) is None


def test_lanes_at_which_it_stops_paying() -> None:
    costs = StepCosts(fixed=50, draft=2, verify=1.5)
    limit = paying_lanes(0.6, costs)
    below = StepCosts(50, 2, 1.5, lanes=math.floor(limit))
    above = StepCosts(50, 2, 1.5, lanes=math.ceil(limit))
    assert best_k(0.6, below) > 0
    assert best_k(0.6, above) == 0
    assert paying_lanes(0.6, StepCosts(50, 2)) == math.inf
    assert paying_lanes(0.01, StepCosts(50, 2, 1)) == 0


def test_the_curve_ends_where_the_rates_do() -> None:
    rows = curve([0.7, 0.4], StepCosts(100, 10), max_k=9)
    assert [row.k for row in rows] == [0, 1, 2]
    assert rows[0].speedup == 1.0
    assert best_k([0.7, 0.4], StepCosts(100, 10)) == 2


def test_fit_finds_the_costs_that_made_the_points() -> None:
    points = [Point(k, nodes, 40 + 3 * k + 1.25 * nodes) for k in (0, 2, 5) for nodes in (1, 6, 20)]
    found = fit(points)
    assert (found.fixed, found.draft, found.verify) == pytest.approx((40, 3, 1.25))


def test_fit_is_non_negative_least_squares() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        points = [
            Point(int(rng.integers(0, 9)), int(rng.integers(1, 50)), float(rng.random() * 10))
            for _ in range(9)
        ]
        found = fit(points)
        design = np.array([[1.0, point.drafted, point.nodes] for point in points])
        expected = nnls(design, np.array([point.ms for point in points]))[0]
        assert (found.fixed, found.draft, found.verify) == pytest.approx(tuple(expected), abs=1e-9)


def test_fit_refuses_points_that_cannot_tell() -> None:
    with pytest.raises(ConfigError, match="at least three"):
        fit([Point(k, k + 1, 10.0 + k) for k in range(6)])
    with pytest.raises(ConfigError, match="at least three"):
        fit([])
