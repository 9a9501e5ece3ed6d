"""``arena trace``: record a verifier's text with its log-probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arena import config
from arena.commands.output import FORMAT, Format, print_csv, print_json
from arena.commands.play import EXPERIMENT, OVERRIDES, SEED
from arena.commands.readings import progress


def trace(
    experiment: EXPERIMENT,
    overrides: OVERRIDES = None,
    seed: SEED = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE.parquet", help="Must not exist; unfinished work is taken up again.")
    ] = Path("trace.parquet"),
    lanes: Annotated[int, typer.Option(min=1, help="Prompts decoded together.")] = 16,
    format: FORMAT = Format.table,
) -> None:
    """Record a trace: plain decoding by an experiment's verifier, no drafter.

    The trace is all that `arena replay` needs to judge any drafter later, and
    what `engine.kind=replay` plays a tournament on. Every run is a trace too.

    Interrupted, the same command goes on where it stopped.

    Examples:
      arena trace story --out story.parquet rounds.max_new_tokens=96

      arena replay story.parquet --drafter ngram
    """
    from arena.recording import record
    from arena.traces import load

    path = record(config.load(experiment, overrides or (), seed), out, lanes=lanes, note=progress())
    texts = load(path).traces
    facts = {"trace": str(path), "texts": len(texts), "tokens": sum(len(text.tokens) for text in texts)}
    if format is Format.json:
        print_json(facts)
    elif format is Format.csv:
        print_csv(tuple(facts), [facts])
    else:
        print(path)
