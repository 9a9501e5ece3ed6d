"""Studies: experiments of more than one tournament, or of none.

A YAML with a top-level ``study`` names one of these. A study is a strict, frozen
configuration with one method, ``play``, that returns rows; ``arena run`` prints them
and keeps them in the run directory as ``result.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from arena.errors import ConfigError, one_of
from arena.studies.base import Result, Study

STUDIES: dict[str, str] = {
    "generations": "arena.studies.generations:Generations",
    "margin_tournament": "arena.studies.margin:MarginTournament",
    "seed_table": "arena.studies.seed_table:SeedTable",
    "selection_rules": "arena.studies.selection_rules:SelectionRules",
    "simulated": "arena.studies.simulated:Simulated",
    "story_replicates": "arena.studies.replicates:Replicates",
}
"""Study name to ``"module:Class"``, loaded when asked for."""


def build(body: Mapping[str, Any], where: str) -> Study:
    """Checks a YAML's values into the study that it names.

    Raises:
        ConfigError: No such study, or a value that it refuses.
    """
    name = body.get("study")
    if not isinstance(name, str) or name not in STUDIES:
        raise ConfigError(f"{where}: " + one_of("study", name, STUDIES))
    module, _, cls = STUDIES[str(name)].partition(":")
    found: Study = getattr(import_module(module), cls).check(body, where)
    return found


__all__ = ["STUDIES", "Result", "Study", "build"]
