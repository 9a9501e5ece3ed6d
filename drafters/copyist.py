"""The copyist: prompt lookup."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from arena.errors import ConfigError, one_of
from arena.protocols import Capabilities
from arena.types import Draft, Ints, ProposeRequest
from drafters.base import LaneDrafter, Rows, point_draft

Prefer = Literal["latest", "earliest"]


class Copyist(LaneDrafter):
    """Copies what followed the last time: prompt lookup on the lane's own text.

    The longest suffix of ``max_ngram`` down to ``min_ngram`` tokens that occurs
    earlier in the text is sought, and the tokens after that occurrence are copied, at
    most up to the text's end. No match gives an empty draft. Source: A. Saxena,
    "Prompt Lookup Decoding" (2023), https://github.com/apoorvumang/prompt-lookup-decoding.

    Args:
        name: Seat in the roster.
        max_ngram: Longest suffix sought, tokens.
        min_ngram: Shortest suffix sought, tokens.
        prefer: Which of several occurrences of the longest suffix is copied;
            "earliest" is what transformers and vLLM do.
    """

    def __init__(
        self, *, name: str, max_ngram: int = 3, min_ngram: int = 1, prefer: Prefer = "latest"
    ) -> None:
        super().__init__(name=name)
        if not 1 <= min_ngram <= max_ngram:
            raise ConfigError(
                f"drafter {name!r}: min_ngram is {min_ngram} and max_ngram {max_ngram}; "
                "expected 1 <= min_ngram <= max_ngram."
            )
        if prefer not in get_args(Prefer):
            raise ConfigError(f"drafter {name!r}: {one_of('value of prefer', prefer, get_args(Prefer))}")
        self.max_ngram = max_ngram
        self.min_ngram = min_ngram
        self.prefer: Prefer = prefer

    @property
    def capabilities(self) -> Capabilities:
        """Point masses; a copied span depends on where the block starts."""
        return Capabilities(deterministic=True, start_dependent=True)

    def _draft(self, request: ProposeRequest) -> Draft:
        return point_draft([self._copy(self.context(work.lane), work.k) for work in request.lanes], request.k)

    def copy_all(self, texts: Ints, lengths: Rows, k: int) -> Ints:
        """Copies for many texts at once, for simulation: what ``propose`` gives, row by row.

        Args:
            texts: int[L, T], each row a text, then anything.
            lengths: int64[L], tokens of each text, at least 1.
            k: Most tokens copied.

        Returns:
            int32[L, k], -1 where nothing is copied.
        """
        places, rows = np.arange(texts.shape[1]), np.arange(len(texts))
        start = np.full(len(texts), -1, dtype=np.int64)
        for size in range(self.max_ngram, self.min_ngram - 1, -1):
            open_rows = np.flatnonzero((start < 0) & (lengths > size))
            if not open_rows.size:
                continue
            text, length = texts[open_rows], lengths[open_rows]
            hits = places < (length - size)[:, None]
            for offset in range(size):
                last = text[np.arange(len(text)), length - size + offset]
                hits[:, : texts.shape[1] - offset] &= text[:, offset:] == last[:, None]
            found = hits.argmax(axis=1)
            if self.prefer == "latest":
                found = texts.shape[1] - 1 - hits[:, ::-1].argmax(axis=1)
            start[open_rows] = np.where(hits.any(axis=1), found + size, -1)
        taken = start[:, None] + np.arange(k)
        there = (start[:, None] >= 0) & (taken < lengths[:, None])
        return np.where(there, texts[rows[:, None], np.where(there, taken, 0)], -1).astype(np.int32)

    def _copy(self, text: Ints, k: int) -> Ints:
        if k > 0:
            for size in range(min(self.max_ngram, len(text) - 1), self.min_ngram - 1, -1):
                suffix = text[len(text) - size :]
                # All occurrences that end before the text does, by their first token.
                hits = text[: len(text) - size] == suffix[0]
                for offset in range(1, size):
                    hits &= text[offset : len(text) - size + offset] == suffix[offset]
                if hits.any():
                    found = hits.argmax() if self.prefer == "earliest" else np.flatnonzero(hits)[-1]
                    return text[found + size : found + size + k]
        return text[:0]
