"""The simulation of many tournaments is the tournament, seed by seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena import config
from arena.errors import ConfigError
from arena.simulate import Simulator
from arena.studies.playing import Job, play
from arena.studies.simulated import Simulated

LAW = {"kind": "table", "vocab": 12, "order": 2, "seed": 1, "sharpness": 1.5}
FIELD = {
    "near": {**LAW, "mix": 0.2},
    "far": {**LAW, "mix": 0.6, "other_seed": 9},
    "sharp": {**LAW, "argmax": True},
    "cut": {**LAW, "mix": 0.3, "support": 5, "other_order": 1},
    "exact": {**LAW, "overlap": 0.4},
    "copy": {"kind": "copyist"},
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"sampling": {"temperature": 0.0}},
    {"sampling": {"temperature": 0.7, "top_k": 4}, "engine": {"draft_length": 2}},
    {"verifier": {**LAW, "order": 1, "eos": None}},
    {"retirement": {"kind": "confident", "cap": 2}, "engine": {"draft_length": 6}},
]


def values(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": "simulated",
        "verifier": {**LAW, "eos": 0},
        "drafters": FIELD,
        "prompts": {"synthetic": 9, "length": 5},
        "rounds": {"prompts": 3, "max_new_tokens": 9},
        "backend": {"kind": "local"},
    }
    body |= changes
    body["engine"] = {"calibrate": False, "lanes": 2, **body.get("engine", {})}
    return config.build(body, "test").plain()


@pytest.mark.parametrize("changes", SETTINGS)
def test_counts_retirements_and_champions_are_those_of_the_run(changes: Any, tmp_path: Path) -> None:
    body = values(**changes)
    seeds = [0, 1, 2, 3]
    for seed, mine in zip(seeds, Simulator(values=body).play(seeds), strict=True):
        theirs = play(Job({**body, "seed": seed}, str(tmp_path / f"{seed}")))
        kept = [{key: record[key] for key in one} for one, record in zip(mine, theirs, strict=True)]
        assert mine == kept, f"seed {seed}"


def test_a_replicate_does_not_depend_on_its_company() -> None:
    simulator = Simulator(values=values())
    assert simulator.play([5, 6, 7])[1:2] == simulator.play([6])


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(ConfigError, match="story_replicates"):
        Simulator(values=values(drafters={**FIELD, "learns": {"kind": "sprinter"}}))
    with pytest.raises(ConfigError, match=r"rules\.commit"):
        Simulator(values=values(rules={"commit": "speculative"}))


def test_the_study_goes_on_where_it_was_cut_short(tmp_path: Path) -> None:
    body = {"name": "many", "study": "simulated", "base": "toy", "backend": {"kind": "local"}}
    changes = ["rounds.prompts=2", "rounds.max_new_tokens=6", "prompts.synthetic=4"]

    def played(replicates: int, out: str) -> Any:
        (tmp_path / out).mkdir(exist_ok=True)
        study = Simulated.check(body | {"changes": changes, "replicates": replicates}, "test")
        return study.play(tmp_path / out, lambda text: None)

    played(3, "twice")
    assert played(6, "twice") == played(6, "once")
    assert (tmp_path / "twice" / "replicates.jsonl").read_bytes() == (
        tmp_path / "once" / "replicates.jsonl"
    ).read_bytes()
