"""``arena promote``: the champion becomes a model that any process can load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from arena.commands.output import FORMAT, Format, print_csv, print_json
from arena.places import resolve


def promote(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A finished run, or `latest`.")] = "latest",
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder to write; new or empty. By default RUN/promoted."),
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Measure how far its law is from the verifier's (seconds; decodes a little).")
    ] = True,
    format: FORMAT = Format.table,
) -> None:
    """Promote the champion of a run: write it as a Hugging Face folder.

    The folder holds safetensors, config, tokenizer, chat template, a model card
    and lineage.json. It loads in a plain process, without Draft Arena, and
    gives the champion's own logits; `verifier.model=DIR` makes it the next
    verifier.

    The target law CHANGES: the promoted model is another model than its verifier.
    The card says by how much.

    A champion that is no language model (an n-gram table, say) cannot verify.
    With on_unpromotable=refuse in the experiment it is refused; with `best`,
    the default, the best of the ranking that can is taken, and the card says
    so.

    Examples:
      arena promote latest

      arena promote results/story/20250101-120000-0a1b2c --to models/gen1

      arena run story verifier.model=models/gen1
    """
    from arena.promotion import promote as write

    console = Console(stderr=True, highlight=False)
    done = write(
        resolve(run), to, measure=measure, note=lambda text: console.print(text, style="dim", markup=False)
    )
    flat = {"folder": str(done.folder), **done.lineage}
    if format is Format.json:
        print_json(flat)
    elif format is Format.csv:
        columns = ("folder", "promoted", "champion", "generation", "layers", "parameters", "run", "date")
        print_csv(columns, [flat])
    else:
        print(done.folder)
