"""The drafters that ship with Draft Arena, one file each.

Importing this package imports none of them: ``CATALOGUE`` names them, and
``arena.registry`` imports the one that is asked for.
"""

CATALOGUE: dict[str, str] = {
    "copyist": "drafters.copyist:Copyist",
    "hf": "drafters.hf:LanguageModel",
    "mirror": "drafters.mirror:Mirror",
    "overcorrector": "drafters.four:OverCorrector",
    "poet": "drafters.poet:Poet",
    "sprinter": "drafters.sprinter:Sprinter",
    "steady": "drafters.steady:Steady",
    "table": "drafters.table:Table",
}
"""Drafter kind to ``"module:Class"``."""
