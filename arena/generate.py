"""Text, fast: a verifier, the joint tree of cheap drafters, and nodes chosen by what they cost.

Each drafter's tokens are worth their chance of coming true, by how often its first k
tokens did so far in these very texts (a product over positions, as everywhere), and a
pass takes what a pass of that many nodes took when the generator was built. Drafts that
are certain before they are seen (point masses, or any at temperature 0) are made in full,
cut to the nodes that pay, and compared with the text whether they were verified or not:
to learn their rates costs nothing. Others are asked for the length that pays, and tried
again now and then where none does. The law of the text is the verifier's, whatever is
drafted; at temperature 0 the text itself is.
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
from arena.allocation import PassCosts, best_cuts, best_length
from arena.engines.judge import chain_of
from arena.protocols import Drafter, Verifier
from arena.sampling import is_greedy
from arena.types import Chain, Draft, Feedback, Floats, LaneStep, LaneWork, ProposeRequest, Sampling

LANE = 0
AGAIN = 24
"""Passes after which a drafter that did not pay is tried again."""
HOPE = 2.0
"""Weight, in tokens, of the rate that a drafter is believed to have before it was seen."""
BELIEVED = 0.5
FREE = 0.03
"""Part of a pass that a whole draft may take and still be made whether it pays or not."""
SIZES = (1, 2, 3, 5, 9, 13, 17)
"""Nodes of the passes that are timed, beside the longest draft's."""
FADES = 0.98
"""What an earlier token weighs against the next one: texts change."""


@dataclass(slots=True)
class Rates:
    """How often a drafter's tokens came true, by position, where those before them did.

    Attributes:
        offered: float64[K], tokens there.
        kept: float64[K], those of them that came true.
    """

    offered: Floats
    kept: Floats

    @classmethod
    def new(cls, k: int) -> Rates:
        """Believes a little before anything is seen."""
        return cls(np.full(k, HOPE), np.full(k, HOPE * BELIEVED))

    def add(self, position: int, came_true: bool) -> None:
        """Counts one token; what is older weighs less and less."""
        self.offered[position] = FADES * self.offered[position] + 1
        self.kept[position] = FADES * self.kept[position] + came_true

    def products(self) -> list[float]:
        """Chance that the first k tokens all come true, for k = 1, 2, ..."""
        chances: list[float] = np.cumprod(self.kept / self.offered).tolist()
        return chances


@dataclass(slots=True)
class Watched:
    """A draft that is compared with the text as it grows, until they part."""

    drafter: str
    start: int
    tokens: Sequence[int]
    seen: int = 0

    def compare(self, text: Sequence[int], rates: Rates) -> bool:
        """Counts what the text has reached; says whether there is more to come."""
        while self.seen < len(self.tokens) and self.start + self.seen < len(text):
            same = self.tokens[self.seen] == text[self.start + self.seen]
            rates.add(self.seen, same)
            if not same:
                return False
            self.seen += 1
        return self.seen < len(self.tokens)


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass, for those who measure: tokens committed, nodes verified, each drafter's tokens among them."""

    tokens: tuple[int, ...]
    nodes: int
    drafted: Mapping[str, int]
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
            a sampled text, depend on the machine's clock; a greedy text does not, but where two tokens tie.
        max_k: Longest draft that is chosen.
        costs: Of a pass; measured where None and lengths are to be chosen.
    """

    def __init__(
        self,
        verifier: Verifier,
        drafters: Mapping[str, Drafter],
        *,
        k: int | None = None,
        max_k: int = 24,
        costs: PassCosts | None = None,
    ) -> None:
        self._verifier, self._drafters = verifier, dict(sorted(drafters.items()))
        self._k, self._max = k, k or max_k
        self._rates = {name: Rates.new(self._max) for name in self._drafters}
        self._draft_ms = dict.fromkeys(self._drafters, 0.0)
        self._silent = dict.fromkeys(self._drafters, 0)
        self.costs = costs or (self._price() if k is None and drafters else PassCosts((1,), (1.0,)))

    def _price(self) -> PassCosts:
        """Measures passes over chains of some lengths, ms: the fastest of three each.

        In turn, so that what else the machine does befalls all sizes alike.
        """
        vocab = self._verifier.vocabulary.size
        tokens = (seeding.uniform(1, "price", np.arange(64)) * vocab).astype(np.int64).tolist()
        self._verifier.open({LANE: tokens})
        sizes = sorted({min(n, 1 + self._max) for n in (*SIZES, 1 + self._max)})
        times: dict[int, list[float]] = {nodes: [] for nodes in sizes}
        for nodes in sizes * 4:
            chain = np.array(tokens[: nodes - 1], dtype=np.int32)
            tree = merge(tokens[-1], [Chain(chain, chain[:, None], np.ones((len(chain), 1)))])
            began = time.perf_counter()
            self._verifier.forward({LANE: tree}, Sampling(0.0))
            times[nodes].append(1000.0 * (time.perf_counter() - began))
        return PassCosts.of({nodes: min(found[1:]) for nodes, found in times.items()})

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
        text: list[int] = []
        watched: list[Watched] = []
        last, said, finish = int(prompt[-1]), tuple(prompt), ""
        key = int(seeding.fold(seed, "generate"))
        while len(text) < n and not finish:
            step = LaneStep(name, len(text))
            most = effective_length(self._max, n - len(text))
            chains = self._ask(key, sampling, step, said, most)
            watched += [
                Watched(drafter, len(text), chain.tokens.tolist())
                for drafter, chain in zip(self._drafters, chains, strict=True)
            ]
            used = self._cut(chains, sampling)
            tree = merge(last, used)
            laws = self._verifier.forward({LANE: tree}, sampling)
            choices = KeyedChoices(int(seeding.fold(key, name, step.start)), list(self._drafters))
            outcome = Recursive().commit(tree, used, laws[LANE], choices)
            drafted = [int(tree.tokens[node]) for node in outcome.path]
            eos = self._verifier.vocabulary.eos
            said, kept, finish = settle(drafted, outcome.token, eos, n - len(text))
            self._verifier.keep({LANE: outcome.path[:kept]})
            text += said
            last = said[-1]
            watched = [one for one in watched if one.compare(text, self._rates[one.drafter])]
            self._teach(LaneStep(name, len(text)), said)
            lengths = dict(zip(self._drafters, map(len, used), strict=True))
            yield Pass(said, len(tree.tokens), lengths, finish)

    def _ask(
        self, key: int, sampling: Sampling, step: LaneStep, said: tuple[int, ...], most: int
    ) -> list[Chain]:
        """Asks each drafter for what pays, or for all that it has where that is free; all hear the text."""
        chains = []
        eos = self._verifier.vocabulary.eos
        for name, drafter in self._drafters.items():
            k = min(most, self._length(name, sampling))
            began = time.perf_counter()
            work = LaneWork(LANE, step, step.start == 0, said, k)
            draft: Draft = drafter.propose(ProposeRequest(key, sampling, (work,)))
            chains.append(chain_of(draft, 0, k, eos))
            if k:
                spent = 1000.0 * (time.perf_counter() - began) / k
                self._draft_ms[name] += 0.1 * (spent - self._draft_ms[name])
        return chains

    def _length(self, name: str, sampling: Sampling) -> int:
        if self._k is not None:
            return self._k
        costs, draft_ms = self.costs, self._draft_ms[name]
        if self._certain(name, sampling) and self._max * draft_ms < FREE * costs.at(1):
            return self._max
        best = best_length(self._rates[name].products(), costs, draft_ms)
        self._silent[name] = 0 if best else self._silent[name] + 1
        if self._silent[name] >= AGAIN:
            self._silent[name], best = 0, 1
        return best

    def _cut(self, chains: Sequence[Chain], sampling: Sampling) -> list[Chain]:
        """Keeps the tokens that pay.

        A sampled chain stays whole: to cut it by what was drawn would bend the law of what is left.
        """
        if self._k is not None:
            return list(chains)
        free = [d for d, name in enumerate(self._drafters) if self._certain(name, sampling)]
        names = list(self._drafters)
        cuts = best_cuts(
            [chains[d].tokens.tolist() for d in free],
            [self._rates[names[d]].products() for d in free],
            self.costs,
        )
        wanted = dict(zip(free, cuts, strict=True))
        return [chain.cut(wanted.get(d, len(chain))) for d, chain in enumerate(chains)]

    def _certain(self, name: str, sampling: Sampling) -> bool:
        """Whether a drafter's tokens follow from its context alone."""
        return self._drafters[name].capabilities.deterministic or is_greedy(sampling)

    def _teach(self, step: LaneStep, tokens: tuple[int, ...]) -> None:
        """Lets those learn who count words; laws are not told."""
        none = np.zeros((len(tokens), 0))
        lesson = Feedback(
            step, (), tokens, none.astype(np.int32), none.astype(np.float32), np.ones(len(tokens), np.float32)
        )
        for drafter in self._drafters.values():
            if drafter.capabilities.learns:
                drafter.learn([lesson])
