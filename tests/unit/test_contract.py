"""The contract on the drafters without a network, and drafters that break it in one point each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from arena import seeding
from arena.frequencies import Observation, law_p_value
from arena.models.table import TableLaw
from arena.protocols import Capabilities, Drafter
from arena.sampling import draw, normalise, truncate, warp
from arena.testing import DrafterContract
from arena.types import Draft, Feedback, Floats, LaneWork, ProposeRequest, Sampling
from drafters.base import Lane, LaneDrafter, log_probs, uniforms
from drafters.sprinter import Sprinter
from drafters.table import Table


class TestCopyist(DrafterContract):
    target = "drafters.copyist:Copyist"


class TestCopyistEarliest(DrafterContract):
    target = "drafters.copyist:Copyist"
    options: ClassVar = {"prefer": "earliest", "max_ngram": 5, "min_ngram": 2}


class TestTable(DrafterContract):
    target = "drafters.table:Table"
    options: ClassVar = {"mix": 0.3, "order": 2, "other_order": 3}


class TestTableCutOrderNought(DrafterContract):
    target = "drafters.table:Table"
    options: ClassVar = {"order": 0, "support": 5, "vocab": 40}
    vocab = 40


class TestTableArgmax(DrafterContract):
    target = "drafters.table:Table"
    options: ClassVar = {"argmax": True}


class TestSprinterUntaught(DrafterContract):
    target = "drafters.sprinter:Sprinter"


class TestSprinter(DrafterContract):
    target = "drafters.sprinter:Sprinter"
    options: ClassVar = {"order": 3}

    def prepare(self, drafter: Drafter) -> None:
        drafter.learn(self._feedback(0))
        drafter.learn(self._feedback(3))


class TestSprinterFrozen(DrafterContract):
    target = "drafters.sprinter:Sprinter"
    options: ClassVar = {"learns": False, "support": 4}


# Drafters that break the contract. Each is honest but for one thing.


class Honest(LaneDrafter):
    """Draws from the law of a table and sends it; the others change one step of it."""

    law = TableLaw(16, 1)

    def __init__(self, *, name: str = "contract", **options: Any) -> None:
        super().__init__(name=name)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(deterministic=False, can_score=True)

    def _draft(self, request: ProposeRequest) -> Draft:
        lanes, width = len(request.lanes), request.k
        asked = np.array([work.k for work in request.lanes])
        tokens = np.full((lanes, width), -1, dtype=np.int32)
        support = np.full((lanes, width, 16), -1, dtype=np.int32)
        probs = np.zeros((lanes, width, 16), dtype=np.float32)
        last = np.array([(-1, *self.context(work.lane))[-1] for work in request.lanes], dtype=np.int64)
        going = asked > 0
        for place in range(width):
            going = going & (asked > place)
            logits = self.law.logits(last[:, None])
            ids, mass = truncate(self.drawn_from(logits, request.sampling), 16)
            law = normalise(mass)
            index = (
                draw(law, self.noise(request, place + 1))[:, None] if lanes else np.zeros((0, 1), dtype=int)
            )
            drawn, prob = (np.take_along_axis(array, index, -1)[:, 0] for array in (ids, law))
            going &= self.kept(prob)
            tokens[going, place] = drawn[going]
            sent = self.sent(logits, request.sampling, drawn)
            support[going, place], probs[going, place] = sent[0][going], sent[1][going]
            last = drawn.astype(np.int64)
        return Draft(tokens, (tokens >= 0).sum(axis=1).astype(np.int32), support, probs)

    def noise(self, request: ProposeRequest, depth: int) -> Floats:
        return uniforms(request, depth, self.name)

    def drawn_from(self, logits: Floats, sampling: Sampling) -> Floats:
        return warp(logits, sampling)

    def sent(self, logits: Floats, sampling: Sampling, drawn: Any) -> Any:
        return truncate(self.drawn_from(logits, sampling), 16)

    def kept(self, prob: Floats) -> Any:
        return prob >= 0

    def score(self, context: Sequence[int], output: Sequence[int], sampling: Sampling) -> Floats:
        text = np.array([-1, *context, *output])[len(context) : len(context) + len(output), None]
        return log_probs(truncate(self.drawn_from(self.law.logits(text), sampling), 16), output)


class RawSoftmax(Honest):
    """Samples within the three likeliest tokens, sends the whole softmax (transformers 32867)."""

    def drawn_from(self, logits: Floats, sampling: Sampling) -> Floats:
        return warp(logits, Sampling(top_k=3))

    def sent(self, logits: Floats, sampling: Sampling, drawn: Any) -> Any:
        return truncate(warp(logits, Sampling()), 16)


class Argmax(RawSoftmax):
    """Takes the likeliest token, sends the softmax (transformers 47932)."""

    def drawn_from(self, logits: Floats, sampling: Sampling) -> Floats:
        return warp(logits, Sampling(temperature=0))


class OtherTemperature(RawSoftmax):
    """Samples at temperature 1.3 and sends the law at 1 (dflash 74)."""

    def drawn_from(self, logits: Floats, sampling: Sampling) -> Floats:
        return warp(logits, Sampling(temperature=1.3))


class DropsTheUnlikely(Honest):
    """Ends a draft *before* an unlikely token."""

    def kept(self, prob: Floats) -> Any:
        return prob > 0.1


class FlattersItsToken(Honest):
    """Sends a law that gives the token it drew twice its weight."""

    def sent(self, logits: Floats, sampling: Sampling, drawn: Any) -> Any:
        law = warp(logits, sampling) * np.where(np.arange(16) == drawn[:, None], 2, 1)
        return truncate(law, 16)


class Jitters(RawSoftmax):
    """Samples at another temperature, and hides it in a law that is never twice the same."""

    count = 0

    def drawn_from(self, logits: Floats, sampling: Sampling) -> Floats:
        return warp(logits, Sampling(temperature=1.5))

    def sent(self, logits: Floats, sampling: Sampling, drawn: Any) -> Any:
        self.count += 1
        jitter = seeding.uniform(self.count, np.arange(logits.size)).reshape(logits.shape)
        return truncate(warp(logits + 1e-2 * jitter, Sampling()), 16)


class StuckNoise(Honest):
    """Uniforms are always 0 (vllm-ascend 13766)."""

    def noise(self, request: ProposeRequest, depth: int) -> Floats:
        return np.zeros(len(request.lanes))


class OneNoise(Honest):
    """Draws every depth with the same uniform."""

    def noise(self, request: ProposeRequest, depth: int) -> Floats:
        return uniforms(request, 1, self.name)


class SlotNoise(Honest):
    """Keys its noise by the lane's place in the batch."""

    def noise(self, request: ProposeRequest, depth: int) -> Floats:
        return seeding.uniform(request.key, np.arange(len(request.lanes)), depth, self.name)


class LooksAround(Honest):
    """Its law depends on how many lanes there are."""

    def propose(self, request: ProposeRequest) -> Draft:
        self.lanes = len(request.lanes)
        return super().propose(request)

    def drawn_from(self, logits: Floats, sampling: Sampling) -> Floats:
        return warp(logits, replace(sampling, temperature=1 + 0.1 * self.lanes))


class RunningNoise(Honest):
    """Uses a generator object: a second call draws other tokens."""

    def __init__(self, *, name: str = "contract") -> None:
        super().__init__(name=name)
        self.generator = np.random.default_rng(0)

    def noise(self, request: ProposeRequest, depth: int) -> Floats:
        return self.generator.random(len(request.lanes))


class LearnsInPropose(Honest):
    """Changes its law with every proposal."""

    seen = 0

    def propose(self, request: ProposeRequest) -> Draft:
        self.seen += 1
        self.law = TableLaw(16, 1, seed=self.seen)
        return super().propose(request)


class ForgetsItsCache(Table):
    """After a whole draft is kept it misses the last of its tokens (vllm 9730)."""

    def _follow(self, work: LaneWork) -> None:
        known = self._lanes.get(work.lane)
        again = work.fresh or (known is not None and known.step == work.step)
        super()._follow(work)
        if not again and len(work.tokens) == 5:
            lane = Lane(np.delete(self.context(work.lane), -2))
            lane.step = work.step
            self._lanes[work.lane] = lane


class ScoresAnotherLaw(Honest):
    """Scores the law at temperature 1 whatever was asked."""

    def score(self, context: Sequence[int], output: Sequence[int], sampling: Sampling) -> Floats:
        return super().score(context, output, Sampling())


class NotSaved(Honest):
    """Learns, saves nothing."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(deterministic=False, learns=True)

    def learn(self, batch: Sequence[Feedback]) -> None:
        self.law = TableLaw(16, 1, seed=self.law.seed + len(batch))


class Pickles(NotSaved):
    """Saves what it learnt by pickle."""

    def save(self, folder: Path) -> None:
        (folder / "law.pkl").write_bytes(b"")


class SaysDeterministic(Honest):
    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(deterministic=True)


class TooMany(Honest):
    """Drafts K where fewer are asked for."""

    def propose(self, request: ProposeRequest) -> Draft:
        draft = super().propose(replace(request, lanes=tuple(replace(w, k=4) for w in request.lanes)))
        return draft


class Beyond(Honest):
    """Names a token outside the vocabulary."""

    def propose(self, request: ProposeRequest) -> Draft:
        draft = super().propose(request)
        draft.tokens[:, :1] += 16
        return draft


class Excludes(Honest):
    """Sends a law without the token it drew."""

    def sent(self, logits: Floats, sampling: Sampling, drawn: Any) -> Any:
        return truncate(np.where(np.arange(16) == drawn[:, None], 0, warp(logits, sampling) + 1e-9), 16)


def contract(make: Callable[..., Any]) -> DrafterContract:
    tested = DrafterContract()
    tested.make = lambda name="contract": make(name=name)  # type: ignore[method-assign]
    return tested


def names_of_tests(tested: DrafterContract) -> list[str]:
    return [name for name in dir(tested) if name.startswith("test_")]


def verdicts(make: Callable[..., Any]) -> set[str]:
    """The tests that a drafter fails."""
    tested, failed = contract(make), set()
    for name in names_of_tests(tested):
        try:
            getattr(tested, name)()
        except AssertionError:
            failed.add(name)
        except Exception as error:
            if type(error).__name__ != "SkipTest":
                raise
    return failed


LAW = "test_the_law_sent_is_the_law_sampled"
LIARS: dict[type[LaneDrafter], str] = {
    RawSoftmax: LAW,
    Argmax: LAW,
    OtherTemperature: LAW,
    DropsTheUnlikely: LAW,
    FlattersItsToken: LAW,
    Jitters: LAW,
    StuckNoise: LAW,
    OneNoise: LAW,
    SlotNoise: "test_other_lanes_never_change_a_lane",
    LooksAround: "test_other_lanes_never_change_a_lane",
    RunningNoise: "test_a_second_call_gives_the_same_draft",
    LearnsInPropose: "test_a_second_call_gives_the_same_draft",
    ForgetsItsCache: "test_reset_equals_replayed_history",
    ScoresAnotherLaw: "test_it_scores_the_law_it_sends",
    NotSaved: "test_what_it_learnt_is_saved_and_loaded",
    Pickles: "test_what_it_learnt_is_saved_and_loaded",
    SaysDeterministic: "test_deterministic_means_point_masses",
    TooMany: "test_other_lanes_never_change_a_lane",
    Beyond: "test_drafts_can_be_used",
    Excludes: "test_drafts_can_be_used",
}


def test_an_honest_drafter_passes() -> None:
    assert verdicts(Honest) == set()


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.__name__)
def test_liars_are_convicted(liar: type[LaneDrafter]) -> None:
    tested = contract(liar)
    with pytest.raises(AssertionError):
        getattr(tested, LIARS[liar])()


def test_shared_noise_is_convicted() -> None:
    class Shared(DrafterContract):
        target = "drafters.table:Table"

        def make(self, name: str = "contract") -> Drafter:
            return Table(name="everybody")

    with pytest.raises(AssertionError, match="same noise"):
        Shared().test_its_name_keys_its_noise()


def test_a_table_that_counts_its_own_proposals_is_convicted() -> None:
    class Selfish(Sprinter):
        def propose(self, request: ProposeRequest) -> Draft:
            draft = super().propose(request)
            self._count((row[:length], 0) for row, length in zip(draft.tokens, draft.lengths, strict=True))
            return draft

    with pytest.raises(AssertionError):
        contract(Selfish).test_a_second_call_gives_the_same_draft()


@pytest.mark.parametrize("varied", [False, True], ids=["one law", "a law of its own each"])
def test_the_frequency_test_keeps_its_odds(varied: bool) -> None:
    """Honest tokens are convicted about as often as stated, or less."""
    trials, n, few = 120, 150, 0
    rng = np.random.default_rng(1)
    support = np.arange(6, dtype=np.int32)
    for _ in range(trials):
        laws = np.broadcast_to(rng.dirichlet(np.ones(6), n if varied else 1), (n, 6))
        tokens = draw(laws, rng.random(n)).tolist()
        seen = [Observation((), support, law, token) for law, token in zip(laws, tokens, strict=True)]
        few += law_p_value(seen) < 0.05
    assert few <= 0.13 * trials  # 0.05 and four standard deviations


def test_the_frequency_test_finds_a_tenth_of_total_variation() -> None:
    rng = np.random.default_rng(2)
    law = np.array([0.4, 0.3, 0.2, 0.1])
    real = np.array([0.5, 0.3, 0.1, 0.1])
    index = draw(np.broadcast_to(real, (4096, 4)), rng.random(4096))
    seen = [Observation((), np.arange(4, dtype=np.int32), law, int(i)) for i in index]
    assert law_p_value(seen) < 1e-12
