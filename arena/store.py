"""The run directory: what a run leaves on disk, and in which order, so that nothing is lost.

A round is written in two moves. Its tables go to temporary names, are fsynced and
renamed; then ONE line is appended to ``rounds.jsonl``, flushed and fsynced. That line
is the commit record: tables without it are leftovers of a crash and are written
again, a torn last line is ignored and cut off before the next one. Nothing but
``timing/`` and the manifest holds a clock value, so everything else is
byte-identical between a run and its repetition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from arena import durable, records, tables
from arena.errors import ConfigError, RunError, one_of
from arena.places import MANIFEST, ROOT, check_name, default_path, find, latest, resolve
from arena.types import Commit, FieldStep, Verdict

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "ROOT",
    "SCHEMA_VERSION",
    "LoadedRun",
    "RunDirectory",
    "Status",
    "canonical",
    "check_name",
    "default_path",
    "find",
    "latest",
    "load",
    "resolve",
]

SCHEMA_VERSION = 1
Status = Literal["running", "complete", "failed", "interrupted"]

_ROUNDS, _CONFIG, _CHAMPION = "rounds.jsonl", "config.resolved.yaml", "champion.json"


def canonical(value: Any) -> str:
    """Writes JSON in the one way that equal values share; NaN and infinities are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class RunDirectory:
    """One run on disk. Made by ``create`` or ``open``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path | str, config_yaml: str, manifest: Mapping[str, Any]) -> RunDirectory:
        """Starts a run directory: its resolved config and manifest, status ``running``.

        Args:
            path: Where; must not exist, or be an empty directory.
            config_yaml: The resolved config, as text.
            manifest: See :func:`arena.provenance.manifest`.

        Raises:
            ConfigError: If the place is taken, or cannot be written.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise ConfigError(
                    f"{str(path)!r} is not empty, and a run directory is never reused: "
                    "choose another with --out, or go on with `arena resume`."
                )
            for name in ("steps", "commits", "timing"):
                (path / name).mkdir()
            durable.write(path / _CONFIG, config_yaml)
            durable.write(path / _ROUNDS, "")
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot make a run directory at {str(path)[:200]!r}: {error}.") from error
        run = cls(path)
        run._put_object(MANIFEST, {"schema_version": SCHEMA_VERSION, "status": "running", **manifest})
        return run

    @classmethod
    def open(cls, path: Path | str) -> RunDirectory:
        """Opens a run directory to read it, or to go on with it. Changes nothing.

        Raises:
            RunError: If it is not one, or of a newer schema.
        """
        run = cls(Path(path))
        version = run.manifest.get("schema_version")
        if version != SCHEMA_VERSION:
            raise RunError(
                f"{str(path)!r} has schema version {version!r}; "
                f"this version of Draft Arena reads {SCHEMA_VERSION}."
            )
        return run

    @property
    def config_yaml(self) -> str:
        """The resolved config, as text."""
        try:
            return (self.path / _CONFIG).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {str(self.path / _CONFIG)!r}: {error}.") from error

    @property
    def manifest(self) -> dict[str, Any]:
        """What is known about the run besides its results; read from disk each time."""
        return self._read_object(MANIFEST)

    def update_manifest(self, **changes: Any) -> None:
        """Changes fields of the manifest, all or none of them.

        Raises:
            RunError: If ``status`` is not one of ``Status``.
        """
        if "status" in changes and changes["status"] not in get_args(Status):
            raise RunError(one_of("run status", changes["status"], get_args(Status)))
        self._put_object(MANIFEST, {**self.manifest, **changes})

    def append_round(
        self,
        record: Mapping[str, Any],
        verdicts: Sequence[Verdict],
        commits: Sequence[Commit],
        timing: Sequence[Mapping[str, Any]] = (),
        priced: Sequence[FieldStep] = (),
    ) -> None:
        """Stores a round; when this returns, the round is on disk for good.

        Args:
            record: See :func:`arena.records.round_record`; its ``round`` must follow
                the last one stored.
            verdicts: Of the whole round, in any order.
            commits: Of the whole round, in any order.
            timing: Rows of clock values; see :func:`arena.tables.timing`.
            priced: Lane-steps with contributions, kept in ``contributions/`` if any.

        Raises:
            RunError: If the round is not the next one.
        """
        line = (canonical(record) + "\n").encode()
        number, lines = int(record["round"]), self._lines()
        if number != len(lines) + 1:
            raise RunError(
                f"round {number} does not follow the {len(lines)} stored in {str(self.path)!r}: "
                "nothing is played twice."
            )
        contents: dict[tables.Kind, pa.Table] = {
            "steps": tables.steps(verdicts),
            "commits": tables.commits(commits),
            "timing": tables.timing(timing),
        }
        if priced:
            contents["contributions"] = tables.contributions(priced, record["alive"])
        try:
            for kind, table in contents.items():
                self.table_path(kind, number).parent.mkdir(exist_ok=True)
                with durable.replacing(self.table_path(kind, number)) as temporary:
                    tables.write(table, temporary)
            durable.append(self.path / _ROUNDS, line, after=sum(len(line) + 1 for line in lines))
        except OSError as error:
            raise RunError(
                f"cannot store round {number} in {str(self.path)!r}: {error}. "
                "All rounds before it are safe: go on with `arena resume`."
            ) from error

    def rounds(self) -> list[dict[str, Any]]:
        """Reads the records of all stored rounds, oldest first.

        Raises:
            RunError: If a line other than a torn last one is damaged.
        """
        found = []
        for number, line in enumerate(self._lines(), start=1):
            try:
                record = json.loads(line)
                if record["round"] != number:
                    raise ValueError(f"it says round {record['round']}")
            except (ValueError, KeyError, TypeError) as error:
                raise RunError(f"{str(self.path / _ROUNDS)!r}, line {number} is damaged: {error}.") from error
            found.append(record)
        return found

    def write_champion(self, champion: Mapping[str, Any]) -> None:
        """Writes ``champion.json``."""
        self._put_object(_CHAMPION, champion)

    def champion(self) -> dict[str, Any] | None:
        """Reads ``champion.json``; None if the run has none (yet)."""
        return self._read_object(_CHAMPION) if (self.path / _CHAMPION).exists() else None

    def table_path(self, kind: tables.Kind, round: int) -> Path:
        """Gives where a table of a round lies."""
        return self.path / kind / f"round={round:03d}.parquet"

    def read_table(self, kind: tables.Kind, round: int) -> pa.Table:
        """Reads a table of a stored round.

        Raises:
            RunError: If it is missing or damaged.
        """
        path = self.table_path(kind, round)
        try:
            return tables.read(path)
        except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
            raise RunError(f"{str(path)!r} cannot be read: {error}.") from error

    def _lines(self) -> list[bytes]:
        try:
            return (self.path / _ROUNDS).read_bytes().split(b"\n")[:-1]  # what follows the last is torn
        except OSError as error:
            raise RunError(f"cannot read {str(self.path / _ROUNDS)!r}: {error}.") from error

    def _put_object(self, name: str, value: Mapping[str, Any]) -> None:
        durable.write(self.path / name, json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n")

    def _read_object(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RunError(f"{str(self.path)!r} is not a run directory: it has no {name}.") from error
        except (OSError, ValueError) as error:
            raise RunError(f"{str(path)!r} cannot be read: {error}.") from error
        if not isinstance(value, dict):
            raise RunError(f"{str(path)!r} is damaged: expected a JSON object.")
        return value


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
