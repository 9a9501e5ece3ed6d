from __future__ import annotations

import itertools
import json

import pytest

from arena.errors import ConfigError
from arena.metrics import Counts
from arena.retirement import RULES, LowestGoodput, LowestHitRate, Never, Retirement, Standings, get
from arena.scoreboard import RoundTally


def standings(alive: tuple[str, ...] = (), **counts: Counts) -> Standings:
    return Standings(1, alive or tuple(counts), RoundTally(counts, {}))


def test_the_lowest_hit_rate_leaves() -> None:
    answer = LowestHitRate().retire(
        standings(
            one=Counts(10, 40, 40, 20, 0, 20.0),
            two=Counts(10, 40, 40, 4, 0, 30.0),  # lucky or not: expectation does not decide
            three=Counts(10, 40, 10, 5, 0, 5.0),  # precise but silent: 5 of 40
        )
    )
    assert answer is not None
    assert answer.drafter == "two"
    assert answer.numbers["hit_rate"] == 0.1
    assert answer.numbers["next_hit_rate"] == 0.125
    assert answer.reason == "lowest hit rate: 0.1000, next 'three' 0.1250"


def test_precision_alone_would_choose_another() -> None:
    wasteful, silent = Counts(10, 40, 40, 12, 0, 12.0), Counts(10, 40, 4, 4, 0, 4.0)
    answer = LowestHitRate().retire(standings(wasteful=wasteful, silent=silent))
    assert answer is not None
    assert answer.drafter == "silent"  # precision 1 does not save it: silence never wins


@pytest.mark.parametrize(
    ("one", "two", "out", "why"),
    [
        (Counts(5, 20, 20, 5, 0, 9.0), Counts(5, 20, 10, 5, 0, 1.0), "one", "on hit rate; lowest precision"),
        (Counts(5, 20, 10, 5, 0, 2.5), Counts(5, 20, 10, 5, 0, 2.0), "two", "on precision; lowest expected"),
        (Counts(5, 20, 10, 5, 0, 2.0), Counts(5, 20, 10, 5, 0, 2.0), "one", "first by name"),
        (Counts(5, 20, 0, 0, 0, 0.0), Counts(5, 20, 20, 0, 0, 0.0), "one", "nothing drafted"),
        (Counts(), Counts(), "one", "first by name"),
    ],
)  # fmt: skip
def test_ties_are_broken_as_documented(one: Counts, two: Counts, out: str, why: str) -> None:
    answer = LowestHitRate().retire(standings(one=one, two=two))
    assert answer is not None
    assert answer.drafter == out
    assert why in answer.reason
    json.dumps(dict(answer.numbers), allow_nan=False)


def test_equal_rates_of_unequal_counts_are_a_tie() -> None:
    answer = LowestHitRate().retire(
        standings(a=Counts(9, 30, 30, 10, 0, 9.0), b=Counts(27, 90, 60, 30, 0, 1.0))
    )
    assert answer is not None
    assert answer.drafter == "a"  # both 1/3; its precision is lower


def test_the_order_in_which_drafters_are_named_is_nothing() -> None:
    counts = {name: Counts(5, 20, 20, 5, 0, 5.0) for name in ("x", "y", "z")}
    answers = {
        LowestHitRate().retire(standings(alive, **counts)).drafter  # type: ignore[union-attr]
        for alive in itertools.permutations(counts)
    }
    assert answers == {"x"}


def test_only_the_living_are_retired() -> None:
    # 'gone' was withdrawn: censored, not beaten, whatever it had counted before
    field = {"gone": Counts(1, 4, 4, 0, 0, 0.0), "a": Counts(5, 20, 20, 5), "b": Counts(5, 20, 20, 9)}
    answer = LowestHitRate().retire(standings(("a", "b"), **field))
    assert answer is not None
    assert answer.drafter == "a"


@pytest.mark.parametrize("alive", [(), ("one",)])
def test_the_last_one_is_never_retired(alive: tuple[str, ...]) -> None:
    standing = Standings(3, alive, RoundTally({"one": Counts(5, 20, 20, 0)}, {}))
    assert all(rule().retire(standing) is None for rule in RULES.values())


def test_never_keeps_all() -> None:
    assert Never().retire(standings(one=Counts(), two=Counts())) is None


def test_rules_by_name() -> None:
    assert get("lowest_hit_rate") == LowestHitRate()
    assert get("never") == Never()
    with pytest.raises(ConfigError, match=r"Did you mean 'lowest_hit_rate'.*lowest_hit_rate, never"):
        get("lowest_hitrate")
    with pytest.raises(ConfigError, match="unknown option of retirement rule 'never' 'delta'"):
        get("never", delta=0.05)


def test_a_retirement_is_a_value() -> None:
    one = Retirement("one", "why", {"hit_rate": 0.1})
    assert one == Retirement("one", "why", {"hit_rate": 0.1})


def test_goodput_retires_who_is_slow_for_what_it_gives() -> None:
    counts = {
        "cheap": Counts(lane_steps=100, offered=400, drafted=400, accepted=100),
        "dear": Counts(lane_steps=100, offered=400, drafted=400, accepted=200),
    }
    played = Standings(1, ("cheap", "dear"), RoundTally(counts, {}), step_ms={"cheap": 50.0, "dear": 150.0})
    slow, gone = LowestHitRate().retire(played), LowestGoodput().retire(played)
    assert slow is not None
    assert slow.drafter == "cheap"
    assert gone is not None
    assert gone.drafter == "dear"
    assert gone.numbers["goodput"] == 3.0 / 150.0
    assert gone.numbers["next_goodput"] == 2.0 / 50.0
    assert "lowest goodput: 0.0200 tokens/ms, next 'cheap' 0.0400" in gone.reason
    json.dumps(dict(gone.numbers), allow_nan=False)


def test_goodput_puts_a_drafter_without_a_price_last_and_breaks_ties_by_hit_rate() -> None:
    same = Counts(lane_steps=10, offered=40, drafted=40, accepted=8)
    wasteful = Counts(lane_steps=10, offered=60, drafted=60, accepted=8)
    tally = RoundTally({"a": same, "b": same, "c": wasteful}, {})
    price = {"a": 10.0, "b": 10.0, "c": 10.0}
    for known, loser in ((price, "c"), ({"a": 10.0, "c": 10.0}, "b"), ({}, "c")):
        gone = LowestGoodput().retire(Standings(1, ("a", "b", "c"), tally, step_ms=known))
        assert gone is not None
        assert gone.drafter == loser
    assert LowestGoodput().retire(Standings(1, ("a",), tally)) is None
