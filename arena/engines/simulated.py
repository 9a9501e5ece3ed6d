"""A round of many replicates at once, on table models: arrays where a run has objects.

The same keyed uniforms, the same laws and the same additions in the same order as
``judge`` under the rules ``speculative`` and ``recursive``: counts are equal bit by bit,
which a test holds for every seed that it tries. What only describes a field (similarity,
bounds, worths) is not computed, since nobody's survival depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arena import seeding
from arena.engines.residuals import Residuals
from arena.engines.tabulated import DraftTables, Places, TargetTable
from arena.types import Floats

Bools = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Field:
    """What all replicates share.

    Attributes:
        vocab: V.
        target: The verifier's laws.
        tables: Of the table drafters.
        table_of: int[D], a drafter's place in ``tables``; -1 for a copyist.
        copyists: Drafter to the object whose ``copy_all`` copies.
        words: uint64[D], the drafters' names.
        eos: Token that ends a text, or -1.
        k: K.
    """

    vocab: int
    target: TargetTable
    tables: DraftTables
    table_of: Places
    copyists: dict[int, Any]
    words: Keys
    eos: int
    k: int

    @property
    def top(self) -> int:
        """States there are: tokens before the last that matters drop out."""
        reach: list[int] = [self.target.order, *self.tables.reach.tolist()]
        return int((self.vocab + 1) ** max(reach))


@dataclass(slots=True)
class Lanes:
    """Texts being continued, all prompts of a round of all replicates.

    Attributes:
        cell: int64[L], replicate times prompts a round, plus the prompt's place.
        seats: int64[L, S], the drafters alive in the lane's replicate, -1 beyond.
        key: uint64[L], the round's key with the prompt folded in.
        texts: int32[L, T], what is written so far, then anything.
        length: int64[L], tokens of each text.
        start: int64[L], tokens of output.
        budget: int64[L], tokens of output at most.
        state: int64[L], the last tokens in base V + 1.
    """

    cell: Places
    seats: Places
    key: Keys
    texts: npt.NDArray[np.int32]
    length: Places
    start: Places
    budget: Places
    state: Places

    def only(self, rows: Bools) -> Lanes:
        """Keeps some lanes."""
        return Lanes(*(getattr(self, name)[rows] for name in Lanes.__slots__))


@dataclass(frozen=True, slots=True)
class Steps:
    """Counts of one pass: a row a lane, a column a seat; and what each lane committed."""

    cell: Places
    seats: Places
    offered: Places
    drafted: Places
    accepted: Places
    matched: Places
    expected: Floats
    committed: Places


@dataclass(slots=True)
class _Drafts:
    """Chains of all lanes: [L, S, K] each; ``row`` is the law's row, -1 for a point mass."""

    tokens: Places
    prob: Floats
    row: Places
    state: Places
    length: Places


def play(field: Field, lanes: Lanes) -> list[Steps]:
    """Plays a round to its barrier, pass by pass; lanes that end drop out."""
    passes = []
    base = field.vocab + 1
    top = field.top
    while lanes.cell.size:
        k = np.clip(lanes.budget - lanes.start - 1, 0, field.k)
        step_key = seeding.fold(lanes.key, lanes.start)
        depths = seeding.fold(step_key[:, None], np.arange(1, field.k + 2))
        named = seeding.fold(depths[:, None, : field.k], field.words[np.maximum(lanes.seats, 0)][:, :, None])
        drafts = _draft(field, lanes, k, named, top)
        accept = seeding.uniform(named, "accept")
        path, used = _walk(field, lanes, drafts, accept, named, depths)
        steps, end = _count(field, lanes, drafts, accept, k, path, used)
        passes.append(steps)
        for j in range(field.k + 1):
            on = np.flatnonzero(steps.committed > j)
            if not on.size:
                break
            lanes.texts[on, lanes.length[on] + j] = path[on, j]
            lanes.state[on] = (lanes.state[on] * base + path[on, j] + 1) % top
        lanes.length += steps.committed
        lanes.start += steps.committed
        lanes = lanes.only(~end & (lanes.start < lanes.budget))
    return passes


def _draft(field: Field, lanes: Lanes, k: Places, named: Keys, top: int) -> _Drafts:
    n, seats = lanes.seats.shape
    shape = (n, seats, field.k)
    drafts = _Drafts(
        np.full(shape, -1, dtype=np.int64),
        np.ones(shape),
        np.full(shape, -1, dtype=np.int64),
        np.zeros((n, seats, field.k + 1), dtype=np.int64),
        np.zeros((n, seats), dtype=np.int64),
    )
    drafts.state[:, :, 0] = lanes.state[:, None]
    base, tables = field.vocab + 1, field.tables
    table = np.where(lanes.seats >= 0, field.table_of[np.maximum(lanes.seats, 0)], -1)
    for d, copyist in field.copyists.items():
        lane, seat = np.nonzero(lanes.seats == d)
        if lane.size:
            copied = copyist.copy_all(lanes.texts[lane], lanes.length[lane], field.k)
            copied[np.arange(field.k) >= k[lane][:, None]] = -1
            drafts.tokens[lane, seat] = copied
    uniforms = seeding.uniform(named, "draft")
    for j in range(field.k):
        for points in (False, True):
            chosen = (table >= 0) & (k > j)[:, None] & (tables.point[np.maximum(table, 0)] == points)
            lane, seat = np.nonzero(chosen)
            if not lane.size:
                continue
            which = table[lane, seat]
            row = tables.offset[which] + drafts.state[lane, seat, j] % tables.span[which]
            if points:
                drafts.tokens[lane, seat, j] = tables.token[row]
            else:
                token, prob = tables.draw(row, uniforms[lane, seat, j])
                drafts.tokens[lane, seat, j], drafts.prob[lane, seat, j] = token, prob
                drafts.row[lane, seat, j] = row
        drafts.state[:, :, j + 1] = (drafts.state[:, :, j] * base + drafts.tokens[:, :, j] + 1) % top
    # Cut at the first end token: nothing follows the end of a text.
    there = drafts.tokens >= 0
    ended = np.cumsum(drafts.tokens == field.eos, axis=2) if field.eos >= 0 else np.zeros(shape, np.int64)
    there[:, :, 1:] &= ended[:, :, :-1] == 0
    drafts.length = np.cumprod(there, axis=2).sum(axis=2)
    return drafts


def _chance(target: Floats, draft: Floats) -> Floats:
    """min(1, target / draft), 0 where the draft law excludes its own token."""
    ratio = np.divide(target, draft, out=np.zeros_like(target), where=draft > 0)
    return np.minimum(1.0, ratio)


def _walk(
    field: Field, lanes: Lanes, drafts: _Drafts, accept: Floats, named: Keys, depths: Keys
) -> tuple[Places, Places]:
    """Recursive rejection over each lane's tree.

    Returns:
        int64[L, K + 1], the path and the token after it; the last is at ``used[L]``.
    """
    n = len(lanes.seats)
    path = np.full((n, field.k + 1), -2, dtype=np.int64)
    used = np.zeros(n, dtype=np.int64)
    order = seeding.uniform(named, "order")
    draws = seeding.uniform(depths, "draw")
    walking, state = np.arange(n), lanes.state.copy()
    alive = lanes.seats >= 0
    base, target = field.vocab + 1, field.target
    for depth in range(field.k + 1):
        if depth < field.k:
            alive &= drafts.length[walking] > depth
            ranked = np.argsort(np.where(alive, order[walking, :, depth], np.inf), axis=1, kind="stable")
            count = alive.sum(axis=1)
        else:
            ranked, count = np.zeros((walking.size, 1), dtype=np.int64), np.zeros(walking.size, np.int64)
        left = Residuals(target, state % target.span, field.vocab)
        kept = np.full(walking.size, -1, dtype=np.int64)
        pending = np.arange(walking.size)
        for rank in range(int(count.max(initial=0))):
            pending = pending[count[pending] > rank]
            lane, seat = walking[pending], ranked[pending, rank]
            token = drafts.tokens[lane, seat, depth]
            chance = _chance(left.prob(pending, token), drafts.prob[lane, seat, depth])
            taken = accept[lane, seat, depth] < chance
            kept[pending[taken]] = token[taken]
            pending = pending[~taken]
            lane, seat = lane[~taken], seat[~taken]
            left.subtract(field.tables, pending, token[~taken], drafts.row[lane, seat, depth])
        dry = np.flatnonzero(kept < 0)
        path[walking[dry], depth] = left.draw(dry, draws[walking[dry], depth])
        used[walking[dry]] = depth
        on = kept >= 0
        if not on.any():
            break
        walking, kept = walking[on], kept[on]
        path[walking, depth] = kept
        alive = alive[on] & (drafts.tokens[walking, :, depth] == kept[:, None])
        state = (state[on] * base + kept + 1) % field.top
    return path, used


def _count(
    field: Field, lanes: Lanes, drafts: _Drafts, accept: Floats, k: Places, path: Places, used: Places
) -> tuple[Steps, Bools]:
    """Each drafter's verdict alone, and the commit."""
    depth = np.arange(field.k)
    there = depth < drafts.length[:, :, None]
    rows = drafts.state[:, :, : field.k] % field.target.span
    target = field.target.laws[rows, np.maximum(drafts.tokens, 0)]
    chance = np.where(there, _chance(target, drafts.prob), 0.0)
    accepted = np.cumprod(there & (accept < chance), axis=2).sum(axis=2)
    live, expected = chance[:, :, 0].copy(), chance[:, :, 0].copy()
    for j in range(1, field.k):
        live *= chance[:, :, j]
        expected += live
    committed = used + 1
    end = np.zeros(len(k), dtype=np.bool_)
    offered = np.broadcast_to(k[:, None], accepted.shape).copy()
    drafted = drafts.length.copy()
    if field.eos >= 0:
        hit = (path == field.eos) & (np.arange(field.k + 1) <= used[:, None])
        end = hit.any(axis=1)
        committed = np.where(end, hit.argmax(axis=1) + 1, committed)
        last = np.take_along_axis(drafts.tokens, np.maximum(accepted - 1, 0)[:, :, None], axis=2)[:, :, 0]
        ended = (accepted > 0) & (last == field.eos)
        offered, drafted = np.where(ended, accepted, offered), np.where(ended, accepted, drafted)
    same = there & (drafts.tokens == path[:, None, : field.k]) & (depth < committed[:, None, None])
    matched = np.cumprod(same, axis=2).sum(axis=2)
    return Steps(lanes.cell, lanes.seats, offered, drafted, accepted, matched, expected, committed), end


def seats_of(alive: Sequence[Sequence[int]]) -> Places:
    """Gives the drafters alive of each replicate, int64[R, S], -1 beyond."""
    width = max(map(len, alive))
    return np.array([[*one, *[-1] * (width - len(one))] for one in alive], dtype=np.int64)
