from __future__ import annotations

import itertools
import math
import random

from hypothesis import given
from hypothesis import strategies as st

from arena.metrics import Counts, acceptance_length, hit_rate, interval, pool, precision, rank_key, standing


@st.composite
def counts(draw: st.DrawFn, k: int = 8) -> Counts:
    lane_steps = draw(st.integers(1, 50))
    offered = draw(st.integers(0, k * lane_steps))
    drafted = draw(st.integers(0, offered))
    accepted = draw(st.integers(0, drafted))
    matched = draw(st.integers(0, drafted))
    return Counts(lane_steps, offered, drafted, accepted, matched, draw(st.floats(0, drafted)))


PROMPTS = st.dictionaries(st.text(max_size=3), counts(), min_size=1, max_size=12)


@given(counts())
def test_rates_lie_in_their_range(some: Counts) -> None:
    some.check("x")
    for rate in (hit_rate(some), precision(some)):
        assert math.isnan(rate) or 0 <= rate <= 1
    assert 1 <= acceptance_length(some, k=8) <= 9
    if some.drafted:
        assert hit_rate(some) <= precision(some)


@given(PROMPTS, st.randoms())
def test_a_standing_is_inside_its_interval_whatever_the_order(
    prompts: dict[str, Counts], shuffler: random.Random
) -> None:
    row = standing("x", prompts)
    if not math.isnan(row.low):
        assert 0 <= row.low <= row.hit_rate <= row.high <= 1
    items = list(prompts.items())
    shuffler.shuffle(items)
    assert repr(standing("x", dict(items))) == repr(row)


@given(PROMPTS, st.floats(0.5, 0.9))
def test_more_confidence_means_a_wider_interval(prompts: dict[str, Counts], level: float) -> None:
    a, b = [c.accepted for c in prompts.values()], [c.offered for c in prompts.values()]
    narrow, wide = interval(a, b, level), interval(a, b, level + 0.09)
    assert math.isnan(narrow[0]) or (wide[0] <= narrow[0] and narrow[1] <= wide[1])


@given(st.lists(counts(), min_size=1, max_size=20), st.randoms())
def test_pooling_is_a_sum_in_any_order(parts: list[Counts], shuffler: random.Random) -> None:
    total = pool(parts).check("x")
    shuffler.shuffle(parts)
    assert pool(parts) == total
    assert total.accepted == sum(part.accepted for part in parts)


@given(st.dictionaries(st.text(max_size=3), counts(), min_size=2, max_size=8))
def test_ranks_are_a_strict_order_led_by_the_hit_rate(field: dict[str, Counts]) -> None:
    keys = sorted(rank_key(name, some) for name, some in field.items())
    assert all(first < second for first, second in itertools.pairwise(keys))
    known = [hit_rate(field[key[3]]) for key in keys if not math.isnan(hit_rate(field[key[3]]))]
    assert known == sorted(known)
