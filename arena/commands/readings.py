"""What commands that read logs share: options, and how they are turned into a reading."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from arena.errors import ConfigError
from arena.protocols import Drafter
from arena.sampling import is_greedy
from arena.traces import Loaded, Trace
from arena.traces.logs import Reading
from arena.traces.words import Tokenizer
from arena.types import Sampling

ENGINES = ("vllm", "openai")
"""Sources whose counters ask for K tokens whatever is left."""


class Counted(StrEnum):
    """How many tokens a drafter is asked for near the end of a text."""

    auto = "auto"
    arena = "arena"
    engine = "engine"


class Logged(StrEnum):
    """What a server's log-probabilities are of."""

    raw = "raw"
    processed = "processed"


class Only(StrEnum):
    """Which texts of a log are read."""

    every = "all"
    greedy = "greedy"
    sampled = "sampled"


LOG = Annotated[
    Path,
    typer.Argument(metavar="LOG", help="A server's .jsonl log, a .parquet trace, or a run directory."),
]
LENGTHS = Annotated[str, typer.Option("-k", metavar="K,...", help="Draft lengths.")]
MODEL = Annotated[
    str | None, typer.Option(help="The model whose tokenizer wrote the log; needed where ids are absent.")
]
LOGPROBS = Annotated[
    Logged,
    typer.Option("--logprobs", help="processed: the server logged the law after temperature, top-k, top-p."),
]
ASSUME = Annotated[
    str | None, typer.Option(metavar="greedy|T=1,...", help="Sampling of lines that do not say theirs.")
]
ONLY = Annotated[Only, typer.Option(help="Read only greedy, or only sampled, texts.")]


def progress(every: float = 3.0) -> Callable[[str], None]:
    """Gives a note-taker that says on stderr how far it is, now and then."""
    out, said_at = Console(stderr=True), time.monotonic()

    def note(text: str) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= every:
            said_at = time.monotonic()
            out.print(text, style="dim", markup=False, highlight=False)

    return note


def parse_lengths(text: str) -> list[int]:
    """Reads ``1,2,4,8``.

    Raises:
        ConfigError: Something else, or lengths outside 1 to 64.
    """
    try:
        lengths = sorted({int(part) for part in text.split(",")})
    except ValueError:
        lengths = []
    if not lengths or lengths[0] < 1 or lengths[-1] > 64:
        raise ConfigError(f"-k {text!r}: expected draft lengths from 1 to 64, e.g. 1,2,4,8.")
    return lengths


def reading_of(model: str | None, logprobs: Logged, assume: str | None) -> Reading:
    """Says how to read a log."""
    return Reading(Tokenizer(model) if model else None, logprobs.value, _sampling(assume))


def _sampling(text: str | None) -> Sampling | None:
    if text is None:
        return None
    if text == "greedy":
        return Sampling(temperature=0.0)
    fields_of = {"T": "temperature", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p"}
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        try:
            values[fields_of[key.strip()]] = int(value) if key.strip() == "top_k" else float(value)
        except (KeyError, ValueError):
            raise ConfigError(f"--assume {text!r}: expected greedy, or e.g. T=0.7,top_p=0.9.") from None
    return Sampling(**values)


def choose(loaded: Loaded, only: Only) -> Loaded:
    """Keeps the greedy or the sampled texts.

    Raises:
        ConfigError: None is left.
    """
    if only is Only.every:
        return loaded
    kept = [one for one in loaded.traces if is_greedy(one.sampling) == (only is Only.greedy)]
    if not kept:
        raise ConfigError(f"--only {only.value}: the log has no such text among {len(loaded.traces)}.")
    return Loaded(tuple(kept), loaded.unusable, loaded.notes)


def counting(accounting: Counted) -> Callable[[Trace], Any]:
    """Gives the accounting of each text: by its source where it is left open."""
    if accounting is Counted.auto:
        return lambda trace: "engine" if trace.source in ENGINES else "arena"
    return lambda trace: accounting.value


def said(loaded: Loaded, drafters: dict[str, Drafter]) -> list[str]:
    """Says what was left out, assumed, or refused of a log.

    Raises:
        ConfigError: A drafter's vocabulary is not the log's.
    """
    notes = list(loaded.notes)
    if loaded.unusable:
        notes.append(f"{len(loaded.unusable)} lines or texts cannot be used; first: {loaded.unusable[0]}")
    prints = {trace.fingerprint for trace in loaded.traces} - {""}
    for name, drafter in drafters.items():
        bound = drafter.capabilities.fingerprint
        if bound is None:
            continue
        if prints and prints != {bound}:
            raise ConfigError(
                f"drafter {name!r}: its vocabulary {bound} is not the log's {', '.join(sorted(prints))}; "
                "a token id means the same only in one vocabulary."
            )
        if not prints:
            notes.append(
                f"the log does not say its vocabulary: that its ids are those of {name} ({bound}) is taken "
                "on trust; --model NAME checks it."
            )
    return notes
