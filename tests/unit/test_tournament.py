"""The loop: what a run leaves behind, whatever the lanes, the order and the faults."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from arena import config
from arena.errors import ConfigError, VerifierFault
from arena.store import RunDirectory
from arena.tournament import Watcher

from ..runs import TABLE, body, files, run

FAULTY = str(Path(__file__).parent / "faulty.py")
GARBAGE = [
    "raise",
    "too large",
    "negative",
    "floats",
    "too many",
    "nan",
    "unnormalised",
    "excludes",
    "lanes",
    "none",
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "run"
    run(path)
    return path


def records(path: Path) -> list[dict]:
    return RunDirectory.open(path).rounds()


def test_one_retirement_a_round_until_one_is_left(reference: Path) -> None:
    rounds = records(reference)
    assert [len(r["alive"]) for r in rounds] == [5, 4, 3, 2]
    for before, after in itertools.pairwise(rounds):
        assert set(before["alive"]) - {before["retired"]["drafter"]} == set(after["alive"])
    champion = RunDirectory.open(reference).champion()
    assert champion is not None
    assert champion["how"] == "last_survivor"
    assert champion["champion"] in rounds[-1]["alive"]
    assert champion["ranking"][0] == champion["champion"]
    assert sorted(champion["ranking"]) == rounds[0]["alive"]
    assert RunDirectory.open(reference).manifest["status"] == "complete"


def test_the_closer_law_wins(reference: Path) -> None:
    # `near` overlaps the target by 0.9, `middle` by 0.6: no luck of 6 prompts a round hides that.
    champion = RunDirectory.open(reference).champion()
    assert champion is not None
    assert champion["champion"] == "near"


@pytest.mark.parametrize(("lanes", "in_flight"), [(1, 1), (2, 3), (5, 2), (8, 1)])
def test_lanes_and_groups_change_nothing(reference: Path, tmp_path: Path, lanes: int, in_flight: int) -> None:
    run(tmp_path / "run", body(engine={"lanes": lanes, "in_flight": in_flight}))
    assert files(tmp_path / "run") == files(reference)


def test_the_order_of_the_roster_changes_nothing(reference: Path, tmp_path: Path) -> None:
    shuffled = dict(reversed(list(body()["drafters"].items())))
    run(tmp_path / "run", body(drafters=shuffled))
    assert files(tmp_path / "run") == files(reference)


def test_another_seed_changes_the_text(reference: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", body(seed=5))
    assert files(tmp_path / "run") != files(reference)


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_run_cut_short_goes_on_as_if_it_had_not_been(reference: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "run"

    class Cut(Exception):
        pass

    def stop(record):
        if record["round"] == kept:
            raise Cut

    if kept:
        with pytest.raises(Cut):
            run(path, watcher=Watcher(closed=stop))
        with open(path / "rounds.jsonl", "ab") as file:
            file.write(b'{"round": 9, "torn')
    run(path)
    assert files(path) == files(reference)


def test_a_finished_run_is_not_played_again(reference: Path) -> None:
    before, took = files(reference), RunDirectory.open(reference).manifest["took"]
    assert took["seconds"] > 0
    assert took["memory_mb"] > 0
    played = []
    run(reference, watcher=Watcher(closed=played.append))
    assert not played
    assert files(reference) == before
    assert RunDirectory.open(reference).manifest["took"] == took


@pytest.mark.parametrize("what", GARBAGE)
def test_a_drafter_that_answers_garbage_is_withdrawn(reference: Path, tmp_path: Path, what: str) -> None:
    # The whole run equals one whose roster lacked it, but for the note that it was there.
    field = {**body()["drafters"], "bad": {"kind": f"{FAULTY}:Faulty", "what": what}}
    run(tmp_path / "run", body(drafters=field))
    got = records(tmp_path / "run")
    assert [item["drafter"] for item in got[0]["withdrawn"]] == ["bad"]
    assert len(got[0]["withdrawn"][0]["reason"]) > 10
    got[0]["withdrawn"] = []
    assert got == records(reference)
    steps, same = files(tmp_path / "run"), files(reference)
    assert all(steps[name] == same[name] for name in same if name != "rounds.jsonl")


def test_a_drafter_that_cannot_learn_is_withdrawn(reference: Path, tmp_path: Path) -> None:
    field = {**body()["drafters"], "bad": {"kind": f"{FAULTY}:Unlearning"}}
    run(tmp_path / "run", body(drafters=field, engine={"learn_every": 2}))
    got = records(tmp_path / "run")
    assert "cannot learn this" in got[0]["withdrawn"][0]["reason"]
    got[0]["withdrawn"] = []
    assert got == records(reference)


def test_the_last_one_left_wins_by_walkover(tmp_path: Path) -> None:
    field = {"good": {"kind": "copyist"}, "bad": {"kind": f"{FAULTY}:Faulty"}}
    champion = run(tmp_path / "run", body(drafters=field))
    assert champion is not None
    assert (champion.champion, champion.how, champion.withdrawn) == ("good", "walkover", ("bad",))
    assert records(tmp_path / "run")[0]["walkover"]


def test_a_field_that_is_all_withdrawn_fails(tmp_path: Path) -> None:
    assert run(tmp_path / "run", body(drafters={"bad": {"kind": f"{FAULTY}:Faulty"}})) is None
    assert RunDirectory.open(tmp_path / "run").manifest["status"] == "failed"


def test_rounds_max_is_a_total(tmp_path: Path) -> None:
    champion = run(tmp_path / "run", body(rounds={"max": 2}))
    assert champion is not None
    assert (champion.how, champion.rounds, len(champion.ranking)) == ("best_at_cap", 2, 5)


def test_learners_are_taught_alike_by_every_grouping_of_the_same_lanes(tmp_path: Path) -> None:
    field = {**body()["drafters"], "learner": {"kind": "sprinter", "order": 2}}
    values = body(drafters=field, engine={"lanes": 3, "learn_every": 2})
    run(tmp_path / "a", values)
    run(tmp_path / "b", {**values, "drafters": dict(reversed(list(field.items())))})
    assert files(tmp_path / "a") == files(tmp_path / "b")
    hits = [r["counts"]["learner"]["accepted"] for r in records(tmp_path / "a") if "learner" in r["counts"]]
    assert sum(hits) > 0


def test_a_learner_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    field = {
        "learner": {"kind": "sprinter", "order": 2},
        "near": body()["drafters"]["near"],
        "copy": {"kind": "copyist"},
    }
    values = body(drafters=field, engine={"learn_every": 2})
    run(tmp_path / "whole", values)

    class Cut(Exception):
        pass

    def stop(record):
        raise Cut

    with pytest.raises(Cut):
        run(tmp_path / "cut", values, Watcher(closed=stop))
    run(tmp_path / "cut", values)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_a_verifier_without_finite_logits_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arena.models.table import TableLaw

    whole = TableLaw.logits

    def broken(self, contexts):
        logits = whole(self, contexts)
        logits[0, :] = float("nan")
        return logits

    values = body(drafters={"copy": {"kind": "copyist"}, "copy2": {"kind": "copyist"}})
    monkeypatch.setattr(TableLaw, "logits", broken)
    with pytest.raises(VerifierFault, match="NaN"):
        run(tmp_path / "run", values)
    monkeypatch.undo()
    assert run(tmp_path / "run", values) is not None  # and can be gone on with


def test_counts_add_up(reference: Path) -> None:
    for record in records(reference):
        for counts in record["counts"].values():
            assert counts["offered"] >= counts["drafted"] >= counts["accepted"] >= 0
            assert counts["lane_steps"] == record["lane_steps"]
        assert 6 * 1 <= record["committed"] <= 6 * 14
        json.dumps(record, allow_nan=False)


def test_two_vocabularies_are_refused_before_anything_is_built() -> None:
    field = {"other": {**TABLE, "vocab": 13}, "copy": {"kind": "copyist"}}
    from arena.roster import resolve

    with pytest.raises(ConfigError, match=r"table-13.*table-12"):
        resolve(config.build(body(drafters=field), "test"))
