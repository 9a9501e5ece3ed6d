"""The command line: data to stdout, progress to stderr, exit codes 0, 1, 2 (config), 130."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer
from rich.console import Console

from arena.commands import (
    audit,
    bench,
    breed,
    check,
    doctor,
    generate,
    known,
    play,
    predict,
    promote,
    replay,
    results,
    trace,
)
from arena.errors import ArenaError
from arena.shown import printable_lines

app = typer.Typer(
    name="arena",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Draft Arena: a tournament for speculative decoding.\n\n"
        "Drafters propose tokens to one verifier; the lowest scorer is retired each round; "
        "the last one standing can be promoted to verifier.\n\n"
        "Start with `arena run toy`, then `arena show latest` and `arena plot latest`."
    ),
)
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Tournaments": (
        play.run,
        play.validate,
        play.resume,
        results.show,
        results.plot,
        promote.promote,
        breed.breed,
        known.ls,
        check.check,
    ),
    "Text": (generate.generate,),
    "Logs": (replay.replay, trace.trace, doctor.doctor),
    "Maths": (audit.audit, predict.predict, bench.bench),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


def main() -> None:
    """Runs the command line; every error that was raised on purpose is one message."""
    try:
        app()
    except ArenaError as error:
        Console(stderr=True).print(
            f"error: {printable_lines(error)}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
