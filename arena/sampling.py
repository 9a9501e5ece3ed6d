"""Probability laws over a vocabulary: warp, truncate, normalise, draw.

This is the only place where logits become the law that is sampled, for the
verifier, for the drafters and for the acceptance ratio alike. (For large models
``arena.models.laws`` has the same function on torch tensors; a test holds the two
together.)
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from arena.errors import ConfigError, LawError
from arena.types import Floats, Floats32, Ints, Sampling

GREEDY_EPSILON = 1e-5
"""Temperatures at or below this are greedy, on both sides."""

MASS_EPSILON = 1e-12
"""A residual mass at or below this is rounding noise and is never normalised."""

SUM_TOLERANCE = 1e-3
"""How far a float32 law sent by a drafter may be from summing to 1."""


def check(sampling: Sampling) -> Sampling:
    """Refuses sampling settings that have no meaning.

    Raises:
        ConfigError: Temperature negative or NaN, ``top_k`` negative, or ``top_p``
            outside (0, 1].
    """
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise ConfigError(
            f"sampling.temperature is {sampling.temperature}; expected a finite number >= 0 (0 means greedy)."
        )
    if sampling.top_k < 0:
        raise ConfigError(f"sampling.top_k is {sampling.top_k}; expected 0 (keep all) or more.")
    if not 0 < sampling.top_p <= 1:
        raise ConfigError(f"sampling.top_p is {sampling.top_p}; expected a number in (0, 1].")
    return sampling


def is_greedy(sampling: Sampling) -> bool:
    """Tells whether the warped law is a point mass on the largest logit."""
    return sampling.temperature <= GREEDY_EPSILON


def warp(logits: npt.ArrayLike, sampling: Sampling) -> Floats:
    """Turns logits into the law that is sampled.

    Temperature, then top-k (ties broken by lowest token id), then softmax, then
    top-p (the smallest most-probable set whose mass reaches ``top_p``).

    Args:
        logits: [..., V], -inf allowed, NaN not.
        sampling: Temperature, top-k, top-p.

    Returns:
        float64[..., V], each row summing to 1.

    Raises:
        LawError: A row holds NaN or +inf, or has no finite entry.
    """
    scores = np.asarray(logits, dtype=np.float64)
    top = scores.max(axis=-1, keepdims=True)
    if not np.isfinite(top).all():
        raise LawError("logits hold NaN or inf, or a row is all -inf; expected finite numbers.")
    if is_greedy(sampling):
        law = np.zeros_like(scores)
        np.put_along_axis(law, scores.argmax(axis=-1)[..., None], 1.0, axis=-1)
        return law
    law = np.exp((scores - top) / sampling.temperature)
    if 0 < sampling.top_k < law.shape[-1]:
        law = _keep(law, np.argsort(-scores, axis=-1, kind="stable")[..., : sampling.top_k])
    law /= law.sum(axis=-1, keepdims=True)
    if sampling.top_p < 1:
        order = np.argsort(-law, axis=-1, kind="stable")
        mass = np.cumsum(np.take_along_axis(law, order, axis=-1), axis=-1)
        # A token is kept while the mass before it is short of top_p: at least one is.
        before = mass - np.take_along_axis(law, order, axis=-1)
        kept = np.zeros(law.shape, dtype=bool)
        np.put_along_axis(kept, order, before < sampling.top_p, axis=-1)
        law = np.where(kept, law, 0.0)
        law /= law.sum(axis=-1, keepdims=True)
    return law


def _keep(law: Floats, ids: npt.NDArray[np.int64]) -> Floats:
    kept = np.zeros_like(law)
    np.put_along_axis(kept, ids, np.take_along_axis(law, ids, axis=-1), axis=-1)
    return kept


def truncate(law: npt.ArrayLike, m: int) -> tuple[Ints, Floats32]:
    """Keeps the m most probable tokens of a law and renormalises.

    Args:
        law: [..., V], rows with positive mass.
        m: Support size; rows with fewer positive entries are padded.

    Returns:
        ``support`` int32[..., m'] (-1 pads) and ``probs`` float32[..., m'], with m' =
        min(m, V), most probable first, ties by lowest id.
    """
    dense = np.asarray(law, dtype=np.float64)
    m = min(m, dense.shape[-1])
    if m < dense.shape[-1]:
        # A partial selection first: sorting a whole vocabulary costs far more.
        part = np.sort(np.argpartition(-dense, m - 1, axis=-1)[..., :m], axis=-1)
        order = np.argsort(-np.take_along_axis(dense, part, axis=-1), axis=-1, kind="stable")
        support = np.take_along_axis(part, order, axis=-1)
    else:
        support = np.argsort(-dense, axis=-1, kind="stable")
    values = np.take_along_axis(dense, support, axis=-1)
    probs = (values / values.sum(axis=-1, keepdims=True)).astype(np.float32)
    return np.where(probs > 0, support, -1).astype(np.int32), probs


def normalise(probs: npt.NDArray[np.floating]) -> Floats:
    """Renormalises float32 laws in float64, along the last axis.

    The drafter draws from, and the verifier divides by, the result of this one
    function on the very array that is sent: the law sent is the law sampled.
    Rows without mass stay zero.
    """
    wide = probs.astype(np.float64)
    total = wide.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(wide, total, out=np.zeros_like(wide), where=total > 0))


def draw(law: npt.NDArray[np.floating], uniforms: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Draws an index from each law by inversion.

    Args:
        law: [..., m], non-negative with positive mass; need not sum to 1.
        uniforms: [...], in [0, 1).

    Returns:
        int64[...]; never an index without mass, whatever the rounding.
    """
    mass = np.cumsum(np.asarray(law, dtype=np.float64), axis=-1)
    total = mass[..., -1:]
    if not (total > 0).all():
        raise LawError("a law without mass was drawn from; expected positive mass.")
    goal = np.asarray(uniforms, dtype=np.float64)[..., None] * total
    # The first index whose cumulative mass exceeds the goal has mass of its own;
    # rounding may push the goal onto the total, so it is held just below it.
    goal = np.minimum(goal, np.nextafter(total, 0.0))
    return np.asarray((mass > goal).argmax(axis=-1), dtype=np.int64)


def point_masses(tokens: Ints) -> tuple[Ints, Floats32]:
    """Gives the laws of a deterministic draft.

    Args:
        tokens: int32[B, K], -1 beyond a lane's length.

    Returns:
        ``support`` int32[B, K, 1] and ``probs`` float32[B, K, 1].
    """
    return tokens[..., None], (tokens >= 0).astype(np.float32)[..., None]
