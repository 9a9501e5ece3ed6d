"""``arena breed``: what a cohort learns before its first round, ahead of time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from arena import config
from arena.commands.output import FORMAT, Format, print_csv, print_json, show_rows
from arena.commands.play import EXPERIMENT, OVERRIDES, SEED


def breed(
    experiment: EXPERIMENT,
    overrides: OVERRIDES = None,
    seed: SEED = None,
    tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens decoded from the verifier; cohort.warm_tokens.")
    ] = None,
    format: FORMAT = Format.table,
) -> None:
    """Breed an experiment's cohort: decode text from its verifier and teach it to all that learn.

    `arena run EXP` with the same cohort.warm_tokens does this by itself before
    round 1; here it is done ahead of time, with progress. Everything is kept in
    the user's cache by content, so nothing is bred twice, and a call that was
    cut short goes on. The prompts are those that the rounds will not play.

    Examples:
      arena breed story --tokens 2000

      arena run story cohort.warm_tokens=2000
    """
    from arena.breeding import breed as grow

    extra = [] if tokens is None else [f"cohort.warm_tokens={tokens}"]
    found = config.load(experiment, [*(overrides or ()), *extra], seed)
    console = Console(stderr=True, highlight=False)
    bred = grow(found, lambda text: console.print(text, style="dim", markup=False))
    rows = [{"drafter": name, "learnt": folder} for name, folder in bred.students.items()]
    if format is Format.json:
        print_json(asdict(bred))
    elif format is Format.csv:
        print_csv(("drafter", "learnt"), rows)
    else:
        show_rows(
            f"{bred.tokens} tokens in {bred.texts} texts, {bred.seconds:.0f} s", ("drafter", "learnt"), rows
        )
