"""What each drafter adds to the field: a cooperative game priced in one verifier pass.

v(S) is the expected accepted length of recursive rejection with the sub-roster S, given
the drafts that were made (:class:`arena.acceptance.tree.Recursive`; SpecInfer, arXiv
2305.09781, algorithm 2), its drafters tried in the order of the whole roster at each node:

    val(v, S): r = p_v, live = 1, out = 0; for i in S that go on at v, in order:
        a = min(1, r(x_i) / q_i(x_i))
        out += live a (1 + val(child x_i, owners of x_i in S))
        live *= 1 - a;  r = norm((r - q_i)+)

Every sub-roster is priced, from the laws that the pass has already made: the state
before drafter i depends on which of the earlier ones are in S alone, so the states
double from drafter to drafter, and only tokens in some draft's support are held (the
rest of the law, a tail, is never subtracted from: it is in the scale alone).

The Shapley value (Shapley 1953, "A value for n-person games") shares v(N) out by each
drafter's mean marginal worth over all orders of joining. It may be negative: a draft
that is tried in vain leaves the later ones a residual that suits them worse. Nothing is
clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from arena.protocols import TargetLaws
from arena.sampling import MASS_EPSILON
from arena.types import Chain, DraftTree, Floats, Ints

MOST = 12
"""Largest field that is priced: 2^12 sub-rosters a lane-step."""

UNIT = 1e-9
"""Worths are stored as whole numbers of this many tokens, so that sums are exact in any order."""

Index = npt.NDArray[np.intp]
Probs = Sequence[Sequence[float]]
Ordering = Callable[[Sequence[int], int, int], Sequence[int]]
"""Puts the drafters at a node (and its depth, 0 for the root) in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one lane-step says about each drafter's worth; all values in tokens.

    Attributes:
        worths: float64[2^n], v(S); bit d of S stands for drafter d.
        shapley: One a drafter; they sum to v(N).
        leave_one_out: v(N) - v(N without it).
        coverage: The Shapley value of the game in which every draft is a point mass: the
            target's probability of each drafted path, shared equally by who drafted it.
            It asks nothing of the draft laws, so at temperature > 0 it puts an argmax
            above a perfect sampled copy of the target: it stands beside, and never decides.
    """

    worths: Floats
    shapley: tuple[float, ...]
    leave_one_out: tuple[float, ...]
    coverage: tuple[float, ...]


def contribution(
    tree: DraftTree,
    chains: Sequence[Chain],
    laws: TargetLaws,
    target_probs: Probs,
    draft_probs: Probs,
    ordering: Ordering | None = None,
) -> Contribution:
    """Prices every sub-roster of one lane's drafts.

    Args:
        tree: ``merge`` of ``chains``.
        chains: One a drafter, at most ``MOST``.
        laws: The target laws of the tree.
        target_probs: The target's probability of each drafted token, a chain at a time.
        draft_probs: The draft law's, likewise.
        ordering: The order in which siblings are tried; a race gives its own, so that v(N)
            is the expectation of what it plays. By index if absent. It matters: who is
            tried first takes from the residual what the others could have had.
    """
    worths = _Game(tree, chains, laws, target_probs, draft_probs, ordering).worths()
    n = len(chains)
    full = len(worths) - 1
    return Contribution(
        worths=worths,
        shapley=tuple((_weights(n) * worths).sum(axis=1).tolist()),
        leave_one_out=tuple(float(worths[full] - worths[full ^ (1 << d)]) for d in range(n)),
        coverage=coverage_shares(tree, target_probs),
    )


def coverage_shares(tree: DraftTree, target_probs: Probs) -> tuple[float, ...]:
    """Shares the target's probability of each drafted path among those who drafted it."""
    path = [1.0] * len(tree.tokens)
    owners = [int(word).bit_count() for word in tree.owners.tolist()]
    parents, shares = tree.parents.tolist(), []
    for drafter, probs in enumerate(target_probs):
        share = 0.0
        for node, prob in zip(tree.nodes[drafter].tolist(), probs, strict=False):
            path[node] = path[parents[node]] * prob
            share += path[node] / owners[node]
        shares.append(share)
    return tuple(shares)


def whole(worths: Floats) -> bytes:
    """Turns v(S) into int64 multiples of ``UNIT``, as bytes: small, comparable, exact to add."""
    return np.rint(worths / UNIT).astype("<i8").tobytes()


def total(steps: Sequence[bytes]) -> list[int]:
    """Adds up what ``whole`` gave for each lane-step."""
    if not steps:
        return []
    found: list[int] = np.sum([np.frombuffer(step, dtype="<i8") for step in steps], axis=0).tolist()
    return found


def shapley_of(worths: Sequence[int]) -> list[float]:
    """Gives exact Shapley values of whole-number worths (in the same unit), rounded once.

    Equal drafters get equal values to the last bit, so that ties are ties.

    Args:
        worths: v(S) for every S, 2^n of them.
    """
    n = (len(worths) - 1).bit_length()
    weight = [math.factorial(size) * math.factorial(n - size - 1) for size in range(n)]
    shares = [0] * n
    for subset, worth in enumerate(worths):
        size = subset.bit_count()
        for d in range(n):
            # A coalition's worth is gained by whom it holds, and missed by whom it lacks.
            shares[d] += worth * (weight[size - 1] if subset >> d & 1 else -weight[size])
    return [float(Fraction(share, math.factorial(n))) for share in shares]


def worth_of(worths: Sequence[int], names: Sequence[str], roster: Sequence[str]) -> int:
    """Looks up what a sub-roster is worth.

    Args:
        worths: v(S) for every S of ``names``.
        names: The whole roster, in order.
        roster: Some of them.
    """
    return worths[sum(1 << names.index(name) for name in roster)]


def best_roster(worths: Sequence[int], names: Sequence[str], size: int) -> tuple[str, ...]:
    """Gives the sub-roster of a size that is worth most; the first in order among equals."""
    subsets = [subset for subset in range(len(worths)) if subset.bit_count() == size]
    best = max(subsets, key=lambda subset: (worths[subset], -subset))
    return tuple(name for d, name in enumerate(names) if best >> d & 1)


@dataclass(frozen=True, slots=True)
class _Game:
    tree: DraftTree
    chains: Sequence[Chain]
    laws: TargetLaws
    target_probs: Probs
    draft_probs: Probs
    ordering: Ordering | None

    def worths(self) -> Floats:
        here = [d for d, chain in enumerate(self.chains) if len(chain)]
        inner = self._value(0, 0, here)
        return np.asarray(inner[_project(len(self.chains), tuple(here))])

    def _value(self, node: int, depth: int, here: list[int]) -> Floats:
        """val(node, S) for every S of the drafters that go on at a node."""
        if len(here) == 0:
            return np.zeros(1)
        if len(here) == 1:
            return np.array([0.0, self._alone(here[0], depth)])
        given = here
        if self.ordering is not None:
            here = list(self.ordering(given, node, depth))
        symbols, places, drafts = self._supports(here, depth)
        target = self.laws.probs(node, symbols)
        size = 1 << len(here)
        values = np.empty((size >> 1, len(symbols)))  # r = values / scale
        values[0] = target
        scale, live, out = np.ones(size >> 1), np.ones(size >> 1), np.zeros(size)
        deeper = self._children(depth, here)
        for i, d in enumerate(here):
            known = 1 << i
            odds = self.draft_probs[d][depth]
            gain = live[:known] * (values[:known, places[i]] / (scale[:known] * odds) if odds > 0 else 0.0)
            gain = np.minimum(live[:known], gain)
            below = deeper[int(self.tree.nodes[d, depth])]
            mine = out.reshape(-1, 2, known)[:, 1]
            mine += gain if below is None else gain * (1.0 + below.reshape(-1, 2, known)[:, 1])
            if i + 1 < len(here):
                taken = np.minimum(values[:known], scale[:known, None] * drafts[i])
                np.subtract(values[:known], taken, out=values[known : 2 * known])
                left = scale[:known] - taken.sum(axis=1)
                live[known : 2 * known] = live[:known] - gain
                scale[known : 2 * known] = left
                if left.min() <= MASS_EPSILON:  # as in Residual: never normalised
                    noise = left <= MASS_EPSILON
                    values[known : 2 * known][noise] = target
                    scale[known : 2 * known][noise] = 1.0
        if here == given:
            return out
        return np.asarray(out[_project(len(given), tuple(given.index(d) for d in here))])

    def _alone(self, d: int, depth: int) -> float:
        """What one chain is worth from a depth on: sum over k of prod min(1, p/q)."""
        live, found = 1.0, 0.0
        pairs = zip(self.target_probs[d][depth:], self.draft_probs[d][depth:], strict=True)
        for target_prob, draft_prob in pairs:
            live *= min(1.0, target_prob / draft_prob) if draft_prob > 0 else 0.0
            found += live
        return found

    def _children(self, depth: int, here: list[int]) -> Mapping[int, Floats | None]:
        """val(child, S) for each child of a node, over the S of the node itself; None where all is 0."""
        owners: dict[int, list[int]] = {}
        for place, d in enumerate(here):
            owners.setdefault(int(self.tree.nodes[d, depth]), []).append(place)
        found: dict[int, Floats | None] = {}
        for child, places in owners.items():
            places = [place for place in places if len(self.chains[here[place]]) > depth + 1]
            found[child] = None
            if places:
                inner = self._value(child, depth + 1, [here[place] for place in places])
                found[child] = inner[_project(len(here), tuple(places))]
        return found

    def _supports(self, here: list[int], depth: int) -> tuple[Ints, list[int], Floats]:
        """The union of the supports, where each draft's token is in it, and each draft law on it.

        Padding is dropped first: how wide an array came depends on the other lanes.
        """
        chains, n = [self.chains[d] for d in here], len(here)
        laws = [chain.draft_probs[depth] for chain in chains]
        probs = np.concatenate(laws)
        held = probs > 0
        owner = np.repeat(np.arange(n), [len(law) for law in laws])[held]
        tokens = np.concatenate([chain.support[depth] for chain in chains])[held]
        drawn = [chain.tokens[depth] for chain in chains]  # also those that their law excludes
        symbols, place = np.unique(np.concatenate([drawn, tokens]), return_inverse=True)
        dense = np.zeros((n, len(symbols)))
        dense[owner, place[n:]] = probs[held]
        return symbols.astype(np.int32, copy=False), place[:n].tolist(), dense


@lru_cache(maxsize=4096)
def _project(n: int, places: tuple[int, ...]) -> Index:
    """For each subset of n, the subset of ``places`` that it holds, renumbered from bit 0."""
    subsets = np.arange(1 << n)
    found = np.zeros(1 << n, dtype=np.intp)
    for bit, place in enumerate(places):
        found |= (subsets >> place & 1) << bit
    return found


@lru_cache(maxsize=MOST + 1)
def _weights(n: int) -> Floats:
    """Shapley values as a linear map, float64[n, 2^n]."""
    sizes = np.array([subset.bit_count() for subset in range(1 << n)])
    of = np.array([math.factorial(s) * math.factorial(n - s - 1) for s in range(n)]) / math.factorial(n)
    member = (np.arange(1 << n) >> np.arange(n)[:, None] & 1).astype(bool)
    return np.asarray(np.where(member, of[np.maximum(sizes - 1, 0)], -of[np.minimum(sizes, n - 1)]))
