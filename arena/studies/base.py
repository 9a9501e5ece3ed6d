"""What every study is: a checked configuration that plays and returns rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError

from arena.config import NAME, Strict, explain
from arena.errors import ConfigError

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What a study found.

    Attributes:
        title: Of the table.
        columns: Keys of the rows, in order.
        rows: Plain values.
        notes: Sentences to print below the table.
        more: Further plain values, kept in ``result.json`` and printed with ``-f json``.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


class Study(Strict):
    """Base of all studies: a frozen section that refuses keys it does not know."""

    name: Annotated[str, Field(pattern=NAME)]
    study: str
    description: str = ""
    seed: Annotated[int, Field(ge=0)] = 0

    @classmethod
    def check(cls, body: Mapping[str, Any], where: str) -> Self:
        """Checks plain values; ``where`` names them in errors.

        Raises:
            ConfigError: Naming what is wrong, and the nearest known key.
        """
        try:
            return cls.model_validate(dict(body))
        except ValidationError as error:
            raise ConfigError(explain(error, where, cls)) from None

    def plan(self) -> str:
        """What a dry run prints: the resolved values."""
        import yaml

        return str(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True))

    @abstractmethod
    def play(self, out: Path, note: Note) -> Result:
        """Plays the study.

        What is found at ``out`` from a play that was cut short is used again: the same
        call goes on with it.

        Args:
            out: Its run directory; a tournament of it gets a folder below.
            note: Shows progress, a line at a time, on stderr.
        """
