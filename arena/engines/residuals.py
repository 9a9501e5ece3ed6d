"""The residual laws of many lanes at once, for simulation; one is ``arena.acceptance.residual``."""

from __future__ import annotations

import numpy as np

from arena.engines.tabulated import DraftTables, Places, TargetTable
from arena.sampling import MASS_EPSILON
from arena.types import Floats


class Residuals:
    """The residual of every walking lane at one depth; see ``arena.acceptance.residual``."""

    def __init__(self, target: TargetTable, rows: Places, vocab: int) -> None:
        self._target, self._rows = target, rows
        self._scale = target.total[rows]
        self._own = np.zeros(rows.size, dtype=np.bool_)  # else it is still the target law itself
        self._values = np.empty((rows.size, vocab))

    def prob(self, which: Places, token: Places) -> Floats:
        """Gives r(token) of some lanes."""
        found = self._target.laws[self._rows[which], token]
        own = self._own[which]
        found[own] = self._values[which[own], token[own]]
        return found / self._scale[which]

    def subtract(self, tables: DraftTables, which: Places, token: Places, law_row: Places) -> None:
        """Replaces r by norm((r - q)+) in some lanes.

        Args:
            tables: Of the draft laws.
            which: The lanes.
            token: The refused token of each.
            law_row: The row of the law it was drawn from; -1 for a point mass.
        """
        if not which.size:
            return
        self._copy(which)
        point = law_row < 0
        one = which[point]
        if one.size:
            x, scale = token[point], self._scale[one]
            before = self._values[one, x]
            after = np.maximum(before - scale, 0.0)
            self._values[one, x] = after
            self._settle(one, scale - (before - after))
        rest, row = which[~point], law_row[~point]
        live = tables.live[row]
        for size in np.unique(live).tolist():
            same = live == size
            mine, mine_row = rest[same], row[same]
            scale = self._scale[mine]
            before = self._values[mine]
            after = before - scale[:, None] * tables.dense[mine_row]
            np.maximum(after, 0.0, out=after)
            self._values[mine] = after
            before -= after
            # Added up in the order in which the law was sent, as a run does.
            places = tables.support[mine_row, :size] + (np.arange(mine.size) * before.shape[1])[:, None]
            self._settle(mine, scale - before.reshape(-1)[places].sum(axis=1))

    def _copy(self, which: Places) -> None:
        fresh = which[~self._own[which]]
        if fresh.size:
            self._values[fresh] = self._target.laws[self._rows[fresh]]
            self._own[fresh] = True

    def _settle(self, which: Places, left: Floats) -> None:
        noise = left <= MASS_EPSILON
        gone = which[noise]
        self._scale[which] = left
        self._scale[gone] = self._target.total[self._rows[gone]]
        self._own[gone] = False

    def draw(self, which: Places, uniforms: Floats) -> Places:
        """Draws a token from r in some lanes, by inversion."""
        token = self._target.draw(self._rows[which], uniforms)
        own = np.flatnonzero(self._own[which])
        if own.size:
            mass = np.cumsum(self._values[which[own]] / self._scale[which[own]][:, None], axis=1)
            total = mass[:, -1]
            goal = np.minimum(uniforms[own] * total, np.nextafter(total, 0.0))
            token[own] = (mass > goal[:, None]).argmax(axis=1)
        return token
