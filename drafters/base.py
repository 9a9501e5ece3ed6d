"""What drafters share: the texts of their lanes, their noise, and the loop that drafts.

A drafter that inherits from :class:`LaneDrafter` writes ``capabilities`` and
``_draft``. Its noise comes from :func:`uniforms` and its draws from :func:`roll`,
so that the law it sends is the law it samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from arena import seeding
from arena.errors import DrafterFault
from arena.protocols import Capabilities
from arena.sampling import draw, normalise, point_masses
from arena.types import Draft, Feedback, Floats, Floats32, Ints, LaneStep, LaneWork, ProposeRequest

Rows = npt.NDArray[np.int64]
Law = tuple[Ints, Floats32]
"""Sparse laws of some lanes: support int32[A, m] (-1 pads) and probs float32[A, m]."""

LawOf = Callable[[Rows, Ints], Law]
"""Gives the laws of some rows of a request, int64[A], after what they drafted so far, int32[A, depth - 1]."""

Stop = Callable[[Ints, Floats], npt.NDArray[np.bool_]]
"""Tells which lanes end after a token, int32[A], that had a probability, float64[A], under the law sent."""


class Lane:
    """One lane's text, growing in place.

    Attributes:
        step: The lane-step last drafted for, None after a reset.
    """

    __slots__ = ("_buffer", "_length", "step")

    def __init__(self, tokens: Sequence[int] | Ints) -> None:
        self._buffer = np.empty(max(256, 2 * len(tokens)), dtype=np.int32)
        self._length = 0
        self.step: LaneStep | None = None
        self.extend(tokens)

    @property
    def tokens(self) -> Ints:
        """The whole text, int32[n]; a view, valid until the text grows."""
        return self._buffer[: self._length]

    def extend(self, tokens: Sequence[int] | Ints) -> None:
        """Appends tokens."""
        end = self._length + len(tokens)
        if end > self._buffer.size:
            self._buffer = np.concatenate([self.tokens, np.empty(end, dtype=np.int32)])
        self._buffer[self._length : end] = tokens
        self._length = end


class LaneDrafter(ABC):
    """Base of the drafters here: keeps each lane's text in step with what was committed.

    Calling ``propose`` twice for one lane-step is harmless: its tokens are taken once.

    Args:
        name: The drafter's seat in the roster; it keys the noise.
    """

    def __init__(self, *, name: str) -> None:
        self.name = name
        self._lanes: dict[int, Lane] = {}

    @classmethod
    def vocabulary_fingerprint(cls, **options: Any) -> str | None:
        """Gives the vocabulary a drafter with these options is bound to, loading no weights.

        Args:
            **options: The constructor's, without ``name``.

        Returns:
            The fingerprint, or None where any vocabulary will do.
        """
        return None

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def reset(self, contexts: Mapping[int, Sequence[int]]) -> None:
        """Starts lanes over with full contexts.

        Args:
            contexts: Lane to all tokens of prompt and output so far.
        """
        for lane, tokens in contexts.items():
            self._lanes[lane] = Lane(tokens)

    def propose(self, request: ProposeRequest) -> Draft:
        """Takes up what was committed, then drafts at most K_eff tokens a lane.

        Raises:
            DrafterFault: A lane was never opened, or tokens are missing between two calls.
        """
        for work in request.lanes:
            self._follow(work)
        return self._draft(request)

    def learn(self, batch: Sequence[Feedback]) -> None:  # noqa: B027 (most drafters do not)
        """Learns nothing."""

    def save(self, folder: Path) -> None:  # noqa: B027
        """Saves nothing: nothing was learnt."""

    def load(self, folder: Path) -> None:  # noqa: B027
        """Loads nothing: nothing was learnt."""

    def context(self, lane: int) -> Ints:
        """Gives a lane's whole text, int32[n]; a view, valid until the text grows."""
        return self._lanes[lane].tokens

    @abstractmethod
    def _draft(self, request: ProposeRequest) -> Draft:
        """Drafts for lanes whose texts are up to date."""

    def _follow(self, work: LaneWork) -> None:
        lane = self._lanes.get(work.lane)
        if work.fresh:
            if lane is None or not np.array_equal(lane.tokens, work.tokens):
                self.reset({work.lane: work.tokens})
                lane = self._lanes[work.lane]
        elif lane is None:
            raise DrafterFault(self.name, f"lane {work.lane} was never opened; reset it first.")
        elif lane.step != work.step:
            last = lane.step
            if last is not None and last != LaneStep(work.step.prompt_id, work.step.start - len(work.tokens)):
                raise DrafterFault(
                    self.name,
                    f"lane {work.lane} jumped from {last} to {work.step} with {len(work.tokens)} new tokens.",
                )
            lane.extend(work.tokens)
        lane.step = work.step


def uniforms(request: ProposeRequest, depth: int | Rows, name: str, rows: Rows | None = None) -> Floats:
    """Gives the numbers in [0, 1) with which a drafter draws its tokens at one depth, or at several.

    Each depends on the request's key, the lane-step, the depth and the drafter's name
    alone: never on lanes, batches or call order, and no two drafters share one.

    Args:
        request: The request that is answered.
        depth: Position in the draft, from 1; or an array of D of them.
        name: The drafter's name.
        rows: Rows of the request; all by default.

    Returns:
        float64[len(rows)], or float64[len(rows), D].
    """
    wanted = range(len(request.lanes)) if rows is None else rows.tolist()
    steps = [request.lanes[row].step for row in wanted]
    prompts = np.array([seeding.name_word(step.prompt_id) for step in steps], dtype=np.uint64)
    starts = np.array([step.start for step in steps], dtype=np.uint64)
    keys = seeding.fold(request.key, prompts, starts)
    return seeding.uniform(keys[:, None] if isinstance(depth, np.ndarray) else keys, depth, name, "draft")


def roll(
    request: ProposeRequest, name: str, law_of: LawOf, *, limits: Rows | None = None, stop: Stop | None = None
) -> Draft:
    """Drafts token by token, each drawn from exactly the float32 law that is sent.

    A lane ends where its law has no mass: that depends on laws and earlier tokens,
    never on the token that would be dropped.

    Args:
        request: The request that is answered.
        name: The drafter's name.
        law_of: Gives the next laws of the lanes that go on.
        limits: Most tokens of each lane, int64[B]; K_eff by default.
        stop: Ends lanes after, never before, a token that was drawn.

    Returns:
        The draft.
    """
    most = np.array([work.k for work in request.lanes], dtype=np.int64)
    if limits is not None:
        most = np.minimum(most, limits)
    tokens = np.full((len(most), request.k), -1, dtype=np.int32)
    laws: list[tuple[Rows, Ints, Floats32]] = []
    active = np.arange(len(most))
    chances = uniforms(request, np.arange(1, request.k + 1), name)
    for depth in range(1, request.k + 1):
        active = active[most[active] >= depth]
        if not active.size:
            break
        support, probs = law_of(active, tokens[active, : depth - 1])
        if not np.isfinite(probs).all():
            raise DrafterFault(name, "its law holds NaN or infinity.")
        mass = probs.sum(axis=-1) > 0
        active, support, probs = active[mass], support[mass], probs[mass]
        if not active.size:
            break
        law = normalise(probs)
        index = draw(law, chances[active, depth - 1])[:, None]
        drawn = np.take_along_axis(support, index, axis=-1)[:, 0]
        tokens[active, depth - 1] = drawn
        laws.append((active, support, probs))
        if stop is not None:
            active = active[~stop(drawn, np.take_along_axis(law, index, axis=-1)[:, 0])]
    return _assemble(tokens, laws)


def _assemble(tokens: Ints, laws: list[tuple[Rows, Ints, Floats32]]) -> Draft:
    used = [probs.any(axis=0) for _, _, probs in laws]
    m = max((int(np.flatnonzero(columns)[-1]) + 1 for columns in used), default=1)
    support = np.full((*tokens.shape, m), -1, dtype=np.int32)
    probs = np.zeros((*tokens.shape, m), dtype=np.float32)
    for position, (rows, ids, mass) in enumerate(laws):
        width = min(m, ids.shape[1])
        support[rows, position, :width] = np.where(mass > 0, ids, -1)[:, :width]
        probs[rows, position, :width] = mass[:, :width]
    return Draft(tokens, (tokens >= 0).sum(axis=1).astype(np.int32), support, probs)


def point_draft(chains: Sequence[Sequence[int] | Ints], width: int) -> Draft:
    """Builds the draft of a deterministic drafter: point masses.

    Args:
        chains: The tokens of each lane, at most ``width``.
        width: K of the arrays.
    """
    tokens = np.full((len(chains), width), -1, dtype=np.int32)
    for row, chain in enumerate(chains):
        tokens[row, : len(chain)] = chain
    support, probs = point_masses(tokens)
    return Draft(tokens, np.array([len(chain) for chain in chains], dtype=np.int32), support, probs)


def log_probs(laws: Law, output: npt.ArrayLike) -> Floats:
    """Scores tokens under the laws that would be sent.

    Args:
        laws: One law a position.
        output: The token at each position, int[n].

    Returns:
        float64[n], -inf where the law excludes the token.
    """
    support, probs = laws
    hit = support == np.asarray(output, dtype=np.int64)[:, None]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log((normalise(probs) * hit).sum(axis=-1)), dtype=np.float64)
