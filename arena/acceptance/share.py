"""A chain rule's share of the transport bound at the nodes that it visits.

Tree rules measure themselves as they walk; a chain rule knows no neighbours, so what
bounds it is the best that any lossless rule could do with its one draft.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.acceptance.bounds import transport_bound
from arena.acceptance.rule import ChainRule, TokenRule
from arena.protocols import TargetLaws
from arena.types import Chain


def chain_share(
    rule: ChainRule, chain: Chain, nodes: Sequence[int], laws: TargetLaws, n_accepted: int
) -> tuple[float, float]:
    """Sums over the visited nodes the chance that the rule keeps a token, and the bound of it.

    Args:
        rule: The rule that decided.
        chain: The draft.
        nodes: Root, then the node of each token.
        laws: The target laws.
        n_accepted: How many leading tokens the rule kept.

    Returns:
        (reached, bound); nan twice where the bound does not apply to the rule.
    """
    if not (rule.bounded and isinstance(rule, TokenRule)):
        return float("nan"), float("nan")
    reached = bound = 0.0
    for k in range(min(n_accepted + 1, len(chain))):
        reached += chance_of_keeping(rule, chain, k, nodes[k], laws)
        bound += transport_bound(laws.law(nodes[k]), [chain], k)
    return reached, bound


def chance_of_keeping(rule: TokenRule, chain: Chain, k: int, node: int, laws: TargetLaws) -> float:
    """Gives the chance, given the laws alone, that a rule keeps the token at position k."""
    total = 0.0
    for token, prob in zip(chain.support[k].tolist(), chain.draft_probs[k].tolist(), strict=True):
        if prob > 0:
            tokens = chain.tokens[: k + 1].copy()
            tokens[k] = token
            one = Chain(tokens, chain.support[: k + 1], chain.draft_probs[: k + 1])
            total += prob * rule.chance(one, k, node, laws)
    return total
