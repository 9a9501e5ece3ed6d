"""What a drafter is worth: the recursion against enumeration, the axioms, and the signs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from arena.acceptance import Enumerator, get, merge
from arena.acceptance.contribution import (
    UNIT,
    best_roster,
    contribution,
    shapley_of,
    total,
    whole,
    worth_of,
)
from arena.acceptance.enumeration import Law, NodeLaws, chain_of
from arena.models.table import TableLaw
from arena.sampling import draw
from arena.types import Chain, Sampling

CONTEXT = (1, 2)
VOCAB = 5


def law(seed: int, sampling: Sampling = Sampling()) -> Law:
    table = TableLaw(vocab=VOCAB, order=2, seed=seed, sharpness=1.0)
    return lambda context: table.law(context[-2:], sampling)


TARGET = law(1)
FIELD = [
    law(11),
    law(12, Sampling(top_k=2)),
    law(13, Sampling(temperature=0.0)),
    TARGET,
    law(15, Sampling(temperature=0.7, top_p=0.8)),
    law(16),
]


def drafted(laws: Sequence[Law], seed: int, lengths: Sequence[int]) -> list[Chain]:
    rng, chains = np.random.default_rng(seed), []
    for one, length in zip(laws, lengths, strict=True):
        tokens: list[int] = []
        for _ in range(length):
            tokens.append(int(draw(one((*CONTEXT, *tokens)), rng.random())))
        chains.append(chain_of(one, CONTEXT, tokens))
    return chains


def priced(chains: Sequence[Chain], target: Law = TARGET, ordering=None):
    tree = merge(0, chains)
    laws = NodeLaws(target, CONTEXT, tree)
    nodes = [[0, *tree.nodes[d, : len(chain)].tolist()] for d, chain in enumerate(chains)]
    target_probs = [
        [float(laws.law(node)[token]) for node, token in zip(nodes[d], chain.tokens, strict=False)]
        for d, chain in enumerate(chains)
    ]
    draft_probs = [[chain.prob(k) for k in range(len(chain))] for chain in chains]
    return contribution(tree, chains, laws, target_probs, draft_probs, ordering)


def enumerated(chains: Sequence[Chain], target: Law = TARGET, order=None) -> float:
    """The expectation of the rule that plays, over all its choices; in roster order by default."""
    tree = merge(0, chains)
    laws = NodeLaws(target, CONTEXT, tree)
    rule = get("recursive")
    found = Enumerator(order).outcomes(lambda choices: rule.commit(tree, chains, laws, choices))
    return math.fsum(odds * len(outcome.path) for odds, outcome in found)


@pytest.mark.parametrize("seed", range(12))
def test_every_sub_roster_is_worth_what_the_rule_keeps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    laws = [FIELD[i] for i in rng.permutation(len(FIELD))[:4]]
    if seed % 2:
        laws[1] = laws[0]  # clones: duplicates of a refused token, deep shared paths
    chains = drafted(laws, seed, rng.integers(0, 4, len(laws)).tolist())
    found = priced(chains)
    for subset in range(1 << len(chains)):
        kept = [chain for d, chain in enumerate(chains) if subset >> d & 1]
        assert found.worths[subset] == pytest.approx(enumerated(kept), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_orders_that_change_with_depth_are_the_roster_s_own(seed: int) -> None:
    # As in a race: a number for each drafter and depth, whoever else is there.
    turns = np.random.default_rng(seed).random((6, 5))
    chains = drafted([FIELD[0], FIELD[0], FIELD[2], FIELD[3], FIELD[5]], seed, [3] * 5)
    found = priced(chains, ordering=lambda owners, node, depth: sorted(owners, key=lambda d: turns[depth, d]))
    for subset in range(1 << len(chains)):
        who = [d for d in range(len(chains)) if subset >> d & 1]
        kept = [chains[d] for d in who]
        expected = enumerated(
            kept,
            order=lambda owners, depth, who=who: sorted(owners, key=lambda i: turns[depth - 1, who[i]]),
        )
        assert found.worths[subset] == pytest.approx(expected, abs=1e-12)
    assert math.fsum(found.shapley) == pytest.approx(found.worths[-1], abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_values_share_out_the_field(seed: int) -> None:
    chains = drafted(FIELD, seed, [4] * 6)
    found, score = priced(chains), get("speculative")
    tree = merge(0, chains)
    laws = NodeLaws(TARGET, CONTEXT, tree)
    assert found.worths[0] == 0.0
    assert math.fsum(found.shapley) == pytest.approx(found.worths[-1], abs=1e-12)
    for d, chain in enumerate(chains):
        nodes = [0, *tree.nodes[d].tolist()]
        assert found.worths[1 << d] == pytest.approx(score.expected(chain, nodes, laws), abs=1e-12)
        without = [one for other, one in enumerate(chains) if other != d]
        assert found.leave_one_out[d] == pytest.approx(found.worths[-1] - priced(without).worths[-1])
    # By the definition: the mean marginal worth over all orders of joining.
    orders = list(itertools.permutations(range(6)))
    for d in range(6):
        joins = (sum(1 << other for other in order[: order.index(d)]) for order in orders)
        mean = math.fsum(found.worths[s | 1 << d] - found.worths[s] for s in joins) / len(orders)
        assert found.shapley[d] == pytest.approx(mean, abs=1e-12)


def test_a_worth_may_be_negative() -> None:
    # The first draft is refused for sure and takes from the residual just what suits the second.
    target, first, second = (np.array(p) for p in ([0.5, 0.5, 0.0], [0.1, 0.0, 0.9], [1.0, 0.0, 0.0]))
    chains = [chain_of(lambda c: first, CONTEXT, [2]), chain_of(lambda c: second, CONTEXT, [0])]
    found = priced(chains, lambda context: target)
    assert found.worths.tolist() == pytest.approx([0.0, 0.0, 0.5, 4 / 9])
    assert found.shapley[0] == pytest.approx(-1 / 36)
    assert found.leave_one_out[0] == pytest.approx(-1 / 18)


def test_of_point_masses_both_games_are_one() -> None:
    greedy = [law(seed, Sampling(temperature=0.0)) for seed in (1, 1, 12, 13)]
    found = priced(drafted(greedy, 0, [3, 2, 3, 1]))
    assert found.coverage == pytest.approx(found.shapley, abs=1e-12)


def test_coverage_puts_an_argmax_above_a_perfect_copy() -> None:
    target = np.array([0.4, 0.35, 0.25])
    sure = np.array([1.0, 0.0, 0.0])
    odds: dict[str, float] = {"coverage": 0.0, "shapley": 0.0}
    for token in range(3):  # the copy samples the target itself, and is kept with certainty
        chains = [chain_of(lambda c: target, CONTEXT, [token]), chain_of(lambda c: sure, CONTEXT, [0])]
        found = priced(chains, lambda context: target)
        odds["coverage"] += target[token] * (found.coverage[0] - found.coverage[1])
        odds["shapley"] += target[token] * (found.shapley[0] - found.shapley[1])
    assert odds["coverage"] < 0 < odds["shapley"]


def test_padding_changes_no_bit() -> None:
    chains = drafted(FIELD[:4], 3, [3] * 4)
    wide = [
        Chain(
            chain.tokens,
            np.pad(chain.support, ((0, 0), (0, 40)), constant_values=-1),
            np.pad(chain.draft_probs, ((0, 0), (0, 40))),
        )
        for chain in chains
    ]
    assert whole(priced(wide).worths) == whole(priced(chains).worths)
    assert priced(wide).shapley == priced(chains).shapley


def test_sums_price_sub_rosters_offline() -> None:
    steps = [priced(drafted(FIELD[:4], seed, [3] * 4)) for seed in range(5)]
    sums = total([whole(step.worths) for step in steps])
    assert sums == total([whole(step.worths) for step in reversed(steps)])
    exact = [math.fsum(step.shapley[d] for step in steps) for d in range(4)]
    assert np.multiply(shapley_of(sums), UNIT) == pytest.approx(exact, abs=1e-7)
    names = ("a", "b", "c", "d")
    assert worth_of(sums, names, ("b", "d")) == sums[0b1010]
    assert worth_of(sums, names, best_roster(sums, names, 2)) == max(
        sums[s] for s in range(16) if s.bit_count() == 2
    )
    assert total([]) == []


def test_equal_drafters_tie_to_the_last_bit() -> None:
    chains = drafted([FIELD[2]] * 3 + [FIELD[0]], 0, [2] * 4)
    values = shapley_of(np.frombuffer(whole(priced(chains).worths), dtype="<i8").tolist())
    assert values[0] == values[1] == values[2]


def test_nobody_drafts() -> None:
    found = priced(drafted(FIELD[:2], 0, [0, 0]))
    assert found.worths.tolist() == [0.0] * 4
    assert found.shapley == found.coverage == (0.0, 0.0)
