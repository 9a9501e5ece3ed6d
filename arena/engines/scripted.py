"""Drafters for audits: a law that is given, and a text that is known. They cost nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from arena import sampling, seeding
from arena.protocols import Capabilities
from arena.types import Draft, Feedback, LaneStep, ProposeRequest


class _Idle:
    """What a drafter that keeps nothing answers to everything else."""

    capabilities = Capabilities(deterministic=False)

    def reset(self, contexts: Mapping[int, Sequence[int]]) -> None:
        """Keeps nothing."""

    def learn(self, batch: Sequence[Feedback]) -> None:
        """Learns nothing."""

    def save(self, folder: Path) -> None:
        """Saves nothing."""

    def load(self, folder: Path) -> None:
        """Loads nothing."""


class FixedLaws(_Idle):
    """Draws the token at each output position from a law that is given for that position.

    Args:
        name: Its seat; it keys the noise.
        support: For each position, token ids.
        probs: For each position, their probabilities.
    """

    def __init__(self, *, name: str, support: list[list[int]], probs: list[list[float]]) -> None:
        self._name = name
        self._probs = np.array(probs, dtype=np.float32)
        self._support = np.where(self._probs > 0, np.array(support, dtype=np.int32), -1).astype(np.int32)
        self._law = sampling.normalise(self._probs)

    def propose(self, request: ProposeRequest) -> Draft:
        """Drafts from the laws of the positions that follow; beyond the last, nothing."""
        rows, width = len(request.lanes), request.k
        tokens = np.full((rows, width), -1, dtype=np.int32)
        support = np.full((rows, width, self._support.shape[1]), -1, dtype=np.int32)
        probs = np.zeros(support.shape, dtype=np.float32)
        for row, work in enumerate(request.lanes):
            for depth in range(min(work.k, len(self._law) - work.step.start)):
                at = work.step.start + depth
                uniform = _uniform(request.key, work.step, depth + 1, self._name)
                tokens[row, depth] = self._support[at, sampling.draw(self._law[at], uniform)]
                support[row, depth], probs[row, depth] = self._support[at], self._probs[at]
        return Draft(tokens, (tokens >= 0).sum(axis=1).astype(np.int32), support, probs)


class KnownTexts(_Idle):
    """Proposes the known continuation of each prompt, with a wrong token now and then.

    Args:
        name: Its seat; it keys where it errs.
        texts: prompt_id to tokens.
        wrong: Chance of a wrong token.
        vocab: Vocabulary size.
    """

    capabilities = Capabilities(deterministic=True)

    def __init__(self, *, name: str, texts: dict[str, list[int]], wrong: float, vocab: int) -> None:
        self._name, self._texts, self._wrong, self._vocab = name, texts, wrong, vocab

    def propose(self, request: ProposeRequest) -> Draft:
        """Drafts what is known to follow, as point masses."""
        tokens = np.full((len(request.lanes), request.k), -1, dtype=np.int32)
        for row, work in enumerate(request.lanes):
            text = self._texts[work.step.prompt_id]
            ahead = text[work.step.start : work.step.start + work.k]
            for depth, token in enumerate(ahead):
                uniform = _uniform(request.key, work.step, depth + 1, self._name)
                tokens[row, depth] = (token + 1) % self._vocab if uniform < self._wrong else token
        support, probs = sampling.point_masses(tokens)
        return Draft(tokens, (tokens >= 0).sum(axis=1).astype(np.int32), support, probs)


def _uniform(key: int, step: LaneStep, depth: int, name: str) -> float:
    return float(seeding.uniform(key, step.prompt_id, step.start, depth, name, "draft"))
