"""Which drafted tokens are worth a node: expected tokens against what a pass of that size takes.

What a pass costs over its nodes is hardly ever a line: two tokens may take as long as
eight (a matrix product is cut into blocks), so nodes are bought together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class PassCosts:
    """The time of a pass by its nodes: measured at some numbers, linear between them.

    Attributes:
        nodes: Numbers of nodes, rising, the root included.
        ms: Time of a pass over each; never falling.
    """

    nodes: tuple[int, ...]
    ms: tuple[float, ...]

    @classmethod
    def of(cls, measured: Mapping[int, float]) -> PassCosts:
        """Puts measurements in order; a larger pass that was timed shorter costs what the smaller did."""
        nodes = tuple(sorted(measured))
        return cls(nodes, tuple(np.maximum.accumulate([measured[n] for n in nodes]).tolist()))

    def at(self, nodes: int) -> float:
        """Gives the time of a pass, ms; beyond the largest measured, at its own price a node."""
        if nodes <= self.nodes[-1]:
            return float(np.interp(nodes, self.nodes, self.ms))
        return self.ms[-1] * nodes / self.nodes[-1]


def best_length(chances: Sequence[float], costs: PassCosts, draft_ms: float) -> int:
    """Gives the length of a chain that is fastest a token, drafting included; 0 where none pays.

    Args:
        chances: Chance that its first k tokens all come true, for k = 1, 2, ...
        costs: Of a pass.
        draft_ms: One drafted token, ms.
    """
    tokens = 1.0 + np.cumsum([0.0, *chances])
    times = [costs.at(1 + k) + k * draft_ms for k in range(len(tokens))]
    return int(np.argmax(tokens / times))


def best_cuts(
    chains: Sequence[Sequence[int]], chances: Sequence[Sequence[float]], costs: PassCosts
) -> list[int]:
    """Gives how much of each chain goes into the pass.

    Chains with a common beginning share its nodes, and of the tokens beside each other at
    most one comes true: the expected tokens of a tree are the sum of its nodes' chances.
    A node's is the largest of the chains through it, and never exceeds its parent's, so
    the n most likely nodes are a tree, and the best n is found by trying all.

    Args:
        chains: Tokens of each chain.
        chances: For each, the chance that its first k tokens all come true, for k = 1, 2, ...
        costs: Of a pass.
    """
    worth: dict[tuple[int, ...], float] = {}
    for chain, likely in zip(chains, chances, strict=True):
        for end in range(1, len(chain) + 1):
            node = tuple(chain[:end])
            worth[node] = max(worth.get(node, 0.0), likely[end - 1])
    ranked = sorted(worth, key=lambda node: (-worth[node], len(node)))
    tokens = 1.0 + np.cumsum([0.0, *(worth[node] for node in ranked)])
    n = int(np.argmax(tokens / [costs.at(1 + k) for k in range(len(tokens))]))
    chosen = set(ranked[:n])
    return [sum(tuple(chain[:end]) in chosen for end in range(1, len(chain) + 1)) for chain in chains]
