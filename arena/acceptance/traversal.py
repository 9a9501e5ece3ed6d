"""Traversal verification: a whole tree judged from its leaves up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arena.acceptance.block import stop_chance
from arena.acceptance.outcome import Outcome
from arena.acceptance.residual import Residual
from arena.acceptance.rule import TreeRule, ratio
from arena.acceptance.tree import Order, check_order, ordered
from arena.protocols import Choices, TargetLaws
from arena.types import Chain, DraftTree


@dataclass(frozen=True)
class Traversal(TreeRule):
    """Block verification for trees: lossless, on a single chain equal to ``block``.

    Weng et al. 2025 (arXiv 2505.12398), in the form proved here by enumeration. visit(v, s): r = p_v;
    for each drafter that passes, x its token: if x is new at v, visit its child with
    min(1, s r(x) / q(x)) and stop if that commits; then m = (s r - q)+, A = sum m,
    s <- A / (A + 1 - s), r <- m / A. At the end commit the path to v with chance s,
    the next token drawn from r. The root, visited with s = 1, always commits.

    Attributes:
        order: As for ``recursive``.
    """

    order: Order = "keyed"

    name = "traversal"
    lossless = True
    needs_draft_law = True
    bounded = False
    source = "Weng et al. 2025, arXiv 2505.12398"

    def __post_init__(self) -> None:
        check_order(self.order)

    def commit(
        self,
        tree: DraftTree,
        chains: Sequence[Chain],
        laws: TargetLaws,
        choices: Choices,
        ranks: Sequence[int] | None = None,
    ) -> Outcome:
        """Visits the tree depth-first; the first node that accepts is committed."""

        def visit(node: int, depth: int, scale: float, owners: list[int], finder: int) -> Outcome | None:
            proposers = [drafter for drafter in owners if len(chains[drafter]) > depth]
            residual: Residual | None = None
            if proposers and scale > 0:
                residual = Residual(laws.law(node))
                tried: set[int] = set()
                for drafter in ordered(self.order, proposers, chains, laws, node, depth, choices, ranks):
                    chain, child = chains[drafter], int(tree.nodes[drafter, depth])
                    if child not in tried:
                        tried.add(child)
                        chance = ratio(scale * residual.prob(int(chain.tokens[depth])), chain.prob(depth))
                        holders = [other for other in proposers if tree.nodes[other, depth] == child]
                        found = visit(child, depth + 1, chance, holders, drafter)
                        if found:
                            return Outcome((child, *found.path), found.token, found.reached, found.bound)
                    # sum (s r - q)+ = s sum (r - q / s)+, which touches the support only.
                    excess = scale * residual.subtract(chain.support[depth], chain.draft_probs[depth] / scale)
                    scale = stop_chance(scale, excess)
                    if scale <= 0:
                        break
            # One uniform a node: at each depth a node has one drafter that found it first.
            if node == 0 or choices.accept(scale, depth, finder):
                rest = residual.law() if residual else laws.law(node)
                return Outcome((), choices.draw(rest, depth + 1), float("nan"), float("nan"))
            return None

        outcome = visit(0, 0, 1.0, list(range(len(chains))), -1)
        assert outcome is not None, "the root always commits"
        return outcome
