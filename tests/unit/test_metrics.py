from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from arena.metrics import (
    Counts,
    InvariantError,
    acceptance_length,
    hit_rate,
    interval,
    pool,
    precision,
    rank_key,
    ratio,
    require,
    standing,
)


def test_rates_by_hand() -> None:
    counts = Counts(lane_steps=10, offered=40, drafted=25, accepted=20, matched=3, expected=18.5)
    assert hit_rate(counts) == 0.5
    assert precision(counts) == 0.8
    assert acceptance_length(counts) == acceptance_length(counts, k=4) == 3.0


def test_nothing_of_nothing_is_nan_and_something_of_nothing_a_fault() -> None:
    nothing = Counts()
    assert all(math.isnan(rate(nothing)) for rate in (hit_rate, precision, acceptance_length))
    with pytest.raises(InvariantError):
        ratio(1, 0)


@pytest.mark.parametrize(
    ("rate", "counts"),
    [  # CASES 17: a reported acceptance rate above 1
        (hit_rate, Counts(1, 4, 4, 5)),
        (hit_rate, Counts(1, 4, 4, -1)),
        (precision, Counts(1, 4, 3, 4)),
        (acceptance_length, Counts(2, 8, 8, 9)),
    ],
)
def test_rates_out_of_range_are_refused(rate: object, counts: Counts) -> None:
    assert callable(rate)
    with pytest.raises(InvariantError, match="must lie in"):
        rate(counts)


def test_an_acceptance_length_beyond_k_plus_one_is_refused() -> None:
    counts = Counts(lane_steps=2, offered=8, drafted=8, accepted=7)
    assert acceptance_length(counts, k=4) == 4.5
    with pytest.raises(InvariantError):
        acceptance_length(counts, k=3)


def test_require_holds_without_assertions() -> None:
    with pytest.raises(InvariantError, match="odd"):
        require(False, "odd")


def test_counts_are_pooled_not_averaged() -> None:
    # CASES 18: one long prompt at .1, one short at .9: pooled .18, mean of means .5
    parts = {"long": Counts(20, 90, 90, 9, 0, 9.0), "short": Counts(3, 10, 10, 9, 0, 9.0)}
    row = standing("one", parts)
    assert row.hit_rate == 0.18
    assert (row.offered, row.drafted, row.accepted) == (100, 100, 18)
    assert row.acceptance_length == 1 + 18 / 23
    assert row.low <= 0.18 <= row.high
    assert math.isnan(row.goodput)


def test_interval_by_hand() -> None:
    # r = 1/2, e = (-1, 0, 1), var = 3/2 · 2/144 = 1/48; the upper quartile of t(2) is √(2/3)
    low, high = interval([1, 2, 3], [4, 4, 4], level=0.5)
    half = math.sqrt(2 / 3) / math.sqrt(48)
    assert low == pytest.approx(0.5 - half, abs=1e-12)
    assert high == pytest.approx(0.5 + half, abs=1e-12)


def test_interval_with_unequal_clusters_by_hand() -> None:
    # r = 6/12, e = (2 - 1, 1 - 2, 3 - 3) = (1, -1, 0), var = 3/2 · 2/144 = 1/48
    low, high = interval([2, 1, 3], [2, 4, 6], level=0.95)
    half = float(stats.t.ppf(0.975, 2)) / math.sqrt(48)
    assert (low, high) == (max(0.0, 0.5 - half), min(1.0, 0.5 + half))
    assert interval([2, 1, 3], [2, 4, 6], lowest=-9, highest=9) == pytest.approx((0.5 - half, 0.5 + half))


def test_interval_needs_two_clusters_that_say_something() -> None:
    for a, b in (([], []), ([1], [2]), ([1, 0, 0], [2, 0, 0])):
        assert all(math.isnan(end) for end in interval(a, b))
    assert interval([1, 0, 1], [2, 0, 2]) == (0.5, 0.5)


def test_interval_covers_clustered_data_and_a_binomial_one_does_not() -> None:
    rng = np.random.default_rng(5)
    covered, naive, trials, truth = 0, 0, 600, 0.4
    for _ in range(trials):
        offered = rng.integers(20, 100, 25)
        accepted = rng.binomial(offered, rng.beta(4, 6, 25))  # each prompt has a rate of its own, mean .4
        low, high = interval(accepted, offered)
        covered += low <= truth <= high
        r = accepted.sum() / offered.sum()
        naive += abs(r - truth) <= 1.96 * math.sqrt(r * (1 - r) / offered.sum())
    assert 0.92 <= covered / trials <= 0.98
    assert naive / trials < 0.7  # negative control: treating tokens as independent


def test_pool_does_not_depend_on_order() -> None:
    parts = [Counts(1, 4, 4, 1, 1, 0.1 * i) for i in range(30)]
    assert pool(parts) == pool(parts[::-1])
    assert pool([]) == Counts()


def test_rank_puts_silence_below_failure() -> None:
    silent, wrong = Counts(5, 20, 0, 0, 0, 0.0), Counts(5, 20, 20, 0, 0, 0.5)
    assert rank_key("b", silent) < rank_key("a", wrong)
    assert rank_key("a", Counts()) < rank_key("a", silent)
