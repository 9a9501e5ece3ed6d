"""The tournament: rounds and retirements until one drafter is left.

The loop obeys pure decisions and owns no statistics: a round is played by an engine
over a backend, summed up by the scoreboard, judged by the retirement rule, and made
permanent by one line in the run directory. A run that was cut short goes on from its
last line and gives the same files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arena import breeding
from arena import prompts as prompt_sets
from arena import calibrate, retirement, seeding, snapshots
from arena.backends.local import LocalBackend
from arena.config import Experiment
from arena.costs import Calibration
from arena.crown import Champion, alive_after, crown
from arena.engines.live import SCOREBOARD, VERIFIER, RoundPlan, RoundPlay, play
from arena.engines.seats import Span
from arena.errors import ArenaError, DrafterFault, VerifierFault, WorkerLost
from arena.intake import take_in
from arena.metrics import rank_key
from arena.protocols import Backend, Capabilities
from arena.records import contribution_of, round_record, tally_of
from arena.roster import Roster, resolve, worker_specs
from arena.scoreboard import RoundTally
from arena.store import RunDirectory
from arena.traces.runs import write_prompts
from arena.types import Vocabulary

GENERATION = 0
LOOK_EVERY = 0.5
"""Seconds between two looks at the standings."""


def make_backend(experiment: Experiment) -> Backend:
    """The backend that an experiment names; Ray is imported only if it is asked for."""
    if experiment.backend.kind == "local":
        return LocalBackend()
    from arena.backends.ray import RayBackend

    section = experiment.backend
    return RayBackend(address=section.address, num_cpus=section.num_cpus, placement=section.placement)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Where a tournament stands between two rounds; all that the next one depends on.

    Attributes:
        alive: Sorted names.
        history: What each round came to, oldest first.
        snapshots: What each learner had learnt, as files.
    """

    alive: tuple[str, ...]
    history: tuple[RoundTally, ...]
    snapshots: Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks for whoever looks on; none of them can change a result."""

    passed: Callable[[RoundPlan, RoundPlay, Sequence[Mapping[str, Any]]], None] | None = None
    closed: Callable[[Mapping[str, Any]], None] = lambda record: None
    note: Callable[[str], None] = lambda text: None


class Tournament:
    """One tournament over a run directory.

    Args:
        experiment: What to play.
        directory: Where it is recorded; rounds that are there already are not played again.
        backend: Where workers run; the tournament starts and stops its workers.
        watcher: Who looks on.
    """

    def __init__(
        self, experiment: Experiment, directory: RunDirectory, backend: Backend, watcher: Watcher
    ) -> None:
        self._experiment = experiment
        self._directory = directory
        self._backend = backend
        self._watcher = watcher
        self._roster: Roster = resolve(experiment)
        gpus = getattr(backend, "gpus", 0.0)
        self._in_flight = experiment.engine.in_flight or (2 if gpus else 1)
        lanes = self._in_flight * experiment.engine.lanes
        self._specs = worker_specs(experiment, self._roster, cpus=os.cpu_count() or 1, gpus=gpus, lanes=lanes)
        self._rule = retirement.get(experiment.retirement.kind, **experiment.retirement.options)
        self._root = seeding.fold(experiment.seed, GENERATION)
        self._restarts: dict[str, int] = {}
        self._shown = 0.0

    def run(self) -> Champion | None:
        """Plays every round that is left and crowns the champion.

        Returns:
            The champion, or None if every drafter was withdrawn (the run has failed).
        """
        breeding.stock(self._experiment, self._directory.path, self._watcher.note)
        records = self._directory.rounds()
        barrier = self._barrier(records)
        if self._finished(records, barrier):
            return self._crown(records)
        self._start(barrier)
        self._calibrate(barrier)
        while not self._finished(records, barrier):
            record, barrier = self._round(len(records) + 1, barrier)
            records.append(record)
            self._watcher.closed(record)
        return self._crown(records)

    def _finished(self, records: Sequence[Mapping[str, Any]], barrier: Barrier) -> bool:
        cap = self._experiment.rounds.max
        if cap is not None and len(records) >= cap:
            return True
        # A field of one from the start still plays a round, so that there is something to see.
        return len(barrier.alive) < 2 and bool(records or not barrier.alive)

    def _barrier(self, records: Sequence[Mapping[str, Any]]) -> Barrier:
        """Works out from the stored rounds where the tournament stands."""
        alive = tuple(sorted(self._roster.drafters))
        if records:
            alive = alive_after(records[-1])
        self._directory.check_snapshots(len(records))
        return Barrier(
            alive, tuple(tally_of(r) for r in records), snapshots.read(self._directory.path, len(records))
        )

    def _start(self, barrier: Barrier) -> None:
        """Builds the workers and turns the prompts into tokens."""
        wanted = {n: s for n, s in self._specs.items() if n in (*barrier.alive, VERIFIER, SCOREBOARD)}
        self._watcher.note(f"starting {len(wanted)} workers: {', '.join(wanted)}")
        answers = self._backend.start(wanted, timeout=self._experiment.backend.start_timeout)
        vocabulary: Vocabulary = answers[VERIFIER]
        self._vocab = vocabulary.size
        capable: dict[str, Capabilities] = {name: answers[name] for name in barrier.alive}
        self._learners = tuple(name for name in barrier.alive if capable[name].learns)
        for name, files in barrier.snapshots.items():
            self._call(name, "restore", files)
        self._max_context = int(self._call(VERIFIER, "max_context"))
        self._prompts, self._tokens = self._load_prompts(vocabulary)

    def _calibrate(self, barrier: Barrier) -> None:
        """Prices the workers before round 1; a run that is resumed uses the prices it has."""
        engine = self._experiment.engine
        costs = Calibration.of(self._directory.manifest.get("costs"))
        if costs is None and engine.calibrate and not barrier.history:
            costs = calibrate.measure(
                self._call,
                VERIFIER,
                barrier.alive,
                key=int(self._root),
                sampling=self._experiment.sampling.record(),
                lanes=engine.lanes,
                draft_length=engine.draft_length,
                vocab=self._vocab,
                max_context=self._max_context,
            )
            self._directory.update_manifest(costs=costs and costs.plain())
        self._step_ms = costs.step_ms() if costs else {}

    def _load_prompts(
        self, vocabulary: Vocabulary
    ) -> tuple[tuple[prompt_sets.Prompt, ...], dict[str, tuple[int, ...]]]:
        found = take_in(
            self._experiment,
            self._root,
            lambda texts: self._call(VERIFIER, "encode", texts),
            vocabulary,
            self._max_context,
        )
        kept = found.prompts
        self._directory.update_manifest(prompts={"usable": len(kept), "skipped": list(found.skipped)})
        # With its commits they make the run a trace that can be replayed.
        write_prompts(self._directory.path, found.playable, found.categories, vocabulary)
        prompt_sets.round_slice(kept, 0, self._experiment.rounds.prompts, self._root)
        return kept, dict(found.tokens)

    def _round(self, number: int, barrier: Barrier) -> tuple[dict[str, Any], Barrier]:
        """Plays one round; from its barrier again whenever a drafter is lost."""
        withdrawn: list[tuple[str, str]] = []
        alive = barrier.alive
        while True:
            try:
                played = self._play(number, replace(barrier, alive=alive)) if alive else RoundPlay()
                break
            except (DrafterFault, WorkerLost) as error:
                alive = self._lose(error, alive, withdrawn)
                self._rewind(barrier, alive)
        return self._close(number, replace(barrier, alive=alive), played, withdrawn)

    def _play(self, number: int, barrier: Barrier) -> RoundPlay:
        engine, rounds = self._experiment.engine, self._experiment.rounds
        key = int(seeding.fold(self._root, number))
        chosen = prompt_sets.round_slice(self._prompts, number - 1, rounds.prompts, self._root)
        ranks = self._ranks(barrier)
        plan = RoundPlan(
            number=number,
            key=key,
            names=barrier.alive,
            learners=tuple(name for name in self._learners if name in barrier.alive),
            prompts=tuple((p.id, self._tokens[p.id]) for p in chosen),
            sampling=self._experiment.sampling.record(),
            draft_length=engine.draft_length,
            max_new_tokens=rounds.max_new_tokens,
            max_context=self._max_context,
            lanes=engine.lanes,
            in_flight=self._in_flight,
            learn_every=engine.learn_every,
            feedback_top=engine.feedback_top,
            ranks=ranks,
            timeout=self._experiment.backend.call_timeout,
        )
        return play(plan, self._backend, self._passed)

    def _passed(self, plan: RoundPlan, played: RoundPlay) -> None:
        """Shows the standings now and then; the scoreboard is asked, nothing waits for it long."""
        if self._watcher.passed is None or time.monotonic() - self._shown < LOOK_EVERY:
            return
        self._shown = time.monotonic()
        self._watcher.passed(plan, played, self._call(SCOREBOARD, "standings"))

    def _ranks(self, barrier: Barrier) -> dict[str, int] | None:
        """Standing by the last round's counts, for ``order: standing``; names break ties."""
        if not barrier.history:
            return None
        last = barrier.history[-1].per_drafter
        best = sorted(barrier.alive, key=lambda name: rank_key(name, last[name]), reverse=True)
        return {name: rank for rank, name in enumerate(best)}

    def _lose(
        self, error: DrafterFault | WorkerLost, alive: tuple[str, ...], withdrawn: list[tuple[str, str]]
    ) -> tuple[str, ...]:
        """Decides about a lost worker: rebuilt while restarts last, else withdrawn."""
        name = error.drafter if isinstance(error, DrafterFault) else error.worker
        if name not in alive:
            raise VerifierFault(f"{error} The rounds before this one are safe.") from error
        crashed = isinstance(error, WorkerLost)
        self._restarts[name] = self._restarts.get(name, 0) + 1
        if crashed and self._restarts[name] <= self._experiment.backend.max_restarts:
            self._watcher.note(f"{name} was lost ({error.reason}); rebuilding it and replaying the round")
            try:
                self._backend.start({name: self._specs[name]}, timeout=self._experiment.backend.start_timeout)
                return alive
            except (ArenaError, WorkerLost) as again:
                error = WorkerLost(name, f"{error.reason}; it could not be rebuilt: {again}")
        self._watcher.note(f"{name} is withdrawn: {error.reason}")
        withdrawn.append((name, error.reason))
        self._backend.stop(name)
        return tuple(other for other in alive if other != name)

    def _rewind(self, barrier: Barrier, alive: Sequence[str]) -> None:
        """Takes every learner back to the barrier."""
        for name in self._learners:
            if name not in alive:
                continue
            if name in barrier.snapshots:
                self._call(name, "restore", barrier.snapshots[name])
            else:
                self._backend.stop(name)
                self._backend.start({name: self._specs[name]}, timeout=self._experiment.backend.start_timeout)

    def _close(
        self, number: int, barrier: Barrier, played: RoundPlay, withdrawn: Sequence[tuple[str, str]]
    ) -> tuple[dict[str, Any], Barrier]:
        """Decides who leaves and makes the round permanent; the line in the file is the commit."""
        tally = self._call(SCOREBOARD, "tally", number) if barrier.alive else RoundTally({}, {})
        walkover = bool(withdrawn) and len(barrier.alive) < 2
        leaves = None
        if len(barrier.alive) >= 2:
            worth = (contribution_of(played.steps, barrier.alive) or {}).get("shapley", {})
            standings = retirement.Standings(
                number, barrier.alive, tally, barrier.history, self._step_ms, worth
            )
            leaves = self._rule.retire(standings)
        record = round_record(
            round=number,
            generation=GENERATION,
            alive=barrier.alive,
            retired=leaves,
            withdrawn=withdrawn,
            walkover=walkover,
            tally=tally,
            field=played.steps,
            commits=played.commits,
            verifier=self._verifier_id(),
        )
        alive = tuple(n for n in barrier.alive if leaves is None or n != leaves.drafter)
        learnt = {name: self._call(name, "snapshot") for name in self._learners if name in alive}
        snapshots.write(self._directory.path, number, learnt)
        priced = [step for step in played.steps if step.worths]
        self._directory.append_round(
            record, played.verdicts, played.commits, self._timing(number, barrier.alive), priced
        )
        if leaves is not None:
            self._backend.stop(leaves.drafter)
        self._call(SCOREBOARD, "clear", number)
        return record, Barrier(alive, (*barrier.history, tally), learnt)

    def _verifier_id(self) -> str:
        seat = self._roster.verifier
        return str(seat.options.get("model") or f"{seat.kind}:{seat.fingerprint}")

    def _timing(self, number: int, alive: Sequence[str]) -> list[dict[str, Any]]:
        spans: list[Span] = [span for name in (VERIFIER, *alive) for span in self._call(name, "spans")]
        return [
            {
                "who": span.worker,
                "stage": span.method,
                "start": span.start,
                "seconds": span.end - span.start,
                "lanes": span.lanes,
                "tokens": span.tokens,
                "bytes": span.payload,
            }
            for span in sorted(spans, key=lambda span: span.start)
        ]

    def _crown(self, records: Sequence[Mapping[str, Any]]) -> Champion | None:
        champion = crown(records)
        if champion is None:
            self._directory.update_manifest(status="failed")
            return None
        self._directory.write_champion(champion.plain())
        self._directory.update_manifest(status="complete")
        return champion

    def _call(self, worker: str, method: str, *args: Any) -> Any:
        timeout = self._experiment.backend.call_timeout
        return self._backend.wait([self._backend.submit(worker, method, *args)], timeout=timeout)[0]
