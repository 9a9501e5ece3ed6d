"""A run read back as pandas frames: ``arena.load``. ``pandas`` is imported late."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena import records, tables
from arena.places import ROOT, resolve
from arena.store import RunDirectory

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LoadedRun", "load"]


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run as pandas frames.

    Attributes:
        path: Its directory.
        manifest: See :func:`arena.provenance.manifest`.
        rounds: One row a round; see :func:`arena.records.summary`.
        standings: One row a round and drafter, best first; see :class:`arena.metrics.Standing`.
        steps: One row a round, lane-step and drafter; see :func:`arena.tables.steps_schema`.
        commits: One row a round and lane-step; see :func:`arena.tables.commits_schema`.
        timing: Clock values; see :func:`arena.tables.timing`.
    """

    path: Path
    manifest: dict[str, Any]
    rounds: pd.DataFrame
    standings: pd.DataFrame
    steps: pd.DataFrame
    commits: pd.DataFrame
    timing: pd.DataFrame


def load(run: Path | str = "latest", root: Path | str = ROOT) -> LoadedRun:
    """Reads a run back into pandas frames.

    Args:
        run: A run directory, a path below ``root``, or ``latest``.
        root: Where runs are.

    Raises:
        RunError: If no run is there, or a file of it is damaged.
    """
    import pandas as pd

    directory = RunDirectory.open(resolve(run, root))
    stored = directory.rounds()

    def rows(kind: tables.Kind) -> pd.DataFrame:
        parts: list[pd.DataFrame] = [
            directory.read_table(kind, record["round"]).to_pandas() for record in stored
        ]
        for record, part in zip(stored, parts, strict=True):
            part.insert(0, "round", record["round"])
        frame: pd.DataFrame = pd.concat(parts or [tables.empty(kind).to_pandas()], ignore_index=True)
        return frame

    costs = directory.manifest.get("costs")
    ranked = [
        (record["round"], records.standings_of(record, records.goodput_of(record, costs)))
        for record in stored
    ]
    return LoadedRun(
        path=directory.path,
        manifest=directory.manifest,
        rounds=pd.DataFrame([records.summary(record) for record in stored]),
        standings=pd.DataFrame([{"round": n} | asdict(row) for n, table in ranked for row in table]),
        steps=rows("steps"),
        commits=rows("commits"),
        timing=rows("timing"),
    )
