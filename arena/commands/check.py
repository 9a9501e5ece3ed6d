"""``arena check``: is a run what it says it is?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from arena.check import check as check_run
from arena.commands.output import FORMAT, Format, console, print_csv, print_json, printable, table
from arena.places import resolve

SHOWN = 40
"""Problems shown in a table; JSON and CSV hold all."""


def check(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or `latest`.")] = "latest",
    format: FORMAT = Format.table,
) -> None:
    """Re-verify a run, finished or not, from its files alone.

    Every file is compared with its seal, so that one flipped byte is found;
    counts, verdicts, texts, retirements and the champion are worked out again
    from the tables, the config and the seed. Exits with 1 if anything does not
    agree. Timing, pictures and reports decide nothing and are compared with
    their seals at most.

    Examples:
      arena check latest

      arena check results/toy/20250101-120000-0a1b2c -f json
    """
    report = check_run(resolve(run))
    if format is Format.json:
        print_json({**asdict(report), "ok": not report.problems})
    elif format is Format.csv:
        print_csv(("file", "what"), [asdict(problem) for problem in report.problems])
    else:
        out = console()
        counts = ", ".join(f"{count} {what}" for what, count in report.counts.items())
        out.print(Text(printable(f"run {report.run}   status {report.status}"), style="bold"), soft_wrap=True)
        out.print(Text(f"looked at {counts}"), soft_wrap=True)
        for note in report.notes:
            out.print(Text(printable(f"note: {note}"), style="yellow"), soft_wrap=True)
        if report.problems:
            rows = [(problem.file, problem.what) for problem in report.problems[:SHOWN]]
            out.print(table(("file", "what is wrong"), rows))
            out.print(Text(f"{len(report.problems)} problems", style="bold red"))
        else:
            out.print(Text("everything agrees", style="bold green"))
    if report.problems:
        raise typer.Exit(1)
