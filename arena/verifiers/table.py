"""A verifier whose laws are known exactly: an order-n table over a small vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arena.errors import ConfigError
from arena.models.table import TableLaw
from arena.sampling import warp
from arena.types import DraftTree, Floats, Ints, Sampling, Vocabulary


@dataclass(frozen=True, slots=True)
class DenseLaws:
    """Target laws of one lane's tree, all nodes dense.

    Attributes:
        target_probs: float64[N, V], warped.
        raw: float64[N, V], the logits.
    """

    target_probs: Floats
    raw: Floats

    def law(self, node: int) -> Floats:
        """float64[V] at a node."""
        return np.asarray(self.target_probs[node])

    def probs(self, node: int, tokens: Ints) -> Floats:
        """Probabilities of tokens at a node; 0 where a token is -1."""
        return np.asarray(np.where(tokens >= 0, self.target_probs[node][tokens], 0.0))

    def top(self, node: int, m: int) -> tuple[Ints, Floats, float]:
        """The m most probable tokens of the raw law, their mass, and the tail's."""
        law = warp(self.raw[node], Sampling())
        best = np.argsort(-law, kind="stable")[:m]
        return best.astype(np.int32), law[best], float(max(0.0, 1.0 - law[best].sum()))


class TableVerifier:
    """Serves a :class:`~arena.models.table.TableLaw`.

    Args:
        vocab: Vocabulary size V.
        order: How many last tokens the law depends on.
        seed: Which law.
        sharpness: Standard deviation of the logits, nats.
        eos: Token that ends a text, or None.
        max_context: Longest context served, tokens.
    """

    def __init__(
        self,
        *,
        vocab: int = 32,
        order: int = 2,
        seed: int = 0,
        sharpness: float = 2.0,
        eos: int | None = None,
        max_context: int = 1 << 20,
    ) -> None:
        if not 2 <= vocab <= 4096:
            raise ConfigError(f"verifier.vocab is {vocab}; expected 2 to 4096.")
        if eos is not None and not 0 <= eos < vocab:
            raise ConfigError(f"verifier.eos is {eos}; expected a token below {vocab}.")
        self._table = TableLaw(vocab, order, seed, sharpness, eos)
        self._contexts: dict[int, list[int]] = {}
        self._trees: dict[int, DraftTree] = {}
        self.max_context = max_context

    @classmethod
    def vocabulary_fingerprint(cls, **options: Any) -> str:
        """The vocabulary that these options give, nothing being built."""
        return f"table-{options.get('vocab', 32)}"

    @property
    def law(self) -> TableLaw:
        """The law that it serves, unwarped."""
        return self._table

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens."""
        return self._table.vocabulary

    def encode(self, messages: Sequence[tuple[str, str]], text: str) -> list[int]:
        """Turns text into tokens by its bytes modulo V (for trying things out)."""
        joined = "\n".join([content for _, content in messages] + ([text] if text else []))
        return [byte % self._table.vocab for byte in joined.encode()]

    def decode_text(self, tokens: Sequence[int]) -> str:
        """Tokens as numbers."""
        return " ".join(str(token) for token in tokens)

    def open(self, contexts: Mapping[int, Sequence[int]]) -> None:
        """Starts lanes over."""
        for lane, context in contexts.items():
            # As in a key-value cache, the last token waits to be the next tree's root.
            self._contexts[lane] = list(context[:-1])

    def forward(self, trees: Mapping[int, DraftTree], sampling: Sampling) -> dict[int, DenseLaws]:
        """Gives the laws at every node of the trees."""
        self._trees = dict(trees)
        rows = [self._windows(lane, tree) for lane, tree in trees.items()]
        logits = self._table.logits(np.concatenate(rows))
        law = warp(logits, sampling)
        laws, at = {}, 0
        for lane, tree in trees.items():
            end = at + len(tree.tokens)
            laws[lane] = DenseLaws(law[at:end], logits[at:end])
            at = end
        return laws

    def _windows(self, lane: int, tree: DraftTree) -> Ints:
        width = max(1, self._table.order)
        windows = np.full((len(tree.tokens), width), -1, dtype=np.int32)
        tail = [*self._contexts[lane][-width:], int(tree.tokens[0])][-width:]
        windows[0, width - len(tail) :] = tail
        for node in range(1, len(tree.tokens)):  # parents come before their children
            windows[node, :-1] = windows[tree.parents[node], 1:]
            windows[node, -1] = tree.tokens[node]
        return windows

    def cached(self, lane: int) -> int:
        """How many tokens a lane holds, as a cache would."""
        return len(self._contexts[lane])

    def keep(self, paths: Mapping[int, Sequence[int]]) -> None:
        """Extends each lane by its tree's root and its accepted nodes."""
        for lane, path in paths.items():
            tree = self._trees[lane]
            self._contexts[lane].extend(int(tree.tokens[node]) for node in (0, *path))
