"""The table drafter: an exact synthetic law, for tests and simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.errors import ConfigError
from arena.models.table import TableLaw, at_overlap, every_context
from arena.protocols import Capabilities
from arena.sampling import truncate, warp
from arena.types import Draft, Floats, Ints, ProposeRequest, Sampling
from drafters.base import LaneDrafter, Law, Rows, log_probs, roll


class Table(LaneDrafter):
    """Drafts from a mixture of two exact order-n laws over a small vocabulary.

    With p the law of (``order``, ``seed``) and r an independent one, both warped alike,
    it sends q = (1 - mix) p + mix r: beside a table verifier of the same numbers, its
    overlap with the target is set by ``mix``, on average, or by ``overlap``, exactly
    and after every context. Source: :class:`arena.models.table.TableLaw`.

    Args:
        name: Seat in the roster.
        vocab: Vocabulary size.
        order: How many last tokens the first law depends on.
        seed: Which first law.
        sharpness: Standard deviation of both laws' logits, nats.
        mix: Weight of the second law, 0 to 1.
        overlap: Instead of ``mix``: sum min(p, q) after every context, 0 to 1; see
            :func:`arena.models.table.at_overlap`.
        other_order: ``order`` of the second law; the same by default.
        other_seed: ``seed`` of the second law; one more than ``seed`` by default.
        argmax: Propose the most probable token as a point mass.
        support: Most tokens of a law that is sent.
    """

    def __init__(
        self,
        *,
        name: str,
        vocab: int = 16,
        order: int = 2,
        seed: int = 0,
        sharpness: float = 2.0,
        mix: float = 0.0,
        overlap: float | None = None,
        other_order: int | None = None,
        other_seed: int | None = None,
        argmax: bool = False,
        support: int = 64,
    ) -> None:
        super().__init__(name=name)
        if not 0 <= mix <= 1:
            raise ConfigError(f"drafter {name!r}: mix is {mix}; expected 0 to 1.")
        if overlap is not None and (mix or not 0 <= overlap <= 1):
            raise ConfigError(
                f"drafter {name!r}: overlap is {overlap} and mix is {mix}; expected one of them, from 0 to 1."
            )
        for what, number, least in (("vocab", vocab, 1), ("order", order, 0), ("support", support, 1)):
            if number < least:
                raise ConfigError(f"drafter {name!r}: {what} is {number}; expected at least {least}.")
        self.mix = mix
        self.overlap = overlap
        self.argmax = argmax
        self.support = support
        self._vocab = vocab
        self._law = TableLaw(vocab, order, seed, sharpness)
        self._other = TableLaw(
            vocab,
            order if other_order is None else other_order,
            seed + 1 if other_seed is None else other_seed,
            sharpness,
        )
        self._reach = max(self._law.order, self._other.order)

    @classmethod
    def vocabulary_fingerprint(cls, **options: Any) -> str | None:
        """Names the integers below ``vocab``."""
        return f"table-{options.get('vocab', 16)}"

    @property
    def capabilities(self) -> Capabilities:
        """A scored law over a known vocabulary."""
        return Capabilities(deterministic=self.argmax, can_score=True, fingerprint=f"table-{self._vocab}")

    def score(self, context: Sequence[int], output: Sequence[int], sampling: Sampling) -> Floats:
        """Gives the log-probability of each output token under the law it would send, float64[n]."""
        text = np.concatenate([np.full(self._reach, -1), context, output]).astype(np.int64)
        first = self._reach + len(context)
        # The window before output token j ends where that token begins.
        ends = first + np.arange(len(output))[:, None]
        windows = text[ends - self._reach + np.arange(self._reach)]
        return log_probs(self._laws(windows, sampling), output)

    def tabulate(self, sampling: Sampling) -> tuple[int, Law]:
        """Gives the law that is sent after every context, for simulation.

        Returns:
            How many last tokens it depends on, and the laws in the order of
            :func:`arena.models.table.every_context`.
        """
        return self._reach, self._laws(every_context(self._vocab, self._reach), sampling)

    def _draft(self, request: ProposeRequest) -> Draft:
        def law_of(rows: Rows, drafted: Ints) -> Law:
            contexts = [self.context(request.lanes[row].lane) for row in rows.tolist()]
            return self._laws(self._windows(contexts, drafted), request.sampling)

        return roll(request, self.name, law_of)

    def _windows(self, contexts: Sequence[Ints], drafted: Ints) -> npt.NDArray[np.int64]:
        """Gives the last tokens of each text, int64[A, reach], -1 before its start."""
        reach = self._reach
        windows = np.full((len(contexts), reach + drafted.shape[1]), -1, dtype=np.int64)
        windows[:, reach:] = drafted
        for row, text in enumerate(contexts):
            tail = text[max(0, len(text) - reach) :]
            windows[row, reach - len(tail) : reach] = tail
        return windows[:, drafted.shape[1] :]

    def _laws(self, windows: npt.NDArray[np.int64], sampling: Sampling) -> Law:
        law = warp(self._law.logits(windows), sampling)
        if self.overlap is not None:
            law = at_overlap(law, warp(self._other.logits(windows), sampling), self.overlap)
        elif self.mix:
            law = (1 - self.mix) * law + self.mix * warp(self._other.logits(windows), sampling)
        return truncate(law, 1 if self.argmax else self.support)
