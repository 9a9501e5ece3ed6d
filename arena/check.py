"""A run re-verified from its files alone: nothing is believed that can be worked out again.

Bytes first (each file against its seal, each line against the one before it), then
what they say: counts, verdicts, texts, retirements and the champion are made again
from the tables, the config and the seed, and compared.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arena import config, rejudge, seals
from arena.config import Experiment
from arena.errors import ArenaError, ConfigError, RunError
from arena.places import MANIFEST
from arena.store import RunDirectory

ROUNDS, CONFIG, PROMPTS = "rounds.jsonl", *seals.ALONGSIDE
DONE = ("complete",)


@dataclass(frozen=True, slots=True)
class Problem:
    """One contradiction.

    Attributes:
        file: Where it shows, relative to the run directory.
        what: In one sentence.
    """

    file: str
    what: str


@dataclass(slots=True)
class Report:
    """What a check found.

    Attributes:
        run: The run directory.
        status: As its manifest says.
        problems: Contradictions; none in a sound run.
        notes: What could not be looked at, and why.
        counts: How much was looked at: rounds, lane-steps, verdicts, files.
    """

    run: str
    status: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, file: str, what: str) -> None:
        """Notes a contradiction."""
        self.problems.append(Problem(file, what))

    def look(self, what: str, number: int = 1) -> None:
        """Counts what was looked at."""
        self.counts[what] = self.counts.get(what, 0) + number


def check(path: Path) -> Report:
    """Re-verifies a tournament's run directory, finished or not.

    Raises:
        RunError: It is no run directory, or not a tournament's.
    """
    report = Report(str(path), "unknown")
    directory = RunDirectory(path)
    manifest = _manifest(path, report)
    text = _bytes(path / CONFIG, report)
    experiment = _experiment(text, manifest, report)
    raw = _lines(path, report)
    records = [seals.bare(line) for line in raw]
    _sealed_files(path, len(records), report)
    if experiment is not None:
        context = rejudge.context(experiment, manifest, path)
        if context.eos is None:
            report.notes.append(
                f"no readable {PROMPTS}: end tokens and the dealing of prompts are not checked"
            )
        for number, line in enumerate(raw, start=1):
            _round(directory, number, line, records, context, report)
        for file, what in rejudge.succession(experiment, records):
            report.add(file, what)
    for file, what in rejudge.end(path, experiment, report.status, records):
        report.add(file, what)
    return report


def _round(
    directory: RunDirectory,
    number: int,
    line: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    context: rejudge.Context,
    report: Report,
) -> None:
    """Checks one round: its tables' bytes, what they say, and what was decided from them."""
    for kind, digest in (line.get(seals.KEY, {}).get("files") or {}).items():
        path = directory.table_path(kind, number)
        report.look("files")
        if not path.is_file():
            report.add(path.relative_to(directory.path).as_posix(), "is missing")
        elif seals.digest(path.read_bytes()) != digest:
            report.add(path.relative_to(directory.path).as_posix(), "is not what its round's line sealed")
    try:
        steps, commits = (rejudge.rows(directory, kind, number) for kind in ("steps", "commits"))
    except RunError as error:
        report.add(f"round {number}", str(error))
        return
    report.look("rounds")
    report.look("lane-steps", len(commits))
    report.look("verdicts", len(steps))
    try:
        for file, what in rejudge.round_(number, records, steps, commits, context):
            report.add(file, what)
    except (ArenaError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        report.add(ROUNDS, f"line {number} holds what no round can: {type(error).__name__}: {error}")


def _bytes(path: Path, report: Report) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError as error:
        report.add(path.name, f"cannot be read: {error.strerror or error}")
        return None
    report.look("files")
    return data


def _manifest(path: Path, report: Report) -> dict[str, Any]:
    if not (path / MANIFEST).is_file():
        raise RunError(f"{str(path)!r} is not a run directory: it has no {MANIFEST}.")
    data = _bytes(path / MANIFEST, report) or b""
    try:
        value = json.loads(data)
        written = json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n"
    except (ValueError, RecursionError) as error:
        report.add(MANIFEST, f"is not JSON: {error}")
        return {}
    if not isinstance(value, dict):
        report.add(MANIFEST, "is not an object")
        return {}
    if seals.KEY not in value:
        report.notes.append("the manifest has no seal: the run was made by an earlier version")
    elif written.encode() != data:
        report.add(MANIFEST, "is not as it was written")
    elif (wrong := seals.fault(value)) is not None:
        report.add(MANIFEST, wrong)
    report.status = str(value.get("status"))
    return value


def _experiment(data: bytes | None, manifest: Mapping[str, Any], report: Report) -> Experiment | None:
    if data is None:
        return None
    known = manifest.get("config_hash")
    if known is not None and known != seals.digest(data):
        report.add(CONFIG, "its digest is not the manifest's config_hash")
    try:
        body = config.parse(data.decode(), CONFIG)
        if "study" in body:
            raise RunError(
                "`arena check` is for tournaments, and this is a study; check its runs one by one."
            )
        experiment = config.build(body, CONFIG)
    except (ConfigError, UnicodeDecodeError) as error:
        report.add(CONFIG, f"cannot be read: {error}")
        return None
    return experiment


def _lines(path: Path, report: Report) -> list[dict[str, Any]]:
    data = _bytes(path / ROUNDS, report) or b""
    *lines, torn = data.split(b"\n")
    found: list[dict[str, Any]] = []
    previous, unsealed = "", 0
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or record.get("round") != number:
                raise ValueError("it is not the record of that round")
            if seals.canonical(record).encode() != line:
                raise ValueError("it is not as it was written")
            if (wrong := seals.fault(record, previous)) is not None:
                raise ValueError(wrong)
        except (ValueError, RecursionError) as error:
            report.add(ROUNDS, f"line {number} is damaged: {error}; the rounds from it on are not checked")
            return found
        unsealed += seals.KEY not in record
        previous = seals.own(record)
        found.append(record)
    if unsealed:
        report.notes.append(f"{unsealed} rounds have no seal: the run was made by an earlier version")
    if torn and (report.status in DONE or _whole(torn)):
        report.add(ROUNDS, f"{len(torn)} bytes follow the last line")
    elif torn:
        report.notes.append(f"a torn last line of {len(torn)} bytes: `arena resume` plays that round again")
    return found


def _whole(torn: bytes) -> bool:
    """Whether a torn line holds a whole record and more: no interrupted write leaves that."""
    with contextlib.suppress(ValueError, RecursionError):
        end = json.JSONDecoder().raw_decode(torn.decode("ascii", "replace"))[1]
        return end < len(torn)
    return False


def _sealed_files(path: Path, rounds: int, report: Report) -> None:
    """Compares what has no digest in a line with the seals beside it."""
    known: dict[str, str] = {}
    learnt: dict[str, set[str]] = {}
    for number in range(1, rounds + 1):
        name = seals.place(path, number).relative_to(path).as_posix()
        try:
            found = seals.files(path, number)
        except ValueError as error:
            report.add(name, f"is damaged: {error}")
            continue
        if found is None:
            report.notes.append(
                f"{name} is missing: clock values and snapshots of that round are not checked"
            )
            continue
        report.look("files")
        for file, digest in found.items():
            if file in known and known[file] != digest:
                report.add(file, f"round {number} found another content than the rounds before it")
            known[file] = digest
            if file.startswith("snapshots/"):
                learnt.setdefault(file.split("/", 2)[2], set()).add(digest)
    newest = f"snapshots/round={rounds:03d}/"
    for file, digest in known.items():
        if not (path / file).is_file():
            if not file.startswith("snapshots/") or file.startswith(newest):
                report.add(file, "is missing")
            continue
        report.look("files")
        if seals.digest((path / file).read_bytes()) != digest:
            report.add(file, "is not what was sealed")
    for kept in (path / "snapshots" / "last").glob("*/*"):
        report.look("files")
        digests = learnt.get(kept.relative_to(path / "snapshots" / "last").as_posix())
        if digests is not None and seals.digest(kept.read_bytes()) not in digests:
            report.add(kept.relative_to(path).as_posix(), "is not what was sealed")
