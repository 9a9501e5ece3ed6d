"""A round played live: drafters propose, the verifier judges, lanes refill until done.

The loop sends each alive drafter one call a pass, passes their answers on to the
verifier unread, and applies the small records that come back. It holds no rule,
draws no randomness and writes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from arena.acceptance.ending import effective_length
from arena.engines.seats import Failure, VerifyLane, VerifyRequest
from arena.errors import DrafterFault
from arena.protocols import Backend, Ticket
from arena.types import (
    Commit,
    Feedback,
    FieldStep,
    LaneStep,
    LaneWork,
    PassResult,
    ProposeRequest,
    Sampling,
    Verdict,
    in_order,
)

VERIFIER = "verifier"
SCOREBOARD = "scoreboard"


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """All that a round is played by.

    Attributes:
        number: The round, from 1.
        key: Folded from seed, generation and round.
        names: Drafters alive, sorted.
        learners: Those of them that learn.
        prompts: (prompt_id, token ids) of each prompt of the round.
        sampling: Warping of every law.
        draft_length: K.
        max_new_tokens: Budget N a prompt, tokens.
        max_context: Longest context the verifier serves, tokens.
        lanes: Lanes a group.
        in_flight: Groups whose passes may overlap.
        learn_every: Passes between two lessons, M.
        feedback_top: Support of the target law that learners are told.
        ranks: Standing of each drafter, 0 the best, where the commit rule asks for it.
        timeout: Seconds a call may take.
    """

    number: int
    key: int
    names: tuple[str, ...]
    learners: tuple[str, ...]
    prompts: tuple[tuple[str, tuple[int, ...]], ...]
    sampling: Sampling
    draft_length: int
    max_new_tokens: int
    max_context: int
    lanes: int
    in_flight: int
    learn_every: int
    feedback_top: int
    ranks: dict[str, int] | None
    timeout: float


@dataclass(slots=True)
class RoundPlay:
    """What a round gave, in no order that matters."""

    commits: list[Commit] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    steps: list[FieldStep] = field(default_factory=list)
    passes: int = 0


Watch = Callable[[RoundPlan, RoundPlay], None]


@dataclass(slots=True)
class _Lane:
    prompt_id: str
    fresh: tuple[int, ...]
    budget: int
    last: int
    start: int = 0
    committed: tuple[int, ...] = ()

    def k(self, draft_length: int) -> int:
        return effective_length(draft_length, self.budget - self.start)


class LaneGroup:
    """Lanes that go through the verifier together, refilled from their own prompts.

    Prompts are dealt to groups before the round begins, so that no timing decides
    who continues what.
    """

    def __init__(self, plan: RoundPlan, index: int, groups: int) -> None:
        self._plan = plan
        self._waiting = list(plan.prompts[index::groups])[::-1]
        self._first = index * plan.lanes
        self._lanes: dict[int, _Lane] = {}

    def requests(self) -> tuple[ProposeRequest, VerifyRequest] | None:
        """The next pass's questions, or None when every prompt is finished."""
        plan = self._plan
        for slot in range(self._first, self._first + plan.lanes):
            if slot not in self._lanes and self._waiting:
                prompt_id, tokens = self._waiting.pop()
                budget = min(plan.max_new_tokens, plan.max_context - len(tokens))
                self._lanes[slot] = _Lane(prompt_id, tokens, budget, tokens[-1])
        if not self._lanes:
            return None
        work, verify = [], []
        for slot, lane in sorted(self._lanes.items()):
            step, k = LaneStep(lane.prompt_id, lane.start), lane.k(plan.draft_length)
            context = lane.fresh if lane.start == 0 else None
            work.append(LaneWork(slot, step, context is not None, context or lane.committed, k))
            verify.append(VerifyLane(slot, step, context, lane.last, k, lane.budget - lane.start))
        top = plan.feedback_top if plan.learners else 0
        return (
            ProposeRequest(plan.key, plan.sampling, tuple(work)),
            VerifyRequest(plan.key, tuple(verify), plan.names, plan.ranks, top),
        )

    def apply(self, commits: Sequence[Commit]) -> None:
        """Moves the lanes on by what was committed to them."""
        slots = {lane.prompt_id: slot for slot, lane in self._lanes.items()}
        for commit in commits:
            slot = slots[commit.step.prompt_id]
            lane = self._lanes[slot]
            lane.start += len(commit.tokens)
            lane.committed, lane.last = commit.tokens, commit.tokens[-1]
            if commit.finish:
                del self._lanes[slot]


def play(plan: RoundPlan, backend: Backend, watch: Watch) -> RoundPlay:
    """Plays a round to its barrier: every prompt finished, every verdict counted.

    Raises:
        DrafterFault: A drafter raised, or answered something unusable.
        WorkerLost: A worker died or was late.
        VerifierFault: The verifier failed.
    """
    done = RoundPlay()
    count = max(1, min(plan.in_flight, len(plan.prompts)))
    groups = [LaneGroup(plan, index, count) for index in range(count)]
    backend.wait([backend.submit(SCOREBOARD, "begin", plan.number)], timeout=plan.timeout)
    while groups:
        groups, told = _sweep(plan, groups, backend, done, watch)
        _teach(plan, told, backend)
    return done


def _sweep(
    plan: RoundPlan, groups: list[LaneGroup], backend: Backend, done: RoundPlay, watch: Watch
) -> tuple[list[LaneGroup], list[Feedback]]:
    """Gives each group M passes (all of them where nobody learns); then nothing is in flight."""
    told: list[Feedback] = []
    folds: list[Ticket] = []
    left = [plan.learn_every if plan.learners else -1 for _ in groups]
    flying: dict[int, Ticket] = {}
    alive = set(range(len(groups)))

    def launch(index: int) -> None:
        if not left[index]:
            return
        requests = groups[index].requests()
        if requests is None:
            alive.discard(index)
            return
        left[index] -= 1
        drafts = [backend.submit(name, "propose", requests[0]) for name in plan.names]
        flying[index] = backend.submit(VERIFIER, "step", requests[1], *drafts)

    for index in range(len(groups)):
        launch(index)
    while flying:
        order = list(flying)
        index = order[backend.first([flying[i] for i in order], timeout=plan.timeout)]
        result: PassResult = backend.wait([flying.pop(index)], timeout=plan.timeout)[0]
        if result.faults:
            raise DrafterFault(*result.faults[0])
        groups[index].apply(result.commits)
        launch(index)  # before anything else, so that the verifier is not kept waiting
        folds.append(backend.submit(SCOREBOARD, "fold", result.verdicts))
        done.commits.extend(result.commits)
        done.verdicts.extend(result.verdicts)
        done.steps.extend(result.field)
        done.passes += 1
        told.extend(result.feedback)
        watch(plan, done)
        if len(folds) >= 64:
            backend.wait(folds, timeout=plan.timeout)
            folds.clear()
    backend.wait(folds, timeout=plan.timeout)
    return [groups[index] for index in sorted(alive)], told


def _teach(plan: RoundPlan, told: list[Feedback], backend: Backend) -> None:
    """Gives every learner the same lesson, in an order that no timing decides."""
    if not (told and plan.learners):
        return
    batch = tuple(in_order(told))
    tickets = [backend.submit(name, "learn", batch) for name in plan.learners]
    for name, answer in zip(plan.learners, backend.wait(tickets, timeout=plan.timeout), strict=True):
        if isinstance(answer, Failure):
            raise DrafterFault(name, answer.reason)
