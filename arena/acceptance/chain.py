"""Lossless token-by-token rules for one chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arena.acceptance.residual import Residual
from arena.acceptance.rule import TokenRule, ratio, target_prob
from arena.protocols import TargetLaws
from arena.sampling import MASS_EPSILON
from arena.types import Chain, Floats


@dataclass(frozen=True)
class Greedy(TokenRule):
    """Keeps a token where the target law leaves no other choice.

    At temperature 0 the law is a point mass and this is the matching of argmaxes of
    blockwise parallel decoding (Stern, Shazeer & Uszkoreit 2018, arXiv 1811.03115,
    section 3). At other temperatures it stays lossless and keeps next to nothing.
    """

    name = "greedy"
    lossless = True
    needs_draft_law = False
    bounded = True
    source = "Stern et al. 2018, arXiv 1811.03115, section 3"

    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        """1 where the target law is a point mass on the token, else 0."""
        return float(target_prob(laws, node, int(chain.tokens[k])) >= 1.0 - MASS_EPSILON)


@dataclass(frozen=True)
class Speculative(TokenRule):
    """Speculative sampling: keep x ~ q with min(1, p/q), else draw from norm((p - q)+).

    Leviathan, Kalman & Matias 2023 (arXiv 2211.17192), algorithm 1; Chen et al. 2023
    (arXiv 2302.01318), theorem 1. A token's acceptance is sum min(p, q) = 1 - TV, the
    best that any lossless token-wise rule can reach with one draft.
    """

    name = "speculative"
    lossless = True
    needs_draft_law = True
    bounded = True
    source = "Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; Chen et al. 2023, arXiv 2302.01318"

    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        """min(1, p(x) / q(x))."""
        return ratio(target_prob(laws, node, int(chain.tokens[k])), chain.prob(k))

    def correction(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> Floats:
        """norm((p - q)+)."""
        residual = Residual(laws.law(node))
        residual.subtract(chain.support[k], chain.draft_probs[k])
        return residual.law()


@dataclass(frozen=True)
class PointMass(TokenRule):
    """Treats a draft as certain: keep x with p(x), else draw from p without x.

    Speculative sampling with q = 1 at x (Leviathan et al. 2023, arXiv 2211.17192,
    algorithm 1): lossless whatever made the draft, so for drafters without a law.
    """

    name = "point_mass"
    lossless = True
    needs_draft_law = False
    bounded = True
    source = "Leviathan et al. 2023, arXiv 2211.17192, algorithm 1 with q a point mass"

    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        """p(x)."""
        return target_prob(laws, node, int(chain.tokens[k]))

    def correction(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> Floats:
        """P without x, renormalised."""
        residual = Residual(laws.law(node))
        residual.subtract(chain.tokens[k : k + 1], np.ones(1))
        return residual.law()
