"""What a run decided, decided again: each round's sums and retirement, the succession, the champion.

Sentences about contradictions are yielded with the file in which they show.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena import prompts, recount, retirement, seeding, tables
from arena.config import Experiment
from arena.costs import Calibration
from arena.crown import alive_after, crown
from arena.errors import ConfigError, RunError
from arena.metrics import InvariantError
from arena.prompts import Prompt
from arena.records import tally_of
from arena.retirement import Standings
from arena.store import RunDirectory

ROUNDS, CHAMPION, MANIFEST, PROMPTS = "rounds.jsonl", "champion.json", "manifest.json", "prompts.parquet"

Found = Iterator[tuple[str, str]]
"""Pairs of a file and a sentence."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all rounds of a run share.

    Attributes:
        experiment: Its config.
        step_ms: Time of a step with each drafter alone, ms, from the manifest.
        eos: Tokens that end a text; None where no file says.
        lengths: Tokens of each prompt; likewise.
        max_context: Longest context of the verifier; likewise.
    """

    experiment: Experiment
    step_ms: Mapping[str, float]
    eos: tuple[int, ...] | None
    lengths: Mapping[str, int] | None
    max_context: int | None

    def played(self, number: int, generation: int) -> recount.Played:
        """What a round was played by."""
        root = seeding.fold(self.experiment.seed, generation)
        dealt: tuple[str, ...] | None = None
        if self.lengths is not None:
            known = [Prompt(name, "") for name in self.lengths]
            with contextlib.suppress(ConfigError):
                chosen = prompts.round_slice(known, number - 1, self.experiment.rounds.prompts, root)
                dealt = tuple(prompt.id for prompt in chosen)
        return recount.Played(
            key=int(seeding.fold(root, number)),
            score=self.experiment.rules.score,
            draft_length=self.experiment.engine.draft_length,
            max_new_tokens=self.experiment.rounds.max_new_tokens,
            eos=self.eos,
            prompts=dealt,
            lengths=self.lengths,
            max_context=self.max_context,
        )


def context(experiment: Experiment, manifest: Mapping[str, Any], path: Path) -> Context:
    """Gathers what all rounds share; what cannot be read is None (its seal says why)."""
    eos: tuple[int, ...] | None = None
    lengths: dict[str, int] | None = None
    with contextlib.suppress(OSError, ValueError, KeyError):
        table = tables.read(path / PROMPTS)
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        eos = tuple(int(word) for word in facts["eos"].split())
        lengths = {row["prompt_id"]: len(row["tokens"]) for row in table.to_pylist()}
    step_ms: dict[str, float] = {}
    with contextlib.suppress(ConfigError, KeyError, TypeError, AttributeError):
        costs = Calibration.of(manifest.get("costs"))
        step_ms = costs.step_ms() if costs else {}
    unlimited = 1 << 20 if experiment.verifier.kind == "table" else None
    limit = experiment.verifier.options.get("max_context", unlimited)
    return Context(experiment, step_ms, eos, lengths, limit)


def rows(directory: RunDirectory, kind: tables.Kind, number: int) -> list[dict[str, Any]]:
    """Reads a table as rows.

    Raises:
        RunError: It is missing, damaged, or has other columns.
    """
    table = directory.read_table(kind, number)
    wanted = tables.steps_schema() if kind == "steps" else tables.commits_schema()
    if table.schema != wanted:
        raise RunError(f"{kind}/round={number:03d}.parquet has the columns {table.schema.names}.")
    try:
        found: list[dict[str, Any]] = table.to_pylist()
    except (ValueError, OSError) as error:
        raise RunError(f"{kind}/round={number:03d}.parquet cannot be read: {error}.") from error
    return found


def round_(
    number: int,
    records: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    commits: Sequence[Mapping[str, Any]],
    context: Context,
) -> Found:
    """Makes a round again from its tables and compares it with its line."""
    record = records[number - 1]
    played = context.played(number, record["generation"])
    texts, verdicts = recount.commits_of(commits), recount.verdicts_of(steps)
    # A replayed round has the blocks of another run, and verdicts without drafts.
    if not record["field"].get("replayed"):
        for what in recount.texts(texts, played):
            yield f"commits/round={number:03d}.parquet", what
        for what in recount.verdicts(verdicts, texts, played):
            yield f"steps/round={number:03d}.parquet", what
    for what in recount.sums(record, verdicts, texts):
        yield ROUNDS, f"line {number}: {what}"
    for what in _retirement(number, records, context):
        yield ROUNDS, f"line {number}: {what}"


def _retirement(number: int, records: Sequence[Mapping[str, Any]], context: Context) -> Iterator[str]:
    record = records[number - 1]
    alive, gone = record["alive"], record["retired"]
    choice = context.experiment.retirement
    if gone is not None and gone["drafter"] not in alive:
        yield f"{gone['drafter']!r} was retired and did not play"
        return
    if record["walkover"] != (bool(record["withdrawn"]) and len(alive) < 2):
        yield f"walkover is {record['walkover']} with {len(alive)} alive"
    worth = (record.get("contribution") or {}).get("shapley", {})
    rule = retirement.get(choice.kind, **choice.options)
    earlier = tuple(tally_of(one) for one in records[: number - 1])
    decided = rule.retire(Standings(number, tuple(alive), tally_of(record), earlier, context.step_ms, worth))
    again = decided.plain() if decided is not None else None
    if again != gone:
        yield f"retired {_who(gone)}; the rule {choice.kind!r} retires {_who(again)} by these counts"


def _who(gone: Mapping[str, Any] | None) -> str:
    return "nobody" if gone is None else f"{gone['drafter']!r} ({gone['reason']})"


def succession(experiment: Experiment, records: Sequence[Mapping[str, Any]]) -> Found:
    """Checks who plays when: nobody comes back, nobody vanishes, one is retired a round at most."""
    before = set(experiment.drafters)
    for number, record in enumerate(records, start=1):
        withdrawn = [item["drafter"] for item in record["withdrawn"]]
        here = [*record["alive"], *withdrawn]
        if set(here) != before or len(set(here)) != len(here):
            yield ROUNDS, f"line {number}: {sorted(here)} play or are withdrawn; expected {sorted(before)}"
        before = set(alive_after(record))
    cap = experiment.rounds.max
    if cap is not None and len(records) > cap:
        yield ROUNDS, f"{len(records)} rounds; rounds.max is {cap}"
    for one, two in itertools.pairwise(records):
        if one["verifier"] != two["verifier"]:
            yield ROUNDS, f"line {two['round']}: another verifier than in the round before it"


def end(
    path: Path, experiment: Experiment | None, status: str, records: Sequence[Mapping[str, Any]]
) -> Found:
    """Crowns the champion again and compares; a run that goes on has none yet."""
    place = path / CHAMPION
    if status not in ("running", "complete", "failed", "interrupted"):
        yield MANIFEST, f"its status is {status!r}"
    if experiment is not None and records and status == "complete":
        cap, left = experiment.rounds.max, alive_after(records[-1])
        if len(left) > 1 and (cap is None or len(records) < cap):
            yield MANIFEST, f"it is complete, but {', '.join(left)} are alive after {len(records)} rounds"
    if not place.exists():
        if status == "complete":
            yield CHAMPION, "is missing, and the run is complete"
        return
    if not records:
        yield CHAMPION, "there is a champion, and no round"
        return
    try:
        champion = crown(records)
    except InvariantError as error:
        yield CHAMPION, str(error)
        return
    wanted = json.dumps(champion.plain() if champion else None, sort_keys=True, indent=2) + "\n"
    if champion is None or place.read_bytes() != wanted.encode():
        said = champion.champion if champion else "nobody"
        yield CHAMPION, f"is not what the rounds say; by them the champion is {said}"
