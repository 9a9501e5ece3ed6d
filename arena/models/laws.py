"""Logits to probability laws on tensors: ``arena.sampling.warp`` for large vocabularies.

A full sort of a vocabulary of 49k costs many times more than a forward over a few
tokens, so top-p takes the largest few probabilities first and looks further only
in the rows whose nucleus is larger.
"""

from __future__ import annotations

import numpy as np
import torch

from arena.errors import LawError
from arena.sampling import GREEDY_EPSILON

_NUCLEUS_GUESSES = (64, 1024)


def target_law(logits: torch.Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> torch.Tensor:
    """Gives the law that is sampled: temperature, top-k, softmax, top-p, in that order.

    Args:
        logits: [..., V], raw logits; -inf is a token that cannot be drawn.
        temperature: At or below ``GREEDY_EPSILON`` the law is a point mass on the first largest logit.
        top_k: Keeps the k largest logits, ties by lowest token id; 0 keeps all.
        top_p: Keeps the smallest set of most probable tokens whose mass reaches this, at least one, ties
            by lowest token id; 1 keeps all.

    Returns:
        float32[..., V], each row summing to 1.

    Raises:
        LawError: A row holds NaN or +inf, or has no finite logit.
    """
    logits = logits.float()
    top = logits.amax(dim=-1, keepdim=True)
    broken = ~torch.isfinite(top)
    if bool(broken.any()):
        first = int(broken.reshape(-1).nonzero()[0])
        raise LawError(
            f"{int(broken.sum())} rows of logits hold NaN or inf, or are all -inf (first: row {first})."
        )
    if temperature <= GREEDY_EPSILON:
        return torch.zeros_like(logits).scatter_(-1, _first_largest(logits), 1.0)
    # The softmax takes the largest away itself, and a division by 1 changes nothing.
    scores = logits if temperature == 1.0 else (logits - top) / temperature
    size = scores.shape[-1]
    flat = scores.reshape(-1, size)
    if 0 < top_k < size:
        edge = flat.topk(top_k, dim=-1).values[:, -1:]
        flat = flat.masked_fill(~_largest(flat, edge, torch.full_like(edge, top_k)), float("-inf"))
    law = flat.softmax(dim=-1)
    if top_p < 1:
        law = _nucleus(law, top_p)
    return law.reshape(scores.shape)


def _first_largest(logits: torch.Tensor) -> torch.Tensor:
    """Gives the place of each row's first largest logit, [..., 1] (numpy is eight times faster on a CPU)."""
    if logits.device.type == "cpu":
        return torch.from_numpy(logits.detach().numpy().argmax(axis=-1, keepdims=True))
    return logits.argmax(dim=-1, keepdim=True)


def _largest(values: torch.Tensor, edge: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Marks the ``count`` largest values of each row; ties by lowest index.

    Args:
        values: [R, V].
        edge: [R, 1], the smallest value marked.
        count: [R, 1], how many are marked.

    Returns:
        bool[R, V].
    """
    above = values > edge
    level = values == edge
    spare = count - above.sum(dim=-1, keepdim=True)
    if bool((level.sum(dim=-1, keepdim=True) > spare).any()):
        level &= level.cumsum(dim=-1) <= spare
    return above | level


def _nucleus(law: torch.Tensor, top_p: float) -> torch.Tensor:
    """Cuts each row of ``law`` [R, V] to its nucleus and renormalises it."""
    result = torch.empty_like(law)
    todo = torch.arange(law.shape[0], device=law.device)
    for guess in (*(guess for guess in _NUCLEUS_GUESSES if guess < law.shape[-1]), law.shape[-1]):
        if todo.numel() == 0:
            break
        rows = law[todo]
        largest = (rows.topk(guess, dim=-1).values if guess < law.shape[-1] else _sorted(rows)).double()
        mass = largest.cumsum(dim=-1)
        # A token is kept while the mass before it is short of top_p.
        count = ((mass - largest) < top_p).sum(dim=-1, keepdim=True)
        done = (mass[:, -1] >= top_p) | (guess >= law.shape[-1])
        edge = largest.gather(-1, count - 1).float()
        kept = rows[done].masked_fill(~_largest(rows[done], edge[done], count[done]), 0.0)
        result[todo[done]] = kept / kept.sum(dim=-1, keepdim=True)
        todo = todo[~done]
    return result


def _sorted(values: torch.Tensor) -> torch.Tensor:
    """Sorts each row, largest first (numpy sorts floats several times faster than torch on a CPU)."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=-1)[:, ::-1].copy())
    return values.sort(dim=-1, descending=True).values
