from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from arena import diversity
from arena.diversity import (
    EMPTY,
    distinct_n,
    entropy,
    jsd2,
    matrix,
    mean_distance,
    similarities,
    union_coverage,
    vendi,
)

Law = tuple[list[int], list[float]]


@st.composite
def laws(draw: st.DrawFn) -> Law:
    support = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True))
    weights = np.array(draw(st.lists(st.floats(0.01, 1), min_size=len(support), max_size=len(support))))
    return support, (weights / weights.sum()).tolist()


def dense(law: Law, symbols: int = 11) -> np.ndarray:
    out = np.zeros(symbols)
    np.add.at(out, np.array(law[0]) + 1, law[1])
    return out


def test_a_wide_field_is_compared_pair_by_pair() -> None:
    rng = np.random.default_rng(5)
    field = [(rng.permutation(40)[:9], rng.dirichlet(np.full(9, 0.4))) for _ in range(30)]
    wanted = [1 - jsd2(*one, *other) for one, other in itertools.combinations(field, 2)]
    assert len(wanted) > diversity._PAIRS  # so that more than one block is made
    assert similarities(field) == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize(
    ("a", "b", "bits"),
    [
        (([3], [1.0]), ([3], [1.0]), 0.0),
        (([3], [1.0]), ([4], [1.0]), 1.0),
        (([1, 2], [0.5, 0.5]), ([2, 3], [0.5, 0.5]), 0.5),
        (([1, 2], [0.5, 0.5]), ([2, 1], [0.5, 0.5]), 0.0),
        # m = (3/4, 1/4): H(m) - (H(a) + H(b)) / 2 = 0.811278 - 0.5
        (([1, 2], [0.5, 0.5]), ([1], [1.0]), 0.31127812445913283),
        (([EMPTY], [1.0]), ([EMPTY], [1.0]), 0.0),
        (([EMPTY], [1.0]), ([1, 2], [0.5, 0.5]), 1.0),
        (([1, 2, EMPTY, EMPTY], [0.5, 0.5, 0, 0]), ([1, EMPTY], [1.0, 0]), 0.31127812445913283),  # padding
    ],
)
def test_divergences_by_hand(a: Law, b: Law, bits: float) -> None:
    assert jsd2(*a, *b) == pytest.approx(bits, abs=1e-15)
    assert jsd2(*b, *a) == pytest.approx(bits, abs=1e-15)


def test_it_is_not_the_total_variation() -> None:  # negative control
    assert jsd2([1, 2], [0.5, 0.5], [1], [1.0]) != pytest.approx(0.5)


@given(laws(), laws(), laws())
def test_divergence_agrees_with_scipy_and_its_root_is_a_metric(a: Law, b: Law, c: Law) -> None:
    values = [1 - similar for similar in similarities([a, b, c])]
    for (x, y), value in zip(itertools.combinations((a, b, c), 2), values, strict=True):
        assert 0 <= value <= 1
        assert value == pytest.approx(jsd2(*x, *y), abs=1e-12)
        assert value == pytest.approx(np.nan_to_num(jensenshannon(dense(x), dense(y), base=2)) ** 2, abs=1e-9)
    ab, ac, bc = (math.sqrt(max(0.0, value)) for value in values)
    assert ac <= ab + bc + 1e-7


@given(laws())
def test_a_law_is_exactly_alike_to_itself(law: Law) -> None:
    assert similarities([law, law, law]) == (1.0, 1.0, 1.0)


def test_pairs_come_in_the_order_of_combinations() -> None:
    three = [([1], [1.0]), ([1], [1.0]), ([2], [1.0])]
    assert similarities(three) == (1.0, 0.0, 0.0)
    assert similarities(three[:1]) == similarities([]) == ()
    assert matrix(3, similarities(three)).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(("q", "score"), [(1, 1.96013), (2, 1.92308), (math.inf, 1.66667)])
def test_vendi_goldens(q: float, score: float) -> None:
    assert vendi([[1, 0.2], [0.2, 1]], q) == pytest.approx(score, abs=5e-6)


def test_vendi_counts_what_is_different() -> None:
    for q in (1, 2, 0.5, math.inf):
        assert vendi(np.eye(6), q) == pytest.approx(6)
        assert vendi(np.ones((6, 6)), q) == pytest.approx(1)
        assert vendi(matrix(4, [1, 0, 0, 0, 0, 1]), q) == pytest.approx(2)  # two pairs of twins
    assert math.isnan(vendi([]))


def test_mean_distance_is_a_mean_of_roots() -> None:
    assert mean_distance(matrix(3, [1.0, 0.0, 0.75])) == pytest.approx((0 + 1 + 0.5) / 3)
    assert math.isnan(mean_distance([[1.0]]))


def test_union_coverage_is_a_mass() -> None:
    assert union_coverage([]) == 0.0
    assert union_coverage([0.25, 0.5]) == 0.75
    assert union_coverage([0.6, 0.4000001]) == 1.0


def test_distinct_n_never_spans_two_texts() -> None:
    assert distinct_n([[1, 2, 1, 2]], 1) == 0.5
    assert distinct_n([[1, 2, 1, 2]], 2) == 2 / 3
    assert distinct_n([[1, 2], [1, 2]], 2) == 0.5  # not (1,2), (2,1), (1,2)
    assert distinct_n([[1], [2]], 3) != distinct_n([[1], [2]], 3)  # nan


def test_entropy_in_nats() -> None:
    assert entropy([7, 7, 7]) == 0.0
    assert entropy([1, 2, 3, 4]) == pytest.approx(math.log(4))
    assert entropy(iter([1, 1, 2])) == pytest.approx(-(2 / 3 * math.log(2 / 3) + math.log(1 / 3) / 3))
    assert math.isnan(entropy([]))
