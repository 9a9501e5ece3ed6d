"""Whole tournaments on table models, many at a time: for questions that need thousands of them.

Replicate r is the tournament with seed r, equal to the run that ``arena run`` plays with
that seed in counts, retirements and champion, and a thousand times cheaper: its laws are
looked up in tables that all replicates share, and all texts of a round of all replicates
go through the rules as arrays (:mod:`arena.engines.simulated`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arena import prompts as prompt_sets
from arena import registry, retirement, seeding
from arena.config import Experiment, build
from arena.crown import alive_after
from arena.engines.simulated import Field, Lanes, Steps, play, seats_of
from arena.engines.tabulated import DraftTables, TargetTable, check_settings
from arena.errors import ConfigError
from arena.intake import take_in
from arena.metrics import Counts
from arena.models.table import TableLaw
from arena.records import counts_of
from arena.roster import Roster, resolve
from arena.scoreboard import RoundTally
from arena.verifiers.table import TableVerifier

AT_ONCE = 128
"""Replicates that share arrays: enough to hide what a numpy call costs, few enough for the cache."""

Record = dict[str, Any]


class Simulator:
    """Plays replicates of one experiment; a worker of a backend, or used as it is.

    Args:
        values: The experiment's plain values; the seed is replaced by each replicate's.

    Raises:
        ConfigError: The experiment has no exact simulation, and why.
    """

    def __init__(self, *, values: Mapping[str, Any]) -> None:
        self._experiment: Experiment = build(values, "simulate")
        check(self._experiment)
        roster: Roster = resolve(self._experiment)
        self._verifier = TableVerifier(**roster.verifier.options)
        self._names = tuple(roster.drafters)
        self._rule = retirement.get(self._experiment.retirement.kind, **self._experiment.retirement.options)
        self._field = self._tabulate(roster)

    def ready(self) -> tuple[str, ...]:
        """Answers once the tables are built."""
        return self._names

    def _tabulate(self, roster: Roster) -> Field:
        sampling = self._experiment.sampling.record()
        law: TableLaw = self._verifier.law
        tabled: list[Any] = []
        table_of = np.full(len(self._names), -1, dtype=np.int64)
        copyists: dict[int, Any] = {}
        for d, (name, seat) in enumerate(roster.drafters.items()):
            drafter: Any = registry.load_class(seat.target)(name=name, **seat.options)
            if hasattr(drafter, "tabulate"):
                table_of[d] = len(tabled)
                tabled.append(drafter)
            elif hasattr(drafter, "copy_all"):
                copyists[d] = drafter
            else:
                raise ConfigError(
                    f"drafters.{name}: kind {seat.kind!r} has no law that a table could hold; a simulation "
                    "plays kinds 'table' and 'copyist'. Repeat the tournament itself over seeds with "
                    "`study: story_replicates`."
                )
        return Field(
            vocab=law.vocab,
            target=TargetTable(law, sampling),
            tables=DraftTables(tabled, law.vocab, sampling),
            table_of=table_of,
            copyists=copyists,
            words=np.array([seeding.name_word(name) for name in self._names], dtype=np.uint64),
            eos=-1 if law.eos is None else law.eos,
            k=self._experiment.engine.draft_length,
        )

    def play(self, seeds: Sequence[int]) -> list[list[Record]]:
        """Plays tournaments to their champions; gives the records of each one's rounds.

        A record has what ``rounds.jsonl`` has of ``round, alive, retired, withdrawn,
        walkover, counts, prompts, lane_steps, committed``.
        """
        runs = [_Run(self._experiment.model_copy(update={"seed": seed}), self) for seed in seeds]
        cap = self._experiment.rounds.max or math.inf
        number = 0
        while playing := [run for run in runs if not run.finished and number < cap]:
            number += 1
            self._round(number, playing)
        return [run.records for run in runs]

    def _round(self, number: int, runs: Sequence[_Run]) -> None:
        dealt = [run.deal(number) for run in runs]
        per_round = self._experiment.rounds.prompts
        alive = [[self._names.index(name) for name in run.alive] for run in runs]
        steps = play(self._field, self._lanes(dealt, seats_of(alive)))
        tallies = _tallies(steps, len(runs) * per_round, len(self._names), per_round)
        for r, run in enumerate(runs):
            run.close(number, [prompt for prompt, _, _ in dealt[r]], tallies, r * per_round)

    def _lanes(
        self, dealt: Sequence[Sequence[tuple[str, tuple[int, ...], int]]], seats: npt.NDArray[np.int64]
    ) -> Lanes:
        rows = [one for deal in dealt for one in deal]
        most = self._experiment.rounds.max_new_tokens
        length = np.array([len(tokens) for _, tokens, _ in rows], dtype=np.int64)
        texts = np.full((len(rows), int(length.max()) + most), -1, dtype=np.int32)
        state, base = np.zeros(len(rows), dtype=np.int64), self._field.vocab + 1
        for row, (_, tokens, _) in enumerate(rows):
            texts[row, : len(tokens)] = tokens
        for back in range(int(length.max()), 0, -1):
            token = np.where(length >= back, texts[np.arange(len(rows)), np.maximum(length - back, 0)], -1)
            state = (state * base + token + 1) % self._field.top
        words = np.array([seeding.name_word(prompt) for prompt, _, _ in rows], dtype=np.uint64)
        return Lanes(
            cell=np.arange(len(rows)),
            seats=np.repeat(seats, len(dealt[0]), axis=0),
            key=seeding.fold(np.array([key for _, _, key in rows], dtype=np.uint64), words),
            texts=texts,
            length=length,
            start=np.zeros(len(rows), dtype=np.int64),
            budget=np.minimum(most, self._verifier.max_context - length),
            state=state,
        )


class _Run:
    """Where one replicate stands."""

    def __init__(self, experiment: Experiment, simulator: Simulator) -> None:
        self._experiment, self._root = experiment, seeding.fold(experiment.seed, 0)
        verifier = simulator._verifier
        self._names, self._rule = simulator._names, simulator._rule
        found = take_in(
            experiment,
            self._root,
            lambda texts: [verifier.encode(messages, text) for messages, text in texts],
            verifier.vocabulary,
            verifier.max_context,
        )
        self._prompts, self._tokens = found.prompts, found.tokens
        self.alive = self._names
        self.records: list[Record] = []
        self._history: tuple[RoundTally, ...] = ()

    @property
    def finished(self) -> bool:
        return len(self.alive) < 2 and bool(self.records)

    def deal(self, number: int) -> list[tuple[str, tuple[int, ...], int]]:
        """The round's prompts, each (id, tokens, key of the round)."""
        key = int(seeding.fold(self._root, number))
        chosen = prompt_sets.round_slice(
            self._prompts, number - 1, self._experiment.rounds.prompts, self._root
        )
        return [(prompt.id, tuple(self._tokens[prompt.id]), key) for prompt in chosen]

    def close(self, number: int, prompts: Sequence[str], tallies: _Tallies, first: int) -> None:
        """Judges the round and writes its record."""
        order = sorted(range(len(prompts)), key=lambda place: prompts[place])
        per_prompt = {
            name: {prompts[p]: tallies.counts(first + p, self._names.index(name)) for p in order}
            for name in self.alive
        }
        tally = RoundTally.of(per_prompt)
        left = self._rule.retire(retirement.Standings(number, self.alive, tally, self._history))
        cells = slice(first, first + len(prompts))
        self.records.append(
            {
                "round": number,
                "alive": list(self.alive),
                "retired": left and left.plain(),
                "withdrawn": [],
                "walkover": False,
                **counts_of(tally),
                "lane_steps": int(tallies.lane_steps[cells].sum()),
                "committed": int(tallies.committed[cells].sum()),
            }
        )
        self._history = (*self._history, tally)
        self.alive = alive_after(self.records[-1])


class _Tallies:
    """Sums of a round by prompt (of all replicates) and drafter."""

    def __init__(self, lane_steps: Any, committed: Any, sums: Any, expected: Mapping[int, float]) -> None:
        self.lane_steps, self.committed = lane_steps, committed
        self._sums, self._expected = sums, expected
        self._drafters = sums.shape[2]

    def counts(self, cell: int, drafter: int) -> Counts:
        offered, drafted, accepted, matched = (int(part[cell, drafter]) for part in self._sums)
        expected = self._expected[cell * self._drafters + drafter]
        return Counts(int(self.lane_steps[cell]), offered, drafted, accepted, matched, expected)


def _tallies(steps: Sequence[Steps], cells: int, drafters: int, per_round: int) -> _Tallies:
    cell = np.concatenate([one.cell for one in steps])
    seats = [one.seats for one in steps]
    place = np.concatenate([(one.cell[:, None] * drafters + one.seats).ravel() for one in steps])
    there = np.concatenate([seat.ravel() for seat in seats]) >= 0
    place = place[there]

    def total(name: str) -> npt.NDArray[np.int64]:
        values = np.concatenate([getattr(one, name).ravel() for one in steps])[there]
        added = np.bincount(place, weights=values, minlength=cells * drafters)
        return added.astype(np.int64).reshape(cells, drafters)

    sums = np.stack([total(name) for name in ("offered", "drafted", "accepted", "matched")])
    expected = np.concatenate([one.expected.ravel() for one in steps])[there]
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    values, groups = expected[order].tolist(), place[order][first].tolist()
    ends = [*first[1:].tolist(), len(values)]
    exact = {g: math.fsum(values[a:b]) for g, a, b in zip(groups, first.tolist(), ends, strict=True)}
    committed = np.concatenate([one.committed for one in steps])
    return _Tallies(
        np.bincount(cell, minlength=cells),
        np.bincount(cell, weights=committed, minlength=cells).astype(np.int64),
        sums,
        exact,
    )


def check(experiment: Experiment) -> None:
    """Refuses an experiment whose tournaments cannot be simulated exactly.

    Raises:
        ConfigError: Naming the setting, and what plays it instead.
    """
    if experiment.retirement.kind in ("lowest_goodput", "lowest_contribution"):
        raise ConfigError(
            f"retirement.kind {experiment.retirement.kind!r} needs what a simulation does not compute; "
            "expected lowest_hit_rate, confident or never."
        )
    check_settings(
        {
            "verifier.kind": (experiment.verifier.kind, "table"),
            "rules.score": (experiment.rules.score, "speculative"),
            "rules.commit": (experiment.rules.commit, "recursive"),
            "rules.order": (experiment.rules.order, "keyed"),
            "engine.kind": (experiment.engine.kind, "live"),
            "retirement.by": (experiment.retirement.options.get("by", "hit_rate"), "hit_rate"),
            "chaos": (experiment.chaos, None),
        }
    )


def batches(seeds: Sequence[int], size: int = AT_ONCE) -> Iterator[Sequence[int]]:
    """Cuts seeds into batches that are played together."""
    for first in range(0, len(seeds), size):
        yield seeds[first : first + size]
