"""Asks a drafter, and reads what it answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arena.sampling import normalise
from arena.types import Draft, Feedback, LaneStep, LaneWork, ProposeRequest, Sampling
from drafters.base import LaneDrafter

WARM = Sampling()


def ask(
    drafter: LaneDrafter,
    *contexts: Sequence[int],
    k: int = 4,
    sampling: Sampling = WARM,
    key: int = 5,
) -> Draft:
    works = tuple(
        LaneWork(lane, LaneStep(f"p{lane}", 0), True, tuple(text), k) for lane, text in enumerate(contexts)
    )
    return drafter.propose(ProposeRequest(key, sampling, works))


def chain(draft: Draft, row: int = 0) -> list[int]:
    return [int(token) for token in draft.tokens[row, : draft.lengths[row]]]


def law(draft: Draft, row: int = 0, position: int = 0) -> dict[int, float]:
    probs = normalise(draft.probs[row, position])
    return {int(t): float(p) for t, p in zip(draft.support[row, position], probs, strict=True) if p > 0}


def told(
    tokens: Sequence[int], *, context: Sequence[int] = (), start: int = 0, prompt: str = "a"
) -> Feedback:
    n = len(tokens)
    return Feedback(
        LaneStep(prompt, start),
        tuple(context),
        tuple(tokens),
        np.array(tokens, dtype=np.int32)[:, None],
        np.ones((n, 1), dtype=np.float32),
        np.zeros(n, dtype=np.float32),
    )
