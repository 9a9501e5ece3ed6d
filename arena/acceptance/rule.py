"""The two shapes of a verification rule, and what every rule says about itself.

A chain rule judges one drafter's chain alone (it makes verdicts); a tree rule
judges the merged chains of all drafters (it makes text). Neither draws a random
number: chance enters by :class:`arena.protocols.Choices` only, so that the
enumerator of the audit runs the very code that runs in a race.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from arena.acceptance.outcome import Decision, Outcome
from arena.protocols import Choices, TargetLaws
from arena.types import Chain, DraftTree, Floats, Ints


class Rule(ABC):
    """What a rule says about itself.

    Attributes:
        name: Its name in the registry and in an experiment.
        kind: ``"chain"`` or ``"tree"``.
        lossless: Claims that the text's law is exactly the target's; the audit
            proves the claim or refutes it.
        needs_draft_law: Whether it divides by the draft law (else any proposal will
            do, whatever made it).
        in_run: Whether an experiment may use it; False for rules that need several
            draws from one drafter, which exist for the audit's comparison.
        bounded: Whether the optimal-transport bound of a node limits it.
        source: Paper and equation.
    """

    name: ClassVar[str]
    kind: ClassVar[Literal["chain", "tree"]]
    lossless: ClassVar[bool]
    needs_draft_law: ClassVar[bool]
    in_run: ClassVar[bool] = True
    bounded: ClassVar[bool]
    source: ClassVar[str]


class ChainRule(Rule):
    """Judges one chain. ``nodes[k]`` is the tree's node of the k-th token, ``nodes[0]`` the root."""

    kind = "chain"

    @abstractmethod
    def decide(
        self, chain: Chain, nodes: Sequence[int], laws: TargetLaws, choices: Choices, drafter: int
    ) -> Decision:
        """Tests a chain.

        Args:
            chain: The draft, L tokens, L >= 0.
            nodes: L + 1 nodes; the law at ``nodes[k]`` judges token k + 1.
            laws: The target laws of the tree.
            choices: Where chance comes from; asked with depths 1..L.
            drafter: Index of the drafter, for ``choices``.
        """

    @abstractmethod
    def expected(self, chain: Chain, nodes: Sequence[int], laws: TargetLaws) -> float:
        """Gives the expectation of ``n_accepted`` given the draft."""


class TokenRule(ChainRule):
    """A chain rule that tests tokens one by one and stops at the first refusal."""

    @abstractmethod
    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        """Gives the probability of keeping token ``k`` (from 0), judged by the law at ``node``."""

    def correction(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> Floats:
        """Gives the law of the token that replaces a refused one; here the target's."""
        return laws.law(node)

    def decide(
        self, chain: Chain, nodes: Sequence[int], laws: TargetLaws, choices: Choices, drafter: int
    ) -> Decision:
        """Keeps tokens up to the first refusal, then a correction; all kept: a bonus."""
        for k in range(len(chain)):
            if not choices.accept(self.chance(chain, k, nodes[k], laws), k + 1, drafter):
                return Decision(k, partial(self.correction, chain, k, nodes[k], laws))
        return Decision(len(chain), partial(laws.law, nodes[len(chain)]))

    def expected(self, chain: Chain, nodes: Sequence[int], laws: TargetLaws) -> float:
        """Sums over k the product of the chances of tokens 1..k."""
        live, total = 1.0, 0.0
        for k in range(len(chain)):
            live *= self.chance(chain, k, nodes[k], laws)
            if live == 0:
                break
            total += live
        return total


class TreeRule(Rule):
    """Judges the merged chains of all drafters."""

    kind = "tree"

    @abstractmethod
    def commit(
        self,
        tree: DraftTree,
        chains: Sequence[Chain],
        laws: TargetLaws,
        choices: Choices,
        ranks: Sequence[int] | None = None,
    ) -> Outcome:
        """Chooses an accepted path and the token after it.

        Args:
            tree: ``merge`` of ``chains``.
            chains: One chain a drafter, of any length, 0 included.
            laws: The target laws of the tree.
            choices: Where chance comes from.
            ranks: Standing of each drafter, 0 the best; None where there is none yet.
        """


class Remembered:
    """Target laws that remember what single tokens have: drafters share nodes, and rules ask again."""

    def __init__(self, laws: TargetLaws) -> None:
        self._laws = laws
        self._seen: dict[tuple[int, int], float] = {}

    def law(self, node: int) -> Floats:
        """As the laws themselves."""
        return self._laws.law(node)

    def probs(self, node: int, tokens: Ints) -> Floats:
        """As the laws themselves."""
        return self._laws.probs(node, tokens)

    def top(self, node: int, m: int) -> tuple[Sequence[int], Sequence[float], float]:
        """As the laws themselves."""
        return self._laws.top(node, m)

    def prob(self, node: int, token: int) -> float:
        """The probability of one token at a node."""
        found = self._seen.get((node, token))
        if found is None:
            found = self._seen[node, token] = target_prob(self._laws, node, token)
        return found


def target_prob(laws: TargetLaws, node: int, token: int) -> float:
    """Gives the target's probability of one token at a node."""
    if isinstance(laws, Remembered):
        return laws.prob(node, token)
    return float(laws.probs(node, np.array([token], dtype=np.int32))[0])


def ratio(target_prob: float, draft_prob: float) -> float:
    """Gives min(1, target_prob / draft_prob); 0 for a token that its own law excludes."""
    return min(1.0, target_prob / draft_prob) if draft_prob > 0 else 0.0
