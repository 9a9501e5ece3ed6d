"""Block verification: one chain judged as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from arena.acceptance.outcome import Decision
from arena.acceptance.rule import ChainRule, ratio, target_prob
from arena.protocols import Choices, TargetLaws
from arena.sampling import MASS_EPSILON
from arena.types import Chain, Floats, Ints


@dataclass(frozen=True)
class Block(ChainRule):
    """Block verification: never shorter than token by token, and lossless.

    Sun et al. 2024 (arXiv 2403.10444), algorithm 2. With p, q the laws after
    x_1..x_i: s_0 = 1 and s_i = min(1, s_{i-1} p(x_i) / q(x_i)); A_i = sum (s_i p - q)+
    and h_i = A_i / (A_i + 1 - s_i), h_0 = 1, h_L = s_L. With independent u_i, the
    largest i with u_i < h_i is the accepted length; the next token is drawn from
    norm((s_i p - q)+), after L from p.
    """

    name = "block"
    lossless = True
    needs_draft_law = True
    bounded = False
    source = "Sun et al. 2024, arXiv 2403.10444, algorithm 2"

    def decide(
        self, chain: Chain, nodes: Sequence[int], laws: TargetLaws, choices: Choices, drafter: int
    ) -> Decision:
        """Tries the longest prefix first."""
        scales, stops = self._walk(chain, nodes, laws)
        n = len(chain)
        while n > 0 and not choices.accept(stops[n], n, drafter):
            n -= 1
        return Decision(n, partial(self._next, chain, nodes, laws, n, scales[n]))

    def expected(self, chain: Chain, nodes: Sequence[int], laws: TargetLaws) -> float:
        """Sum over i of i h_i prod_{j > i} (1 - h_j)."""
        _, stops = self._walk(chain, nodes, laws)
        live, total = 1.0, 0.0
        for n in range(len(chain), 0, -1):
            total += live * stops[n] * n
            live *= 1.0 - stops[n]
        return total

    def _walk(self, chain: Chain, nodes: Sequence[int], laws: TargetLaws) -> tuple[list[float], list[float]]:
        """Gives s_0..s_L and h_0..h_L."""
        scales, stops = [1.0], [1.0]
        for k in range(len(chain)):
            p_over_q = target_prob(laws, nodes[k], int(chain.tokens[k])), chain.prob(k)
            scales.append(ratio(scales[-1] * p_over_q[0], p_over_q[1]))
            if k + 1 == len(chain):
                stops.append(scales[-1])
                continue
            support, draft_probs = chain.support[k + 1], chain.draft_probs[k + 1]
            excess = excess_mass(scales[-1], laws.probs(nodes[k + 1], support), draft_probs)
            stops.append(stop_chance(scales[-1], excess))
        return scales, stops

    @staticmethod
    def _next(chain: Chain, nodes: Sequence[int], laws: TargetLaws, n: int, scale: float) -> Floats:
        law = laws.law(nodes[n])
        if n == len(chain):
            return law
        return excess_law(scale, law, chain.support[n], chain.draft_probs[n])


def excess_mass(scale: float, target_probs: Floats, draft_probs: Floats) -> float:
    """Gives sum (s p - q)+ over the vocabulary, from p and q on the support of q: O(m)."""
    on_support = np.maximum(scale * target_probs - draft_probs, 0.0).sum()
    return float(scale * max(0.0, 1.0 - target_probs.sum()) + on_support)


def stop_chance(scale: float, excess: float) -> float:
    """Gives h = A / (A + 1 - s); no excess worth normalising: 0, or 1 for the sure path."""
    if excess <= MASS_EPSILON:
        return 0.0
    return excess / (excess + 1.0 - scale)


def excess_law(scale: float, law: Floats, support: Ints, draft_probs: Floats) -> Floats:
    """Gives (s p - q)+, or p where nothing worth normalising is left."""
    excess = scale * law
    live = draft_probs > 0
    excess[support[live]] = np.maximum(excess[support[live]] - draft_probs[live], 0.0)
    return excess if excess.sum() > MASS_EPSILON else law
