"""What a drafter, a verifier, a rule and a backend must offer.

Implementations need not inherit from these; ``arena.testing.DrafterContract``
checks a drafter's behaviour, not its ancestry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from arena.types import Draft, DraftTree, Feedback, Floats, Ints, ProposeRequest, Sampling, Vocabulary


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a drafter can do and how it depends on its surroundings.

    Attributes:
        deterministic: Sends point masses; the same context gives the same draft.
        learns: ``learn`` changes what it proposes.
        can_score: Offers ``score``.
        start_dependent: Its law at a position depends on where the block started.
        can_verify: Is a language model that ``promote`` can turn into a verifier.
        fingerprint: Vocabulary it is bound to, or None where any will do.
    """

    deterministic: bool
    learns: bool = False
    can_score: bool = False
    start_dependent: bool = False
    can_verify: bool = False
    fingerprint: str | None = None


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens. Built from plain config values, so that an actor can rebuild it."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def reset(self, contexts: Mapping[int, Sequence[int]]) -> None:
        """Starts lanes over with full contexts (at a start, or after a crash).

        Args:
            contexts: Lane to all tokens of prompt and output so far.
        """
        ...

    def propose(self, request: ProposeRequest) -> Draft:
        """Drafts at most K_eff tokens a lane; changes neither weights nor counts.

        Fresh lanes were ``reset`` before this call; ``tokens`` of other lanes extend
        their contexts.
        """
        ...

    def learn(self, batch: Sequence[Feedback]) -> None:
        """Learns from committed text, sorted by (prompt_id, start). May do nothing."""
        ...

    def save(self, folder: Path) -> None:
        """Writes what was learnt (safetensors or npz only)."""
        ...

    def load(self, folder: Path) -> None:
        """Reads what ``save`` wrote."""
        ...


class TargetLaws(Protocol):
    """The verifier's laws at the nodes of one lane's tree, after warping."""

    def law(self, node: int) -> Floats:
        """float64[V], summing to 1. A fresh array or a read-only view."""
        ...

    def probs(self, node: int, tokens: Ints) -> Floats:
        """Probabilities of some tokens at a node, float64; 0 where a token is -1."""
        ...

    def top(self, node: int, m: int) -> tuple[Sequence[int], Sequence[float], float]:
        """The m most probable tokens of the *raw* law there, their mass, and the tail's."""
        ...


@runtime_checkable
class Verifier(Protocol):
    """Gives the target law at every node of the trees of a group of lanes.

    It knows nothing of rules: ``arena.engines.live`` applies them, the same code for
    every verifier.
    """

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens."""
        ...

    @property
    def max_context(self) -> int:
        """Longest context (prompt and output) it can serve, tokens."""
        ...

    def encode(self, messages: Sequence[tuple[str, str]], text: str) -> list[int]:
        """Turns a prompt into token ids, by its chat template where it has one."""
        ...

    def decode_text(self, tokens: Sequence[int]) -> str:
        """Turns token ids into text for people to read."""
        ...

    def open(self, contexts: Mapping[int, Sequence[int]]) -> None:
        """Starts lanes over with full contexts; all but the last token are cached."""
        ...

    def forward(self, trees: Mapping[int, DraftTree], sampling: Sampling) -> Mapping[int, TargetLaws]:
        """Runs ONE forward over the trees of the given lanes."""
        ...

    def keep(self, paths: Mapping[int, Sequence[int]]) -> None:
        """Keeps the cache rows of the root and of each lane's accepted nodes, in order.

        Lanes of the last ``forward`` that are absent here have finished: they are
        opened anew before they are used again.
        """
        ...


class Choices(Protocol):
    """The two points at which chance enters a verification rule.

    Keyed uniforms answer in a run, an enumerator of every outcome in the audit: the
    code that is proved is the code that runs.
    """

    def accept(self, prob: float, depth: int, drafter: int) -> bool:
        """Says yes with probability ``prob``. Asked once a (depth, drafter)."""
        ...

    def draw(self, law: Floats, depth: int) -> int:
        """Draws a token from a law over the vocabulary (non-negative, any mass)."""
        ...

    def order(self, drafters: Sequence[int], depth: int) -> list[int]:
        """Puts drafters in an order that depends on nothing that was drawn."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """How to build a worker anywhere: a dotted name and plain values.

    Attributes:
        target: ``"module:callable"``.
        options: Keyword arguments, plain values only.
        num_cpus: Share of CPU cores reserved for it.
        num_gpus: Share of a GPU reserved for it.
        threads: Threads that numerical libraries may use in it; 0 leaves them alone.
    """

    target: str
    options: Mapping[str, Any]
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    threads: int = 0


Ticket: TypeAlias = Any
"""A call in flight, opaque; may be passed on as an argument of another call unread."""


class Backend(Protocol):
    """Runs workers: in this process, or as Ray actors."""

    def start(self, specs: Mapping[str, WorkerSpec], *, timeout: float) -> Mapping[str, Any]:
        """Builds workers by name, waits until each is ready, gives what each ``ready`` says."""
        ...

    def submit(self, worker: str, method: str, *args: Any) -> Ticket:
        """Calls a method; tickets among ``args`` arrive as their values."""
        ...

    def wait(self, tickets: Sequence[Ticket], *, timeout: float) -> list[Any]:
        """Gives the results, in order.

        Raises:
            WorkerLost: Naming the worker that died, raised or was late.
        """
        ...

    def first(self, tickets: Sequence[Ticket], *, timeout: float) -> int:
        """Waits until one of the calls is done; gives its index."""
        ...

    def stop(self, worker: str) -> None:
        """Frees a worker."""
        ...

    def shutdown(self) -> None:
        """Frees everything."""
        ...
