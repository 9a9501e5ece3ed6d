"""The frozen records that cross boundaries between actors, files and modules.

Shapes use B lanes, D drafters, K draft tokens, m support tokens, N tree nodes and
V vocabulary entries. ``target_probs`` and ``draft_probs`` are always written in
full, since the literature swaps p and q.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from arena import packing

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Finish = Literal["", "stop", "length"]

MAX_DRAFTERS = 64
"""A tree node keeps its owners in one 64-bit word."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target law is warped; applied alike to verifier and drafters.

    Attributes:
        temperature: Divides the logits; at or below ``sampling.GREEDY_EPSILON``
            the law is a point mass on the largest logit.
        top_k: Keep the k most probable tokens; 0 keeps all.
        top_p: Keep the smallest most-probable set of at least this mass; 1 keeps all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What two models must share to be compared token by token.

    Attributes:
        size: Number of token ids, padding sliced off.
        fingerprint: Hash of the token-to-id map; equal means the same tokens.
        eos: Ids that end a text.
    """

    size: int
    fingerprint: str
    eos: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """One drafter's draft in one lane.

    Attributes:
        tokens: int32[L].
        support: int32[L, m], the tokens that each position's law can give; -1 pads.
        draft_probs: float64[L, m], summing to 1 along the last axis; 0 where padded.
    """

    tokens: Ints
    support: Ints
    draft_probs: Floats
    _own: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Works the tokens' own probabilities out once: every rule asks for them again and again."""
        own = np.where(self.support == self.tokens[:, None], self.draft_probs, 0.0).sum(axis=-1)
        object.__setattr__(self, "_own", tuple(own.tolist()))

    def __len__(self) -> int:
        return len(self.tokens)

    def prob(self, position: int) -> float:
        """Gives the probability that the drafter's law gave to its own token there."""
        return self._own[position]

    def cut(self, length: int) -> Chain:
        """Keeps the first ``length`` tokens."""
        return Chain(self.tokens[:length], self.support[:length], self.draft_probs[:length])


@dataclass(frozen=True, slots=True)
class Draft:
    """One drafter's answer for B lanes, with the law each token was drawn from.

    A deterministic drafter sends a point mass (m = 1, probability 1). A token of a
    sampled draft was drawn from exactly the law sent, after
    :func:`arena.sampling.normalise`.

    Attributes:
        tokens: int32[B, K], -1 beyond a lane's length.
        lengths: int32[B], each in 0..K.
        support: int32[B, K, m], -1 where padded.
        probs: float32[B, K, m], 0 where padded.
    """

    tokens: Ints
    lengths: Ints
    support: Ints
    probs: Floats32

    @property
    def nbytes(self) -> int:
        """Payload of the arrays as they travel, bytes."""
        arrays = self.tokens.nbytes + self.lengths.nbytes + self.probs.nbytes
        return arrays + packing.size_of(self.support)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels with token ids in as few bytes as they need; it arrives as it was."""
        return packing.travel(Draft, self.tokens, self.lengths, self.support, self.probs)


@dataclass(frozen=True, slots=True)
class DraftTree:
    """The drafts of one lane merged by common prefix.

    Node 0 is the lane's last committed token; every other node is a drafted one.

    Attributes:
        tokens: int32[N].
        parents: int32[N], -1 for the root.
        depths: int32[N], 0 for the root.
        owners: uint64[N], bit d set where drafter d's chain passes the node.
        nodes: int32[D, K], the node of each drafter's k-th token, -1 where none.
    """

    tokens: Ints
    parents: Ints
    depths: Ints
    owners: npt.NDArray[np.uint64]
    nodes: Ints


@dataclass(frozen=True, slots=True)
class LaneStep:
    """Identity of one lane's part in a pass, never a pass counter or a lane slot.

    Attributes:
        prompt_id: Content hash of the prompt, with an occurrence number.
        start: Position in the lane's output at which the step begins, tokens.
    """

    prompt_id: str
    start: int


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What a drafter is told about one lane for one ``propose``.

    Attributes:
        lane: Slot in the group; a label for caches, never part of a key.
        step: The lane-step that this draft is for.
        fresh: Whether the lane starts here; then ``tokens`` is its whole context.
        tokens: The tokens committed since the last call.
        k: Draft length asked for, K_eff.
    """

    lane: int
    step: LaneStep
    fresh: bool
    tokens: tuple[int, ...]
    k: int


@dataclass(frozen=True, slots=True)
class ProposeRequest:
    """One call to one drafter for all lanes of a group.

    Attributes:
        key: Folded from seed, generation and round; the drafter's name, the
            lane-step and the depth are folded in where numbers are drawn.
        sampling: The warping that the drafter applies to its own law.
        lanes: One entry a lane of the group, in lane order.
    """

    key: int
    sampling: Sampling
    lanes: tuple[LaneWork, ...]

    @property
    def k(self) -> int:
        """Width of the draft's arrays: the largest K_eff asked for."""
        return max((work.k for work in self.lanes), default=0)


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens added to a lane by a lane-step.

    Attributes:
        step: The lane-step.
        tokens: Accepted path, then the correction or bonus token (none of these
            after an end token).
        logprobs: Natural log of each token's probability under the warped target law.
        n_accepted: How many of ``tokens`` were drafted.
        finish: ``"stop"`` after an end token, ``"length"`` when the budget is used
            up, else empty.
    """

    step: LaneStep
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    n_accepted: int
    finish: Finish


@dataclass(frozen=True, slots=True)
class Verdict:
    """One drafter's result at one lane-step, its chain tested alone there.

    Attributes:
        step: The lane-step.
        drafter: Its name.
        n_offered: Draft tokens that were asked for.
        n_drafted: Draft tokens that were proposed, at most ``n_offered``.
        n_accepted: Draft tokens that the score rule kept, at most ``n_drafted``.
        n_matched: Leading committed tokens that the drafter had proposed.
        expected_accepted: Expectation of ``n_accepted`` given the draft.
        tokens: The drafted tokens.
        target_probs: The target law's probability of each drafted token.
        draft_probs: The draft law's probability of each drafted token.
    """

    step: LaneStep
    drafter: str
    n_offered: int
    n_drafted: int
    n_accepted: int
    n_matched: int
    expected_accepted: float
    tokens: tuple[int, ...]
    target_probs: tuple[float, ...]
    draft_probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FieldStep:
    """What one lane-step says about the whole field.

    Attributes:
        step: The lane-step.
        similarity: 1 - JSD (base 2) of the depth-1 laws of each pair of drafters, in
            the order of ``itertools.combinations`` of their sorted names.
        coverage: Target mass of the union of the depth-1 proposals.
        reached: Sum over visited nodes of the chance that the commit rule keeps a
            token there; ``nan`` where the rule's share of the bound is not defined.
        bound: Sum over the same nodes of the optimal-transport upper bound.
        worths: v(S) for each of the 2^n sub-rosters of the sorted names, int64 in units
            of ``acceptance.contribution.UNIT``, as bytes; empty where it is not asked for.
        contributions: (Shapley value, leave-one-out, coverage share) of each drafter,
            tokens, in order of name; likewise.
    """

    step: LaneStep
    similarity: tuple[float, ...]
    coverage: float
    reached: float
    bound: float
    worths: bytes = b""
    contributions: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Feedback:
    """The raw target law (temperature 1, unwarped) at the positions of one commit.

    Attributes:
        step: The lane-step.
        context: Tokens of the lane before the commit (prompt and output); sent
            whole only when ``start`` is 0, else empty: learners keep their own.
        tokens: The n committed tokens.
        support: int32[n, m], the m most probable tokens at each position.
        target_probs: float32[n, m].
        tail: float32[n], the mass outside the support.
    """

    step: LaneStep
    context: tuple[int, ...]
    tokens: tuple[int, ...]
    support: Ints
    target_probs: Floats32
    tail: Floats32


@dataclass(frozen=True, slots=True)
class PassResult:
    """What the verifier returns for one pass over a group of lanes."""

    commits: tuple[Commit, ...]
    verdicts: tuple[Verdict, ...]
    field: tuple[FieldStep, ...]
    feedback: tuple[Feedback, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()


_OfAStep = TypeVar("_OfAStep", Commit, FieldStep, Feedback)


def in_order(items: Iterable[_OfAStep]) -> list[_OfAStep]:
    """Sorts what belongs to lane-steps by (prompt_id, start): the one order of sums, tables and lessons."""
    return sorted(items, key=lambda item: (item.step.prompt_id, item.step.start))
