"""One lane-step judged: drafts in, commit and verdicts out. Pure; no model, no actor.

``rule.score`` tests every drafter's chain alone at this context; ``rule.commit``
makes the text. Both read the same target laws and the same keyed uniforms.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from arena import seeding
from arena.acceptance import ChainRule, TreeRule
from arena.acceptance.choices import KeyedChoices
from arena.acceptance.contribution import contribution, whole
from arena.acceptance.ending import offered, settle, truncate_at_end
from arena.acceptance.rule import Remembered, target_prob
from arena.acceptance.share import chain_share
from arena.acceptance.tree import Recursive, merge, ordered
from arena.diversity import similarities
from arena.protocols import Choices, TargetLaws
from arena.sampling import normalise
from arena.types import (
    Chain,
    Commit,
    Draft,
    DraftTree,
    Feedback,
    FieldStep,
    LaneStep,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The pair of rules that a run is played by, and the standings that may order them.

    ``measure`` asks for a chain rule's share of the bound; a tree rule has its own option.
    """

    score: ChainRule
    commit: ChainRule | TreeRule
    ranks: Mapping[str, int] | None = None
    contribution: bool = False
    measure: bool = False

    def standing(self, names: Sequence[str]) -> list[int] | None:
        """The rank of each drafter named; None where there are no standings yet."""
        return None if self.ranks is None else [self.ranks[name] for name in names]


@dataclass(frozen=True, slots=True)
class LaneDrafts:
    """All drafts of one lane, by drafter in the order of sorted names, and their tree."""

    step: LaneStep
    k: int
    remaining: int
    names: tuple[str, ...]
    chains: tuple[Chain, ...]
    tree: DraftTree

    def nodes(self, drafter: int) -> list[int]:
        """Root, then the node of each token of a drafter's chain."""
        return [0, *self.tree.nodes[drafter, : len(self.chains[drafter])].tolist()]


@dataclass(frozen=True, slots=True)
class LaneJudgement:
    """What is decided at one lane-step; ``path`` lists the accepted nodes to keep."""

    commit: Commit
    verdicts: tuple[Verdict, ...]
    field: FieldStep
    path: tuple[int, ...]


def chain_of(draft: Draft, row: int, k: int, eos: Sequence[int]) -> Chain:
    """Takes one lane's chain out of a draft, cut to K_eff and at its first end token."""
    length = min(int(draft.lengths[row]), k)
    probs = normalise(draft.probs[row, :length])
    return truncate_at_end(Chain(draft.tokens[row, :length], draft.support[row, :length], probs), eos)


def gather(
    step: LaneStep, k: int, remaining: int, root: int, names: Sequence[str], chains: Sequence[Chain]
) -> LaneDrafts:
    """Merges the chains of one lane into a tree below its last committed token."""
    return LaneDrafts(step, k, remaining, tuple(names), tuple(chains), merge(root, chains))


def judge(drafts: LaneDrafts, laws: TargetLaws, rules: Rules, eos: Sequence[int], key: int) -> LaneJudgement:
    """Judges one lane-step.

    Args:
        drafts: The lane's chains and tree.
        laws: The target law at every node.
        rules: Score and commit rule.
        eos: Tokens that end a text.
        key: Folded from seed, generation and round.

    Returns:
        The commit, one verdict a drafter, and what the step says of the field.
    """
    laws = Remembered(laws)
    step_key = int(seeding.fold(key, drafts.step.prompt_id, drafts.step.start))
    choices = KeyedChoices(step_key, drafts.names)
    path, token, reached, bound = _commit(drafts, laws, rules, choices, step_key)
    drafted = [int(drafts.tree.tokens[node]) for node in path]
    tokens, n_accepted, finish = settle(drafted, token, eos, drafts.remaining)
    kept = path[:n_accepted]
    commit = Commit(
        step=drafts.step,
        tokens=tuple(tokens),
        logprobs=_logprobs(laws, (0, *path), tokens),
        n_accepted=n_accepted,
        finish=finish,
    )
    verdicts = tuple(
        _verdict(drafts, d, laws, rules.score, choices, eos, commit.tokens) for d in range(len(drafts.names))
    )
    field = FieldStep(drafts.step, _similarity(drafts), _coverage(drafts, laws), reached, bound)
    if rules.contribution and drafts.names:
        field = _priced(field, drafts, laws, verdicts, rules, choices)
    return LaneJudgement(commit, verdicts, field, tuple(kept))


def _commit(
    drafts: LaneDrafts, laws: TargetLaws, rules: Rules, choices: Choices, step_key: int
) -> tuple[tuple[int, ...], int, float, float]:
    rule = rules.commit
    if isinstance(rule, TreeRule):
        outcome = rule.commit(drafts.tree, drafts.chains, laws, choices, rules.standing(drafts.names))
        return outcome.path, outcome.token, outcome.reached, outcome.bound
    if not drafts.names:
        return (), choices.draw(laws.law(0), 1), np.nan, np.nan
    # A chain rule commits one drafter's chain: one of those alive, keyed a lane-step.
    words = np.array([seeding.name_word(name) for name in drafts.names], dtype=np.uint64)
    speaker = int(np.argmin(seeding.uniform(step_key, words, "speaker")))
    nodes = drafts.nodes(speaker)
    chain = drafts.chains[speaker]
    decision = rule.decide(chain, nodes, laws, choices, speaker)
    n = decision.n_accepted
    reached, bound = chain_share(rule, chain, nodes, laws, n) if rules.measure else (np.nan, np.nan)
    # Depth n + 1, as tree rules draw: one drafter gives one text under either kind of rule.
    return tuple(nodes[1 : n + 1]), choices.draw(decision.next_law(), n + 1), reached, bound


def _logprobs(laws: TargetLaws, nodes: Sequence[int], tokens: Sequence[int]) -> tuple[float, ...]:
    probs = [target_prob(laws, node, token) for node, token in zip(nodes, tokens, strict=False)]
    with np.errstate(divide="ignore"):  # a lossy rule may commit what the target never says
        return tuple(float(np.log(prob)) for prob in probs)


def _verdict(
    drafts: LaneDrafts,
    d: int,
    laws: TargetLaws,
    rule: ChainRule,
    choices: Choices,
    eos: Sequence[int],
    committed: Sequence[int],
) -> Verdict:
    chain, nodes = drafts.chains[d], drafts.nodes(d)
    n_accepted = rule.decide(chain, nodes, laws, choices, d).n_accepted
    tokens = tuple(int(token) for token in chain.tokens)
    matched = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(tokens, committed, strict=False))
    )
    return Verdict(
        step=drafts.step,
        drafter=drafts.names[d],
        n_offered=offered(drafts.k, tokens[:n_accepted], eos),
        n_drafted=len(chain),  # a chain stops at its first end token: none is drafted beyond it
        n_accepted=n_accepted,
        n_matched=matched,
        expected_accepted=float(rule.expected(chain, nodes, laws)),
        tokens=tokens,
        target_probs=tuple(target_prob(laws, nodes[k], token) for k, token in enumerate(tokens)),
        draft_probs=tuple(chain.prob(k) for k in range(len(chain))),
    )


def _similarity(drafts: LaneDrafts) -> tuple[float, ...]:
    empty = (np.array([-1], dtype=np.int32), np.array([1.0]))
    return similarities([(c.support[0], c.draft_probs[0]) if len(c) else empty for c in drafts.chains])


def _priced(
    field: FieldStep,
    drafts: LaneDrafts,
    laws: TargetLaws,
    verdicts: Sequence[Verdict],
    rules: Rules,
    choices: Choices,
) -> FieldStep:
    """Adds what every sub-roster is worth here, and each drafter's share; in the order that is played."""
    order = rules.commit.order if isinstance(rules.commit, Recursive) else "keyed"
    ranks = rules.standing(drafts.names)

    def ordering(drafters: Sequence[int], node: int, depth: int) -> Sequence[int]:
        return ordered(order, drafters, drafts.chains, laws, node, depth, choices, ranks)

    found = contribution(
        drafts.tree,
        drafts.chains,
        laws,
        [verdict.target_probs for verdict in verdicts],
        [verdict.draft_probs for verdict in verdicts],
        ordering,
    )
    shares = zip(found.shapley, found.leave_one_out, found.coverage, strict=True)
    return replace(field, worths=whole(found.worths), contributions=tuple(shares))


def _coverage(drafts: LaneDrafts, laws: TargetLaws) -> float:
    first = np.unique([chain.tokens[0] for chain in drafts.chains if len(chain)]).astype(np.int32)
    return float(min(1.0, laws.probs(0, first).sum()))


def feedback(judgement: LaneJudgement, context: Sequence[int], laws: TargetLaws, m: int) -> Feedback:
    """Gives the raw target law at the committed positions (top m and the tail's mass)."""
    commit = judgement.commit
    nodes = (0, *judgement.path)[: len(commit.tokens)]
    tops = [laws.top(node, m) for node in nodes]
    return Feedback(
        step=commit.step,
        context=tuple(context),
        tokens=commit.tokens,
        support=np.array([top[0] for top in tops], dtype=np.int32),
        target_probs=np.array([top[1] for top in tops], dtype=np.float32),
        tail=np.array([top[2] for top in tops], dtype=np.float32),
    )
