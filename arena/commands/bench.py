"""``arena bench``: the exact command behind each published number."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated, Any

import typer

from arena.commands.output import FORMAT, Format, console, print_csv, print_json, show_rows
from arena.commands.readings import progress
from arena.errors import ConfigError, one_of

PACKAGE = "experiments.bench"


def benchmarks() -> list[str]:
    """Names of the packaged benchmarks."""
    package = importlib.import_module(PACKAGE)
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def bench(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A benchmark; without a known one all are listed.")
    ],
    option: Annotated[
        list[str] | None, typer.Argument(metavar="[key=value]...", help="E.g. prompts=4 tokens=16.")
    ] = None,
    format: FORMAT = Format.table,
) -> None:
    """Run a benchmark and print what was measured, with its ratios.

    Example:
      arena bench rank prompts=8 tokens=32
    """
    if name not in benchmarks():
        raise ConfigError(one_of("benchmark", name, benchmarks()))
    play = importlib.import_module(f"{PACKAGE}.{name}").play
    known = {key: value for key, value in (play.__kwdefaults__ or {}).items() if key != "note"}
    options: dict[str, Any] = {}
    for part in option or ():
        key, equals, value = part.partition("=")
        if key not in known or not equals:
            raise ConfigError(one_of(f"option of benchmark {name!r}", key, known) + " Expected key=value.")
        try:
            options[key] = type(known[key])(value)
        except ValueError:
            raise ConfigError(f"{part!r}: expected a {type(known[key]).__name__}.") from None
    body = play(note=progress(0.0), **options)
    if format is Format.json:
        print_json(body)
    elif format is Format.csv:
        print_csv(("name", "value", "unit"), body["rows"])
    else:
        show_rows(body.get("title", name), ("name", "value", "unit"), body["rows"])
        for key, value in body["ratios"].items():
            console().print(f"{key}: {value:.4g}")
        for text in body.get("notes", ()):
            console().print(text, soft_wrap=True, markup=False)
