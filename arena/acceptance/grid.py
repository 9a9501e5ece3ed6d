"""The grid of small laws over which the audit enumerates.

Laws depend on the last two tokens; among them are zeros in p and in q, p == q, point
masses, several temperatures, end tokens with a budget, and chains that stop early.
Some faults move the text's law by 1e-4 only, and some only where laws have zeros, so
no single case would do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Literal

from arena.acceptance.enumeration import Distinct, Field, Independent, Law, Text
from arena.models.table import TableLaw
from arena.types import Floats, Sampling

Group = Literal["one", "field", "siblings"]
"""One drafter; different drafters; several draws from one drafter."""


@dataclass(frozen=True)
class Case:
    """One cell of the grid.

    Attributes:
        name: What is special about it.
        group: Which rules it is for.
        target: The verifier's law.
        drafters: The field's drafts.
        k: Draft length.
        eos: End tokens.
        budget: Length of the text; when 0, one step of the rule, completed to k + 1
            tokens by plain decoding, else the rule makes the whole text.
        distinct: The field that stands in for ``drafters`` under a rule for siblings
            drawn without replacement.
    """

    name: str
    group: Group
    target: Law
    drafters: Field
    k: int
    eos: Collection[int] = ()
    budget: int = 0
    distinct: Field | None = None


@cache
def table(seed: int, vocab: int, sampling: Sampling = Sampling()) -> Law:
    """Gives a law that depends on the last two tokens, warped."""
    source = TableLaw(vocab=vocab, order=2, seed=seed, sharpness=1.0)

    @cache
    def law(context: Text) -> Floats:
        found = source.law(context[-2:], sampling)
        found.setflags(write=False)
        return found

    return lambda context: law(context[-2:])


_HOT, _COLD = Sampling(temperature=1.5), Sampling(temperature=0.7)
_TOP, _NUCLEUS, _GREEDY = Sampling(top_k=2), Sampling(top_p=0.8), Sampling(temperature=0.0)

_PAIRS: dict[str, tuple[tuple[int, Sampling], tuple[int, Sampling]]] = {
    "plain": ((1, Sampling()), (2, Sampling())),
    "plain, other laws": ((3, Sampling()), (4, Sampling())),
    "two temperatures": ((5, _HOT), (5, _COLD)),
    "hot": ((6, _HOT), (7, _HOT)),
    "zeros in p": ((8, _TOP), (9, Sampling())),
    "zeros in q": ((10, Sampling()), (11, _TOP)),
    "nucleus on both": ((12, _NUCLEUS), (13, _NUCLEUS)),
    "p == q": ((14, Sampling()), (14, Sampling())),
    "draft a point mass": ((15, Sampling()), (16, _GREEDY)),
    "target greedy": ((17, _GREEDY), (18, Sampling())),
    "both greedy": ((19, _GREEDY), (19, _GREEDY)),
}
"""Seed and warping of the target and of the drafter."""

_SIBLINGS = ("plain", "two temperatures", "zeros in p", "zeros in q", "nucleus on both", "p == q")


def grid() -> list[Case]:
    """Gives the cases: V^(depth * drafters) is at most 5,000 in each."""
    cases = []
    for name, (target, drafter) in _PAIRS.items():
        p, q = table(target[0], 4, target[1]), table(drafter[0], 4, drafter[1])
        cases.append(Case(f"V4 K3, {name}", "one", p, Independent([q]), 3))
        if name in _SIBLINGS:
            p, q = table(target[0], 3, target[1]), table(drafter[0], 3, drafter[1])
            three = Independent([q] * 3)
            cases.append(Case(f"V3 K2 x3, {name}", "siblings", p, three, 2, distinct=Distinct(q, 3)))
    p = table(21, 3)
    hesitant = Independent([table(22, 3)], (), 0.3)
    cases.append(Case("V3 K3, stops after an unlikely token", "one", p, hesitant, 3))
    ends = Independent([table(23, 3)], (2,))
    cases.append(Case("V3 K2, end token, budget 4", "one", p, ends, 2, (2,), 4))
    return cases + _fields()


def _fields() -> list[Case]:
    plain = [table(30 + seed, 3) for seed in range(6)]
    mixed = [
        table(40, 3, _TOP),
        table(41, 3),
        table(42, 3, _GREEDY),
        table(43, 3, _HOT),
        table(44, 3, _NUCLEUS),
        table(45, 3, _COLD),
    ]
    cases = []
    for name, warp in {"plain": Sampling(), "zeros in p": _TOP, "cold": _COLD, "greedy": _GREEDY}.items():
        target = table(50, 3, warp)
        field_of = [*mixed[:3], target, *mixed[4:]]
        cases.append(Case(f"V3 K1, six mixed, target {name}", "field", target, Independent(field_of), 1))
        cases.append(Case(f"V3 K2, three mixed, target {name}", "field", target, Independent(mixed[1:4]), 2))
    target = table(51, 3)
    cases.append(Case("V3 K1, six plain", "field", target, Independent(plain), 1))
    cases.append(Case("V3 K2, three plain", "field", target, Independent(plain[:3]), 2))
    cases.append(Case("V3 K2, two and their target", "field", target, Independent([*plain[:2], target]), 2))
    cases.append(
        Case("V3 K2, three, stop after unlikely", "field", target, Independent(plain[3:], (), 0.3), 2)
    )
    ends = Independent(plain[1:3], (2,))
    cases.append(Case("V3 K2, two, end token, budget 4", "field", target, ends, 2, (2,), 4))
    return cases
