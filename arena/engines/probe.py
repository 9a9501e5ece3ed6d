"""Short timing probes of the workers of a run, with synthetic requests.

They ask for what a pass asks for and throw the answers away: nothing is learnt,
committed or counted, and every lane is opened anew when its round begins. Their clock
values go to the manifest alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from arena import seeding
from arena.acceptance.tree import merge
from arena.engines.judge import Rules, gather, judge
from arena.protocols import Drafter, Verifier
from arena.traces.records import Trace
from arena.types import Chain, LaneStep, LaneWork, ProposeRequest, Sampling

MOST_REPEATS = 5
"""Measurements of one thing; the median counts."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What is measured.

    Attributes:
        key: Makes the synthetic tokens.
        sampling: Warping of every law.
        lanes: Lanes that share a pass.
        draft_length: K.
        vocab: Vocabulary size V.
        context: Tokens in each lane before the pass.
        seconds: Time after which no further repeat is begun; each thing is measured once at least.
    """

    key: int
    sampling: Sampling
    lanes: int
    draft_length: int
    vocab: int
    context: int
    seconds: float

    def tokens(self, lane: int, what: str, n: int) -> tuple[int, ...]:
        """Gives n synthetic tokens of a lane."""
        uniforms = seeding.uniform(self.key, "probe", what, lane, np.arange(n))
        return tuple((uniforms * self.vocab).astype(int).tolist())


def probe_drafter(drafter: Drafter, plan: ProbePlan) -> float:
    """Gives the time of one drafted token, all lanes together, ms: a draft of K tokens by K."""

    def told(lane: int, call: int) -> tuple[int, ...]:
        return plan.tokens(lane, f"text {call}", 1 if call else plan.context)

    return _time_drafts(drafter, told, plan.key, plan.sampling, plan.lanes, plan.draft_length, plan.seconds)


def probe_along(drafter: Drafter, texts: Sequence[Trace], k: int, lanes: int, seconds: float = 1.0) -> float:
    """Gives the time of one drafted token along recorded texts, all lanes together, ms.

    Lanes hold the beginnings of texts, half of each, so that a drafter that looks its
    context up has one of a real length; one token is committed a call.

    Args:
        drafter: Whom to time.
        texts: What was recorded; lanes beyond their number hold some of them again.
        k: Draft length.
        lanes: Texts that are drafted for at once.
        seconds: Time after which no further call is begun.
    """

    def told(lane: int, call: int) -> tuple[int, ...]:
        text = texts[lane % len(texts)]
        half = len(text.tokens) // 2
        if call == 0:
            return (*text.prompt, *text.tokens[:half])
        return text.tokens[half + call - 1 :][:1] or text.tokens[-1:]

    return _time_drafts(drafter, told, 0, texts[0].sampling, lanes, k, seconds)


def _time_drafts(
    drafter: Drafter,
    told: Callable[[int, int], tuple[int, ...]],
    key: int,
    sampling: Sampling,
    lanes: int,
    k: int,
    seconds: float,
) -> float:
    """Times drafts of k tokens; ``told(lane, call)`` is what a lane hears, at the first call its context."""
    call = 0

    def ask() -> None:
        nonlocal call
        work = tuple(
            LaneWork(lane, LaneStep(f"probe {lane}", call), call == 0, told(lane, call), k)
            for lane in range(lanes)
        )
        drafter.propose(ProposeRequest(key, sampling, work))
        call += 1

    drafter.reset({lane: told(lane, 0) for lane in range(lanes)})
    ask()  # the contexts are taken in here
    return _median_ms(ask, seconds) / k


def probe_verifier(verifier: Verifier, rules: Rules, plan: ProbePlan) -> list[tuple[int, float]]:
    """Gives (tree nodes, ms) of passes over chains of 0 and of K tokens a lane.

    The line through the two is exact where goodput is asked for, at K, whatever the shape between.
    """
    contexts = {lane: plan.tokens(lane, "text 0", plan.context) for lane in range(plan.lanes)}
    verifier.open(contexts)
    lengths = (0, plan.draft_length)
    found: list[tuple[int, float]] = []
    for k in lengths:
        chains = {lane: _point_chain(plan.tokens(lane, f"draft {k}", k)) for lane in contexts}

        def verify(chains: dict[int, Chain] = chains, k: int = k) -> None:
            trees = {lane: merge(contexts[lane][-1], [chain]) for lane, chain in chains.items()}
            laws = verifier.forward(trees, plan.sampling)
            for lane, chain in chains.items():
                step = LaneStep(f"probe {lane}", 0)
                drafts = gather(step, k, k + 2, contexts[lane][-1], ("probe",), [chain])
                judge(drafts, laws[lane], rules, (), plan.key)
            verifier.keep(dict.fromkeys(chains, ()))

        if not found:
            verify()  # a first pass allocates
        found.append((plan.lanes * (k + 1), _median_ms(verify, plan.seconds / len(lengths))))
    return found


def _median_ms(call: Callable[[], None], seconds: float) -> float:
    times: list[float] = []
    began = time.perf_counter()
    while not times or (len(times) < MOST_REPEATS and time.perf_counter() - began < seconds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000.0 * float(np.median(times))


def _point_chain(tokens: tuple[int, ...]) -> Chain:
    ids = np.array(tokens, dtype=np.int32)
    return Chain(ids, ids[:, None], np.ones((len(tokens), 1)))
