"""Cohorts: what a recipe says, and how an experiment changes it."""

from __future__ import annotations

import pytest

from arena import config
from arena.errors import ConfigError
from arena.models.layers import layer_depths
from arena.prompts import synthetic
from tests import runs


def body(**changes: object) -> dict[str, object]:
    values = {key: value for key, value in runs.body().items() if key != "drafters"}
    return values | {"cohort": {"recipe": "six"}} | changes


def test_the_six_are_bred_from_whatever_the_verifier_is() -> None:
    found = config.build(body(), "test")
    kinds = {name: choice.kind for name, choice in found.drafters.items()}
    assert kinds == {
        "one": "copyist",
        "two": "poet",
        "three": "sprinter",
        "four": "overcorrector",
        "five": "steady",
        "six": "mirror",
    }
    models = {choice.options["model"] for choice in found.drafters.values() if "model" in choice.options}
    assert models == {"verifier"}
    cuts = {tuple(choice.options["drop"]) for choice in found.drafters.values() if "drop" in choice.options}
    (cut,) = cuts  # one cut for all: what parts them is temperament, not size
    for layers, left in ((30, 26), (26, 22), (22, 19)):  # it shrinks with the verifier
        assert len(layer_depths(layers, cut)) == left


def test_an_experiment_may_change_seats_and_its_resolved_values_say_all() -> None:
    own = {"six": {"step_size": 0.01}, "two": {"kind": "copyist"}, "seven": {"kind": "copyist"}}
    found = config.build(body(drafters=own), "test")
    assert found.drafters["six"].options["step_size"] == 0.01
    assert found.drafters["six"].kind == "mirror"
    assert found.drafters["two"].options == {}
    assert len(found.drafters) == 7
    again = config.build(config.parse(found.to_yaml(), "resolved"), "resolved")
    assert again == found
    assert again.digest == found.digest


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown cohort recipe 'sx'. Did you mean 'six'"):
        config.build(body(cohort={"recipe": "sx"}), "test")
    with pytest.raises(ConfigError, match=r"cohort.warm: unknown key 'warm'"):
        config.build(body(cohort={"warm": 3}), "test")
    with pytest.raises(ConfigError, match="warm_tokens"):
        config.build(body(cohort={"warm_tokens": -1}), "test")


def test_breeding_leaves_the_rounds_prompts_alone() -> None:
    from arena import seeding
    from arena.breeding import unplayed
    from arena.prompts import round_slice

    found = config.build(body(rounds={"prompts": 4, "max_new_tokens": 8}), "test")
    every = synthetic(30, 5, 12, 3)
    spare = {prompt.id for prompt in unplayed(found, every)}
    dealt = {p.id for n in range(5) for p in round_slice(every, n, 4, seeding.fold(found.seed, 0))}
    assert not spare & dealt
    assert len(spare | dealt) == 30
