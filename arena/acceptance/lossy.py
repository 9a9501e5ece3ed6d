"""Rules that move the target's law: marked lossy, and convicted by the audit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arena.acceptance.rule import TokenRule, target_prob
from arena.errors import ConfigError
from arena.protocols import TargetLaws
from arena.types import Chain


@dataclass(frozen=True)
class TopKTolerance(TokenRule):
    """Keeps a token that is among the target's k most probable.

    Top-k selection of blockwise parallel decoding (Stern, Shazeer & Uszkoreit 2018, arXiv
    1811.03115, section 5.1), also met as ``verifier_accept_k``. A refused token is
    replaced by a draw from the target's law. Exact where that law is a point mass: tokens
    without probability are never kept.

    Attributes:
        k: How far down the target's ranking a token may stand, at least 1.
    """

    k: int = 2

    name = "top_k_tolerance"
    lossless = False
    needs_draft_law = False
    bounded = False
    source = "Stern et al. 2018, arXiv 1811.03115, section 5.1 (top-k selection)"

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"top_k_tolerance: k is {self.k}; expected 1 or more.")

    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        """1 where fewer than k tokens are more probable, else 0."""
        law = laws.law(node)
        prob = law[chain.tokens[k]]
        return float(prob > 0 and np.count_nonzero(law > prob) < self.k)


@dataclass(frozen=True)
class Typical(TokenRule):
    """Typical acceptance: keep x where p(x) > min(epsilon, delta exp(-H(p))), strictly.

    Medusa (Cai et al. 2024, arXiv 2401.10774), typical acceptance; H in nats, of the warped law.

    Attributes:
        epsilon: Hard threshold of probability.
        delta: Factor of the entropy-dependent threshold.
    """

    epsilon: float = 0.09
    delta: float = 0.3

    name = "typical"
    lossless = False
    needs_draft_law = False
    bounded = False
    source = "Medusa, Cai et al. 2024, arXiv 2401.10774, typical acceptance"

    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        """1 above the threshold, else 0."""
        law = laws.law(node)
        return float(law[chain.tokens[k]] > min(self.epsilon, self.delta * np.exp(-entropy(law))))


@dataclass(frozen=True)
class ArgmaxMatch(TokenRule):
    """Keeps a token that is the target's most probable, else takes a sample.

    The greedy acceptance that a founding article words: exact at temperature 0 only.
    Above it, the most probable token comes out too often.
    """

    name = "argmax_match"
    lossless = False
    needs_draft_law = False
    bounded = False
    source = "a founding article of this project"

    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        """1 for the argmax (lowest id among equals), else 0."""
        return float(laws.law(node).argmax() == chain.tokens[k])


@dataclass(frozen=True)
class Margin(TokenRule):
    """Keeps x where u < (p(x) - q(x)) / p(x), else draws from p.

    The rule that a founding article prints. Not lossless, and a perfect drafter (q = p)
    has acceptance 0 under it. Golden: p = (.6, .3, .1), q = (.3, .3, .4) gives the law
    (.66, .255, .085) with acceptance .15.
    """

    name = "margin"
    lossless = False
    needs_draft_law = True
    bounded = False
    source = "a founding article of this project"

    def chance(self, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
        """(1 - q(x) / p(x))+."""
        prob = target_prob(laws, node, int(chain.tokens[k]))
        return max(0.0, 1.0 - chain.prob(k) / prob) if prob > 0 else 0.0


def entropy(law: np.ndarray) -> float:
    """Gives the entropy of a law, nats."""
    live = law[law > 0]
    return float(-(live * np.log(live)).sum())
