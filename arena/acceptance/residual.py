"""The residual law: what a refused draft leaves of the target law."""

from __future__ import annotations

import numpy as np

from arena.sampling import MASS_EPSILON
from arena.types import Floats, Ints


class Residual:
    """A target law from which refused draft laws are subtracted in turn.

    Held unnormalised: ``r = values / scale`` with ``values = p`` at the start, and
    r <- norm((r - q)+) becomes values <- (values - scale q)+. So one drafter costs
    O(m), its support only; the vocabulary is copied once, at the first subtraction.

    A mass at or below ``MASS_EPSILON`` is rounding noise and is never normalised: the
    residual is then the target law again (an event of that probability at most).

    Attributes:
        mass: The chance that none of the drafts so far is kept, given the laws:
            prod (1 - sum min(r_i, q_i)).
    """

    def __init__(self, law: Floats) -> None:
        self._law = self._values = law
        self._total = self._scale = float(law.sum())
        self.mass = 1.0

    def prob(self, token: int) -> float:
        """Gives r(token)."""
        return float(self._values[token]) / self._scale

    def subtract(self, support: Ints, draft_probs: Floats) -> float:
        """Replaces r by norm((r - q)+).

        Args:
            support: int[m], distinct tokens; -1 pads.
            draft_probs: float64[m], q on the support; 0 where padded.

        Returns:
            sum (r - q)+, the mass that was normalised; 0 where it was noise.
        """
        if self._values is self._law:
            self._values = self._law.copy()
        live = draft_probs > 0
        tokens = support[live]
        before = self._values[tokens]
        after = np.maximum(before - self._scale * draft_probs[live], 0.0)
        self._values[tokens] = after
        left = self._scale - float((before - after).sum())
        if left <= MASS_EPSILON:
            self._values, self._scale, self.mass = self._law, self._total, 0.0
            return 0.0
        share = left / self._scale
        self._scale = left
        self.mass *= share
        return share

    def law(self) -> Floats:
        """Gives r, float64[V], summing to 1."""
        return self._law if self._values is self._law else self._values / self._scale
