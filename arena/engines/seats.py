"""The two workers of a live run, as plain classes: a drafter's seat and the verifier's.

A backend builds them by name in this process or in an actor. They are the only
places where drafts are checked, timed and judged; the loop sees small records.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arena import acceptance, registry
from arena.engines.health import Healthy, Timed
from arena.engines.health import Span as Span
from arena.engines.judge import Rules, chain_of, feedback, gather, judge
from arena.engines.probe import ProbePlan, probe_drafter, probe_verifier
from arena.errors import ArenaError, DrafterFault, VerifierFault
from arena.metrics import require
from arena.protocols import Capabilities, Drafter, Verifier
from arena.scoreboard import Scoreboard
from arena.types import (
    Commit,
    Draft,
    Feedback,
    LaneStep,
    PassResult,
    ProposeRequest,
    Sampling,
    Vocabulary,
)
from arena.validation import validate_draft


@dataclass(frozen=True, slots=True)
class Failure:
    """Stands in for a draft that could not be made; travels where the draft would."""

    reason: str


@dataclass(frozen=True, slots=True)
class VerifyLane:
    """One lane's part in a pass, as the verifier is told of it.

    Attributes:
        lane: Slot; a label for the cache.
        step: The lane-step.
        context: The whole context if the lane starts here, else None.
        root: The lane's last committed token.
        k: K_eff.
        remaining: Budget left, tokens.
    """

    lane: int
    step: LaneStep
    context: tuple[int, ...] | None
    root: int
    k: int
    remaining: int


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """One pass: the lanes, and the names whose drafts follow, sorted."""

    key: int
    lanes: tuple[VerifyLane, ...]
    names: tuple[str, ...]
    ranks: Mapping[str, int] | None = None
    feedback_top: int = 0


class DrafterSeat(Timed):
    """Holds one drafter.

    Args:
        name: Its name in the roster.
        target: ``"module:Class"``.
        options: Its constructor's options.
    """

    def __init__(self, *, name: str, target: str, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.name = name
        self.drafter: Drafter = registry.load_class(target)(name=name, **options)

    def ready(self) -> Capabilities:
        """Answers once the drafter is built."""
        return self.drafter.capabilities

    def propose(self, request: ProposeRequest) -> Draft | Failure:
        """Drafts; whatever the drafter raises becomes a :class:`Failure`."""
        start = time.time()
        try:
            fresh = {work.lane: work.tokens for work in request.lanes if work.fresh}
            if fresh:
                self.drafter.reset(fresh)
            draft = self.drafter.propose(request)
            tokens, payload = int(draft.lengths.sum()), draft.nbytes
        except Exception as error:  # a third party's drafter may raise anything
            return Failure(f"raised {type(error).__name__}: {error}")
        self._spans.append(
            Span(self.name, "propose", start, time.time(), len(request.lanes), tokens, payload)
        )
        return draft

    def learn(self, batch: Sequence[Feedback]) -> Failure | None:
        """Learns from one scheduled batch."""
        start = time.time()
        try:
            self.drafter.learn(batch)
        except Exception as error:  # as above
            return Failure(f"raised {type(error).__name__} while learning: {error}")
        tokens = sum(len(item.tokens) for item in batch)
        self._spans.append(Span(self.name, "learn", start, time.time(), len(batch), tokens))
        return None

    def probe(self, plan: ProbePlan) -> float:
        """Times a synthetic draft; see :mod:`arena.engines.probe`."""
        try:
            return probe_drafter(self.drafter, plan)
        except Exception as error:  # as above
            raise DrafterFault(self.name, f"raised {type(error).__name__} while probed: {error}") from error

    def snapshot(self) -> dict[str, bytes]:
        """What it has learnt, as files; travels to the driver, where results land."""
        with tempfile.TemporaryDirectory() as folder:
            self.drafter.save(Path(folder))
            return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Takes back what :meth:`snapshot` gave."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                (Path(folder) / Path(name).name).write_bytes(content)
            self.drafter.load(Path(folder))


class VerifierSeat(Timed):
    """Holds the verifier and applies the rules to its laws.

    Args:
        target: ``"module:Class"``.
        options: Its constructor's options.
        score: Name of the score rule.
        commit: Name of the commit rule.
        rule_options: Options of the commit rule (``order``, ``measure``).
        sampling: Warping of the target law.
        measure: Whether a chain rule's share of the bound is measured as well.
        contribution: Whether every sub-roster is priced in the pass.
    """

    def __init__(
        self,
        *,
        target: str,
        options: Mapping[str, Any],
        score: str,
        commit: str,
        rule_options: Mapping[str, Any],
        sampling: Sampling,
        measure: bool = False,
        contribution: bool = False,
    ) -> None:
        super().__init__()
        self.verifier: Verifier = registry.load_class(target)(**options)
        score_rule = acceptance.get(score)
        if isinstance(score_rule, acceptance.TreeRule):
            raise VerifierFault(f"rules.score: {score!r} is a tree rule; a score rule judges one chain.")
        self.rules = Rules(
            score_rule,
            acceptance.get(commit, **rule_options),
            measure=measure,
            contribution=contribution,
        )
        self.sampling = sampling
        self._tokens: dict[int, int] = {}

    def ready(self) -> Vocabulary:
        """Answers once the model is loaded."""
        return self.verifier.vocabulary

    def max_context(self) -> int:
        """Longest context it serves, tokens."""
        return self.verifier.max_context

    def encode(self, prompts: Sequence[tuple[tuple[tuple[str, str], ...], str]]) -> list[list[int] | str]:
        """Turns prompts, each (messages, text), into token ids; into a reason where that fails."""
        return [self._encode(messages, text) for messages, text in prompts]

    def _encode(self, messages: tuple[tuple[str, str], ...], text: str) -> list[int] | str:
        try:
            return self.verifier.encode(messages, text)
        except Exception as error:  # a chat template may refuse one prompt of many
            return f"it cannot be turned into tokens: {type(error).__name__}: {error}."

    def step(self, request: VerifyRequest, *drafts: Draft | Failure) -> PassResult:
        """Judges one pass: one forward over the trees of all lanes of the group.

        Args:
            request: The lanes and the names of the drafters.
            *drafts: Their answers, in the order of ``request.names``.

        Returns:
            Commits, verdicts and feedback, or only ``faults`` if a draft is unusable:
            then no lane has moved.
        """
        start = time.time()
        faults = self._faults(request, drafts)
        if faults:
            return PassResult((), (), (), faults=faults)
        vocabulary = self.verifier.vocabulary
        fresh = {lane.lane: lane.context for lane in request.lanes if lane.context is not None}
        if fresh:
            self.verifier.open(fresh)
        lanes = {}
        for row, lane in enumerate(request.lanes):
            chains = [
                chain_of(draft, row, lane.k, vocabulary.eos) for draft in drafts if isinstance(draft, Draft)
            ]
            lanes[lane.lane] = gather(lane.step, lane.k, lane.remaining, lane.root, request.names, chains)
        rules = replace(self.rules, ranks=request.ranks)
        try:
            laws = self.verifier.forward({lane: drafts.tree for lane, drafts in lanes.items()}, self.sampling)
            judged = {
                lane: judge(drafts, laws[lane], rules, vocabulary.eos, request.key)
                for lane, drafts in lanes.items()
            }
        except ArenaError as error:
            raise VerifierFault(f"the verifier's pass failed: {error}") from error
        told: list[Feedback] = []
        if request.feedback_top:
            told = [
                feedback(judged[lane.lane], lane.context or (), laws[lane.lane], request.feedback_top)
                for lane in request.lanes
            ]
        self.verifier.keep({lane: j.path for lane, j in judged.items() if not j.commit.finish})
        self._in_step(fresh, {lane: j.commit for lane, j in judged.items()})
        nodes = sum(len(drafts.tree.tokens) for drafts in lanes.values())
        self._spans.append(Span("verifier", "verify", start, time.time(), len(lanes), nodes))
        return PassResult(
            commits=tuple(j.commit for j in judged.values()),
            verdicts=tuple(verdict for j in judged.values() for verdict in j.verdicts),
            field=tuple(j.field for j in judged.values()),
            feedback=tuple(told),
        )

    def _in_step(self, fresh: Mapping[int, Sequence[int]], commits: Mapping[int, Commit]) -> None:
        """Stops on a cache that does not hold all of a lane's tokens but the last, whatever was accepted."""
        for lane, commit in commits.items():
            before = len(fresh[lane]) if lane in fresh else self._tokens[lane]
            self._tokens[lane] = before + len(commit.tokens)
            if not commit.finish and hasattr(self.verifier, "cached"):
                held, wanted = self.verifier.cached(lane), self._tokens[lane] - 1
                require(
                    held == wanted, f"the verifier's cache holds {held} of lane {lane}, expected {wanted}"
                )

    def probe(self, plan: ProbePlan) -> list[tuple[int, float]]:
        """Times synthetic passes; see :mod:`arena.engines.probe`."""
        return probe_verifier(self.verifier, self.rules, plan)

    def _faults(
        self, request: VerifyRequest, drafts: Sequence[Draft | Failure]
    ) -> tuple[tuple[str, str], ...]:
        ks = [lane.k for lane in request.lanes]
        found = []
        for name, draft in zip(request.names, drafts, strict=True):
            reason = (
                draft.reason
                if isinstance(draft, Failure)
                else validate_draft(draft, ks, self.verifier.vocabulary.size)
            )
            if reason is not None:
                found.append((name, reason))
        return tuple(found)


class ScoreboardSeat(Scoreboard, Healthy):
    """Holds the scoreboard; can be asked for standings while the run goes on."""

    def ready(self) -> None:
        """Answers once it is built."""
