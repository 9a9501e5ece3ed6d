"""The error tree.

Every message says what was wrong, what was got, what was expected, the known
names where there are some, and the next step, so that no reader has to open the
source to go on.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ArenaError(Exception):
    """Base of every error that Draft Arena raises on purpose."""

    exit_code = 1


class ConfigError(ArenaError):
    """The configuration or the command line cannot be used (exit code 2)."""

    exit_code = 2


class PromptError(ConfigError):
    """A prompt file holds something that cannot be played (exit code 2)."""


class ModelError(ArenaError):
    """A model cannot be found, converted or loaded."""


class LawError(ArenaError):
    """A probability law is not one: NaN, negative, or without mass."""


class VerifierFault(ArenaError):
    """The verifier failed; the run stops and can be resumed."""


class DrafterFault(ArenaError):
    """A drafter failed or answered something unusable; it is withdrawn.

    Args:
        drafter: Name of the drafter at fault.
        reason: What it did, in one sentence.
    """

    def __init__(self, drafter: str, reason: str) -> None:
        super().__init__(f"drafter {drafter!r}: {reason}")
        self.drafter = drafter
        self.reason = reason

    def __reduce__(self) -> tuple[type[DrafterFault], tuple[str, str]]:
        return DrafterFault, (self.drafter, self.reason)


class BackendError(ArenaError):
    """A worker is missing, dead, or late, or resources do not suffice."""


class WorkerLost(BackendError):
    """A worker died, raised, or did not answer in time.

    Args:
        worker: Its name.
        reason: What happened, in one sentence.
    """

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(f"worker {worker!r}: {reason}")
        self.worker = worker
        self.reason = reason

    def __reduce__(self) -> tuple[type[WorkerLost], tuple[str, str]]:
        return WorkerLost, (self.worker, self.reason)


class RunError(ArenaError):
    """A run directory is missing, damaged, or in the wrong state."""


def one_of(what: str, got: object, known: Iterable[object]) -> str:
    """Words a refusal of an unknown name.

    Args:
        what: The kind of thing that was named, e.g. ``"drafter kind"``.
        got: The name that was given.
        known: All names that would have been accepted.

    Returns:
        One sentence with the nearest known name and all of them.
    """
    names = sorted(str(name) for name in known)
    near = difflib.get_close_matches(str(got), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {str(got)!r}.{hint} Known: {', '.join(names) or 'none'}."
