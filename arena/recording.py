"""Recording a trace: a verifier decodes plainly, lanes together, and can go on where it stopped.

The pass is the live engine's with an empty roster, so the text is the text of a run, and
it depends on (seed, prompt, position) alone: not on lanes, parts or interruptions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arena import durable, seeding
from arena.backends.local import LocalBackend
from arena.config import Experiment
from arena.engines.live import SCOREBOARD, VERIFIER, RoundPlan, play
from arena.errors import ConfigError
from arena.intake import Intake, take_in
from arena.protocols import Backend
from arena.roster import resolve, worker_specs
from arena.traces import tables
from arena.traces.records import Trace
from arena.types import Commit, Sampling, Vocabulary, in_order

PART = 64
"""Prompts decoded between two savings."""

Note = Callable[[str], None]


def record(
    experiment: Experiment,
    out: Path,
    *,
    lanes: int,
    backend: Backend | None = None,
    note: Note = lambda text: None,
) -> Path:
    """Decodes every prompt of an experiment with its verifier alone.

    Parts are kept in ``OUT.parts/`` until all are there; the same call goes on with them.

    Args:
        experiment: Its verifier, sampling, prompts, seed and ``rounds.max_new_tokens`` count.
        out: The Parquet file to write.
        lanes: Prompts decoded together.
        backend: Where the verifier runs; in this process by default.
        note: Told how far it is.

    Raises:
        ConfigError: ``out`` exists, or its parts are of other settings.
    """
    if out.suffix != ".parquet" or out.exists():
        raise ConfigError(f"--out {str(out)!r}: expected a .parquet file that does not exist yet.")
    parts = out.with_name(out.name + ".parts")
    _check_settings(parts, experiment)
    where = backend or LocalBackend()
    specs = worker_specs(
        experiment, resolve(experiment), cpus=1, gpus=getattr(where, "gpus", 0.0), lanes=lanes
    )
    wanted = {name: specs[name] for name in (VERIFIER, SCOREBOARD)}
    vocabulary: Vocabulary = where.start(wanted, timeout=experiment.backend.start_timeout)[VERIFIER]

    def call(method: str, *args: Any) -> Any:
        return where.wait([where.submit(VERIFIER, method, *args)], timeout=experiment.backend.call_timeout)[0]

    key, limit = seeding.fold(experiment.seed, 0), int(call("max_context"))
    found = take_in(experiment, key, lambda texts: call("encode", texts), vocabulary, limit)
    for why in found.skipped:
        note(f"skipped: {why}")
    names = sorted(found.playable)
    chunks = [names[i : i + PART] for i in range(0, len(names), PART)]
    paths = [parts / f"part-{number:05d}.parquet" for number in range(len(chunks))]
    for number, (chunk, path) in enumerate(zip(chunks, paths, strict=True)):
        if not path.exists():
            plan = _plan(experiment, key, {name: found.playable[name] for name in chunk}, limit, lanes)
            done = play(plan, where, lambda plan, played: None)
            tables.write(_traces(done.commits, found, plan, vocabulary), path)
        note(f"{min(len(names), (number + 1) * PART)} of {len(names)} prompts")
    traces = [trace for path in paths for trace in tables.read(path).traces]
    tables.write(traces, out)
    shutil.rmtree(parts)
    return out


def _check_settings(parts: Path, experiment: Experiment) -> None:
    """Refuses parts that another experiment left; what does not change the text may differ."""
    plain = experiment.plain()
    settings = {name: plain[name] for name in ("seed", "verifier", "sampling", "prompts")}
    settings["max_new_tokens"] = experiment.rounds.max_new_tokens
    text = json.dumps(settings, sort_keys=True)
    mark = parts / "settings.json"
    if mark.exists() and mark.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"{str(parts)!r} holds parts of other settings; give another --out, or remove it to start over."
        )
    parts.mkdir(parents=True, exist_ok=True)
    durable.write(mark, text)


def _plan(
    experiment: Experiment, key: Any, prompts: Mapping[str, tuple[int, ...]], max_context: int, lanes: int
) -> RoundPlan:
    return RoundPlan(
        number=1,
        key=int(seeding.fold(key, 1)),
        names=(),
        learners=(),
        prompts=tuple(sorted(prompts.items())),
        sampling=experiment.sampling.record(),
        draft_length=1,
        max_new_tokens=experiment.rounds.max_new_tokens,
        max_context=max_context,
        lanes=lanes,
        in_flight=1,
        learn_every=1,
        feedback_top=0,
        ranks=None,
        timeout=experiment.backend.call_timeout,
    )


def _traces(commits: Sequence[Commit], found: Intake, plan: RoundPlan, vocabulary: Vocabulary) -> list[Trace]:
    texts: dict[str, list[Commit]] = {}
    for commit in in_order(commits):
        texts.setdefault(commit.step.prompt_id, []).append(commit)
    return [
        Trace(
            prompt_id=name,
            prompt=found.tokens[name],
            tokens=tuple(token for commit in parts for token in commit.tokens),
            logprobs=tuple(value for commit in parts for value in commit.logprobs),
            law="sampled",
            sampling=Sampling(**asdict(plan.sampling)),
            finish=parts[-1].finish,
            end_logged=parts[-1].finish == "stop",
            max_tokens=min(plan.max_new_tokens, plan.max_context - len(found.tokens[name])),
            fingerprint=vocabulary.fingerprint,
            source="trace",
            category=found.categories[name],
            eos=vocabulary.eos,
        )
        for name, parts in texts.items()
    ]
