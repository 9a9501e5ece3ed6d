"""Faults on purpose: what is rebuilt leaves no trace, what is withdrawn was never there.

Every fault is played on the local backend here, and on actors in ``tests/backend_ray``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena import chaos, config
from arena.check import check
from arena.errors import ConfigError, VerifierFault
from arena.lives import Lives
from arena.roster import resolve
from arena.store import RunDirectory
from arena.tournament import make_backend

from ..runs import body, files, run

GARBAGE = (
    "too_large",
    "negative",
    "floats",
    "too_many",
    "nan",
    "unnormalised",
    "excludes",
    "lanes",
    "nothing",
)
FIELD = ("copy", "far", "learner", "near")


def values(*faults: dict[str, Any], without: str = "", restarts: int = 1, **section: Any) -> dict[str, Any]:
    field = {
        "learner": {"kind": "sprinter", "order": 2},
        "near": body()["drafters"]["near"],
        "far": body()["drafters"]["far"],
        "copy": {"kind": "copyist"},
    }
    field.pop(without, None)
    return body(
        drafters=field,
        rounds={"prompts": 3, "max_new_tokens": 9},
        engine={"learn_every": 2, "calibrate": False},
        backend={"max_restarts": restarts},
        **({"chaos": {"faults": list(faults), **section}} if faults else {}),
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return RunDirectory.open(path).rounds()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calm") / "run"
    run(path, values())
    return path


@pytest.mark.parametrize("what", ["dies", "hangs", "slows"])
@pytest.mark.parametrize("who", [*FIELD, "verifier", "scoreboard"])
def test_one_fault_leaves_no_trace(calm: Path, tmp_path: Path, who: str, what: str) -> None:
    run(tmp_path / "run", values({"who": who, "what": what}, seed=2, within=12))
    assert files(tmp_path / "run") == files(calm)
    assert not check(tmp_path / "run").problems


@pytest.mark.parametrize("who", ["verifier", "scoreboard"])
def test_a_worker_that_raises_is_rebuilt_too(calm: Path, tmp_path: Path, who: str) -> None:
    run(tmp_path / "run", values({"who": who, "what": "raises", "call": 3}))
    assert files(tmp_path / "run") == files(calm)


def test_many_faults_at_random_moments_leave_no_trace(calm: Path, tmp_path: Path) -> None:
    faults = [
        {"who": who, "what": what}
        for who, what in zip((*FIELD, "verifier", "scoreboard"), ("dies", "hangs") * 3, strict=True)
    ]
    for seed in range(2):
        run(tmp_path / f"{seed}", values(*faults, seed=seed, within=15))
        assert files(tmp_path / f"{seed}") == files(calm)


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs whose roster never had somebody, each played once."""
    root, played = tmp_path_factory.mktemp("lacking"), set()

    def of(who: str) -> Path:
        if who not in played:
            run(root / who, values(without=who))
            played.add(who)
        return root / who

    return of


def without(path: Path, gone: str) -> list[dict[str, Any]]:
    """The rounds, but for the note that somebody was withdrawn."""
    found = lines(path)
    for record in found:
        record["withdrawn"] = [item for item in record["withdrawn"] if item["drafter"] != gone]
    return found


def as_if_never_there(path: Path, calm: Path, gone: str) -> None:
    assert without(path, gone) == lines(calm)
    mine, wanted = files(path), files(calm)
    assert {n: b for n, b in mine.items() if n != "rounds.jsonl"} == {
        n: b for n, b in wanted.items() if n != "rounds.jsonl"
    }
    assert not check(path).problems


@pytest.mark.parametrize("what", ["dies", "hangs"])
@pytest.mark.parametrize("who", FIELD)
def test_one_lost_again_was_never_there(
    lacking: Callable[[str], Path], tmp_path: Path, who: str, what: str
) -> None:
    run(tmp_path / "run", values({"who": who, "what": what, "call": 2, "lives": 9}))
    gone = lines(tmp_path / "run")[0]["withdrawn"]
    assert [item["drafter"] for item in gone] == [who]
    assert gone[0]["reason"]
    as_if_never_there(tmp_path / "run", lacking(who), who)


@pytest.mark.parametrize("what", [*GARBAGE, "raises"])
def test_garbage_is_withdrawn_and_was_never_there(
    lacking: Callable[[str], Path], tmp_path: Path, what: str
) -> None:
    run(tmp_path / "run", values({"who": "near", "what": what, "call": 2}))
    as_if_never_there(tmp_path / "run", lacking("near"), "near")


def test_a_drafter_lost_in_a_later_round_is_missing_from_there(calm: Path, tmp_path: Path) -> None:
    # `copy` survives round 1; its garbage in round 2 replays that round from its barrier without it.
    first = lines(calm)[0]
    for call in range(3, 16):
        path = tmp_path / f"call-{call}"
        run(path, values({"who": "near", "what": "nan", "call": call}))
        found = lines(path)
        if found[0]["withdrawn"]:  # still a call of round 1
            continue
        assert found[0] == first
        assert [item["drafter"] for item in found[1]["withdrawn"]] == ["near"]
        assert "near" not in found[1]["alive"]
        assert not check(path).problems
        return
    pytest.fail("no call belonged to round 2")


def test_the_last_one_left_wins_by_walkover(tmp_path: Path) -> None:
    faults = [{"who": who, "what": "dies", "lives": 9, "call": 2} for who in FIELD if who != "far"]
    champion = run(tmp_path / "run", values(*faults))
    assert champion is not None
    assert (champion.champion, champion.how) == ("far", "walkover")
    assert set(champion.withdrawn) == set(FIELD) - {"far"}
    assert not check(tmp_path / "run").problems


def test_all_gone_fails_and_the_run_goes_on_when_the_cause_is_mended(calm: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    faults = [{"who": who, "what": "dies", "lives": 9, "call": 2} for who in FIELD]
    assert run(path, values(*faults)) is None
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    for who in FIELD:
        assert who in manifest["error"]
    assert lines(path) == []
    assert not check(path).problems
    assert run(path, values()) is not None
    assert files(path) == files(calm)


@pytest.mark.parametrize("who", ["verifier", "scoreboard"])
def test_without_verifier_or_scoreboard_the_run_stops_and_goes_on(
    calm: Path, tmp_path: Path, who: str
) -> None:
    path = tmp_path / "run"
    with pytest.raises(VerifierFault, match=rf"the {who} was lost for good.*are safe"):
        run(path, values({"who": who, "what": "dies", "lives": 9, "call": 4}))
    assert run(path, values()) is not None
    assert files(path) == files(calm)


def test_no_restarts_means_none(tmp_path: Path) -> None:
    run(tmp_path / "run", values({"who": "near", "what": "dies", "call": 2}, restarts=0))
    assert [item["drafter"] for item in lines(tmp_path / "run")[0]["withdrawn"]] == ["near"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"who": "neer", "what": "dies"}, "Did you mean 'near'"),
        ({"who": "verifier", "what": "nan"}, "sends no drafts"),
        ({"who": "near", "what": "explodes"}, "dies"),
        ({"who": "near", "what": "dies", "call": 0}, "call"),
        ({"who": "near", "what": "dies", "when": 3}, "Known: "),
    ],
)
def test_faults_are_checked_before_anything_is_built(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(config.build(values(fault), "test"))


def test_moments_are_keyed_and_lives_end_a_fault() -> None:
    section = config.ChaosSection(
        seed=3,
        within=50,
        faults=(config.Fault(who="a", what="dies"), config.Fault(who="a", what="nan", call=7)),
    )
    from arena.protocols import WorkerSpec

    spec = WorkerSpec("arena.engines.seats:DrafterSeat", {"name": "a"})
    first, again = (chaos.armed("a", spec, section, 0, alone=True) for _ in range(2))
    assert first == again
    moments = [fault["call"] for fault in first.options["chaos"]["faults"]]
    assert 1 <= moments[0] <= 50
    assert moments[1] == 7
    assert chaos.armed("a", spec, section, 1, alone=True).options["chaos"]["faults"] == []
    assert chaos.armed("b", spec, section, 0, alone=True) is spec


def test_a_memory_limit_needs_processes() -> None:
    experiment = config.build(values(), "test")
    limited = experiment.model_copy(
        update={"backend": experiment.backend.model_copy(update={"memory_limit_mb": 100})}
    )
    with pytest.raises(ConfigError, match="all share one process"):
        Lives(limited, make_backend(experiment), {}, lambda text: None)
