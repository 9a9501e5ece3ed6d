"""The poet: what a language model would say if it could not say the likely thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from arena.errors import ConfigError
from arena.protocols import Capabilities
from arena.sampling import MASS_EPSILON
from arena.types import Sampling
from drafters.base import Law
from drafters.hf import DEFAULT_MODEL, LanguageModel, sparse

if TYPE_CHECKING:
    import torch

_GUESSES = (256, 4096)
"""Largest probabilities looked at before the whole vocabulary is sorted."""


class Poet(LanguageModel):
    """Strange, luminous, tail-end words: a language model's law without its nucleus.

    The smallest set of most probable tokens whose mass reaches ``nucleus`` is removed
    from the warped law; of the rest the ``support`` most probable are kept and
    renormalised. Nothing left (as at temperature 0) gives an empty draft. The nucleus
    is that of Holtzman et al. 1904.09751, here the part that is forbidden.

    Args:
        name: Seat in the roster.
        model: The embedded model's name, a folder, a ``.gguf`` file, or a hub id.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        device: ``auto`` or a torch device.
        nucleus: Mass of the nucleus that is removed, from 0 to below 1.
        support: Most tokens of a law that is sent.
        drop: Layers between these two fractions of the depth are left out.
        max_layers: Of the layers that remain, keep the first so many.
        trust_remote_code: Whether code that comes with the model may run.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str = DEFAULT_MODEL,
        dtype: str = "auto",
        device: str = "auto",
        nucleus: float = 0.5,
        support: int = 64,
        drop: tuple[float, float] | None = None,
        max_layers: int | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        if not 0 <= nucleus < 1:
            raise ConfigError(f"drafter {name!r}: nucleus is {nucleus}; expected 0 to below 1.")
        super().__init__(
            name=name,
            model=model,
            dtype=dtype,
            device=device,
            support=support,
            drop=drop,
            max_layers=max_layers,
            trust_remote_code=trust_remote_code,
        )
        self.nucleus = nucleus

    @property
    def capabilities(self) -> Capabilities:
        """A scored law that is no language model's own, so it cannot verify."""
        return Capabilities(deterministic=False, can_score=True, fingerprint=self._fingerprint)

    def _law(self, logits: torch.Tensor, sampling: Sampling) -> Law:
        law = self._warped(logits, sampling)
        rows, size = law.shape
        m = min(self.support, size)
        ids = np.full((rows, m), -1, dtype=np.int64)
        mass = np.zeros((rows, m), dtype=np.float32)
        todo = np.arange(rows)
        for guess in (*_GUESSES, size):
            width = min(guess, size)
            top = law[todo].topk(width, dim=-1)
            values, tokens = top.values.cpu().numpy(), top.indices.cpu().numpy()
            wide = values.astype(np.float64)
            before = wide.cumsum(axis=-1) - wide
            # A token is in the nucleus while the mass before it is short of `nucleus`.
            count = (before < self.nucleus).sum(axis=-1)
            done = (count + m <= width) if width < size else np.ones(len(todo), dtype=np.bool_)
            columns = np.minimum(count[:, None] + np.arange(m), width - 1)
            there = (count[:, None] + np.arange(m) < width)[done]
            ids[todo[done]] = np.take_along_axis(tokens, columns, -1)[done]
            mass[todo[done]] = np.where(there, np.take_along_axis(values, columns, -1)[done], 0)
            todo = todo[~done]
            if not todo.size:
                break
        mass[mass.sum(axis=-1, dtype=np.float64) <= MASS_EPSILON] = 0
        return sparse(ids, mass)
