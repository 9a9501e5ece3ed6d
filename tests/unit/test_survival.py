from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from arena.survival import (
    Departure,
    at,
    band,
    curve_of,
    departures,
    kaplan_meier,
    paired_rounds,
    sign_flip,
    survivors,
)


def record(number: int, alive: str, retired: str | None = None, withdrawn: str = "") -> dict[str, Any]:
    return {
        "round": number,
        "alive": list(alive),
        "retired": retired and {"drafter": retired},
        "withdrawn": [{"drafter": name, "reason": "crashed"} for name in withdrawn],
    }


RUN = [record(1, "abcd", "b"), record(2, "cd", "c", withdrawn="a")]


def test_the_staircase_of_one_run() -> None:
    assert survivors(RUN) == [4, 3, 1]
    assert survivors([]) == []
    assert survivors([record(1, "abc"), record(2, "ab", "a", withdrawn="c")]) == [3, 3, 1]


def test_the_withdrawn_and_the_champion_are_censored() -> None:
    assert departures(RUN) == [
        Departure("b", 1, True),
        Departure("a", 1, False, withdrawn=True),  # faced one retirement, not two
        Departure("c", 2, True),
        Departure("d", 2, False),
    ]
    assert departures([record(1, "ab", "a", withdrawn="z")])[0] == Departure("z", 0, False, True)


def test_kaplan_meier_by_hand() -> None:
    # 1: 4/5; 2: 3/4 of it; one censored at 2; 3: 1/2 of it; the last is censored
    curve = kaplan_meier([1, 2, 2, 3, 4], [True, True, False, True, False])
    assert curve.rounds.tolist() == [0, 1, 2, 3, 4]
    assert curve.survival == pytest.approx([1, 0.8, 0.6, 0.3, 0.3])
    assert at(curve, [0, 0.5, 1, 2.9, 9]) == pytest.approx([1, 1, 0.8, 0.6, 0.3])


def test_taking_the_censored_for_beaten_would_show() -> None:  # negative control
    right = kaplan_meier([1, 1, 2, 3], [False, True, True, False])
    wrong = kaplan_meier([1, 1, 2, 3], [True, True, True, False])
    assert right.survival[2] == pytest.approx(0.75 * 0.5)
    assert wrong.survival[2] == pytest.approx(0.25)


def test_one_that_is_withdrawn_at_once_says_nothing() -> None:
    assert at(kaplan_meier([0, 2], [False, True]), [0, 1, 2]).tolist() == [1, 1, 0]
    assert kaplan_meier([0, 0], [False, False]).survival.tolist() == [1.0]


def seeds(rounds: list[int], last: int = 5) -> list[list[Departure]]:
    """One run a seed: drafter x leaves in the given round, or is alive after the last."""
    return [[Departure("x", min(one, last), one <= last)] for one in rounds]


def test_the_band_holds_the_curve_and_is_the_same_every_time() -> None:
    runs = seeds([1, 2, 2, 3, 3, 3, 4, 5, 6, 6])
    low, high = band(runs, "x", 5, draws=500)
    curve = at(curve_of(runs, "x"), range(6))
    assert np.all((low <= curve) & (curve <= high))
    assert low[0] == high[0] == 1.0
    assert 0.2 < high[2] - low[2] < 0.8
    assert np.array_equal(band(runs, "x", 5, draws=500), (low, high))
    assert not np.array_equal(band(runs, "x", 5, draws=50, key=1), band(runs, "x", 5, draws=50, key=2))


def test_the_band_is_nothing_where_all_seeds_agree_and_unknown_for_one() -> None:
    low, high = band(seeds([2, 2, 2]), "x", 3)
    assert low.tolist() == high.tolist() == [1, 1, 0, 0]
    assert np.isnan(band(seeds([2]), "x", 3)[0]).all()


def test_the_band_shrinks_with_seeds() -> None:
    few, many = seeds([1, 3, 5, 6]), seeds([1, 3, 5, 6] * 25)
    widths = [np.subtract(*band(runs, "x", 5, draws=400)[::-1]).max() for runs in (few, many)]
    assert widths[1] < widths[0] / 2


def brute(differences: list[int]) -> float:
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    seen = abs(sum(differences))
    return sum(
        abs(sum(s * d for s, d in zip(sign, differences, strict=True))) >= seen for sign in signs
    ) / len(signs)


@pytest.mark.parametrize(
    "differences", [[1], [1, 2, 3], [0, 0, 4], [-2, 5, 1, 1], [3, -3], [1] * 10, [2, 2, -1, 4, 0, -3, 5]]
)
def test_the_sign_flip_test_is_exact(differences: list[int]) -> None:
    assert sign_flip(differences) == pytest.approx(brute(differences), abs=1e-15)


def test_the_sign_flip_test_keeps_its_level_and_has_power() -> None:
    rng = np.random.default_rng(3)
    null = [sign_flip(rng.integers(-4, 5, 20).tolist()) for _ in range(400)]
    far = [sign_flip((rng.integers(-4, 5, 20) + 2).tolist()) for _ in range(100)]
    assert np.mean(np.array(null) <= 0.05) <= 0.08
    assert np.mean(np.array(far) <= 0.05) >= 0.8
    assert sign_flip([1] * 500) == pytest.approx(2.0**-499)
    assert sign_flip([0, 0]) == 1.0
    assert math.isnan(sign_flip([]))


def test_pairs_leave_out_the_withdrawn() -> None:
    runs = [departures(RUN), departures([record(1, "abcd", "d"), record(2, "abc", "a")])]
    assert paired_rounds(runs, "c", "b") == [1, 0]  # 2 - 1; both outlive the two rounds
    assert paired_rounds(runs, "d", "a") == [1 - 2]  # in the first run, a crashed
    assert paired_rounds(runs, "d", "nobody") == []
