"""A tournament by replay: rounds are slices of a trace, and no verifier is loaded.

Everything but the playing of a round is the live tournament's: the scoreboard, the
retirement rules, the run directory. A drafter that was not there when the trace was
recorded can be entered late, into this run or the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from arena import prompts as prompt_sets
from arena import seeding
from arena.barrier import Barrier
from arena.config import Experiment
from arena.engines.forcing import refusal, unfit
from arena.engines.live import SCOREBOARD, VERIFIER, RoundPlay
from arena.engines.replay_seat import ReplayPlan
from arena.errors import ConfigError
from arena.lives import Lives
from arena.protocols import Backend, Capabilities, WorkerSpec
from arena.store import RunDirectory
from arena.tournament import Tournament, Watcher
from arena.traces import Trace, load
from arena.traces.records import describe
from arena.traces.runs import write_prompts
from arena.types import Commit, LaneStep, Vocabulary


def make(experiment: Experiment, directory: RunDirectory, backend: Backend, watcher: Watcher) -> Tournament:
    """The tournament that an experiment's engine asks for."""
    kind = ReplayTournament if experiment.engine.kind == "replay" else Tournament
    return kind(experiment, directory, backend, watcher)


class ReplayTournament(Tournament):
    """One tournament over a recorded trace; see :class:`arena.tournament.Tournament`."""

    def __init__(
        self, experiment: Experiment, directory: RunDirectory, backend: Backend, watcher: Watcher
    ) -> None:
        super().__init__(experiment, directory, backend, watcher)
        self._pool = [f"replay-{index}" for index in range(experiment.engine.workers)]
        seats = {n: (seat.target, dict(seat.options)) for n, seat in sorted(self._roster.drafters.items())}
        spec = WorkerSpec(
            "arena.engines.replay_seat:ReplaySeat",
            {"drafters": seats},
            threads=experiment.backend.threads or 1,
        )
        self._specs = {SCOREBOARD: self._specs[SCOREBOARD], **dict.fromkeys(self._pool, spec)}
        self._lives = Lives(experiment, backend, self._specs, watcher.note)
        self._seats = seats

    def _start(self, barrier: Barrier) -> None:
        """Builds the workers and reads the trace."""
        self._watcher.note(f"starting {len(self._specs)} workers: {', '.join(self._specs)}")
        answers = self._backend.start(self._specs, timeout=self._experiment.backend.start_timeout)
        capable: dict[str, Capabilities] = answers[self._pool[0]]
        self._learners = tuple(name for name in barrier.alive if capable[name].learns)
        for name, files in barrier.snapshots.items():
            self._call(name, "restore", files)
        self._texts = self._read(capable)
        self._prompts = tuple(
            prompt_sets.Prompt(name, text.category, tokens=text.prompt) for name, text in self._texts.items()
        )
        prompt_sets.round_slice(self._prompts, 0, self._experiment.rounds.prompts, self._root)
        self._directory.update_manifest(prompts={"usable": len(self._prompts), "skipped": []})

    def _calibrate(self, barrier: Barrier) -> None:
        """Prices nothing: no verifier is at hand."""
        self._step_ms = {}

    def _read(self, capable: Mapping[str, Capabilities]) -> dict[str, Trace]:
        """Reads the trace's texts of the experiment's sampling.

        Raises:
            ConfigError: It holds none, is of another vocabulary, or does not serve a drafter.
        """
        where, sampling = str(self._experiment.engine.trace), self._experiment.sampling.record()
        loaded = load(where).traces
        texts = [text for text in loaded if text.sampling == sampling]
        if not texts:
            known = ", ".join(sorted({describe(text.sampling) for text in loaded}))
            raise ConfigError(
                f"engine.trace {where!r} holds texts at {known}; the experiment asks for "
                f"{describe(sampling)}. Set sampling to one of them."
            )
        prints = {text.fingerprint for text in texts} - {"", self._roster.verifier.fingerprint}
        if prints:
            raise ConfigError(
                f"engine.trace {where!r} is of vocabulary {sorted(prints)[0]}, the verifier of "
                f"{self._roster.verifier.fingerprint}; name the verifier that wrote the trace."
            )
        for name, known_of in capable.items():
            reasons = (refusal(name, known_of), *(unfit(known_of, text) for text in texts))
            if reason := next(filter(None, reasons), None):
                raise ConfigError(f"drafters.{name} cannot be played on {where!r}: {reason}.")
        if self._experiment.engine.starts == "joint" and not all(text.starts for text in texts):
            raise ConfigError(f"engine.starts is joint, but {where!r} keeps no recorded steps; use own.")
        vocabulary = Vocabulary(0, str(self._roster.verifier.fingerprint or ""), texts[0].eos)
        write_prompts(
            self._directory.path,
            {text.prompt_id: text.prompt for text in texts},
            {text.prompt_id: text.category for text in texts},
            vocabulary,
        )
        return {text.prompt_id: text for text in texts}

    def _play(self, number: int, barrier: Barrier) -> RoundPlay:
        engine, rounds = self._experiment.engine, self._experiment.rounds
        chosen = prompt_sets.round_slice(self._prompts, number - 1, rounds.prompts, self._root)
        texts = [_cut(self._texts[prompt.id], rounds.max_new_tokens) for prompt in chosen]
        plan = ReplayPlan(
            int(seeding.fold(self._root, number)), engine.draft_length, engine.starts, engine.lanes
        )
        steady = [name for name in barrier.alive if name not in self._learners]
        tickets = [
            self._backend.submit(worker, "score", plan, steady, (), texts[index :: len(self._pool)])
            for index, worker in enumerate(self._pool)
        ]
        tickets += [
            self._backend.submit(self._home(name), "score", plan, (name,), (name,), texts)
            for name in self._learners
            if name in barrier.alive
        ]
        timeout = self._experiment.backend.call_timeout
        answers = self._backend.wait(tickets, timeout=timeout)
        self._backend.wait([self._backend.submit(SCOREBOARD, "begin", number)], timeout=timeout)
        played = RoundPlay(commits=[commit for text in texts for commit in _commits(text)])
        for verdicts in answers:
            self._backend.wait([self._backend.submit(SCOREBOARD, "fold", verdicts)], timeout=timeout)
            played.verdicts.extend(verdicts)
        return played

    def _workers(self, alive: Sequence[str]) -> tuple[str, ...]:
        """The pool in the verifier's and the drafters' place."""
        return (SCOREBOARD, *self._pool)

    def _rewind(self, barrier: Barrier, alive: Sequence[str]) -> None:
        """Takes every learner back to the barrier."""
        for name in self._learners:
            if name in alive and name in barrier.snapshots:
                self._call(name, "restore", barrier.snapshots[name])
            elif name in alive:
                super()._call(self._home(name), "rebuild", name, *self._seats[name])

    def _home(self, name: str) -> str:
        """The worker at which a learner is scored and learns."""
        return self._pool[seeding.name_word(name) % len(self._pool)]

    def _call(self, worker: str, method: str, *args: Any) -> Any:
        """Calls a worker: a drafter at its home; the pool in the verifier's place for its times."""
        if method == "spans":
            pool = self._pool if worker == VERIFIER else ()
            return [span for one in pool for span in super(ReplayTournament, self)._call(one, method)]
        if worker in self._seats:
            return super()._call(self._home(worker), "of", worker, method, *args)
        return super()._call(worker, method, *args)


def _cut(text: Trace, budget: int) -> Trace:
    """Keeps at most a budget of tokens; what stopped later counts as cut by length."""
    if text.max_tokens is not None and text.max_tokens <= budget:
        return text
    if len(text.tokens) < budget or (len(text.tokens) == budget and text.end_logged):
        return replace(text, max_tokens=budget)
    return replace(
        text,
        tokens=text.tokens[:budget],
        logprobs=text.logprobs[:budget],
        starts=tuple(start for start in text.starts if start < budget),
        finish="length",
        end_logged=False,
        stopped_by_text=False,
        max_tokens=budget,
    )


def _commits(text: Trace) -> list[Commit]:
    """The trace's own steps: as recorded, or one a token."""
    starts = text.starts or tuple(range(len(text.tokens)))
    return [
        Commit(
            LaneStep(text.prompt_id, start),
            text.tokens[start:end],
            text.logprobs[start:end],
            0,
            text.finish if end == len(text.tokens) else "",  # type: ignore[arg-type]
        )
        for start, end in pairwise((*starts, len(text.tokens)))
    ]
