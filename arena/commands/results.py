"""``arena show`` and ``arena plot``: what is known about finished rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from arena import config
from arena.commands import words
from arena.commands.output import FORMAT, Format, console, number, print_csv, print_json, printable, table
from arena.errors import ConfigError
from arena.places import resolve
from arena.records import goodput_of, standings_of, summary, tokens_saved
from arena.roster import text_is_exact
from arena.store import RunDirectory

STANDING = (
    "drafter",
    "offered",
    "drafted",
    "accepted",
    "hit_rate",
    "precision",
    "acceptance_length",
    "low",
    "high",
    "goodput",
)
"""Columns of a standing, in the order in which they are printed."""


RUN = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or `latest`.")]


LAST_WORDS = Annotated[
    bool, typer.Option("--last-words", help="What the retired said last, and what the verifier said instead.")
]


def show(run: RUN = "latest", last_words: LAST_WORDS = False, format: FORMAT = Format.table) -> None:
    """Show a run: its status, its champion, the standings of every round, and each drafter's pace.

    With --last-words, for every retired drafter: the drafts of its last round
    with the tokens that the verifier found least likely there, and those at the
    ends of texts, each beside what was committed instead. Text where the
    verifier has a tokenizer, else token ids.

    Examples:
      arena show latest

      arena show latest --last-words

      arena show results/toy/20250101-120000-0a1b2c -f json
    """
    directory = RunDirectory.open(resolve(run))
    if last_words:
        _show_last_words(directory, format)
        return
    records = directory.rounds()
    found = overview(directory, records)
    if format is Format.json:
        print_json(found)
    elif format is Format.csv:
        rows = [{"round": one["round"], **row} for one in found["rounds"] for row in one["standings"]]
        print_csv(("round", *STANDING), rows)
    else:
        _show_table(found, records, directory.manifest.get("error"))


def _show_last_words(directory: RunDirectory, format: Format) -> None:
    if format is Format.json:
        print_json({"run": str(directory.path), "last_words": words.rows_of(directory)})
    elif format is Format.csv:
        print_csv(words.COLUMNS, words.rows_of(directory))
    else:
        words.print_words(directory)


def overview(directory: RunDirectory, records: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Gives what ``arena show -f json`` prints; what is not known is nan or None.

    Args:
        directory: The run.
        records: Its rounds; read if absent.
    """
    manifest = directory.manifest
    records = directory.rounds() if records is None else records
    return {
        "run": str(directory.path),
        "status": manifest.get("status"),
        "champion": (directory.champion() or {}).get("champion"),
        "rules": _played_by(directory),
        "costs": manifest.get("costs"),
        "tokens_saved": tokens_saved(records),
        "pace": words.pace_rows(directory, records),
        "rounds": [_round(record, manifest.get("costs")) for record in records],
    }


def _played_by(directory: RunDirectory) -> dict[str, Any] | None:
    """The rules of a run, and whether its text has exactly the target's law; None if not a tournament."""
    try:
        experiment = config.build(config.parse(directory.config_yaml, "config"), "config")
        exact = text_is_exact(experiment)
    except (ConfigError, KeyError):  # a study, or a config of another version
        return None
    replayed = experiment.engine.kind == "replay"
    starts = experiment.engine.starts if replayed else "joint"  # live: those of the text all make together
    return {
        "score": experiment.rules.score,
        "commit": experiment.rules.commit,
        "exact": exact,
        "starts": starts,
    }


def _round(record: Mapping[str, Any], costs: Mapping[str, Any] | None) -> dict[str, Any]:
    retired = record["retired"]
    rows = [asdict(row) for row in standings_of(record, goodput_of(record, costs))]
    return {
        "round": record["round"],
        "alive": record["alive"],
        "retired": retired and {"drafter": retired["drafter"], "reason": retired["reason"]},
        "withdrawn": record["withdrawn"],
        "share_of_bound": summary(record)["share_of_bound"],
        "standings": [{column: row[column] for column in STANDING} for row in rows],
    }


def _show_table(found: Mapping[str, Any], records: Sequence[Mapping[str, Any]], error: str | None) -> None:
    out = console()
    facts = [f"run {found['run']}", f"status {found['status']}"]
    if found["champion"]:
        facts.append(f"champion {found['champion']}")
    out.print(Text(printable("   ".join(facts)), style="bold"), soft_wrap=True)
    if rules := found["rules"]:
        law = "the text has exactly the target's law" if rules["exact"] else "LOSSY: not the target's text"
        played = (
            f"scored by {rules['score']} at {rules['starts']} starts, committed by {rules['commit']}; {law}"
        )
        out.print(Text(played), soft_wrap=True)
    if error:
        out.print(Text(printable(error), style="red"), soft_wrap=True)
    if not found["rounds"]:
        out.print("no round is finished yet")
    for one, record in zip(found["rounds"], records, strict=True):
        title = f"round {one['round']}: {len(one['alive'])} drafters, {record['committed']} tokens committed"
        out.print()
        if one["share_of_bound"] == one["share_of_bound"]:
            title += f", {one['share_of_bound']:.1%} of the transport bound reached"
        out.print(Text(title, style="bold"))
        out.print(_standings(one))
        for gone in one["withdrawn"]:
            out.print(Text(printable(f"withdrawn {gone['drafter']}: {gone['reason']}")), soft_wrap=True)
        if one["retired"]:
            out.print(
                Text(printable(f"retired {one['retired']['drafter']}: {one['retired']['reason']}")),
                soft_wrap=True,
            )
    if found["tokens_saved"] is not None:
        out.print(
            f"\nconfident retirement did without {found['tokens_saved']:.0f} tokens of a full cap's rounds"
        )
    words.print_paces(found["pace"])


def _standings(one: Mapping[str, Any]) -> Any:
    columns = ["drafter", "hit rate", "95% interval", "precision", "tokens/pass"]
    priced = any(row["goodput"] == row["goodput"] for row in one["standings"])
    counts = ["accepted", "drafted", "offered"]
    rows = [
        [
            row["drafter"],
            number(row["hit_rate"]),
            "-" if math.isnan(row["low"]) else f"{number(row['low'])} to {number(row['high'])}",
            number(row["precision"]),
            number(row["acceptance_length"], 2),
            *([number(1000 * row["goodput"], 1)] if priced else []),
            *(row[count] for count in counts),
        ]
        for row in one["standings"]
    ]
    shown = [*columns, *(["tokens/s"] if priced else []), *counts]
    return table(shown, rows, right=shown[1:])


def plot(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Run directories, or `latest`; several are compared."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="hit-rate, survival, learning or diversity; all by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A .png, .svg or .pdf file, or a folder; by default the run's plots/ folder."),
    ] = None,
) -> None:
    """Draw the hit rates, the survivors and the diversity of a run, and print where the pictures are.

    Several runs are drawn together: survival then is a curve for each drafter, over the runs.

    Examples:
      arena plot latest

      arena plot results/story/* --kind survival --out survival.png
    """
    from arena import plots

    named, kinds = runs or ["latest"], [kind] if kind else list(plots.KINDS)
    is_file = out is not None and out.suffix != "" and not out.is_dir()
    if is_file and len(kinds) > 1:
        raise ConfigError(
            f"--out {str(out)!r} names one file: add --kind {'|'.join(kinds)}, or name a folder."
        )
    for one in kinds:
        target = out if out is None or is_file else out / f"{one}.png"
        print(plots.plot(named, one, target))
