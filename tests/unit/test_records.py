from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from arena import store
from arena.metrics import InvariantError
from arena.records import kernel_of, round_record, standings_of, summary, tally_of
from arena.scoreboard import RoundTally

Maker = Callable[..., Any]
NAMES = ("one", "two", "six")


def test_a_record_does_not_depend_on_the_order_of_its_parts(made_round: Maker) -> None:
    made, shuffler = made_round(1, NAMES), random.Random(1)
    first = store.canonical(made.record())
    for _ in range(4):
        for part in (made.verdicts, made.commits, made.steps):
            shuffler.shuffle(part)
        assert store.canonical(made.record()) == first


def test_a_record_holds_what_was_played(made_round: Maker) -> None:
    made = made_round(1, NAMES)
    record = json.loads(store.canonical(made.record(withdrawn=[("three", "sent NaN")])))
    assert record["alive"] == sorted(NAMES)
    assert record["retired"]["drafter"] == "two"
    assert record["withdrawn"] == [{"drafter": "three", "reason": "sent NaN"}]
    assert record["lane_steps"] == len(made.commits)
    assert record["committed"] == sum(len(commit.tokens) for commit in made.commits)
    assert record["field"]["names"] == sorted(NAMES)
    assert record["field"]["reached"] == pytest.approx(0.5 * len(made.commits))
    assert tally_of(record) == made.tally()  # what a resumed run sees is what the first one saw
    assert [row.drafter for row in standings_of(record)] == ["six", "one", "two"]
    flat = summary(record)
    assert flat["tokens_per_step"] == record["committed"] / len(made.commits)
    assert flat["share_of_bound"] == pytest.approx(0.5 / 0.6)
    assert 0 < flat["mean_distance"] < 1
    assert 1 < flat["vendi"] <= 3
    assert kernel_of(record)[0, 1] == record["field"]["similarity"][0] / len(made.commits)


def test_what_is_not_known_is_null(made_round: Maker) -> None:
    made = made_round(1, ("one", "two"))
    made.steps = [type(s)(s.step, s.similarity, s.coverage, float("nan"), float("nan")) for s in made.steps]
    record = made.record()
    assert record["field"]["reached"] is record["field"]["bound"] is None
    assert summary(record)["share_of_bound"] != summary(record)["share_of_bound"]
    store.canonical(record)


def test_text_never_spans_two_prompts(made_round: Maker) -> None:
    made = made_round(1, ("one", "two"))
    texts: dict[str, list[int]] = {}
    for commit in made.commits:
        texts.setdefault(commit.step.prompt_id, []).extend(commit.tokens)
    grams = [tuple(text[i : i + 2]) for text in texts.values() for i in range(len(text) - 1)]
    assert made.record()["text"]["distinct_2"] == len(set(grams)) / len(grams)


@pytest.mark.parametrize("part", ["commits", "steps", "verdicts"])
@pytest.mark.parametrize("how", ["lost", "twice"])
def test_parts_that_contradict_one_another_are_refused(made_round: Maker, part: str, how: str) -> None:
    made = made_round(1, NAMES)
    rows = getattr(made, part)
    if how == "lost":
        rows.pop()
    elif part == "verdicts":
        rows.append(type(rows[0])(type(rows[0].step)("elsewhere", 0), "one", 4, 0, 0, 0, 0.0, (), (), ()))
    else:
        rows.append(rows[0])
    with pytest.raises(InvariantError):
        made.record()


def test_a_walkover_without_a_round_can_be_recorded() -> None:
    record = round_record(
        round=2, generation=0, alive=["one"], retired=None, withdrawn=[("two", "died")], walkover=True,
        tally=RoundTally({}, {}), commits=(), field=(), verifier="v",
    )  # fmt: skip
    assert record["walkover"] is True
    assert record["text"]["entropy"] is None
    assert summary(record)["tokens_per_step"] != summary(record)["tokens_per_step"]
    assert [row.drafter for row in standings_of(record)] == ["one"]
