"""The G-test: a hand-made value, its odds of a false alarm, and what it must catch."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import power_divergence

from arena.goodness import g_test


def test_by_hand_and_by_scipy() -> None:
    observed, law = {"a": 30, "b": 50, "c": 20}, {"a": 0.25, "b": 0.5, "c": 0.25}
    found = g_test(observed, law)
    assert found.statistic == pytest.approx(2 * (30 * math.log(30 / 25) + 20 * math.log(20 / 25)))
    expected = power_divergence([30, 50, 20], [25, 50, 25], lambda_="log-likelihood")
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert (found.samples, found.cells) == (100, 3)


def test_rare_cells_are_pooled() -> None:
    law = {0: 0.9, **dict.fromkeys(range(1, 51), 0.1 / 50)}
    observed = {0: 90, 7: 6, 8: 4}
    assert g_test(observed, law).cells == 2  # the rare ones together expect ten
    few = {0: 0.999, 1: 0.001}
    assert g_test({0: 99, 1: 1}, few).cells == 1
    assert g_test({0: 99, 1: 1}, few).p == 1.0
    # What the law does not name has what is left of it.
    assert g_test({"x": 50, "y": 30, "z": 20}, {"x": 0.5}).statistic == pytest.approx(0.0)


def test_what_the_law_excludes_convicts() -> None:
    found = g_test({0: 99, 1: 1}, {0: 1.0, 1: 0.0})
    assert (found.statistic, found.p) == (math.inf, 0.0)


def test_false_alarms_are_as_rare_as_stated() -> None:
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.full(40, 0.3))
    draws = [Counter(rng.choice(40, 600, p=law).tolist()) for _ in range(1500)]
    odds = np.array([g_test(draw, dict(enumerate(law.tolist()))).p for draw in draws])
    # 1500 at .05: 75 expected, standard deviation 8.4. G is slightly above chi-squared at few samples.
    assert 45 < (odds < 0.05).sum() < 130
    assert (odds < 1e-3).sum() < 10


def test_a_shift_is_found() -> None:
    rng = np.random.default_rng(1)
    law = np.full(10, 0.1)
    shifted = law + np.array([0.05, -0.05, *[0.0] * 8])
    observed = Counter(rng.choice(10, 2000, p=shifted).tolist())
    assert g_test(observed, dict(enumerate(law.tolist()))).p < 1e-4
