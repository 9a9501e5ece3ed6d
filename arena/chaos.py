"""Faults on purpose: what the ``chaos`` section of an experiment asks for.

A fault strikes inside the worker's seat, so that whatever notices it, rebuilds the
worker or withdraws the drafter is the code of every run. A worker that was rebuilt has
a new life; a fault strikes in the first ``lives`` of them, from its ``call`` on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import numpy as np

from arena import seeding
from arena.config import ChaosSection, Fault
from arena.engines.seats import DrafterSeat, Failure, ScoreboardSeat, VerifierSeat, VerifyRequest
from arena.errors import ConfigError, WorkerLost, one_of
from arena.protocols import Drafter, WorkerSpec
from arena.types import Draft, PassResult, ProposeRequest, Verdict

T = TypeVar("T")

OTHERS = ("verifier", "scoreboard")
"""Workers that are no drafters, and cannot answer garbage."""

BODILY = ("dies", "hangs", "slows", "leaks", "raises")
"""What can befall any worker; the other faults are drafts that no drafter may send."""

SLOWER = 10
"""How many times longer a slow worker takes."""

_SEATS = {
    "DrafterSeat": "UnrulyDrafter",
    "VerifierSeat": "UnrulyVerifier",
    "ScoreboardSeat": "UnrulyScoreboard",
}


def check(section: ChaosSection | None, drafters: Sequence[str]) -> None:
    """Refuses faults of workers that there are not, or that a worker cannot have.

    Raises:
        ConfigError: Naming the fault and what is known.
    """
    for index, fault in enumerate(section.faults if section else ()):
        where = f"chaos.faults[{index}]"
        if fault.who not in (*drafters, *OTHERS):
            raise ConfigError(f"{where}: " + one_of("worker", fault.who, [*drafters, *OTHERS]))
        if fault.who in OTHERS and fault.what not in BODILY:
            raise ConfigError(
                f"{where}: the {fault.who} sends no drafts; expected one of {', '.join(BODILY)}."
            )


def armed(name: str, spec: WorkerSpec, section: ChaosSection | None, life: int, *, alone: bool) -> WorkerSpec:
    """Gives the worker's spec with its faults built in; as it is where it has none.

    Args:
        name: The worker.
        spec: How it is built.
        section: The faults.
        life: How often it was rebuilt.
        alone: Whether it has a process of its own to lose.
    """
    mine = [(i, fault) for i, fault in enumerate(section.faults if section else ()) if fault.who == name]
    seat = spec.target.rpartition(":")[2]
    if not mine or section is None:
        return spec
    faults = [
        {"what": fault.what, "call": _moment(section, index, fault), "mb": fault.mb}
        for index, fault in mine
        if life < fault.lives
    ]
    chaos = {"name": name, "faults": faults, "alone": alone}
    return replace(spec, target=f"arena.chaos:{_SEATS[seat]}", options={**spec.options, "chaos": chaos})


def _moment(section: ChaosSection, index: int, fault: Fault) -> int:
    if fault.call is not None:
        return fault.call
    return 1 + int(float(seeding.uniform(section.seed, "chaos", index)) * section.within)


class _Mischief:
    """Counts a worker's calls and strikes when a fault is due."""

    def __init__(self, *, name: str, faults: Sequence[Mapping[str, Any]], alone: bool) -> None:
        self._name, self._faults, self._alone = name, faults, alone
        self._calls = 0
        self._hoard: list[bytes] = []

    def due(self) -> set[str]:
        """Counts a call; gives the faults that are due and strikes those that end it."""
        self._calls += 1
        now = [fault for fault in self._faults if self._calls >= fault["call"]]
        what = {str(fault["what"]) for fault in now}
        if "dies" in what:
            self._die()
        if "hangs" in what:
            self._hang()
        for fault in now:
            if fault["what"] == "leaks":
                self._hoard.append(b"x" * (fault["mb"] << 20))  # written to, or it would not be resident
        return what

    def _die(self) -> NoReturn:
        if self._alone:
            os._exit(1)
        raise WorkerLost(self._name, "died (chaos; without a process of its own it only says so)")

    def _hang(self) -> None:
        if not self._alone:
            raise WorkerLost(self._name, "no answer (chaos; in one process nobody could wait for it)")
        while True:
            time.sleep(60)

    @staticmethod
    def slowly(what: set[str], work: Callable[[], T]) -> T:
        """Works, ten times as long if that is due."""
        if "raises" in what:
            raise RuntimeError("chaos")
        start = time.monotonic()
        result = work()
        if "slows" in what:
            time.sleep((SLOWER - 1) * (time.monotonic() - start))
        return result


class _Unruly:
    """A drafter that obeys its inner self until a fault is due."""

    def __init__(self, inner: Drafter) -> None:
        self._inner = inner
        self.due: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def propose(self, request: ProposeRequest) -> Any:
        draft = _Mischief.slowly(self.due, lambda: self._inner.propose(request))
        for what in sorted(self.due.difference(BODILY)):
            if request.k:  # with nothing asked for, there is no room for garbage
                return garbage(what, request)
        return draft


class UnrulyDrafter(DrafterSeat):
    """A drafter's seat with faults in it."""

    def __init__(self, *, chaos: Mapping[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self._mischief = _Mischief(**chaos)
        self._unruly = _Unruly(self.drafter)
        self.drafter = self._unruly

    def propose(self, request: ProposeRequest) -> Draft | Failure:
        """Drafts, as long as nothing is due."""
        self._unruly.due = self._mischief.due()
        try:
            return super().propose(request)
        finally:
            self._unruly.due = set()


class UnrulyVerifier(VerifierSeat):
    """The verifier's seat with faults in it."""

    def __init__(self, *, chaos: Mapping[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self._mischief = _Mischief(**chaos)

    def step(self, request: VerifyRequest, *drafts: Draft | Failure) -> PassResult:
        """Judges, as long as nothing is due."""
        what, judge = self._mischief.due(), super().step
        return self._mischief.slowly(what, lambda: judge(request, *drafts))


class UnrulyScoreboard(ScoreboardSeat):
    """The scoreboard's seat with faults in it."""

    def __init__(self, *, chaos: Mapping[str, Any]) -> None:
        super().__init__()
        self._mischief = _Mischief(**chaos)

    def fold(self, verdicts: Sequence[Verdict]) -> None:
        """Counts, as long as nothing is due."""
        what, count = self._mischief.due(), super().fold
        self._mischief.slowly(what, lambda: count(verdicts))


def garbage(what: str, request: ProposeRequest) -> Any:
    """Makes an answer that no drafter may give, for a request that asks for something."""
    lanes, k = len(request.lanes), request.k
    lengths = np.array([work.k for work in request.lanes], dtype=np.int32)
    drafted = np.arange(k) < lengths[:, None]
    tokens = np.where(drafted, 1, -1).astype(np.int32)
    support, probs = tokens[..., None].copy(), drafted.astype(np.float32)[..., None]

    def of(token: int) -> Draft:
        wrong = np.where(drafted, token, -1).astype(np.int32)
        return Draft(wrong, lengths, wrong[..., None].copy(), probs)

    match what:
        case "too_large":
            return of(1 << 30)
        case "negative":
            return of(-5)
        case "floats":
            return Draft(tokens.astype(np.float64), lengths, support, probs)
        case "too_many":
            wide = np.ones((lanes, k + 50), dtype=np.int32)
            full = np.full(lanes, k + 50, dtype=np.int32)
            return Draft(wide, full, wide[..., None].copy(), np.ones((lanes, k + 50, 1), dtype=np.float32))
        case "nan":
            return Draft(tokens, lengths, support, probs * np.float32(np.nan))
        case "unnormalised":
            return Draft(tokens, lengths, support, probs * np.float32(0.5))
        case "excludes":
            return Draft(tokens, lengths, np.where(support >= 0, 0, -1).astype(np.int32), probs)
        case "lanes":
            return Draft(tokens[:-1], lengths[:-1], support[:-1], probs[:-1])
    return "nothing that could be a draft"
