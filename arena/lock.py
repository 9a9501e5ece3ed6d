"""One process a run directory: whoever plays it holds a lock that dies with the process."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from arena.errors import RunError

NAME = ".lock"

_held: dict[Path, int] = {}
"""Directories that this process holds, and how many times over."""


@contextlib.contextmanager
def hold(run: Path) -> Iterator[None]:
    """Holds a run directory; a process may hold the same one again within.

    The lock is the kernel's (``flock``): a process that is killed leaves none behind. On a
    file system without such locks nothing is held, and nothing breaks.

    Raises:
        RunError: Another process holds it; says which.
    """
    key = run.resolve()
    if key in _held:
        _held[key] += 1
        try:
            yield
        finally:
            _held[key] -= 1
        return
    try:
        handle = os.open(run / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(f"cannot lock {str(run)!r}: {error}; expected a directory to write to.") from error
    try:
        _lock(handle, run)
        os.ftruncate(handle, 0)
        os.pwrite(handle, _who().encode(), 0)
        _held[key] = 1
        try:
            yield
        finally:
            del _held[key]
    finally:
        os.close(handle)


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _lock(handle: int, run: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 200, 0).decode(errors="replace") or "another process"
        raise RunError(
            f"{str(run)!r} is being played by {holder}: two processes must not write one run. "
            "Wait for it, or stop it, and then go on with `arena resume`."
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise RunError(f"cannot lock {str(run)!r}: {error}.") from error
