"""How commands print: a table for people, JSON or CSV for programs, on stdout and nothing else.

Text that models or users wrote is made visible before it reaches a terminal: no
markup, no control sequences, no marks that turn the writing direction.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.shown import printable as printable


class Format(StrEnum):
    """What ``-f`` accepts."""

    table = "table"
    json = "json"
    csv = "csv"


FORMAT = Annotated[Format, typer.Option("--format", "-f", help="table for people, json or csv for programs.")]

WIDTH = 120
"""Columns assumed where stdout is not a terminal, so that tables in pipes are not cut."""


def number(value: float | None, digits: int = 3) -> str:
    """Shows a number; a dash where there is none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def plain(value: Any) -> Any:
    """Turns NaN and infinities into null, so that the JSON is valid everywhere."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def print_json(value: Mapping[str, Any]) -> None:
    """Prints one JSON object."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Prints rows as CSV with a header; what is not known is empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = [plain(row.get(column)) for column in columns]
        writer.writerow(["" if cell is None else _cell(cell) for cell in cells])


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(printable(item) for item in value)
    return printable(value) if isinstance(value, str) else value


def console() -> Console:
    """Gives a console on stdout, wide enough in a pipe."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=WIDTH)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> Table:
    """Makes a table of plain text.

    Args:
        columns: Titles.
        rows: Cells, as text.
        right: Titles of columns that are set flush right.
    """
    made, flush = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0)), set(right)
    for column in columns:
        made.add_column(Text(column, style="bold"), justify="right" if column in flush else "left")
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def show_rows(title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Prints rows as a table with a title; numbers flush right, three decimals."""
    listed = list(rows)
    numeric = {c for c in columns if all(isinstance(row.get(c), int | float | None) for row in listed)}

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return number(value)
        return "-" if value is None else str(value)

    out = console()
    out.print(Text(printable(title), style="bold"))
    out.print(table(columns, [[cell(row.get(c)) for c in columns] for row in listed], right=numeric))
