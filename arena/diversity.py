"""How different the drafters are, and how varied the text is. numpy only.

Laws are sparse: token ids and their probabilities. A drafter that says nothing is a
point mass on ``EMPTY``, one extra symbol, so silence is alike to silence and to
nothing else.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from arena.types import MAX_DRAFTERS

EMPTY = -1
"""The symbol of an empty draft; with probability 0 it is padding and changes nothing."""

_PAIRS = 256
"""Pairs of laws compared at a time: intermediate results of a thousand would not fit the cache."""

Array = npt.NDArray[np.float64]
SparseLaw = tuple[npt.ArrayLike, npt.ArrayLike]


def _dense(laws: Sequence[SparseLaw]) -> Array:
    """Puts sparse laws on the union of their supports, float64[laws, symbols]."""
    supports = [np.asarray(support, dtype=np.int64).ravel() for support, _ in laws]
    symbols, place = np.unique(np.concatenate(supports), return_inverse=True)
    owner = np.repeat(np.arange(len(laws)), [len(support) for support in supports])
    mass = np.concatenate([np.asarray(probs, dtype=np.float64).ravel() for _, probs in laws])
    flat = np.bincount(owner * len(symbols) + place, weights=mass, minlength=len(laws) * len(symbols))
    return flat.astype(np.float64, copy=False).reshape(len(laws), len(symbols))


@lru_cache(maxsize=MAX_DRAFTERS)
def _pairs(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    first, second = np.triu_indices(n, 1)
    return first, second


def _divergences(dense: Array) -> Array:
    """Jensen–Shannon divergences of all pairs of rows, bits, in [0, 1]; exactly 0 for equal rows.

    A symbol that only one of the pair can give adds half its mass, so logarithms are
    needed only for symbols that several rows share.
    """
    first, second = _pairs(len(dense))
    shared = np.count_nonzero(dense, axis=0) > 1
    alone = dense[:, ~shared].sum(axis=1)
    dense = dense[:, shared]
    total = alone[first] + alone[second]
    for begin in range(0, len(first), _PAIRS):
        part = slice(begin, begin + _PAIRS)
        a, b = dense[first[part]], dense[second[part]]
        middle = (a + b) / 2
        middle[middle == 0] = 1.0
        for law in (a, b):
            share = law / middle
            share[share == 0] = 1.0
            total[part] += (law * np.log2(share)).sum(axis=1)
    bits: Array = np.clip(total / 2, 0.0, 1.0)
    return bits


def jsd2(
    support_a: npt.ArrayLike, probs_a: npt.ArrayLike, support_b: npt.ArrayLike, probs_b: npt.ArrayLike
) -> float:
    """Gives the Jensen–Shannon divergence of two sparse laws, base 2 (Lin 1991).

    Args:
        support_a: Token ids, ``EMPTY`` for an empty draft (or padding of mass 0).
        probs_a: Their probabilities, summing to 1.
        support_b: As ``support_a``.
        probs_b: As ``probs_a``.

    Returns:
        Bits, from 0 (equal) to 1 (disjoint).
    """
    return float(_divergences(_dense([(support_a, probs_a), (support_b, probs_b)]))[0])


def similarities(laws: Sequence[SparseLaw]) -> tuple[float, ...]:
    """Gives 1 - JSD (base 2) of each pair of laws, in the order of ``itertools.combinations``.

    Args:
        laws: (support, probs) of each drafter, in order of name.
    """
    if len(laws) < 2:
        return ()
    return tuple((1.0 - _divergences(_dense(laws))).tolist())


def matrix(n: int, pairs: Sequence[float]) -> Array:
    """Turns values in the order of ``itertools.combinations`` into a symmetric matrix with unit diagonal."""
    kernel = np.eye(n)
    for (i, j), value in zip(itertools.combinations(range(n), 2), pairs, strict=True):
        kernel[i, j] = kernel[j, i] = value
    return kernel


def mean_distance(kernel: npt.ArrayLike) -> float:
    """Gives the mean over pairs of √JSD, a metric, from a matrix of 1 - JSD; nan for fewer than two."""
    similar = np.asarray(kernel, dtype=np.float64)
    upper = similar[np.triu_indices(len(similar), 1)]
    return float(np.sqrt(np.clip(1.0 - upper, 0.0, 1.0)).mean()) if len(upper) else math.nan


def vendi(kernel: npt.ArrayLike, q: float = 1.0) -> float:
    """Gives the Vendi score: the effective number of different members (2210.02410, 2310.12952).

    Args:
        kernel: Similarities, positive semidefinite, 1 on the diagonal.
        q: Order of the Rényi entropy of the eigenvalues of ``kernel / n``; ``inf``
            looks at the largest alone.

    Returns:
        From 1 (all alike) to n (nothing in common); nan for no members.
    """
    similar = np.asarray(kernel, dtype=np.float64)
    if not len(similar):
        return math.nan
    weights = np.linalg.eigvalsh(similar / len(similar))
    weights = weights[weights > 0]
    if q == 1.0:
        return float(np.exp(-(weights * np.log(weights)).sum()))
    if math.isinf(q):
        return float(1.0 / weights.max())
    return float((weights**q).sum() ** (1.0 / (1.0 - q)))


def union_coverage(probs: npt.ArrayLike) -> float:
    """Gives the target mass of a set of proposals.

    Args:
        probs: Target probabilities of the DISTINCT tokens proposed.
    """
    return min(1.0, math.fsum(np.asarray(probs, dtype=np.float64).ravel()))


def distinct_n(texts: Iterable[Sequence[Hashable]], n: int) -> float:
    """Gives distinct n-grams / all n-grams, pooled over texts (Li et al. 1510.03055).

    Args:
        texts: Token sequences; an n-gram never spans two of them.
        n: Length of the n-grams, tokens.

    Returns:
        In (0, 1]; nan if no text has n tokens.
    """
    grams = [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]
    return len(set(grams)) / len(grams) if grams else math.nan


def entropy(tokens: Iterable[Hashable]) -> float:
    """Gives the entropy of the tokens' frequencies, nats; nan without tokens."""
    counts = sorted(Counter(tokens).values())
    total = sum(counts)
    if not total:
        return math.nan
    return max(0.0, -math.fsum(count / total * math.log(count / total) for count in counts))
