"""How a worker is doing: the time of its calls, and the memory and open files of its process."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path


def memory_mb() -> float:
    """Resident memory of this process, MiB; its peak where the system tells no more."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024


def own_mb() -> float:
    """Proportional memory of this process (PSS), MiB; resident where the system does not tell.

    A page that n processes map counts as an n-th in each: weights mapped from one file count
    once over all who map them, processes that are not of the run among them.
    """
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except (OSError, ValueError, IndexError, StopIteration):
        return memory_mb()


def open_files() -> int:
    """File descriptors that this process holds; -1 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return -1


class Healthy:
    """A worker that can be asked how it is."""

    def health(self) -> dict[str, float]:
        """Gives ``memory_mb`` (resident, MiB), ``own_mb``, ``files`` (open descriptors) and ``pid``."""
        return {
            "memory_mb": memory_mb(),
            "own_mb": own_mb(),
            "files": float(open_files()),
            "pid": float(os.getpid()),
        }


@dataclass(frozen=True, slots=True)
class Span:
    """One call's time, for the timing file alone: no decision ever reads it.

    Attributes:
        worker: Who worked.
        method: What was asked.
        start: Seconds since the epoch.
        end: Seconds since the epoch.
        lanes: Lanes in the call.
        tokens: Draft tokens proposed, or tree nodes verified.
        payload: Bytes of the answer's arrays; 0 where not measured.
    """

    worker: str
    method: str
    start: float
    end: float
    lanes: int
    tokens: int
    payload: int = 0


class Timed(Healthy):
    """Keeps spans until they are collected at a barrier."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def spans(self) -> list[Span]:
        """Hands over the spans since the last call."""
        spans, self._spans = self._spans, []
        return spans
