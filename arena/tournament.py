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

from arena import breeding, calibrate, lock, retirement, seeding, snapshots
from arena import prompts as prompt_sets
from arena.backends.local import LocalBackend
from arena.barrier import Barrier, Closing, timing_rows
from arena.config import Experiment
from arena.costs import Calibration
from arena.crown import Champion, alive_after, crown
from arena.engines.live import SCOREBOARD, VERIFIER, RoundPlan, RoundPlay, play
from arena.engines.seats import Span
from arena.errors import DrafterFault, WorkerLost
from arena.intake import take_in
from arena.lives import Lives
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
        self._lives = Lives(experiment, backend, self._specs, watcher.note)
        self._shown = self._memory = 0.0
        self._began = time.monotonic()

    def run(self) -> Champion | None:
        """Plays every round that is left and crowns the champion.

        Returns:
            The champion, or None if every drafter was withdrawn (the run has failed).
        """
        with lock.hold(self._directory.path):
            return self._run()

    def _run(self) -> Champion | None:
        breeding.stock(self._experiment, self._directory.path, self._watcher.note)
        records = self._directory.rounds()
        barrier = self._barrier(records)
        if self._finished(records, barrier):
            return self._crown(records)
        self._start(barrier)
        self._calibrate(barrier)
        while not self._finished(records, barrier):
            closed = self._round(len(records) + 1, barrier)
            if closed is None:
                return None
            record, barrier = closed
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
        wanted = [name for name in self._specs if name in (*barrier.alive, VERIFIER, SCOREBOARD)]
        self._watcher.note(f"starting {len(wanted)} workers: {', '.join(wanted)}")
        answers = self._lives.start(wanted)
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
            self._watcher.note("timing the workers once; engine.calibrate=false leaves it out")
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

    def _round(self, number: int, barrier: Barrier) -> tuple[dict[str, Any], Barrier] | None:
        """Plays one round; from its barrier again whenever a worker is lost. None if all drafters are."""
        withdrawn: list[tuple[str, str]] = []
        alive, lost = barrier.alive, None
        while alive:
            try:
                if lost is not None:
                    error, lost = lost, None
                    alive = self._lives.lose(error, alive, withdrawn)
                    self._rewind(barrier, alive)
                    continue
                here = replace(barrier, alive=alive)
                closing = self._judge(number, here, self._play(number, here), withdrawn)
                return closing.record, self._close(number, here, closing)
            except (DrafterFault, WorkerLost) as error:
                lost = error
        reasons = "; ".join(f"{name}: {reason}" for name, reason in withdrawn)
        # No line is written: the round is played again, by all of them, when the run goes on.
        self._directory.update_manifest(
            status="failed", error=f"every drafter was withdrawn in round {number}: {reasons}"[:2000]
        )
        return None

    def _workers(self, alive: Sequence[str]) -> tuple[str, ...]:
        return (VERIFIER, SCOREBOARD, *alive)

    def _rewind(self, barrier: Barrier, alive: Sequence[str]) -> None:
        """Takes every learner back to the barrier."""
        self._lives.rewind([name for name in self._learners if name in alive], barrier.snapshots)

    def _call(self, worker: str, method: str, *args: Any) -> Any:
        return self._lives.call(worker, method, *args)

    def _play(self, number: int, barrier: Barrier) -> RoundPlay:
        engine, rounds = self._experiment.engine, self._experiment.rounds
        key = int(seeding.fold(self._root, number))
        chosen = prompt_sets.round_slice(self._prompts, number - 1, rounds.prompts, self._root)
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
            ranks=barrier.ranks(),
            timeout=self._experiment.backend.call_timeout,
        )
        self._call(SCOREBOARD, "clear", number - 1)  # it is stored
        return play(plan, self._backend, self._passed)

    def _passed(self, plan: RoundPlan, played: RoundPlay) -> None:
        """Shows the standings now and then; the scoreboard is asked, nothing waits for it long."""
        if self._watcher.passed is None or time.monotonic() - self._shown < LOOK_EVERY:
            return
        self._shown = time.monotonic()
        self._watcher.passed(plan, played, self._call(SCOREBOARD, "standings"))

    def _judge(
        self, number: int, barrier: Barrier, played: RoundPlay, withdrawn: Sequence[tuple[str, str]]
    ) -> Closing:
        """Asks the workers for the last time in a round, and decides who leaves."""
        self._memory = max(self._memory, self._lives.memory_mb(self._workers(barrier.alive)))
        tally: RoundTally = self._call(SCOREBOARD, "tally", number)
        priced = contribution_of(played.steps, barrier.alive)
        worth = priced["shapley"] if priced else {}
        leaves = self._rule.retire(
            retirement.Standings(number, barrier.alive, tally, barrier.history, self._step_ms, worth)
        )
        record = round_record(
            round=number,
            generation=GENERATION,
            alive=barrier.alive,
            retired=leaves,
            withdrawn=withdrawn,
            walkover=bool(withdrawn) and len(barrier.alive) < 2,
            tally=tally,
            field=played.steps,
            contribution=priced,
            commits=played.commits,
            verifier=self._verifier_id(),
        )
        going_on = alive_after(record)
        learnt = {n: self._call(n, "snapshot") for n in self._learners if n in going_on}
        return Closing(record, played, tally, learnt, self._timing(barrier.alive))

    def _close(self, number: int, barrier: Barrier, closing: Closing) -> Barrier:
        """Makes the round permanent; the line in the file is the commit."""
        played, record = closing.played, closing.record
        snapshots.write(self._directory.path, number, closing.learnt)
        priced = [step for step in played.steps if step.worths]
        self._directory.append_round(record, played.verdicts, played.commits, closing.timing, priced)
        alive = alive_after(record)
        for name in set(barrier.alive) - set(alive):
            self._lives.stop(name)
        return Barrier(alive, (*barrier.history, closing.tally), closing.learnt)

    def _verifier_id(self) -> str:
        seat = self._roster.verifier
        return str(seat.options.get("model") or f"{seat.kind}:{seat.fingerprint}")

    def _timing(self, alive: Sequence[str]) -> list[dict[str, Any]]:
        spans: list[Span] = [span for name in (VERIFIER, *alive) for span in self._call(name, "spans")]
        return timing_rows(spans)

    def _crown(self, records: Sequence[Mapping[str, Any]]) -> Champion | None:
        champion = crown(records)
        if champion is None:
            self._directory.update_manifest(status="failed")
            return None
        self._directory.write_champion(champion.plain())
        took = {"seconds": round(time.monotonic() - self._began, 1), "memory_mb": round(self._memory)}
        played = {"took": took} if self._memory else {}  # nothing was left to play: as it was
        self._directory.update_manifest(status="complete", **played)
        return champion
