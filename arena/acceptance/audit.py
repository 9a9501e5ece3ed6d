"""The audit: every rule's claim to be lossless, proved or refuted by enumeration.

For each case of a grid of small laws, every draft, every answer of the rule's choice
points and every completion of the text is summed, and the law of the *text* is
compared with that of plain decoding. There is no sampling, so there is no error bar:
a lossless rule is off by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from time import perf_counter
from typing import Any, get_args

from arena import acceptance
from arena.acceptance.choices import Enumerator
from arena.acceptance.enumeration import RuleStep, plain_step, text_law, total_variation
from arena.acceptance.grid import Case, Group, grid
from arena.acceptance.rule import ChainRule, TreeRule
from arena.acceptance.tree import Order

THRESHOLD = 1e-9
"""A total variation at or above this convicts a rule."""


@dataclass(frozen=True)
class Row:
    """What the audit found about a rule.

    Attributes:
        rule: Its name.
        options: The options it was built with, where there is a choice.
        claimed_lossless: What it claims.
        found_lossless: What is true on the grid.
        max_tv: Largest total variation from the target's law of the text.
        worst_case: Name of the case where that was.
        acceptance_length: 1 + accepted tokens a step, over the group it is meant for.
        share_of_bound: Accepted tokens there, as a share of the transport bound; None
            where the bound does not apply.
        lengths: Acceptance length in each group that it ran in.
        cases: How many cases it ran.
        seconds: Time that took.
    """

    rule: str
    options: Mapping[str, Any]
    claimed_lossless: bool
    found_lossless: bool
    max_tv: float
    worst_case: str
    acceptance_length: float
    share_of_bound: float | None
    lengths: Mapping[Group, float] = field(default_factory=dict)
    cases: int = 0
    seconds: float = 0.0

    @property
    def honest(self) -> bool:
        """Whether the claim is true (calling a lossless rule lossy is false as well)."""
        return self.claimed_lossless == self.found_lossless


def audit(names: Sequence[str] | None = None, on_row: Callable[[Row], None] | None = None) -> list[Row]:
    """Audits rules by name, in the registry's order.

    Args:
        names: Which; all when absent.
        on_row: Called after each rule.

    Raises:
        ConfigError: A name is unknown.
    """
    for name in names or ():
        acceptance.get(name)
    rows = []
    cases = grid()
    for name in acceptance.RULES:
        if names and name not in names:
            continue
        for options in variants(name):
            rows.append(audit_rule(acceptance.get(name, **options), cases, options))
            if on_row:
                on_row(rows[-1])
    return rows


def variants(name: str) -> list[dict[str, Any]]:
    """Gives the options under which a rule is audited."""
    orders = [item.name for item in fields(acceptance.RULES[name]) if item.name == "order"]  # type: ignore[arg-type]
    return [{"order": order} for order in get_args(Order)] if orders else [{}]


def audit_rule(
    rule: ChainRule | TreeRule, cases: Sequence[Case], options: Mapping[str, Any] | None = None
) -> Row:
    """Audits one rule over the cases that are for it."""
    began = perf_counter()
    worst, worst_case, ran = 0.0, "", 0
    steps: dict[Group, list[RuleStep]] = {}
    home = home_group(rule)
    for case in cases:
        if case.group != home and not _also(rule, case, options or {}):
            continue
        drafters = case.distinct if rule.name == "without_replacement" and case.distinct else case.drafters
        step = RuleStep(
            rule, case.target, drafters, case.k, case.eos, Enumerator(_shuffled), ranks=(3, 0, 5, 1, 4, 2)
        )
        distance = _distance(step, case)
        steps.setdefault(case.group, []).append(step)
        ran += 1
        if distance > worst or not worst_case:
            worst, worst_case = distance, case.name
    lengths = {
        group: 1.0 + sum(s.tally.accepted for s in ran_steps) / sum(s.tally.steps for s in ran_steps)
        for group, ran_steps in steps.items()
    }
    at_home = steps.get(home, [])
    bound = sum(step.tally.bound for step in at_home)
    share = sum(step.tally.accepted for step in at_home) / bound if rule.bounded and bound else None
    return Row(
        rule=rule.name,
        options=dict(options or {}),
        claimed_lossless=rule.lossless,
        found_lossless=worst < THRESHOLD,
        max_tv=worst,
        worst_case=worst_case,
        acceptance_length=lengths.get(home, float("nan")),
        share_of_bound=share,
        lengths=lengths,
        cases=ran,
        seconds=perf_counter() - began,
    )


def home_group(rule: ChainRule | TreeRule) -> Group:
    """Gives the group that a rule is meant for."""
    if isinstance(rule, ChainRule):
        return "one"
    return "field" if rule.in_run else "siblings"


def _also(rule: ChainRule | TreeRule, case: Case, options: Mapping[str, Any]) -> bool:
    """Tree rules meet one drafter and equal ones too, but there all orders are one."""
    if isinstance(rule, ChainRule) or options.get("order", "keyed") != "keyed":
        return False
    return case.group == "one" or (case.group == "siblings" and rule.in_run)


def _distance(step: RuleStep, case: Case) -> float:
    context, plain = (1, 2), plain_step(case.target)
    budget = case.budget or case.k + 1
    lossless = text_law(context, budget, case.eos, plain)
    return total_variation(
        text_law(context, budget, case.eos, step, None if case.budget else plain), lossless
    )


def _shuffled(drafters: Sequence[int], depth: int) -> list[int]:
    """Stands in for a keyed order: any order will do that looks at nothing drawn."""
    return sorted(drafters, key=lambda drafter: (drafter * 5 + depth * 3) % 7)
