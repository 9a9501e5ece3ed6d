"""Replay's law against the live one, by exact enumeration, and the goldens that hang on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest

from arena.acceptance import get
from arena.acceptance.enumeration import (
    Independent,
    Law,
    RuleStep,
    Step,
    Text,
    chain_of,
    plain_step,
    text_law,
)
from arena.engines.forcing import Along, FromStarts, odds_of
from arena.engines.replay import Odds, Shape, chances, expect, outcomes
from arena.errors import DrafterFault
from arena.protocols import Capabilities
from arena.sampling import normalise
from arena.traces import Trace
from arena.types import Chain
from drafters.copyist import Copyist

Blocks = tuple[int, ...]
Joint = dict[tuple[Text, Blocks], float]


def table(seed: int, vocab: int = 3, order: int = 2) -> Law:
    """A random law that depends on the last tokens of a context."""
    known: dict[Text, np.ndarray] = {}

    def law(context: Text) -> np.ndarray:
        key = context[-order:]
        if key not in known:
            known[key] = np.random.default_rng([seed, len(key), *(t + 1 for t in key)]).dirichlet(
                np.ones(vocab)
            )
        return known[key]

    return law


def live(step: Step, budget: int, eos: Sequence[int]) -> Joint:
    """The joint law of text and block lengths of a live run."""
    open_runs: Joint = {((), ()): 1.0}
    done: Joint = {}
    while open_runs:
        at = min(open_runs, key=lambda one: len(one[0]))
        weight, (text, blocks) = open_runs.pop(at), at
        for tokens, prob in step(text, budget - len(text)).items():
            run = (*text, *tokens), (*blocks, len(tokens))
            into = done if len(run[0]) >= budget or run[0][-1] in eos else open_runs
            into[run] = into.get(run, 0.0) + weight * prob
    return done


def trace(text: Text, target: Law, budget: int, eos: Sequence[int], prompt: Text = ()) -> Trace:
    logprobs = [math.log(target((*prompt, *text[:i]))[token]) for i, token in enumerate(text)]
    stopped = text[-1] in eos
    return Trace(
        "x", prompt, text, tuple(logprobs), "sampled", finish="stop" if stopped else "length",
        end_logged=stopped, max_tokens=budget, eos=tuple(eos),
    )  # fmt: skip


def along(one: Trace, drafter: Law) -> Along:
    with np.errstate(divide="ignore"):
        scores = np.log([drafter(one.tokens[:i])[token] for i, token in enumerate(one.tokens)])
    return Along(chances(one, scores), [token in one.eos for token in one.tokens])


def shape(one: Trace) -> Shape:
    return Shape(len(one.tokens), 0, one.max_tokens, one.finish == "stop")


def replayed(
    target: Law, budget: int, eos: Sequence[int], k: int, odds: Callable[[Trace], Odds], prompt: Text = ()
) -> Joint:
    """The same joint law, from plain text alone."""
    found: Joint = {}
    for text, weight in text_law(prompt, budget, eos, plain_step(target)).items():
        one = trace(text, target, budget, eos, prompt)
        for blocks, prob in walks(shape(one), odds(one), k, 0):
            found[text, blocks] = found.get((text, blocks), 0.0) + weight * prob
    return found


def walks(of: Shape, odds: Odds, k: int, start: int) -> Iterator[tuple[Blocks, float]]:
    for way in outcomes(of, start, k, odds.at(start, of.asked(start, k)).chances):
        if way.ended or start + way.length >= of.length:
            yield (way.length,), way.prob
        else:
            for rest, prob in walks(of, odds, k, start + way.length):
                yield (way.length, *rest), way.prob * prob


def apart(one: Joint, other: Joint) -> float:
    return max(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys())


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("eos", [(), (0,)])
@pytest.mark.parametrize("seed", [1, 2])
def test_live_and_replay_agree_in_the_joint_law_of_blocks_and_text(k, eos, seed):
    target, drafter, budget = table(seed), table(seed + 10), 5
    step = RuleStep(get("speculative"), target, Independent([drafter], eos), k, eos)
    mine = live(step, budget, eos)
    other = replayed(target, budget, eos, k, lambda one: along(one, drafter))
    assert sum(other.values()) == pytest.approx(1, abs=1e-12)
    largest = apart(mine, other)
    print(f"K={k} eos={eos}: {len(mine)} outcomes, largest difference {largest:.1e}")
    assert largest < 1e-12


def test_a_drafter_that_stops_after_an_unlikely_token_agrees_too():
    target, drafter, k, budget = table(3), table(4), 3, 5
    step = RuleStep(get("speculative"), target, Independent([drafter], (), 0.3), k, ())

    def odds(one: Trace) -> Along:
        found = along(one, drafter)
        stops = [drafter(one.tokens[:i])[token] < 0.3 for i, token in enumerate(one.tokens)]
        return Along(found.values, stops)

    assert apart(live(step, budget, ()), replayed(target, budget, (), k, odds)) < 1e-12


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("eos", [(), (0,)])
def test_a_draft_that_depends_on_where_its_block_starts_agrees_too(k, eos):
    target, budget, prompt = table(5), 5, (1, 2, 0, 1, 1)
    copyist = Copyist(name="copy", prefer="earliest")

    def field(context: Text, length: int) -> list[tuple[float, list[Chain]]]:
        copied = copyist._copy(np.array(context, dtype=np.int32), length).tolist()
        ends = [i for i, token in enumerate(copied) if token in eos]
        copied = copied[: ends[0] + 1] if ends else copied
        tokens = np.array(copied, dtype=np.int32)
        sure = normalise(np.ones((len(tokens), 1), dtype=np.float32))
        return [(1.0, [Chain(tokens, tokens[:, None], sure)])]

    step = RuleStep(get("speculative"), target, field, k, eos)
    mine = live(lambda text, left: step((*prompt, *text), left), budget, eos)
    other = replayed(target, budget, eos, k, lambda one: FromStarts(copyist, "copy", one, k, "arena"), prompt)
    assert apart(mine, other) < 1e-12


@pytest.mark.parametrize("scores", [[math.nan, -1.0], [-1.0], [0.5, -1.0]])
@pytest.mark.parametrize("start_dependent", [False, True])
def test_a_drafter_is_at_fault_for_scores_that_cannot_be(scores, start_dependent):
    class Wrong(Copyist):
        capabilities = Capabilities(False, can_score=True, start_dependent=start_dependent)

        def score(self, context, output, sampling):
            return np.array(scores)

    one = trace((0, 1), table(1), 2, ())
    with pytest.raises(DrafterFault, match="scored 2 tokens with"):
        odds_of("wrong", Wrong(name="wrong"), one, 2, "arena").at(0, 2)


def starts_of(blocks: Blocks) -> list[int]:
    return [sum(blocks[:i]) for i in range(len(blocks))]


@pytest.mark.parametrize(("count", "vocab", "k"), [(6, 2, 1), (3, 2, 2)])
def test_live_verdicts_equal_replay_at_the_joint_starts_in_expectation(count, vocab, k):
    """Every drafter of a roster, judged alone at the steps that the whole roster's commits made."""
    target, budget = table(20, vocab), 4
    laws = [table(30 + d, vocab) for d in range(count)]
    played = live(RuleStep(get("recursive"), target, Independent(laws), k), budget, ())
    for drafter in laws:
        alone = RuleStep(get("speculative"), target, Independent([drafter]), k)
        verdicts = replay = steps = 0.0
        for (text, blocks), weight in played.items():
            starts = starts_of(blocks)
            steps += weight * len(starts)
            for start in starts:
                verdicts += weight * kept(alone, text[:start], budget - start)
            one = trace(text, target, budget, ())
            replay += weight * expect(shape(one), along(one, drafter), k, starts).kept
        assert replay / steps == pytest.approx(verdicts / steps, abs=1e-12)


def kept(step: RuleStep, context: Text, left: int) -> float:
    """Expected tokens that a chain's own test keeps at one context."""
    before = step.tally.accepted
    step(context, left)
    return step.tally.accepted - before


def test_a_roster_of_one_commits_what_it_scores():
    target, drafter, k, budget = table(6), table(7), 2, 5
    played = live(RuleStep(get("recursive"), target, Independent([drafter]), k), budget, ())
    own = replayed(target, budget, (), k, lambda one: along(one, drafter))
    assert apart(played, own) < 1e-12


# T, A, B, C: rows are the law after token 0, after token 1, and at the start (last row).
FLIP = [
    [[0.5, 0.5], [0.0, 1.0], [0.8, 0.2]],
    [[0.8, 0.2], [0.7, 0.3], [0.9, 0.1]],
    [[0.8, 0.2], [0.4, 0.6], [0.4, 0.6]],
    [[0.3, 0.7], [0.1, 0.9], [0.3, 0.7]],
]


def rows(law: list[list[float]]) -> Law:
    found = np.array(law)
    return lambda context: found[context[-1] if context else 2]


def test_joint_and_own_starts_can_rank_two_drafters_differently():
    target, a, b, c = (rows(law) for law in FLIP)
    k, budget = 2, 5
    texts = text_law((), budget, (), plain_step(target))

    def own(drafter: Law) -> float:
        kept = steps = 0.0
        for text, weight in texts.items():
            one = trace(text, target, budget, ())
            tally = expect(shape(one), along(one, drafter), k)
            kept, steps = kept + weight * tally.kept, steps + weight * tally.steps
        return kept / steps

    played = live(RuleStep(get("recursive"), target, Independent([a, b, c]), k), budget, ())

    def joint(drafter: Law) -> float:
        kept = steps = 0.0
        for (text, blocks), weight in played.items():
            one = trace(text, target, budget, ())
            tally = expect(shape(one), along(one, drafter), k, starts_of(blocks))
            kept, steps = kept + weight * tally.kept, steps + weight * tally.steps
        return kept / steps

    assert own(a) == pytest.approx(0.67802, abs=1e-5)
    assert own(b) == pytest.approx(0.75883, abs=1e-5)
    assert joint(a) == pytest.approx(0.91576, abs=1e-5)
    assert joint(b) == pytest.approx(0.82385, abs=1e-5)


def test_averaging_products_of_overlaps_over_the_text_is_biased():
    """The truth is 19/8 tokens a step; the tempting average gives 37/16."""
    half = Fraction(1, 2)
    drafter = {(): (Fraction(3, 4), Fraction(1, 4)), (0,): (half, half), (1,): (Fraction(1), Fraction(0))}

    def draft(context: Text) -> np.ndarray:
        return np.array([float(x) for x in drafter[context[-1:]]])

    def target(context: Text) -> np.ndarray:
        return np.array([0.5, 0.5])

    truth = tempting = 1.0
    for text, weight in text_law((), 3, (), plain_step(target)).items():
        one = trace(text, target, 3, ())
        truth += weight * expect(shape(one), along(one, draft), 2, [0]).kept
        overlap = [np.minimum(target(text[:i]), draft(text[:i])).sum() for i in range(2)]
        tempting += weight * (overlap[0] + overlap[0] * overlap[1])
    assert truth == pytest.approx(float(Fraction(19, 8)), abs=1e-12)
    assert tempting == pytest.approx(float(Fraction(37, 16)), abs=1e-12)


def test_the_budget_counts_not_the_texts_own_length():
    """A text that ended early was still offered full drafts: cutting them at its end would leak it."""
    one = trace((1, 2, 0), table(1), 10, (0,))
    sure = Along([1.0, 1.0, 1.0], [False, False, True])
    tally = expect(shape(one), sure, 2)
    assert tally.offered == 2  # the end token came as the bonus of the only step
    later = expect(shape(one), Along([0.0, 0.5, 0.5], [False, False, True]), 2)
    assert later.steps == 1 + 1 + 0.5
    assert later.offered == pytest.approx(2 + (0.75 * 2 + 0.25 * 2) + 0.5 * (0.5 * 2 + 0.5 * 1))


def test_the_first_token_of_a_prefill_is_neither_drafted_nor_a_step():
    tally = expect(Shape(4, 1, 4), Along([1.0] * 4, [False] * 4), 8)
    assert (tally.steps, tally.offered, tally.kept) == (1.0, 2.0, 2.0)


def test_an_engine_asks_for_k_tokens_whatever_is_left():
    tally = expect(Shape(4, 1, 4, accounting="engine"), Along([1.0] * 4, [False] * 4), 8)
    assert (tally.steps, tally.offered, tally.kept) == (1.0, 8.0, 3.0)


def test_the_chain_of_a_law_is_what_the_audit_enumerates():
    """Guards the helper above: the score of a text is the probability of its chain."""
    drafter = table(9)
    chain = chain_of(drafter, (), (1, 0, 2))
    assert math.prod(chain.prob(i) for i in range(3)) == pytest.approx(
        math.prod(drafter((1, 0, 2)[:i])[token] for i, token in enumerate((1, 0, 2)))
    )
