"""Exact laws of drafts, steps and texts on small vocabularies, by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from arena.acceptance.bounds import transport_bound
from arena.acceptance.choices import Enumerator
from arena.acceptance.ending import effective_length, settle
from arena.acceptance.rule import ChainRule, TreeRule
from arena.acceptance.tree import merge
from arena.protocols import Choices
from arena.types import Chain, DraftTree, Floats, Ints

Text = tuple[int, ...]
Law = Callable[[Text], Floats]
"""The law of the next token after a context, float64[V]. Cache it: it is asked often."""
Drafts = Iterable[tuple[float, Sequence[Chain]]]
Field = Callable[[Text, int], Drafts]
"""All joint drafts of a field of drafters after a context, at a draft length."""
Step = Callable[[Text, int], Mapping[Text, float]]
"""The law of the tokens that one step commits, after a context, with a budget left."""


class NodeLaws:
    """The target laws of a tree whose verifier is a function of the context."""

    def __init__(self, law: Law, context: Text, tree: DraftTree) -> None:
        self._law = law
        self._contexts: list[Text] = [context]
        for parent, token in zip(tree.parents[1:].tolist(), tree.tokens[1:].tolist(), strict=True):
            self._contexts.append((*self._contexts[parent], token))

    def law(self, node: int) -> Floats:
        """float64[V]."""
        return self._law(self._contexts[node])

    def probs(self, node: int, tokens: Ints) -> Floats:
        """Probabilities of some tokens; 0 where a token is -1."""
        return np.where(tokens >= 0, self.law(node)[tokens], 0.0)

    def top(self, node: int, m: int) -> tuple[Sequence[int], Sequence[float], float]:
        """The m most probable tokens, their mass, and the tail's."""
        law = self.law(node)
        ids = np.argsort(-law, kind="stable")[:m]
        return ids.tolist(), law[ids].tolist(), float(1.0 - law[ids].sum())


def chain_of(law: Law, context: Text, tokens: Sequence[int]) -> Chain:
    """Builds the chain of given tokens with the laws of a drafter that drew them."""
    laws = [law((*context, *tokens[:k])) for k in range(len(tokens))]
    vocab = len(law(context))
    return Chain(
        tokens=np.array(tokens, dtype=np.int32),
        support=np.tile(np.arange(vocab, dtype=np.int32), (len(tokens), 1)),
        draft_probs=np.array(laws, dtype=np.float64).reshape(len(tokens), vocab),
    )


def drafts_of(
    law: Law, context: Text, k: int, eos: Collection[int] = (), stop_below: float = 0.0
) -> list[tuple[float, Chain]]:
    """Enumerates a drafter's chains of k tokens with their odds.

    A chain is shorter where an end token, or one less likely than ``stop_below``, ends it.
    """
    growing: list[tuple[float, Text]] = [(1.0, ())]
    done: list[tuple[float, Text]] = []
    for _ in range(k):
        longer: list[tuple[float, Text]] = []
        for odds, tokens in growing:
            for token, prob in enumerate(law((*context, *tokens)).tolist()):
                if prob > 0:
                    stops = token in eos or prob < stop_below
                    (done if stops else longer).append((odds * prob, (*tokens, token)))
        growing = longer
    return [(odds, chain_of(law, context, tokens)) for odds, tokens in (*done, *growing)]


@dataclass(frozen=True)
class Independent:
    """A field whose drafters draw independently, each from its own law.

    Attributes:
        laws: One a drafter.
        eos: End tokens; a chain stops after one.
        stop_below: A chain stops *after* a token to which its law gave less than this
            (its length may depend on laws and earlier tokens, so this is allowed).
    """

    laws: Sequence[Law]
    eos: Collection[int] = ()
    stop_below: float = 0.0

    def __call__(self, context: Text, k: int) -> Iterator[tuple[float, Sequence[Chain]]]:
        """Enumerates the product of the drafters' chains."""
        each = [drafts_of(law, context, k, self.eos, self.stop_below) for law in self.laws]
        for combination in itertools.product(*each):
            yield math.prod(odds for odds, _ in combination), [chain for _, chain in combination]


@dataclass(frozen=True)
class Distinct:
    """n chains of one drafter whose first tokens were drawn without replacement.

    A chain is empty where the law has no token left. Deeper, the chains are apart, and
    each draws on alone.

    Attributes:
        drafter: The law of them all.
        n: How many.
    """

    drafter: Law
    n: int

    def __call__(self, context: Text, k: int) -> Iterator[tuple[float, Sequence[Chain]]]:
        """Enumerates the ordered draws, then the product of what follows each."""
        law = self.drafter(context) if k else np.zeros(0)
        alive = np.flatnonzero(law > 0).tolist()
        for firsts in itertools.permutations(alive, min(self.n, len(alive))):
            odds, left = 1.0, 1.0
            for token in firsts:
                odds *= float(law[token]) / left
                left -= float(law[token])
            rest = [drafts_of(self.drafter, (*context, token), k - 1) for token in firsts]
            for combination in itertools.product(*rest):
                chains = [
                    chain_of(self.drafter, context, (token, *chain.tokens.tolist()))
                    for token, (_, chain) in zip(firsts, combination, strict=True)
                ]
                chains += [chain_of(self.drafter, context, ())] * (self.n - len(chains))
                yield odds * math.prod(odds for odds, _ in combination), chains


@dataclass
class Tally:
    """What a rule did over all steps that were enumerated with it.

    Attributes:
        steps: How many steps.
        accepted: Expected accepted tokens a step, summed over the steps.
        bound: Expected sum of the transport bounds of the nodes visited, summed.
    """

    steps: int = 0
    accepted: float = 0.0
    bound: float = 0.0


@dataclass(frozen=True)
class RuleStep:
    """One step of speculative decoding under a rule, as an exact law over commits.

    Attributes:
        rule: A chain rule (then the field has one drafter) or a tree rule.
        target: The verifier's law.
        drafters: The field.
        k: Draft length.
        eos: End tokens.
        enumerator: Drives the rule's choices.
        ranks: Standings of the drafters.
        tally: Sums what happened.
    """

    rule: ChainRule | TreeRule
    target: Law
    drafters: Field
    k: int
    eos: Collection[int] = ()
    enumerator: Enumerator = field(default_factory=Enumerator)
    ranks: Sequence[int] | None = None
    tally: Tally = field(default_factory=Tally)

    def __call__(self, context: Text, remaining: int) -> dict[Text, float]:
        """Sums over every draft and every choice of the rule."""
        law: dict[Text, float] = {}
        bounds: dict[tuple[Text, tuple[int, ...]], float] = {}
        self.tally.steps += 1
        for draft_odds, chains in self.drafters(context, effective_length(self.k, remaining)):
            tree = merge(context[-1] if context else 0, chains)
            play = partial(self._play, tree, chains, NodeLaws(self.target, context, tree))
            for odds, (path, token) in self.enumerator.outcomes(play):
                weight = draft_odds * odds
                tokens, n_accepted, _ = settle(path, token, self.eos, remaining)
                law[tokens] = law.get(tokens, 0.0) + weight
                self.tally.accepted += weight * n_accepted
                if self.rule.bounded:
                    self.tally.bound += weight * self._bound(context, chains, path, bounds)
        return law

    def _play(
        self, tree: DraftTree, chains: Sequence[Chain], laws: NodeLaws, choices: Choices
    ) -> tuple[Text, int]:
        if isinstance(self.rule, TreeRule):
            outcome = self.rule.commit(tree, chains, laws, choices, self.ranks)
            return tuple(tree.tokens[list(outcome.path)].tolist()), outcome.token
        (chain,) = chains
        nodes = [0, *tree.nodes[0, : len(chain)].tolist()]
        decision = self.rule.decide(chain, nodes, laws, choices, 0)
        token = choices.draw(decision.next_law(), decision.n_accepted + 1)
        return tuple(chain.tokens[: decision.n_accepted].tolist()), token

    def _bound(
        self,
        context: Text,
        chains: Sequence[Chain],
        path: Text,
        known: dict[tuple[Text, tuple[int, ...]], float],
    ) -> float:
        """Sums the bounds of the nodes visited on a path; they depend on laws and owners only."""
        total, alive = 0.0, tuple(range(len(chains)))
        for depth in range(len(path) + 1):
            alive = tuple(drafter for drafter in alive if len(chains[drafter]) > depth)
            at = path[:depth], alive
            if at not in known:
                law = self.target((*context, *path[:depth]))
                known[at] = transport_bound(law, [chains[drafter] for drafter in alive], depth)
            total += known[at]
            if depth < len(path):
                alive = tuple(d for d in alive if chains[d].tokens[depth] == path[depth])
        return total


def plain_step(target: Law) -> Step:
    """Gives plain decoding: one token a step, from the target's law."""

    def step(context: Text, remaining: int) -> dict[Text, float]:
        return {(token,): prob for token, prob in enumerate(target(context).tolist()) if prob > 0}

    return step


def text_law(
    context: Text, budget: int, eos: Collection[int], first: Step, later: Step | None = None
) -> dict[Text, float]:
    """Gives the law of a whole text, ended by an end token or by the budget.

    Args:
        context: The prompt.
        budget: Largest number of tokens.
        eos: End tokens.
        first: The first step.
        later: All other steps; ``first`` when absent.
    """
    open_texts: dict[Text, float] = {(): 1.0}
    done: dict[Text, float] = {}
    while open_texts:
        # Shortest first, so that every way to reach a text is summed before it goes on.
        text = min(open_texts, key=len)
        weight = open_texts.pop(text)
        step = later if text and later is not None else first
        for tokens, prob in step((*context, *text), budget - len(text)).items():
            longer = (*text, *tokens)
            ended = len(longer) >= budget or longer[-1] in eos
            into = done if ended else open_texts
            into[longer] = into.get(longer, 0.0) + weight * prob
    return done


def total_variation(one: Mapping[Text, float], other: Mapping[Text, float]) -> float:
    """Gives half the L1 distance of two laws over texts."""
    return 0.5 * sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in one.keys() | other.keys())
