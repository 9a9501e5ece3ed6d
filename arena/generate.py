"""Text, fast: a verifier, the joint tree of cheap drafters, and draft lengths by the cost model.

Each drafter is asked for as many tokens as pay for their nodes, by how often its first k
tokens came true so far in these very texts (a product over positions, as everywhere) and
by what a pass and a node cost, measured once when the generator is built. One whose best
length is 0 is left in peace and tried again now and then. The law of the text is the
verifier's, whatever is drafted; at temperature 0 the text itself is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from arena import seeding
from arena.acceptance.choices import KeyedChoices
from arena.acceptance.ending import effective_length, settle
from arena.acceptance.tree import Recursive, merge
from arena.costs import StepCosts, best_k, fit_pass
from arena.engines.judge import chain_of
from arena.protocols import Drafter, Verifier
from arena.types import Chain, Draft, DraftTree, Feedback, LaneStep, LaneWork, ProposeRequest, Sampling

LANE = 0
AGAIN = 24
"""Passes after which a drafter that did not pay is tried again."""
HOPE = 2.0
"""Weight, in drafts, of the rate that a drafter is believed to have before it was seen."""
BELIEVED = 0.5


@dataclass(slots=True)
class Rates:
    """How often a drafter's first tokens came true, by position.

    Attributes:
        offered: float64[K], drafts that had a token there and whose earlier ones came true.
        kept: float64[K], those whose token there came true too.
    """

    offered: np.ndarray
    kept: np.ndarray

    @classmethod
    def new(cls, k: int) -> Rates:
        """Believes a little before anything is seen."""
        return cls(np.full(k, HOPE), np.full(k, HOPE * BELIEVED))

    def add(self, drafted: int, matched: int) -> None:
        """Counts one draft; what is older weighs less and less."""
        self.offered *= 0.98
        self.kept *= 0.98
        self.offered[: min(drafted, matched + 1)] += 1
        self.kept[:matched] += 1

    def products(self) -> list[float]:
        """Chance that the first k tokens all come true, for k = 1, 2, ..."""
        chances: list[float] = np.cumprod(self.kept / self.offered).tolist()
        return chances


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass, for those who measure: tokens committed, nodes verified, lengths asked of each drafter."""

    tokens: tuple[int, ...]
    nodes: int
    asked: Mapping[str, int]
    finish: str


@dataclass(slots=True)
class Text:
    """What was generated.

    Attributes:
        tokens: Without the prompt.
        passes: One a verifier forward.
        finish: ``"stop"`` at an end token, else ``"length"``.
        seconds: The prompt's prefill included.
    """

    tokens: list[int] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    finish: str = "length"
    seconds: float = 0.0


class Generator:
    """Generates texts one after the other.

    Args:
        verifier: The model.
        drafters: Cheap ones, by name, built with these names.
        k: Draft length of all; chosen by costs where None. Then the lengths, and with them
            a sampled text, depend on the machine's clock; a greedy text does not.
        max_k: Longest draft that is chosen.
    """

    def __init__(
        self, verifier: Verifier, drafters: Mapping[str, Drafter], *, k: int | None = None, max_k: int = 10
    ) -> None:
        self._verifier, self._drafters = verifier, dict(sorted(drafters.items()))
        self._k, self._max = k, k or max_k
        self._rates = {name: Rates.new(self._max) for name in self._drafters}
        self._draft_ms = dict.fromkeys(self._drafters, 0.0)
        self._silent = dict.fromkeys(self._drafters, 0)
        self.fixed, self.node = self._price() if k is None else (1.0, 0.0)

    def _price(self) -> tuple[float, float]:
        """Measures a pass of one node and of a chain, ms; the faster of three each."""
        vocab = self._verifier.vocabulary.size
        tokens = (seeding.uniform(1, "price", np.arange(64)) * vocab).astype(np.int64).tolist()
        self._verifier.open({LANE: tokens})
        found = []
        for extra in (0, self._max):
            chain = np.array(tokens[:extra], dtype=np.int32)
            tree = merge(tokens[-1], [Chain(chain, chain[:, None], np.ones((extra, 1)))])
            times = []
            for _ in range(4):
                began = time.perf_counter()
                self._verifier.forward({LANE: tree}, Sampling(0.0))
                times.append(1000.0 * (time.perf_counter() - began))
            found.append((extra + 1, min(times[1:])))
        return fit_pass(found)

    def generate(self, prompt: Sequence[int], n: int, sampling: Sampling, *, seed: int = 0) -> Text:
        """Continues a prompt by at most ``n`` tokens."""
        text = Text()
        began = time.perf_counter()
        for one in self.stream(prompt, n, sampling, seed=seed):
            text.passes.append(one)
            text.tokens.extend(one.tokens)
            text.finish = one.finish or text.finish
        text.seconds = time.perf_counter() - began
        return text

    def stream(self, prompt: Sequence[int], n: int, sampling: Sampling, *, seed: int = 0) -> Iterator[Pass]:
        """Gives the text pass by pass."""
        n = min(n, self._verifier.max_context - len(prompt))
        name = "generate"
        self._verifier.open({LANE: prompt})
        for drafter in self._drafters.values():
            drafter.reset({LANE: prompt})
        self._teach(LaneStep(name, 0), tuple(prompt))
        start, last, said, finish = 0, int(prompt[-1]), tuple(prompt), ""
        key = int(seeding.fold(seed, "generate"))
        while start < n and not finish:
            step = LaneStep(name, start)
            chains, asked = self._ask(key, sampling, step, said, effective_length(self._max, n - start))
            tree = merge(last, chains)
            laws = self._verifier.forward({LANE: tree}, sampling)
            choices = KeyedChoices(int(seeding.fold(key, name, start)), list(self._drafters))
            outcome = Recursive().commit(tree, chains, laws[LANE], choices)
            drafted = [int(tree.tokens[node]) for node in outcome.path]
            eos = self._verifier.vocabulary.eos
            said, kept, finish = settle(drafted, outcome.token, eos, n - start)
            self._verifier.keep({LANE: outcome.path[:kept]})
            self._count(chains, said, tree)
            start, last = start + len(said), said[-1]
            self._teach(LaneStep(name, start), said)
            yield Pass(said, len(tree.tokens), asked, finish)

    def _ask(
        self, key: int, sampling: Sampling, step: LaneStep, said: tuple[int, ...], most: int
    ) -> tuple[list[Chain], dict[str, int]]:
        """Asks each drafter for as many tokens as pay; all hear what was said."""
        chains, asked = [], {}
        eos = self._verifier.vocabulary.eos
        for name, drafter in self._drafters.items():
            k = asked[name] = min(most, self._length(name))
            began = time.perf_counter()
            work = LaneWork(LANE, step, step.start == 0, said, k)
            draft: Draft = drafter.propose(ProposeRequest(key, sampling, (work,)))
            chains.append(chain_of(draft, 0, k, eos))
            if k:
                spent = 1000.0 * (time.perf_counter() - began) / k
                self._draft_ms[name] += 0.1 * (spent - self._draft_ms[name])
        return chains, asked

    def _length(self, name: str) -> int:
        if self._k is not None:
            return self._k
        costs = StepCosts(self.fixed, self._draft_ms[name], self.node)
        best = best_k(self._rates[name].products(), costs, self._max)
        self._silent[name] = 0 if best else self._silent[name] + 1
        if self._silent[name] >= AGAIN:
            self._silent[name], best = 0, 1
        return best

    def _count(self, chains: Sequence[Chain], said: Sequence[int], tree: DraftTree) -> None:
        for name, chain in zip(self._drafters, chains, strict=True):
            if len(chain):
                same = chain.tokens[: len(said)] == np.array(said[: len(chain)])
                self._rates[name].add(min(len(chain), len(said)), int(np.cumprod(same).sum()))

    def _teach(self, step: LaneStep, tokens: tuple[int, ...]) -> None:
        """Lets those learn who count words; laws are not told."""
        none = np.zeros((len(tokens), 0))
        lesson = Feedback(
            step, (), tokens, none.astype(np.int32), none.astype(np.float32), np.ones(len(tokens), np.float32)
        )
        for drafter in self._drafters.values():
            if drafter.capabilities.learns:
                drafter.learn([lesson])
