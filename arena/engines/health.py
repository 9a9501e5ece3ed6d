"""How a worker's process is doing: memory and open files, read from the kernel."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def memory_mb() -> float:
    """Resident memory of this process, MiB; its peak where the system tells no more."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024


def open_files() -> int:
    """File descriptors that this process holds; -1 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return -1


class Healthy:
    """A worker that can be asked how it is."""

    def health(self) -> dict[str, float]:
        """Gives ``memory_mb`` (resident, MiB), ``files`` (open descriptors) and ``pid``."""
        return {"memory_mb": memory_mb(), "files": float(open_files()), "pid": float(os.getpid())}
