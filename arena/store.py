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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from arena import durable, seals, tables
from arena.errors import ConfigError, RunError, one_of
from arena.places import MANIFEST
from arena.seals import canonical
from arena.types import Commit, FieldStep, Verdict

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
Status = Literal["running", "complete", "failed", "interrupted"]

_ROUNDS, _CONFIG, _CHAMPION = "rounds.jsonl", "config.resolved.yaml", "champion.json"


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
            run = cls(path)
            facts = {"schema_version": SCHEMA_VERSION, "config_hash": seals.digest(config_yaml.encode())}
            run._put_object(MANIFEST, {**facts, "status": "running", **manifest})
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot make a run directory at {str(path)[:200]!r}: {error}.") from error
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
        return seals.bare(self._read_object(MANIFEST))

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
        canonical(record)  # refuses what is not JSON before anything is written
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
            written: dict[str, bytes] = {}
            for kind, table in contents.items():
                self.table_path(kind, number).parent.mkdir(exist_ok=True)
                with durable.replacing(self.table_path(kind, number)) as temporary:
                    tables.write(table, temporary)
                    written[kind] = temporary.read_bytes()
            seals.place(self.path, number).parent.mkdir(exist_ok=True)
            durable.write(
                seals.place(self.path, number), seals.beside(self.path, number, written.pop("timing"))
            )
            # Clock values have no digest here: the line is the same whenever the round is played.
            digests = {kind: seals.digest(data) for kind, data in written.items()}
            previous = seals.own(json.loads(lines[-1])) if lines else ""
            line = (canonical(seals.close(record, files=digests, previous=previous)) + "\n").encode()
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
        found, previous = [], ""
        for number, line in enumerate(self._lines(), start=1):
            try:
                record = json.loads(line)
                if record["round"] != number:
                    raise ValueError(f"it says round {record['round']}")
                if (wrong := seals.fault(record, previous)) is not None:
                    raise ValueError(wrong)
            except (ValueError, KeyError, TypeError) as error:
                raise RunError(f"{str(self.path / _ROUNDS)!r}, line {number} is damaged: {error}.") from error
            previous = seals.own(record)
            found.append(seals.bare(record))
        return found

    def check_snapshots(self, number: int) -> None:
        """Compares what learners had learnt at a barrier with the digests taken then.

        Raises:
            RunError: If a file is missing or another: going on from it would not be the same run.
        """
        try:
            wanted = seals.files(self.path, number) if number else None
        except ValueError as error:
            raise RunError(f"{str(seals.place(self.path, number))!r} is damaged: {error}.") from error
        for name, digest in (wanted or {}).items():
            path = self.path / name
            if name.startswith(f"snapshots/round={number:03d}/") and not (
                path.is_file() and seals.digest(path.read_bytes()) == digest
            ):
                raise RunError(
                    f"{str(path)!r} is missing or damaged: what was learnt by round {number} is lost. "
                    "Restore the file, or play the run again from its start with `arena run`."
                )

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
        if name == MANIFEST:
            value = seals.close(seals.bare(value))
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
