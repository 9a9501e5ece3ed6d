"""The reference backend: every worker in this process, every call at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena.errors import ArenaError, WorkerLost
from arena.protocols import WorkerSpec
from arena.registry import load_class


@dataclass(frozen=True, slots=True)
class Done:
    """A call that has been made: its value, or what it raised."""

    worker: str
    value: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        """The value.

        Raises:
            ArenaError: The call raised it on purpose.
            WorkerLost: It raised something else, as an actor would have died of it.
        """
        if isinstance(self.error, ArenaError):
            raise self.error
        if self.error is not None:
            reason = f"raised {type(self.error).__name__}: {self.error}"
            raise WorkerLost(self.worker, reason) from self.error
        return self.value


class LocalBackend:
    """Runs workers one after the other in this process."""

    def __init__(self) -> None:
        self._workers: dict[str, Any] = {}

    def start(self, specs: Mapping[str, WorkerSpec], *, timeout: float) -> dict[str, Any]:
        """Builds workers; gives what each one's ``ready`` says."""
        answers = {}
        for name, spec in specs.items():
            self._workers[name] = load_class(spec.target)(**spec.options)
            answers[name] = self._workers[name].ready()
        return answers

    def submit(self, worker: str, method: str, *args: Any) -> Done:
        """Calls a method now."""
        try:
            values = [arg.result() if isinstance(arg, Done) else arg for arg in args]
            return Done(worker, getattr(self._workers[worker], method)(*values))
        except Exception as error:  # raised where the result is asked for, as an actor would
            return Done(worker, error=error)

    def wait(self, tickets: Sequence[Done], *, timeout: float) -> list[Any]:
        """Gives the results, in order."""
        return [ticket.result() for ticket in tickets]

    def first(self, tickets: Sequence[Done], *, timeout: float) -> int:
        """Index of a call that is done: here, the oldest."""
        return 0

    def stop(self, worker: str) -> None:
        """Frees a worker."""
        self._workers.pop(worker, None)

    def shutdown(self) -> None:
        """Frees all workers."""
        self._workers.clear()
