from __future__ import annotations

import random
from dataclasses import replace

import pytest

from arena.errors import ArenaError, RunError
from arena.metrics import InvariantError
from arena.scoreboard import Counts, Scoreboard
from arena.types import LaneStep, Verdict


def verdict(
    prompt: str = "p", start: int = 0, drafter: str = "one", offered: int = 4, drafted: int = 3,
    accepted: int = 2, matched: int = 1, expected: float = 1.5,
) -> Verdict:  # fmt: skip
    step = LaneStep(prompt, start)
    return Verdict(step, drafter, offered, drafted, accepted, matched, expected, (), (), ())


def board(*verdicts: Verdict) -> Scoreboard:
    made = Scoreboard()
    made.begin(1)
    made.fold(verdicts)
    return made


def test_it_adds_up_by_drafter_and_by_prompt() -> None:
    made = board(
        verdict("a", 0),
        verdict("a", 3, accepted=3, expected=2.0),
        verdict("b", 0, drafted=0, accepted=0, matched=0, expected=0.0),
        verdict("a", 0, "two", drafted=4),
    )
    tally = made.tally(1)
    assert tally.per_drafter == {"one": Counts(3, 12, 6, 5, 2, 3.5), "two": Counts(1, 4, 4, 2, 1, 1.5)}
    assert tally.per_prompt["one"] == {"a": Counts(2, 8, 6, 5, 2, 3.5), "b": Counts(1, 4, 0, 0, 0, 0.0)}


def test_a_verdict_that_comes_twice_counts_once() -> None:
    made = board(verdict(), verdict(), verdict("q"))
    made.fold([verdict()])
    assert made.tally(1).per_drafter["one"].lane_steps == 2


def test_a_verdict_that_comes_twice_and_differs_is_a_fault() -> None:
    made = board(verdict())
    with pytest.raises(InvariantError, match="came twice and differs"):
        made.fold([verdict(accepted=1)])


def test_order_of_arrival_changes_no_bit() -> None:
    shuffler = random.Random(7)
    verdicts = [verdict(f"p{i % 7}", i, expected=shuffler.random() ** 9) for i in range(400)]
    first = board(*verdicts).tally(1)
    for _ in range(5):
        shuffler.shuffle(verdicts)
        assert board(*verdicts).tally(1) == first
    assert list(first.per_prompt["one"]) == sorted(first.per_prompt["one"])
    # negative control: a running float sum does change with the order
    assert len({sum(shuffler.sample([v.expected_accepted for v in verdicts], 400)) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"drafted": 5},
        {"accepted": 4},
        {"accepted": -1},
        {"matched": 4},
        {"matched": -1},
        {"expected": 3.1},
        {"expected": -0.1},
        {"expected": float("nan")},
        {"offered": -1, "drafted": -1, "accepted": -1, "matched": -1, "expected": 0.0},
    ],
)
def test_impossible_counts_are_refused_with_the_verdict_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InvariantError, match="verdict") as caught:
        board(verdict(**wrong))  # type: ignore[arg-type]
    assert isinstance(caught.value, ArenaError)
    assert isinstance(caught.value, AssertionError)


def test_rounds_are_apart_and_a_round_begun_again_starts_from_nothing() -> None:
    made = board(verdict())
    made.begin(2)
    made.fold([verdict(), verdict("q")])
    assert made.tally(1).per_drafter["one"].lane_steps == 1
    assert made.tally(2).per_drafter["one"].lane_steps == 2
    made.begin(2)
    made.fold([verdict(accepted=1)])  # a replayed round may differ: the roster has changed
    assert made.tally(2).per_drafter["one"] == Counts(1, 4, 3, 1, 1, 1.5)


def test_clear_forgets_and_nothing_is_folded_without_a_round() -> None:
    made = board(verdict())
    made.clear(1)
    with pytest.raises(RunError, match="no round 1"):
        made.tally(1)
    with pytest.raises(RunError, match="begin"):
        made.fold([verdict()])
    assert made.standings() == []


def test_standings_can_be_read_while_a_round_goes_on_best_first() -> None:
    made = board(verdict(drafter="low", accepted=1), verdict(drafter="high", accepted=3))
    rows = made.standings()
    assert [row["drafter"] for row in rows] == ["high", "low"]
    assert rows[0]["hit_rate"] == 0.75
    assert rows[0]["lane_steps"] == rows[0]["round"] == 1
    made.fold([replace(verdict("z", drafter="low", offered=4, drafted=4, accepted=4), n_matched=0)] * 2)
    assert made.standings()[1]["hit_rate"] == 5 / 8
