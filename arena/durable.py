"""Files that are there whole or not at all, also after a power cut."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a temporary name beside ``path``; on success it is fsynced and takes its place."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Writes a text file: all of it or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append(path: Path, line: bytes, after: int) -> None:
    """Puts a line at byte ``after`` (what lies beyond is torn) and fsyncs; all of it or nothing."""
    with open(path, "r+b", buffering=0) as file:
        file.truncate(after)
        file.seek(after)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(after)
            raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
