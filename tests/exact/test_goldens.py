"""Every golden number of the rules and of the cost model, recomputed by the code that runs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from arena.acceptance import Enumerator, get, merge
from arena.acceptance.bounds import iid_bound
from arena.acceptance.enumeration import Independent, Law, NodeLaws, RuleStep, chain_of
from arena.acceptance.iid import smallest_rho
from arena.acceptance.lossy import entropy
from arena.costs import StepCosts, best_k, curve, required_alpha, tokens_per_step
from arena.types import Floats


def constant(*probs: float) -> Law:
    law = np.array(probs)
    return lambda context: law


P, Q, HALF = constant(1 / 3, 2 / 3), constant(2 / 3, 1 / 3), constant(1 / 2, 1 / 2)


def accepted(rule: str, drafters: list[Law], k: int, target: Law = P, **options: object) -> float:
    step = RuleStep(get(rule, **options), target, Independent(drafters), k)
    assert sum(step((), k + 1).values()) == pytest.approx(1)
    return step.tally.accepted


def first_token(rule: str, target: Law, drafter: Law) -> Floats:
    law = np.zeros(len(target(())))
    for tokens, odds in RuleStep(get(rule), target, Independent([drafter]), 1)((), 2).items():
        law[tokens[0]] += odds
    return law


def exactly(value: float, golden: Fraction) -> None:
    assert value == pytest.approx(float(golden), abs=1e-12)


# 5.1 One chain


def test_block_against_token_by_token() -> None:
    exactly(accepted("block", [Q], 2), Fraction(11, 9))
    exactly(accepted("speculative", [Q], 2), Fraction(10, 9))


def test_acceptance_is_one_minus_total_variation() -> None:
    p, q = constant(0.5, 0.3, 0.2), constant(0.1, 0.3, 0.6)
    assert accepted("speculative", [q], 1, p) == pytest.approx(1 - 0.4)


def test_a_point_mass_is_kept_with_its_target_probability() -> None:
    p = constant(0.5, 0.3, 0.2)
    for token in range(3):
        certain = constant(*np.eye(3)[token])
        assert accepted("point_mass", [certain], 1, p) == pytest.approx(p(())[token])
        assert accepted("speculative", [certain], 1, p) == pytest.approx(p(())[token])


def test_the_mean_of_block_given_the_draft() -> None:
    rule, total = get("block"), 0.0
    for tokens in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        chain = chain_of(Q, (), tokens)
        laws = NodeLaws(P, (), merge(0, [chain]))
        expected = rule.expected(chain, range(3), laws)
        mean = sum(
            odds * n
            for odds, n in Enumerator().outcomes(
                lambda choices, chain=chain, laws=laws: (
                    rule.decide(chain, range(3), laws, choices, 0).n_accepted
                )
            )
        )
        assert expected == pytest.approx(mean, abs=1e-12)
        total += float(np.prod([Q(())[token] for token in tokens])) * expected
    exactly(total, Fraction(11, 9))


# 5.2 Many drafters


@pytest.mark.parametrize(
    ("drafters", "recursive", "traversal"),
    [
        ([Q, Q], Fraction(4, 3), Fraction(115, 81)),
        ([Q, Q, Q], Fraction(1087, 729), Fraction(1136, 729)),
        ([Q, HALF], Fraction(53, 36), Fraction(14, 9)),
    ],
)
def test_trees(drafters: list[Law], recursive: Fraction, traversal: Fraction) -> None:
    exactly(accepted("recursive", drafters, 2), recursive)
    exactly(accepted("traversal", drafters, 2), traversal)


def test_kseq_recursive_and_the_bound() -> None:
    assert smallest_rho(P(()), Q(()), 2) == pytest.approx(1.434259, abs=5e-7)
    assert accepted("kseq", [Q, Q], 1) == pytest.approx(0.811420, abs=5e-7)
    exactly(accepted("recursive", [Q, Q], 1), Fraction(7, 9))
    exactly(iid_bound(P(()), Q(()), 2), Fraction(8, 9))


@pytest.mark.parametrize("order", ["keyed", "standing", "overlap"])
def test_what_recursive_measures_is_what_it_does(order: str) -> None:
    rule = get("recursive", order=order, measure=True)
    reached = bound = 0.0
    step = RuleStep(rule, P, Independent([Q, HALF, Q]), 2, ranks=(2, 0, 1))
    step((), 3)
    for odds, chains in step.drafters((), 2):
        tree = merge(0, chains)
        laws = NodeLaws(P, (), tree)
        for weight, outcome in Enumerator().outcomes(
            lambda choices, tree=tree, chains=chains, laws=laws: rule.commit(
                tree, chains, laws, choices, (2, 0, 1)
            )
        ):
            reached += odds * weight * outcome.reached
            bound += odds * weight * outcome.bound
    assert reached == pytest.approx(step.tally.accepted, abs=1e-12)
    assert bound == pytest.approx(step.tally.bound, abs=1e-12)
    assert reached < bound


def test_typical_acceptance_is_strict_and_in_nats() -> None:
    p = constant(0.91, 0.09)  # min(.09, .3 exp(-H)) is .09, and .09 is not above it
    assert accepted("typical", [constant(0, 1)], 1, p) == 0
    assert accepted("typical", [constant(1, 0)], 1, p) == 1
    assert entropy(np.array([0.25, 0.25, 0.5, 0])) == pytest.approx(1.5 * np.log(2))
    flat = constant(*[1 / 16] * 16)  # .3 exp(-H) = .01875 < 1/16
    assert accepted("typical", [constant(1, *[0] * 15)], 1, flat) == 1


# 5.4 Length, time, and what the founding articles say


def test_margin() -> None:
    p, q = constant(0.6, 0.3, 0.1), constant(0.3, 0.3, 0.4)
    assert first_token("margin", p, q) == pytest.approx([0.66, 0.255, 0.085], abs=1e-12)
    assert accepted("margin", [q], 1, p) == pytest.approx(0.15, abs=1e-12)
    assert accepted("margin", [p], 1, p) == 0


def test_the_best_length() -> None:
    costs = StepCosts(fixed=100, draft=10)
    rows = curve(0.8, costs)
    assert best_k(0.8, costs) == 6
    assert round(rows[6].speedup, 2) == 2.47
    assert round(rows[4].speedup, 2) == 2.40
    assert tokens_per_step(0.8, 4) == pytest.approx(3.3616, abs=1e-12)


@pytest.mark.parametrize(
    ("k", "ms", "alpha"), [(4, 35, 0.888), (4, 30, 0.965), (8, 50, 0.741), (8, 40, 0.812)]
)
def test_what_the_claimed_rows_need(k: int, ms: float, alpha: float) -> None:
    needed = required_alpha(k, ms, target_ms=100, draft_ms=10)
    assert needed is not None
    assert round(needed, 3) == alpha


def test_the_worked_example_with_and_without_the_bonus_token() -> None:
    step = StepCosts(100, 10).step(4)
    assert step == 140
    assert round(4 * 100 / step, 1) == 2.9
    assert round(tokens_per_step(1.0, 4) * 100 / step, 1) == 3.6
