from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena import confident, retirement
from arena.commands.results import overview
from arena.errors import ConfigError
from arena.metrics import Counts, pool
from arena.records import tokens_saved
from arena.retirement import Standings
from arena.scoreboard import RoundTally
from arena.store import RunDirectory
from tests import runs


def tally(rates: dict[str, list[int]], first: int = 0) -> RoundTally:
    """Accepted of 100 offered, a prompt each."""
    per_prompt = {
        name: {f"p{first + i:03d}": Counts(25, 100, 100, hits, hits, hits) for i, hits in enumerate(values)}
        for name, values in rates.items()
    }
    return RoundTally({name: pool(list(one.values())) for name, one in per_prompt.items()}, per_prompt)


def test_evidence_is_the_mean_of_four_products():
    gaps = [0.5, -0.2]
    rates = [[0.2, 0.7], [0.6, 0.4]]
    expected = np.mean([np.prod([1 + stake * gap for gap in gaps]) for stake in (0.95, 0.5, 0.25, 0.1)])
    assert confident.fold(2, [rates])[0, 1] == pytest.approx(expected)
    assert confident.fold(2, [rates[:1], rates[1:]])[0, 1] == pytest.approx(expected)


def test_speeds_are_compared_by_their_relative_difference():
    assert confident.relative([2.0, 6.0])[0, 1] == pytest.approx(0.5)
    assert confident.relative([0.0, 0.0])[0, 1] == 0.0


def test_every_other_alive_must_beat_it():
    e = np.array([[1.0, 900.0, 500.0], [0.0, 1.0, 900.0], [0.0, 0.0, 1.0]])
    everyone = np.ones(3, dtype=bool)
    assert confident.separated(e, everyone, 600).tolist() == [False, False, False]
    assert confident.separated(e, np.array([True, True, False]), 600).tolist() == [True, False, False]


def test_it_waits_until_the_evidence_suffices_and_carries_it_over_rounds():
    rule = retirement.get("confident", cap=50)
    rounds: list[RoundTally] = []
    for number in range(1, 30):
        rounds.append(tally({"bad": [10] * 4, "good": [60] * 4, "other": [55] * 4}, 4 * number))
        answer = rule.retire(Standings(number, ("bad", "good", "other"), rounds[-1], tuple(rounds[:-1])))
        if answer is not None:
            break
    assert answer is not None
    assert answer.drafter == "bad"
    assert 1 < number < 10
    assert answer.numbers["evidence"] >= answer.numbers["needed"] == pytest.approx(120)
    assert answer.numbers["prompts"] == 4 * number
    assert "beaten by every other" in answer.reason


def test_at_the_cap_the_point_estimate_decides_and_says_so():
    rule = retirement.get("confident", cap=2)
    one, two = tally({"a": [50] * 3, "b": [51] * 3}), tally({"a": [50] * 3, "b": [51] * 3}, 3)
    assert rule.retire(Standings(1, ("a", "b"), one)) is None
    answer = rule.retire(Standings(2, ("a", "b"), two, (one,)))
    assert answer is not None
    assert (answer.drafter, answer.reason.split()[0]) == ("a", "unseparated")


def test_a_prompt_that_comes_back_says_nothing_more():
    once = tally({"a": [10] * 5, "b": [60] * 5})
    values = confident.gather(["a", "b"], [once, once], lambda name, counts: counts.accepted / 100)
    assert [len(part) for part in values] == [5, 0]


def test_goodput_needs_prices_and_can_reverse_the_order():
    slow = Standings(1, ("a", "b"), tally({"a": [60] * 40, "b": [10] * 40}), (), {"a": 10.0, "b": 1.0})
    answer = retirement.get("confident", by="goodput").retire(slow)
    assert answer is not None
    assert answer.drafter == "a"
    answer = retirement.get("confident").retire(slow)
    assert answer is not None
    assert answer.drafter == "b"


def test_options_are_checked():
    with pytest.raises(ConfigError, match="delta"):
        retirement.get("confident", delta=0)
    with pytest.raises(ConfigError, match="hit_rate or goodput"):
        retirement.get("confident", by="speed")


def record(committed: int, saved: float | None = None, kind: str = "rounds_saved") -> dict[str, Any]:
    return {"committed": committed, "retired": None if saved is None else {"numbers": {kind: saved}}}


def test_tokens_saved_are_the_rounds_that_were_not_played() -> None:
    rounds = [record(100), record(140, 6), record(90, 7), record(80)]
    assert tokens_saved(rounds) == pytest.approx(6 * 120 + 7 * 90)
    assert tokens_saved([record(100), record(100, 0.4, "hit_rate")]) is None
    assert tokens_saved([]) is None


def test_a_played_run_tells_the_tokens_it_saved(tmp_path: Path) -> None:
    runs.run(tmp_path / "run", runs.body(retirement={"kind": "confident", "cap": 3}))
    directory = RunDirectory.open(tmp_path / "run")
    shown = overview(directory)["tokens_saved"]
    left = [r["retired"]["numbers"]["rounds_saved"] for r in directory.rounds() if r["retired"]]
    assert 0 <= shown == tokens_saved(directory.rounds())
    assert (shown > 0) == any(left)
