"""``arena ls``: what can be named, and the runs there are."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from typing import Annotated, Any

import typer

from arena import config
from arena.commands.output import FORMAT, Format, console, print_csv, print_json, table
from arena.errors import ArenaError, ConfigError
from arena.places import find
from arena.store import RunDirectory


class What(StrEnum):
    """What ``arena ls`` can list."""

    drafters = "drafters"
    rules = "rules"
    experiments = "experiments"
    runs = "runs"


def ls(
    what: Annotated[What, typer.Argument(metavar="drafters|rules|experiments|runs", help="What to list.")],
    format: FORMAT = Format.table,
) -> None:
    """List the drafters, rules and experiments that can be named, or the runs under ./results."""
    rows = {
        What.drafters: _drafters,
        What.rules: _rules,
        What.experiments: _experiments,
        What.runs: _runs,
    }[what]()
    columns = list(rows[0]) if rows else []
    if format is Format.json:
        print_json({what.value: rows})
    elif format is Format.csv:
        print_csv(columns, rows)
    elif not rows:
        typer.echo(f"no {what.value} yet", err=True)
    else:
        cells = [["-" if row[column] is None else row[column] for column in columns] for row in rows]
        console().print(table(columns, cells, right=("rounds", "seed")))


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


def _drafters() -> list[dict[str, Any]]:
    from arena import registry

    rows = []
    for name, target in registry.catalogue().items():
        try:
            about = _first_line(registry.load_class(target))
        except ConfigError as error:  # an entry point of another distribution may be broken
            about = f"cannot be used: {error}"
        rows.append({"drafter": name, "class": target, "about": about})
    return rows


def _rules() -> list[dict[str, Any]]:
    from arena import acceptance, retirement

    judges = [
        {
            "rule": name,
            "kind": rule.kind,
            "lossless": rule.lossless,
            "about": _first_line(rule),
            "source": rule.source,
        }
        for name, rule in acceptance.RULES.items()
        if rule.in_run
    ]
    leave = [
        {"rule": name, "kind": "retirement", "lossless": None, "about": _first_line(rule), "source": None}
        for name, rule in retirement.RULES.items()
    ]
    return judges + leave


def _experiments() -> list[dict[str, Any]]:
    return [{"experiment": name, "about": about} for name, about in config.packaged().items()]


def _runs() -> list[dict[str, Any]]:
    rows = []
    for path in reversed(find()):
        row: dict[str, Any] = dict.fromkeys(
            ("run", "experiment", "seed", "status", "rounds", "champion", "created")
        )
        row["run"] = str(path)
        with contextlib.suppress(ArenaError):  # a damaged run is still listed
            directory = RunDirectory.open(path)
            manifest = directory.manifest
            row |= {key: manifest.get(key) for key in ("experiment", "seed", "status", "created")}
            row["rounds"] = len(directory.rounds())
            row["champion"] = (directory.champion() or {}).get("champion")
        rows.append(row)
    return rows
