"""Verification rules, their bound and their audit: pure maths, numpy only."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from arena.acceptance.block import Block
from arena.acceptance.chain import Greedy, PointMass, Speculative
from arena.acceptance.choices import Enumerator, KeyedChoices
from arena.acceptance.iid import KSeq, WithoutReplacement
from arena.acceptance.lossy import ArgmaxMatch, Margin, TopKTolerance, Typical
from arena.acceptance.outcome import Decision, Outcome
from arena.acceptance.rule import ChainRule, Rule, TreeRule
from arena.acceptance.traversal import Traversal
from arena.acceptance.tree import Recursive, merge
from arena.errors import ConfigError, one_of

RULES: dict[str, type[ChainRule] | type[TreeRule]] = {
    rule.name: rule
    for rule in (
        Greedy,
        Speculative,
        PointMass,
        Block,
        Recursive,
        Traversal,
        WithoutReplacement,
        KSeq,
        TopKTolerance,
        Typical,
        ArgmaxMatch,
        Margin,
    )
}
"""Every rule by name; the classes carry what there is to know about them."""


def get(name: str, **options: Any) -> ChainRule | TreeRule:
    """Builds a rule.

    Args:
        name: A key of :data:`RULES`.
        **options: The fields of the rule's class.

    Raises:
        ConfigError: Unknown name or option, or a value that the rule refuses.
    """
    if name not in RULES:
        raise ConfigError(one_of("rule", name, RULES))
    rule = RULES[name]
    known = [field.name for field in fields(rule)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            raise ConfigError(f"rule {name!r}: " + one_of("option", option, known))
    return rule(**options)


__all__ = [
    "RULES",
    "ChainRule",
    "Decision",
    "Enumerator",
    "KeyedChoices",
    "Outcome",
    "Recursive",
    "Rule",
    "TreeRule",
    "get",
    "merge",
]
