"""Workers and drafters for the tests of the Ray backend; loaded by path."""

from __future__ import annotations

import os
import time
from pathlib import Path

from arena.errors import DrafterFault
from drafters.copyist import Copyist


class Slow:
    """A worker that naps, falls, or cannot be built."""

    def __init__(self, *, fail: str = "") -> None:
        if fail:
            raise ValueError(fail)

    def ready(self) -> str:
        return "ready"

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)

    def leave(self) -> None:
        os._exit(1)

    def fall(self) -> None:
        raise ValueError("fell")

    def fault(self) -> None:
        raise DrafterFault("w", "on purpose")

    def echo(self, value: object) -> object:
        return value


class Mortal(Copyist):
    """A copyist whose process dies at its third draft: once if ``marker`` is a path, else always."""

    def __init__(self, *, name: str, marker: str = "") -> None:
        super().__init__(name=name)
        self.marker, self.calls = marker, 0

    def propose(self, request):
        self.calls += 1
        if self.calls == 3 and not (self.marker and Path(self.marker).exists()):
            if self.marker:
                Path(self.marker).touch()
            os._exit(1)
        return super().propose(request)
