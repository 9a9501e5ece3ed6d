"""The contract every drafter keeps, as a test class to inherit.

A drafter of your own is tested in five lines, by pytest::

    from arena.testing import DrafterContract

    class TestMine(DrafterContract):
        target = "mypkg.mine:MyDrafter"
        options: ClassVar = {"size": 3}
        vocab = 32000

What is random in it is keyed, so it gives the same answer every time.
"""

from __future__ import annotations

import pickle
import tempfile
import unittest
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from arena import registry, seeding
from arena.frequencies import law_p_value, observations
from arena.protocols import Capabilities, Drafter
from arena.sampling import normalise
from arena.types import Draft, Feedback, Floats, LaneStep, LaneWork, ProposeRequest, Sampling
from arena.validation import validate_draft

ALPHA = 1e-6
"""Odds at which one frequency test convicts an honest drafter; a class asks at most ten of them."""


class DrafterContract:
    """Inherit, name a drafter, and pytest does the rest.

    Attributes:
        target: ``"module:Class"`` or ``"/path/file.py:Class"``; or override :meth:`make`.
        options: Its constructor's options, plain values.
        vocab: Vocabulary size; token ids of the contexts and drafts lie below it.
        k: Draft length asked for.
        samplings: The warpings under which laws are tested.
        tolerance: How far two laws may differ that should be equal: 0 for exact
            arithmetic, about 1e-4 for a network in float32, whose batches round differently.
        draws: Draws behind each frequency test. A law that is off by a total variation of
            0.1 over a few tokens is convicted with near certainty by 2048.
    """

    target: ClassVar[str] = ""
    options: ClassVar[Mapping[str, Any]] = {}
    vocab: ClassVar[int] = 16
    k: ClassVar[int] = 4
    samplings: ClassVar[Sequence[Sampling]] = (
        Sampling(),
        Sampling(temperature=0.7, top_k=9, top_p=0.9),
        Sampling(temperature=0.0),
    )
    tolerance: ClassVar[float] = 0.0
    draws: ClassVar[int] = 2048

    def make(self, name: str = "contract") -> Drafter:
        """Builds the drafter."""
        drafter: Drafter = registry.load_class(self.target)(name=name, **self.options)
        return drafter

    def prepare(self, drafter: Drafter) -> None:
        """Brings a new drafter into a state worth testing, e.g. by ``learn``; does nothing by default."""

    def contexts(self) -> list[list[int]]:
        """Gives texts of several lengths in which passages come back."""
        texts = []
        for index, length in enumerate((1, 2, 5, 12, 40, 23, 9)):
            words = (seeding.uniform(7, index, np.arange(length)) * min(self.vocab, 50)).astype(int)
            texts.append([int(word) for word in np.concatenate([words, words[: length // 2]])])
        return texts

    # What is tested.

    def test_it_offers_what_a_drafter_must(self) -> None:
        """It has the methods of the protocol, and what its capabilities promise."""
        drafter = self._ready()
        assert isinstance(drafter, Drafter), "it lacks a method of arena.protocols.Drafter"
        able = drafter.capabilities
        assert isinstance(able, Capabilities), f"capabilities is a {type(able).__name__}"
        if able.can_score:
            assert callable(getattr(drafter, "score", None)), "can_score, but there is no score"

    def test_drafts_can_be_used(self) -> None:
        """At most K tokens of the vocabulary a lane, each under a law that holds it."""
        for sampling in self.samplings:
            self._propose(self._ready(), self._all_fresh(sampling=sampling))

    def test_other_lanes_never_change_a_lane(self) -> None:
        """A lane alone, in a batch, in another slot or order: the same draft."""
        request = self._all_fresh()
        # Lanes of unequal K, so that some end before others.
        works = [replace(work, k=1 + row % self.k) for row, work in enumerate(request.lanes)]
        together = self._propose(self._ready(), replace(request, lanes=tuple(works)))
        others = list(range(len(works)))[::-1]
        shuffled = tuple(replace(works[row], lane=2 * place + 1) for place, row in enumerate(others))
        draft = self._propose(self._ready(), replace(request, lanes=shuffled))
        for place, row in enumerate(others):
            self._same(together, row, draft, place, "in other slots and another order")
        drafter = self._ready()
        for row, work in enumerate(works):
            alone = self._propose(drafter, replace(request, lanes=(replace(work, lane=0),)))
            self._same(together, row, alone, 0, "alone")

    def test_the_law_sent_is_the_law_sampled(self) -> None:
        """Drawn tokens have the frequencies of the laws sent with them."""
        for sampling in self.samplings:
            drafts = self._many(self._ready(), sampling)
            for depth in range(min(2, self.k)):
                p = law_p_value(observations(drafts, depth), tolerance=self.tolerance)
                assert p >= ALPHA, (
                    f"tokens at position {depth} do not have the frequencies of the law sent "
                    f"(p = {p:.2g}, {sampling}): it sends another law than it draws from"
                )

    def test_a_second_call_gives_the_same_draft(self) -> None:
        """Proposing changes nothing: no count, no weight, no noise."""
        drafter, request = self._ready(), self._all_fresh()
        first = self._propose(drafter, request)
        again = tuple(replace(work, fresh=False, tokens=()) for work in request.lanes)
        self._propose(drafter, replace(request, key=99, lanes=again))
        second = self._propose(drafter, replace(request, lanes=again))
        for row in range(len(again)):
            self._same(first, row, second, row, "asked again with nothing committed")

    def test_reset_equals_replayed_history(self) -> None:
        """Full contexts after a crash give what step by step gave, however much was kept."""
        drafter, crashed, request = self._ready(), self._ready(), self._all_fresh()
        texts, starts = self.contexts(), [0] * len(self.contexts())
        for turn in range(5):
            draft = self._propose(drafter, request)
            works = []
            for row, text in enumerate(texts):
                # None, some or all of the draft is kept, then comes a token of the verifier's own.
                kept = min((row + turn) % (self.k + 1), int(draft.lengths[row]))
                own = int(seeding.uniform(turn, row) * self.vocab)
                new = (*(int(token) for token in draft.tokens[row, :kept]), own)
                text.extend(new)
                starts[row] += len(new)
                works.append(LaneWork(row, LaneStep(f"p{row}", starts[row]), False, new, self.k))
            request = replace(request, lanes=tuple(works))
            replayed = self._propose(drafter, request)
            whole = tuple(
                replace(work, fresh=True, tokens=tuple(text)) for work, text in zip(works, texts, strict=True)
            )
            reset = self._propose(crashed, replace(request, lanes=whole))
            for row in range(len(texts)):
                self._same(replayed, row, reset, row, f"after a reset at turn {turn}")
            request = replace(request, lanes=tuple(replace(work, tokens=()) for work in works))
        refilled = replace(request, lanes=self._all_fresh().lanes[::-1])
        again, anew = self._propose(drafter, refilled), self._propose(self._ready(), refilled)
        for row in range(len(texts)):
            self._same(again, row, anew, row, "after its lanes were refilled")

    def test_its_spec_rebuilds_it(self) -> None:
        """A dotted name and plain options build the same drafter anywhere."""
        if not self.target:
            raise unittest.SkipTest("the drafter has no target: its class overrides make")
        target, options = pickle.loads(pickle.dumps((self.target, dict(self.options))))
        rebuilt = registry.load_class(target)(name="contract", **options)
        self.prepare(rebuilt)
        ready = self._ready()
        assert rebuilt.capabilities == ready.capabilities, "two drafters of one spec differ in capabilities"
        first, second = self._propose(ready, self._all_fresh()), self._propose(rebuilt, self._all_fresh())
        for row in range(len(first.tokens)):
            self._same(first, row, second, row, "rebuilt from its spec")

    def test_its_name_keys_its_noise(self) -> None:
        """Two drafters of one kind do not share the noise they draw with."""
        if not self.target or self._ready().capabilities.deterministic:
            raise unittest.SkipTest("it has no noise, or its class overrides make")
        twin = self.make("another name")
        self.prepare(twin)
        mine, other = self._many(self._ready(), Sampling()), self._many(twin, Sampling())
        pairs = [(a.tokens, b.tokens) for a, b in zip(mine, other, strict=True)]
        if any((a.probs.max(axis=-1)[a.tokens >= 0] < 0.9).any() for a in mine):
            assert any((a != b).any() for a, b in pairs), "two drafters draw with the same noise"

    def test_it_takes_no_lanes_and_no_tokens(self) -> None:
        """No lanes, K of 0 in some or all lanes, and an empty context are answered."""
        drafter, request = self._ready(), self._all_fresh()
        assert len(self._propose(drafter, replace(request, lanes=())).lengths) == 0
        draft = self._propose(drafter, request)
        silenced = tuple(replace(work, k=0 if row % 2 else work.k) for row, work in enumerate(request.lanes))
        mixed = self._propose(drafter, replace(request, lanes=silenced))
        for row in range(0, len(silenced), 2):
            self._same(draft, row, mixed, row, "beside lanes asked for no token")
        none = tuple(replace(work, k=0) for work in request.lanes)
        assert not self._propose(drafter, replace(request, lanes=none)).lengths.any()
        empty = LaneWork(0, LaneStep("empty", 0), True, (), self.k)
        self._propose(drafter, replace(request, lanes=(empty, *request.lanes[1:])))

    def test_what_it_learnt_is_saved_and_loaded(self) -> None:
        """What was learnt survives save and load, and goes on being learnt alike."""
        drafter, request = self._ready(), self._all_fresh()
        before = self._propose(drafter, request)
        drafter.learn(self._feedback(0))
        learnt = self._propose(drafter, request)
        if not drafter.capabilities.learns:
            for row in range(len(before.tokens)):
                self._same(before, row, learnt, row, "after learn, though it does not learn")
        with tempfile.TemporaryDirectory() as folder:
            drafter.save(Path(folder))
            odd = [path.name for path in Path(folder).rglob("*.*") if path.suffix not in _SAFE_FILES]
            assert not odd, f"it saves {odd}; expected {', '.join(_SAFE_FILES)} only"
            loaded = self.make()
            if not drafter.capabilities.learns:
                self.prepare(loaded)
            loaded.load(Path(folder))
        drafts = [(learnt, self._propose(loaded, request))]
        for each in (drafter, loaded):
            each.learn(self._feedback(3))
        drafts.append((self._propose(drafter, request), self._propose(loaded, request)))
        for one, other in drafts:
            for row in range(len(one.tokens)):
                self._same(one, row, other, row, "loaded from what it saved")

    def test_deterministic_means_point_masses(self) -> None:
        """A drafter that calls itself deterministic sends point masses, whatever the key."""
        drafter = self._ready()
        if not drafter.capabilities.deterministic:
            raise unittest.SkipTest("it samples")
        first = self._propose(drafter, self._all_fresh(key=1))
        second = self._propose(drafter, self._all_fresh(key=2))
        assert ((first.probs > 0).sum(axis=-1) <= 1).all(), (
            "it calls itself deterministic but sends wide laws"
        )
        for row in range(len(first.tokens)):
            self._same(first, row, second, row, "under another key, though it calls itself deterministic")

    def test_it_scores_the_law_it_sends(self) -> None:
        """``score`` gives the log-probabilities of the very law that is sent."""
        drafter = self._ready()
        if not drafter.capabilities.can_score:
            raise unittest.SkipTest("it does not score")
        score: Callable[[Sequence[int], Sequence[int], Sampling], Floats] = drafter.score  # type: ignore[attr-defined]
        within = max(1e-9, 100 * self.tolerance)
        for sampling in self.samplings:
            draft = self._propose(drafter, self._all_fresh(sampling=sampling))
            laws = normalise(draft.probs)
            for row, context in enumerate(self.contexts()):
                tokens = draft.tokens[row, : draft.lengths[row]]
                hit = draft.support[row, : len(tokens)] == tokens[:, None]
                sent = np.log((laws[row, : len(tokens)] * hit).sum(axis=-1))
                got = np.asarray(score(context, [int(token) for token in tokens], sampling))
                assert got.dtype == np.float64, f"score gives {got.dtype}; expected float64"
                assert got.shape == sent.shape, f"score gives {got.shape}; expected {sent.shape}"
                assert np.allclose(got, sent, rtol=0, atol=within), (
                    f"lane {row}: it scores {got}, but sent {sent} ({sampling})"
                )
                outside = np.setdiff1d(np.arange(min(self.vocab, 256)), draft.support[row, :1])
                if len(tokens) and outside.size:
                    low = score(context, [int(outside[0])], sampling)[0]
                    # A law cut at a near-tie may let another token in.
                    assert low == -np.inf or self.tolerance, (
                        "it scores a token outside its support above -inf"
                    )

    # How.

    def _ready(self) -> Drafter:
        drafter = self.make()
        self.prepare(drafter)
        return drafter

    def _all_fresh(self, *, key: int = 1, sampling: Sampling | None = None) -> ProposeRequest:
        works = (
            LaneWork(row, LaneStep(f"p{row}", 0), True, tuple(text), self.k)
            for row, text in enumerate(self.contexts())
        )
        return ProposeRequest(key, sampling or Sampling(), tuple(works))

    def _propose(self, drafter: Drafter, request: ProposeRequest) -> Draft:
        fresh = {work.lane: work.tokens for work in request.lanes if work.fresh}
        if fresh:
            drafter.reset(fresh)
        draft = drafter.propose(request)
        fault = validate_draft(draft, [work.k for work in request.lanes], self.vocab)
        assert fault is None, f"its draft is unusable: {fault}"
        return draft

    def _many(self, drafter: Drafter, sampling: Sampling) -> list[Draft]:
        """Drafts from one context with much noise: many prompt ids and keys."""
        text, lanes, k = tuple(self.contexts()[-1]), 64, min(2, self.k)
        works = tuple(LaneWork(lane, LaneStep(f"p{lane}", 0), True, text, k) for lane in range(lanes))
        drafts = []
        for key in range(-(-self.draws // lanes)):
            drafts.append(self._propose(drafter, ProposeRequest(key, sampling, works)))
            works = tuple(replace(work, fresh=False, tokens=()) for work in works)
        return drafts

    def _feedback(self, start: int) -> list[Feedback]:
        """What the verifier would tell: three tokens of each prompt, from a position on."""
        told = []
        for row, text in enumerate(self.contexts()):
            tokens = (seeding.uniform(row, start, np.arange(3)) * self.vocab).astype(np.int32)
            m = min(4, self.vocab)
            support = ((tokens[:, None] + np.arange(m)) % self.vocab).astype(np.int32)
            probs = np.full((3, m), 0.9 / m, dtype=np.float32)
            context = tuple(text) if start == 0 else ()
            tail = np.full(3, 0.1, dtype=np.float32)
            told.append(
                Feedback(LaneStep(f"p{row}", start), context, tuple(tokens.tolist()), support, probs, tail)
            )
        return told

    def _same(self, one: Draft, row: int, other: Draft, place: int, when: str) -> None:
        a, b = (d.tokens[r, : d.lengths[r]].tolist() for d, r in ((one, row), (other, place)))
        assert a == b, f"lane {row} drafts {a}, but {b} {when}"
        for position in range(len(a)):
            p, q = _law(one, row, position), _law(other, place, position)
            far = max(abs(p.get(token, 0.0) - q.get(token, 0.0)) for token in p.keys() | q.keys())
            assert far <= self.tolerance, (
                f"lane {row}, position {position}: its law differs by {far:.2g} {when}; "
                f"expected at most {self.tolerance:.2g}"
            )


_SAFE_FILES = (".npz", ".safetensors", ".json")


def _law(draft: Draft, row: int, position: int) -> dict[int, float]:
    law = normalise(draft.probs[row, position])
    return {int(t): float(p) for t, p in zip(draft.support[row, position], law, strict=True) if p > 0}
