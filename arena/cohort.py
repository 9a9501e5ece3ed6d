"""Cohorts: who stands before a verifier when a generation begins.

A recipe names kinds and fractions of the depth, never layers: a champion has fewer
layers than its parent, and its cohort is bred by the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena.errors import ConfigError, one_of

_CUT = [0.4, 0.5334]
"""Layers 12 to 15 of 30. One cut for all that are sub-models of the verifier, so that what
parts them is temperament (frozen and sure of itself, learning, over-correcting, strange)
and not size."""


def _six(base: str) -> dict[str, dict[str, Any]]:
    return {
        # Longest suffix match on its own text: what prompt lookup does by default.
        "one": {"kind": "copyist"},
        # The likely half of the law is forbidden to it.
        "two": {"kind": "poet", "model": base, "nucleus": 0.5, "drop": _CUT},
        # Four-token sequences: longer ones hardly come back in a few thousand tokens.
        "three": {"kind": "sprinter", "order": 4},
        # Polyak's step for a loss of 0, times 1: nothing about it is tuned.
        "four": {"kind": "overcorrector", "model": base, "drop": _CUT},
        # The most probable token of the cut model, for ever.
        "five": {"kind": "steady", "model": base, "drop": _CUT},
        # The same cut, three layers beside it trained with AdamW at 3e-4, the usual rate.
        "six": {"kind": "mirror", "model": base, "drop": _CUT},
    }


RECIPES = {"six": _six}
"""Recipe name to the drafters that it makes from a base model."""


def expand(recipe: str, base: str) -> dict[str, dict[str, Any]]:
    """Gives the drafters of a recipe, as the plain values of an experiment's ``drafters``.

    Args:
        recipe: A name in ``RECIPES``.
        base: ``verifier``, or the model that students are cut from.

    Raises:
        ConfigError: There is no such recipe.
    """
    if recipe not in RECIPES:
        raise ConfigError(one_of("cohort recipe", recipe, RECIPES))
    return RECIPES[recipe](base)


def fill(body: Mapping[str, Any]) -> dict[str, Any]:
    """Expands an experiment's ``cohort`` into its ``drafters``.

    Drafters that the experiment names itself are added; one of the recipe's names
    changes the options of that seat, and another ``kind`` replaces it.

    Args:
        body: Plain values of the experiment, as its YAML says.
    """
    cohort = body.get("cohort")
    if not isinstance(cohort, Mapping) or not isinstance(cohort.get("recipe", "six"), str):
        return dict(body)  # the schema says what is wrong
    drafters: dict[str, Any] = expand(cohort.get("recipe", "six"), str(cohort.get("base", "verifier")))
    own = body.get("drafters") or {}
    if not isinstance(own, Mapping):
        return dict(body)
    for name, choice in own.items():
        seat = drafters.get(name, {})
        same = isinstance(choice, Mapping) and choice.get("kind", seat.get("kind")) == seat.get("kind")
        drafters[name] = {**seat, **choice} if same else choice
    return {**body, "drafters": drafters}
