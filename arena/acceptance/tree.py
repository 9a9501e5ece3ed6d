"""Many drafters: their chains as one tree, and recursive rejection over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from arena.acceptance.bounds import transport_bound
from arena.acceptance.outcome import Outcome
from arena.acceptance.residual import Residual
from arena.acceptance.rule import TreeRule, ratio
from arena.errors import ConfigError, one_of
from arena.protocols import Choices, TargetLaws
from arena.types import MAX_DRAFTERS, Chain, DraftTree

Order = Literal["keyed", "standing", "overlap"]


def merge(root_token: int, chains: Sequence[Chain]) -> DraftTree:
    """Merges the chains of one lane by common prefix.

    Nodes are numbered level by level, and within a level by the first drafter that
    proposed them: parents come before children.

    Args:
        root_token: The lane's last committed token, node 0.
        chains: One a drafter, of any length, 0 included.
    """
    if len(chains) > MAX_DRAFTERS:
        raise ConfigError(f"{len(chains)} drafters in one race; at most {MAX_DRAFTERS} can share a tree.")
    width = max((len(chain) for chain in chains), default=0)
    tokens, parents, depths, owners = [root_token], [-1], [0], [(1 << len(chains)) - 1]
    nodes = np.full((len(chains), width), -1, dtype=np.int32)
    at = [0] * len(chains)
    for depth in range(width):
        children: dict[tuple[int, int], int] = {}
        for drafter, chain in enumerate(chains):
            if depth >= len(chain):
                continue
            edge = (at[drafter], int(chain.tokens[depth]))
            node = children.setdefault(edge, len(tokens))
            if node == len(tokens):
                tokens.append(edge[1])
                parents.append(edge[0])
                depths.append(depth + 1)
                owners.append(0)
            owners[node] |= 1 << drafter
            at[drafter] = nodes[drafter, depth] = node
    return DraftTree(
        tokens=np.array(tokens, dtype=np.int32),
        parents=np.array(parents, dtype=np.int32),
        depths=np.array(depths, dtype=np.int32),
        owners=np.array(owners, dtype=np.uint64),
        nodes=nodes,
    )


def check_order(order: str) -> None:
    """Refuses an unknown order of drafters."""
    if order not in get_args(Order):
        raise ConfigError(one_of("order of drafters", order, get_args(Order)))


@dataclass(frozen=True)
class Recursive(TreeRule):
    """Recursive rejection: siblings are tried in turn against what the refused ones left.

    SpecInfer (Miao et al. 2023, arXiv 2305.09781), algorithm 2; Sequoia (Chen et al. 2024,
    arXiv 2402.12374), algorithm 2. At a node r = p; for each drafter whose chain passes
    here, in an order: keep its token x with min(1, r(x) / q(x)), else r <- norm((r - q)+);
    none kept: one draw from the last r. Lossless for different laws as long as the
    drafters draw independently and the order does not look at what was drawn. A
    duplicate of a refused token has r(x) = 0, and its q is subtracted all the same.

    Attributes:
        order: ``"keyed"`` by the choices alone; ``"standing"`` best rank first;
            ``"overlap"`` largest sum of min(p, q) at the node first. Ties are keyed.
        measure: Whether to compute ``reached`` and ``bound`` too.
    """

    order: Order = "keyed"
    measure: bool = False

    name = "recursive"
    lossless = True
    needs_draft_law = True
    bounded = True
    source = "SpecInfer, arXiv 2305.09781, algorithm 2; Sequoia, arXiv 2402.12374, algorithm 2"

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
        """Walks down from the root, one node a kept token."""
        path: list[int] = []
        node, depth, alive = 0, 0, list(range(len(chains)))
        reached = bound = 0.0
        while True:
            law = laws.law(node)
            residual = Residual(law)
            alive = [drafter for drafter in alive if len(chains[drafter]) > depth]
            kept = -1
            for drafter in ordered(self.order, alive, chains, laws, node, depth, choices, ranks):
                chain = chains[drafter]
                if kept < 0:
                    chance = ratio(residual.prob(int(chain.tokens[depth])), chain.prob(depth))
                    if choices.accept(chance, depth + 1, drafter):
                        kept = int(tree.nodes[drafter, depth])
                        if not self.measure:
                            break
                residual.subtract(chain.support[depth], chain.draft_probs[depth])
            if self.measure and alive:
                reached += 1.0 - residual.mass
                bound += transport_bound(law, [chains[drafter] for drafter in alive], depth)
            if kept < 0:
                token = choices.draw(residual.law(), depth + 1)
                nan = float("nan")
                return Outcome(
                    tuple(path), token, reached if self.measure else nan, bound if self.measure else nan
                )
            path.append(kept)
            alive = [drafter for drafter in alive if tree.nodes[drafter, depth] == kept]
            node, depth = kept, depth + 1


def ordered(
    order: Order,
    drafters: Sequence[int],
    chains: Sequence[Chain],
    laws: TargetLaws,
    node: int,
    depth: int,
    choices: Choices,
    ranks: Sequence[int] | None,
) -> list[int]:
    """Puts the drafters at a node in order: by nothing that was drawn here or deeper."""
    keyed = choices.order(drafters, depth + 1)
    if order == "standing" and ranks is not None:
        return sorted(keyed, key=lambda drafter: ranks[drafter])
    if order == "overlap":
        return sorted(keyed, key=lambda drafter: -overlap(laws, node, chains[drafter], depth))
    return keyed


def overlap(laws: TargetLaws, node: int, chain: Chain, depth: int) -> float:
    """Gives sum min(p, q) at a node: the chance that the chain alone is kept there."""
    support, draft_probs = chain.support[depth], chain.draft_probs[depth]
    live = draft_probs > 0
    return float(np.minimum(laws.probs(node, support[live]), draft_probs[live]).sum())
