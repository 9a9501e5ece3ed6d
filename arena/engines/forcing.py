"""Teacher forcing: what a drafter would have done along a recorded text.

A drafter that can score is asked once a text (one forward a sequence, not one a
token). One whose draft depends on where its block starts, or that only proposes point
masses, is asked at each start that the walk reaches, and its answer is kept for every
shorter draft length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

import numpy as np

from arena import seeding
from arena.engines.replay import Accounting, Odds, StepDraft, chances
from arena.errors import ConfigError, DrafterFault
from arena.protocols import Capabilities, Drafter
from arena.traces.records import Trace, law_fault
from arena.types import Feedback, Floats, LaneStep, LaneWork, ProposeRequest, Sampling
from arena.validation import validate_draft

_LANE = 0


class Scores(Protocol):
    """A drafter that tells the log-probability it gives to tokens."""

    def score(self, context: Sequence[int], output: Sequence[int], sampling: Sampling) -> Floats:
        """float64[len(output)], -inf outside the law it would send."""
        ...


def refusal(name: str, known: Capabilities) -> str | None:
    """Says why a drafter of such capabilities cannot be replayed at all, or None."""
    if known.deterministic or known.can_score:
        return None
    return (
        f"drafter {name!r} samples and offers no `score`: its chance of a token cannot be known from text. "
        "Add `score` to it (see arena.protocols), or play it live with `arena run`."
    )


def unfit(known: Capabilities, trace: Trace) -> str | None:
    """Says why one text cannot be used for a drafter of such capabilities, or None.

    Point masses need no law: their a is whether the token is the text's.
    """
    return None if known.deterministic else law_fault(trace)


@dataclass
class Along:
    """A drafter along one text, whose odds do not depend on where a block starts.

    Attributes:
        values: a_j of every output position.
        stops: Where a chain that holds the text's token ends after it.
    """

    values: Sequence[float]
    stops: Sequence[bool]

    def at(self, start: int, k: int) -> StepDraft:
        """Cuts the text's odds to one draft."""
        end = min(start + k, len(self.values))
        for position in range(start, end):
            if self.stops[position]:
                end = position + 1
                break
        return StepDraft(self.values[start:end])


@dataclass
class FromStarts:
    """A drafter along one text that is asked at each start.

    Attributes:
        drafter: Whom to ask.
        name: Its name.
        trace: The text.
        longest: The longest draft that will be asked for; shorter ones are its beginnings.
        accounting: Whether a draft ends at an end token.
        key: Folded into what a drafter draws.
    """

    drafter: Drafter
    name: str
    trace: Trace
    longest: int
    accounting: Accounting
    key: int = 0
    _known: dict[int, tuple[list[float], int | None]] = field(default_factory=dict)

    def at(self, start: int, k: int) -> StepDraft:
        """Asks the drafter at a start, once."""
        if start not in self._known:
            proposes = self.drafter.capabilities.deterministic
            self._known[start] = self._proposed(start) if proposes else self._scored(start)
        values, drafted = self._known[start]
        return StepDraft(values[:k], None if drafted is None else min(k, drafted))

    def _proposed(self, start: int) -> tuple[list[float], int]:
        trace = self.trace
        context = (*trace.prompt, *trace.tokens[:start])
        step = LaneStep(trace.prompt_id, start)
        work = LaneWork(_LANE, step, True, context, self.longest)
        self.drafter.reset({_LANE: context})
        draft = self.drafter.propose(ProposeRequest(self.key, trace.sampling, (work,)))
        if reason := validate_draft(draft, [self.longest], 1 << 31):
            raise DrafterFault(self.name, reason)
        tokens = draft.tokens[0, : int(draft.lengths[0])].tolist()
        if self.accounting == "arena":
            ends = [i for i, token in enumerate(tokens) if token in trace.eos]
            tokens = tokens[: ends[0] + 1] if ends else tokens
        ahead = trace.tokens[start:]
        return [float(a == b) for a, b in zip(tokens, ahead, strict=False)], len(tokens)

    def _scored(self, start: int) -> tuple[list[float], None]:
        trace = self.trace
        piece = _slice(trace, start, start + self.longest)
        logprobs = _score(self.name, self.drafter, (*trace.prompt, *trace.tokens[:start]), piece)
        values = chances(piece, logprobs)
        stops = [i for i, stop in enumerate(_stops(self.drafter, piece, logprobs)) if stop]
        return values[: stops[0] + 1] if stops else values, None


def _score(name: str, drafter: Drafter, context: Sequence[int], trace: Trace) -> Floats:
    """Asks a drafter for its log-probabilities of a text's tokens after a context.

    Raises:
        DrafterFault: It answers with something else.
    """
    logprobs = np.asarray(
        cast(Scores, drafter).score(context, trace.tokens, trace.sampling), dtype=np.float64
    )
    if logprobs.shape != (len(trace.tokens),) or np.isnan(logprobs).any() or (logprobs > 1e-6).any():
        raise DrafterFault(
            name, f"scored {len(trace.tokens)} tokens with {logprobs.shape} values, or with invalid ones."
        )
    return logprobs


def _slice(trace: Trace, start: int, end: int) -> Trace:
    return replace(trace, tokens=trace.tokens[start:end], logprobs=trace.logprobs[start:end])


def _stops(drafter: Drafter, trace: Trace, logprobs: Floats) -> list[bool]:
    """Where a sampled chain ends after a token of the text: an end token, or one too unlikely for it."""
    least = float(getattr(drafter, "stop_below", 0.0))
    with np.errstate(divide="ignore"):
        floor = np.log(least) if least > 0 else -np.inf
    ends = np.isin(np.array(trace.tokens, dtype=np.int64), trace.eos)
    return cast(list[bool], (ends | (logprobs < floor)).tolist())


@dataclass
class Ended:
    """A drafter along a text whose end token was drawn but not logged.

    Attributes:
        inner: The drafter along what was logged.
        length: Tokens logged.
        value: The end token's a, unknown in [0, 1]: both ends of it bracket the truth.
    """

    inner: Odds
    length: int
    value: float

    def at(self, start: int, k: int) -> StepDraft:
        """Adds the end token where the draft reaches it."""
        draft = self.inner.at(start, k)
        reaches = start + len(draft.chances) == self.length and len(draft.chances) < k
        if not reaches or draft.drafted == len(draft.chances):
            return draft
        return StepDraft([*draft.chances, self.value], draft.drafted)


def odds_of(
    name: str, drafter: Drafter, trace: Trace, longest: int, accounting: Accounting, key: int = 0
) -> Along | FromStarts:
    """Prepares one drafter along one text.

    Raises:
        ConfigError: The drafter cannot be replayed, or not along this text.
    """
    if reason := refusal(name, drafter.capabilities):
        raise ConfigError(reason)
    if reason := unfit(drafter.capabilities, trace):
        raise ConfigError(f"text {trace.prompt_id} cannot be replayed with {name!r}: {reason}.")
    known = drafter.capabilities
    if known.start_dependent or not known.can_score:
        return FromStarts(drafter, name, trace, longest, accounting, key)
    logprobs = _score(name, drafter, trace.prompt, trace)
    return Along(chances(trace, logprobs, point=known.deterministic), _stops(drafter, trace, logprobs))


def lesson(trace: Trace) -> Feedback:
    """Makes of one text what a learner is told: its tokens, and what is known of the law there."""
    tokens = np.array(trace.tokens, dtype=np.int32)
    known = len(trace.logprobs) == len(tokens)
    probs = np.exp(np.array(trace.logprobs)) if known else np.ones(len(tokens))
    return Feedback(
        step=LaneStep(trace.prompt_id, 0),
        context=trace.prompt,
        tokens=trace.tokens,
        support=tokens[:, None],
        target_probs=probs[:, None].astype(np.float32),
        tail=(1.0 - probs).astype(np.float32),
    )


def in_key_order(traces: Sequence[Trace], key: int = 0) -> list[Trace]:
    """Orders texts by a key of their own, so that a log's order does not decide what a learner sees first."""
    return sorted(
        traces, key=lambda one: (float(seeding.uniform(key, one.prompt_id, "order")), one.prompt_id)
    )
