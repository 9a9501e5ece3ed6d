"""What a verification rule answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arena.types import Floats


@dataclass(frozen=True, slots=True)
class Decision:
    """A chain rule's answer about one chain.

    Attributes:
        n_accepted: How many leading tokens of the chain are kept.
        next_law: Gives the law, float64[V], of the token after them: a correction
            where one was refused, else the bonus. Lazy, since a standalone score
            needs only the count. Non-negative with positive mass.
    """

    n_accepted: int
    next_law: Callable[[], Floats]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A tree rule's answer about one lane's tree.

    Attributes:
        path: The accepted nodes in order, without the root.
        token: The token after them: a correction or a bonus.
        reached: Sum over visited nodes of the chance, given the laws there, that
            the rule keeps a token; ``nan`` where it is not measured or not defined.
        bound: Sum over the same nodes of the optimal-transport upper bound of that
            chance; ``nan`` likewise.
    """

    path: tuple[int, ...]
    token: int
    reached: float
    bound: float
