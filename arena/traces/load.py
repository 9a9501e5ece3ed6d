"""Opening a log, a trace or a run by what lies at its path."""

from __future__ import annotations

from pathlib import Path

from arena.errors import ConfigError
from arena.traces import logs, runs, tables
from arena.traces.logs import Reading
from arena.traces.records import Loaded


def load(path: Path | str, reading: Reading | None = None) -> Loaded:
    """Reads a trace from a Parquet file, a JSONL log, or a run directory.

    Raises:
        ConfigError: Nothing usable is there.
        RunError: A run directory is damaged.
    """
    place = Path(path)
    if place.is_dir():
        return runs.read(place)
    if not place.is_file():
        raise ConfigError(
            f"no log at {str(path)[:200]!r}; expected a .jsonl log, a .parquet trace, or a run directory."
        )
    if place.suffix == ".parquet":
        return tables.read(place)
    return logs.read(place, reading or Reading())
