"""Deliberately broken builds. Each is a fault that somebody shipped, or nearly did."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from arena.acceptance.block import Block, excess_mass
from arena.acceptance.chain import Speculative
from arena.acceptance.enumeration import Law, Text, chain_of
from arena.acceptance.outcome import Outcome
from arena.acceptance.residual import Residual
from arena.acceptance.rule import TreeRule, ratio, target_prob
from arena.protocols import Choices, TargetLaws
from arena.types import Chain, DraftTree, Floats

NAN = float("nan")


@dataclass(frozen=True)
class UncappedBlock(Block):
    """s_i = s_{i-1} p / q without the cap at 1."""

    def _walk(self, chain: Chain, nodes: Sequence[int], laws: TargetLaws) -> tuple[list[float], list[float]]:
        scales, stops = [1.0], [1.0]
        for k in range(len(chain)):
            scales.append(scales[-1] * target_prob(laws, nodes[k], int(chain.tokens[k])) / chain.prob(k))
            if k + 1 == len(chain):
                stops.append(min(1.0, scales[-1]))
                continue
            support, draft_probs = chain.support[k + 1], chain.draft_probs[k + 1]
            excess = excess_mass(scales[-1], laws.probs(nodes[k + 1], support), draft_probs)
            below = excess + 1.0 - scales[-1]
            stops.append(1.0 if below <= excess else excess / below)
        return scales, stops


@dataclass(frozen=True)
class TokenwiseBlock(Block):
    """The lengths of block verification, but the residual of token-by-token verification."""

    @staticmethod
    def _next(chain: Chain, nodes: Sequence[int], laws: TargetLaws, n: int, scale: float) -> Floats:
        return Block._next(chain, nodes, laws, n, 1.0)


@dataclass(frozen=True)
class OtherTemperature(Speculative):
    """The ratio is computed at temperature 1.25 when the text is drawn at 1."""

    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        law = laws.law(node) ** 0.8
        return ratio(float(law[chain.tokens[k]] / law.sum()), chain.prob(k))


@dataclass(frozen=True)
class ForgottenResidual(Speculative):
    """A refused token is replaced from p itself."""

    def correction(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> Floats:
        return laws.law(node)


class Walk(TreeRule):
    """Walks down a tree as recursive rejection does; ``node`` is where the faults are."""

    name = "broken"
    lossless = True
    needs_draft_law = True
    bounded = True
    source = "none"

    def commit(
        self,
        tree: DraftTree,
        chains: Sequence[Chain],
        laws: TargetLaws,
        choices: Choices,
        ranks: Sequence[int] | None = None,
    ) -> Outcome:
        path: list[int] = []
        node, depth, alive = 0, 0, list(range(len(chains)))
        while True:
            alive = [drafter for drafter in alive if len(chains[drafter]) > depth]
            kept, token = self.node(laws.law(node), alive, chains, depth, choices)
            if kept is None:
                return Outcome(tuple(path), token, NAN, NAN)
            node = int(tree.nodes[kept, depth])
            path.append(node)
            alive = [drafter for drafter in alive if tree.nodes[drafter, depth] == node]
            depth += 1

    def node(
        self, law: Floats, alive: Sequence[int], chains: Sequence[Chain], depth: int, choices: Choices
    ) -> tuple[int | None, int]:
        residual = Residual(law)
        for drafter in self.order(law, alive, chains, depth):
            chain = chains[drafter]
            chance = ratio(residual.prob(int(chain.tokens[depth])), chain.prob(depth))
            if choices.accept(chance, depth + 1, drafter):
                return drafter, -1
            residual.subtract(chain.support[depth], chain.draft_probs[depth])
        return None, choices.draw(residual.law(), depth + 1)

    def order(self, law: Floats, alive: Sequence[int], chains: Sequence[Chain], depth: int) -> Sequence[int]:
        return alive


class StaleResidual(Walk):
    """Every sibling is tested against p; only the last refused law is subtracted."""

    def node(
        self, law: Floats, alive: Sequence[int], chains: Sequence[Chain], depth: int, choices: Choices
    ) -> tuple[int | None, int]:
        residual = Residual(law)
        for drafter in alive:
            chain, residual = chains[drafter], Residual(law)
            chance = ratio(residual.prob(int(chain.tokens[depth])), chain.prob(depth))
            if choices.accept(chance, depth + 1, drafter):
                return drafter, -1
            residual.subtract(chain.support[depth], chain.draft_probs[depth])
        return None, choices.draw(residual.law(), depth + 1)


class SkippedDuplicate(Walk):
    """A token that was refused already is passed over, and its q not subtracted."""

    def node(
        self, law: Floats, alive: Sequence[int], chains: Sequence[Chain], depth: int, choices: Choices
    ) -> tuple[int | None, int]:
        seen: list[int] = []
        fresh = []
        for drafter in alive:
            token = int(chains[drafter].tokens[depth])
            if token not in seen:
                fresh.append(drafter)
            seen.append(token)
        return super().node(law, fresh, chains, depth, choices)


class OrderByToken(Walk):
    """The drafter whose token is most probable goes first."""

    def order(self, law: Floats, alive: Sequence[int], chains: Sequence[Chain], depth: int) -> Sequence[int]:
        return sorted(alive, key=lambda drafter: -law[chains[drafter].tokens[depth]])


class OrderByNextToken(Walk):
    """The order at a node looks at the tokens one deeper."""

    def order(self, law: Floats, alive: Sequence[int], chains: Sequence[Chain], depth: int) -> Sequence[int]:
        return sorted(alive, key=lambda drafter: chains[drafter].tokens[depth + 1 :].tolist())


class SampleABranch(Walk):
    """Each branch draws its own sample of the target and is kept if they agree."""

    def node(
        self, law: Floats, alive: Sequence[int], chains: Sequence[Chain], depth: int, choices: Choices
    ) -> tuple[int | None, int]:
        token = -1
        for drafter in alive:
            token = choices.draw(law, depth + 1)
            if token == chains[drafter].tokens[depth]:
                return drafter, -1
        return None, token if token >= 0 else choices.draw(law, depth + 1)


@dataclass(frozen=True)
class SharedNoise:
    """All drafters draw their k-th token by inversion of one and the same uniform."""

    laws: Sequence[Law]

    def __call__(self, context: Text, k: int) -> Iterator[tuple[float, Sequence[Chain]]]:
        found: list[tuple[float, list[Text]]] = [(1.0, [()] * len(self.laws))]
        for _ in range(k):
            longer = []
            for odds, texts in found:
                sums = [np.cumsum(law((*context, *text))) for law, text in zip(self.laws, texts, strict=True)]
                edges = np.unique(np.concatenate([[0.0], *sums]).clip(0.0, 1.0))
                for low, high in itertools.pairwise(edges.tolist()):
                    if high - low < 1e-15:
                        continue
                    tokens = [int(np.searchsorted(mass, (low + high) / 2)) for mass in sums]
                    drawn = [(*text, token) for text, token in zip(texts, tokens, strict=True)]
                    longer.append((odds * (high - low), drawn))
            found = longer
        for odds, texts in found:
            yield odds, [chain_of(law, context, text) for law, text in zip(self.laws, texts, strict=True)]


@dataclass(frozen=True)
class DropsUnlikely:
    """Drafters that draw, look at the token, and keep silent if it is unlikely."""

    laws: Sequence[Law]
    below: float

    def _chains(self, law: Law, context: Text, k: int) -> Iterator[tuple[float, Chain]]:
        vocab = range(len(law(context)))
        for tokens in itertools.product(vocab, repeat=k):
            probs = [float(law((*context, *tokens[:j]))[tokens[j]]) for j in range(k)]
            if (odds := math.prod(probs)) > 0:
                kept = next((j for j in range(k) if probs[j] < self.below), k)
                yield odds, chain_of(law, context, tokens[:kept])

    def __call__(self, context: Text, k: int) -> Iterator[tuple[float, Sequence[Chain]]]:
        for combination in itertools.product(*(list(self._chains(law, context, k)) for law in self.laws)):
            yield math.prod(odds for odds, _ in combination), [chain for _, chain in combination]
