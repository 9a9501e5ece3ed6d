"""The rules of a race, proved on small vocabularies: the text's law is the target's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from arena.acceptance import RULES, Enumerator, KeyedChoices, get, merge
from arena.acceptance.enumeration import (
    Independent,
    Law,
    NodeLaws,
    RuleStep,
    Text,
    chain_of,
    drafts_of,
    plain_step,
    text_law,
    total_variation,
)
from arena.acceptance.rule import Remembered, target_prob
from arena.errors import ConfigError
from arena.models.table import TableLaw
from arena.types import Chain, Floats, Sampling

EXACT = 1e-12
WARPS = {
    "plain": Sampling(),
    "zeros": Sampling(top_k=2),
    "nucleus": Sampling(temperature=0.7, top_p=0.8),
    "greedy": Sampling(temperature=0.0),
}


def table(seed: int, sampling: Sampling = Sampling(), vocab: int = 3) -> Law:
    """A law that depends on the last two tokens."""
    source = TableLaw(vocab=vocab, order=2, seed=seed, sharpness=1.0)

    @cache
    def law(context: Text) -> Floats:
        found = source.law(context[-2:], sampling)
        found.setflags(write=False)
        return found

    return law


def field_of(n: int, target: Law, mixed: bool = True) -> Independent:
    """Different drafters; zeros, a point mass and the target itself among the mixed ones."""
    if not mixed:
        return Independent([table(20 + seed) for seed in range(n)])
    laws = [
        table(11),
        table(12, WARPS["zeros"]),
        table(13, WARPS["greedy"]),
        target,
        table(15, WARPS["nucleus"]),
        table(16),
    ]
    return Independent(laws[:n])


def distance(rule: str, target: Law, drafters: Independent, k: int, **options: object) -> float:
    enumerator = Enumerator(lambda owners, depth: sorted(owners, key=lambda d: (d * 5 + depth) % 7))
    step = RuleStep(
        get(rule, **options), target, drafters, k, enumerator=enumerator, ranks=[3, 0, 2, 1, 5, 4]
    )
    plain = plain_step(target)
    return total_variation(text_law((1, 2), k + 1, (), step, plain), text_law((1, 2), k + 1, (), plain))


@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("rule", ["greedy", "speculative", "point_mass"])
def test_chain_rules_are_lossless(rule: str, warp: str) -> None:
    target = table(1, WARPS[warp])
    for drafter in field_of(6, target).laws:
        assert distance(rule, target, Independent([drafter]), 3) < EXACT


@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("order", ["keyed", "standing", "overlap"])
def test_six_different_drafters_at_depth_1(order: str, warp: str) -> None:
    target = table(1, WARPS[warp])
    for mixed in (True, False):
        assert distance("recursive", target, field_of(6, target, mixed), 1, order=order) < EXACT


@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("order", ["keyed", "standing", "overlap"])
def test_three_different_drafters_at_depth_2(order: str, warp: str) -> None:
    target = table(2, WARPS[warp])
    for mixed in (True, False):
        assert distance("recursive", target, field_of(3, target, mixed), 2, order=order) < EXACT


def test_whole_texts_with_an_end_token_and_a_budget() -> None:
    target = table(3)
    for rule, n in [("speculative", 1), ("point_mass", 1), ("greedy", 1), ("recursive", 2)]:
        drafters = Independent(field_of(n, target).laws, eos=(2,))
        step = RuleStep(get(rule), target, drafters, 2, eos=(2,))
        lossless = text_law((0,), 4, (2,), plain_step(target))
        assert total_variation(text_law((0,), 4, (2,), step), lossless) < EXACT


def test_expected_is_the_mean_over_the_choices() -> None:
    target = table(4)
    for drafter in field_of(6, target).laws:
        for tokens in [(0, 1, 2), (2, 2, 0)]:
            if min(drafter((0, *tokens[:k]))[token] for k, token in enumerate(tokens)) == 0:
                continue
            chain = chain_of(drafter, (0,), tokens)
            tree = merge(0, [chain])
            laws = NodeLaws(target, (0,), tree)
            for name in ["greedy", "speculative", "point_mass"]:
                rule = get(name)
                mean = sum(
                    odds * n
                    for odds, n in Enumerator().outcomes(
                        lambda choices, rule=rule, chain=chain, laws=laws: (
                            rule.decide(chain, range(4), laws, choices, 0).n_accepted
                        )
                    )
                )
                assert mean == pytest.approx(rule.expected(chain, range(4), laws), abs=EXACT)


def test_a_roster_of_one_commits_its_verdict() -> None:
    target, drafter = table(5), table(6)
    speculative, recursive = get("speculative"), get("recursive")
    for key in range(200):
        tokens = [(key // 3**k) % 3 for k in range(3)]
        chain = chain_of(drafter, (0,), tokens)
        tree = merge(0, [chain])
        laws = NodeLaws(target, (0,), tree)
        choices = KeyedChoices(key, ["steady"])
        decision = speculative.decide(chain, range(4), laws, choices, 0)
        outcome = recursive.commit(tree, [chain], laws, choices)
        assert len(outcome.path) == decision.n_accepted
        assert outcome.token == choices.draw(decision.next_law(), decision.n_accepted + 1)


def chain(*tokens: int) -> Chain:
    return Chain(np.array(tokens, np.int32), np.array(tokens, np.int32)[:, None], np.ones((len(tokens), 1)))


def test_merge_shares_prefixes_level_by_level() -> None:
    tree = merge(9, [chain(1, 2), chain(), chain(1, 3, 4), chain(5), chain(1, 2, 6)])
    assert tree.tokens.tolist() == [9, 1, 5, 2, 3, 4, 6]
    assert tree.parents.tolist() == [-1, 0, 0, 1, 1, 4, 3]
    assert tree.depths.tolist() == [0, 1, 1, 2, 2, 3, 3]
    assert tree.owners.tolist() == [0b11111, 0b10101, 0b1000, 0b10001, 0b100, 0b100, 0b10000]
    assert tree.nodes.tolist() == [[1, 3, -1], [-1, -1, -1], [1, 4, 5], [2, -1, -1], [1, 3, 6]]


def test_a_field_of_empty_drafts_is_plain_decoding() -> None:
    target = table(7)
    silent: Sequence[Chain] = [chain(), chain()]
    step = RuleStep(get("recursive", measure=True), target, lambda context, k: [(1.0, silent)], 4)
    plain = plain_step(target)
    assert total_variation(text_law((), 3, (), step), text_law((), 3, (), plain)) < EXACT
    assert (step.tally.bound, step.tally.accepted) == (0, 0)


def test_a_padded_sparse_law_is_the_dense_one() -> None:
    target, zeros = table(8), table(9, WARPS["zeros"])
    dense = drafts_of(zeros, (), 2)

    def sparse(one: Chain) -> Chain:
        order = np.argsort(-one.draft_probs, axis=1)
        probs = np.take_along_axis(one.draft_probs, order, axis=1)
        # The pad must not be taken for the last token of the vocabulary.
        return Chain(one.tokens, np.where(probs > 0, order, -1).astype(np.int32), probs)

    for rule in ["speculative", "block", "recursive", "traversal"]:
        steps = [
            RuleStep(get(rule), target, lambda context, k, drafts=drafts: drafts, 2)((), 3)
            for drafts in (
                [(odds, [one]) for odds, one in dense],
                [(odds, [sparse(one)]) for odds, one in dense],
            )
        ]
        assert total_variation(*steps) < EXACT


def test_block_and_traversal_agree_key_by_key() -> None:
    target, drafter = table(5), table(6)
    block, traversal = get("block"), get("traversal")
    for key in range(200):
        chain = chain_of(drafter, (0,), [(key // 3**k) % 3 for k in range(3)])
        tree = merge(0, [chain])
        laws = NodeLaws(target, (0,), tree)
        choices = KeyedChoices(key, ["steady"])
        decision = block.decide(chain, range(4), laws, choices, 0)
        outcome = traversal.commit(tree, [chain], laws, choices)
        assert len(outcome.path) == decision.n_accepted
        assert outcome.token == choices.draw(decision.next_law(), decision.n_accepted + 1)


def test_rules_by_name() -> None:
    assert {name for name, rule in RULES.items() if not rule.in_run} == {"without_replacement", "kseq"}
    assert {name for name, rule in RULES.items() if not rule.lossless} == {
        "top_k_tolerance",
        "typical",
        "argmax_match",
        "margin",
    }
    for name, rule in RULES.items():
        assert (rule.name, get(name).kind) == (name, rule.kind)
        assert rule.source
        assert rule.__doc__
    assert get("recursive", order="overlap").order == "overlap"
    for wrong, match in [
        (lambda: get("speculativ"), "Did you mean 'speculative'"),
        (lambda: get("recursive", ordre="keyed"), "Did you mean 'order'"),
        (lambda: get("traversal", order="overlapp"), "Did you mean 'overlap'"),
        (lambda: get("top_k_tolerance", k=0), "expected 1 or more"),
    ]:
        with pytest.raises(ConfigError, match=match):
            wrong()


def test_remembered_laws_are_asked_once_a_token() -> None:
    asked: list[tuple[int, int]] = []

    class Laws:
        def law(self, node: int) -> Floats:
            return np.array([0.25, 0.75])

        def probs(self, node: int, tokens: np.ndarray) -> Floats:
            asked.extend((node, int(token)) for token in tokens)
            return self.law(node)[tokens] / (1 + node)

        def top(self, node: int, m: int) -> tuple[list[int], list[float], float]:
            return [1], [0.75], 0.25

    kept = Remembered(Laws())
    for _ in range(3):
        assert [target_prob(kept, node, token) for node in (0, 1) for token in (0, 1)] == [
            0.25, 0.75, 0.125, 0.375
        ]  # fmt: skip
    assert asked == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert kept.law(0).tolist() == [0.25, 0.75]
    assert kept.probs(1, np.array([1])).tolist() == [0.375]
    assert kept.top(0, 1) == ([1], [0.75], 0.25)
