"""``arena replay``: choose a drafter from a log, without the target model."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from arena.commands import fields, pricing
from arena.commands.output import (
    FORMAT,
    Format,
    console,
    number,
    print_csv,
    print_json,
    printable,
    show_rows,
    table,
)
from arena.commands.readings import (
    ASSUME,
    LENGTHS,
    LOG,
    LOGPROBS,
    MODEL,
    ONLY,
    Counted,
    Logged,
    Only,
    choose,
    counting,
    parse_lengths,
    progress,
    reading_of,
    said,
)
from arena.errors import ConfigError
from arena.traces import load

ROW = (
    "drafter", "k", "sampling", "hit_rate", "position_rates", "acceptance_length", "low", "high",
    "precision", "steps", "drafts", "offered", "drafted", "accepted", "histogram", "texts", "prompts",
)  # fmt: skip


class StartsAt(StrEnum):
    """Where blocks start."""

    own = "own"
    joint = "joint"
    every = "every"


DRAFTERS = Annotated[
    list[str] | None,
    typer.Option("--drafter", metavar="[NAME=]KIND[:opt=val,...]", help="May be repeated."),
]


def replay(
    log: LOG,
    drafter: DRAFTERS = None,
    k: LENGTHS = "1,2,4,8",
    starts: Annotated[
        StartsAt,
        typer.Option(help="own: the deployed rate; joint: a run's recorded steps; every: all positions."),
    ] = StartsAt.own,
    accounting: Annotated[
        Counted,
        typer.Option(
            help="arena: nothing is drafted past the budget or an end token; engine: always K, as vLLM "
            "counts; auto: engine for servers' logs."
        ),
    ] = Counted.auto,
    model: MODEL = None,
    logprobs: LOGPROBS = Logged.raw,
    assume: ASSUME = None,
    only: ONLY = Only.every,
    by_category: Annotated[bool, typer.Option(help="Also show a table by category.")] = False,
    target_ms: pricing.TARGET = None,
    draft_ms: pricing.DRAFT = None,
    verify_ms: pricing.VERIFY = 0.0,
    costs: pricing.COSTS = None,
    lanes: pricing.LANES = None,
    format: FORMAT = Format.table,
) -> None:
    """Replay a log with any drafter and any draft length, without the target.

    Text that a model sampled, with its log-probabilities, fixes the exact
    law of a speculative run: a draft token equal to the text's is kept with
    chance min(1, draft_prob / target_prob). Rates are exact expectations given
    the text; intervals (of tokens a step) treat prompts as units.

    A drafter that sends point masses (ngram, copyist, steady) needs no
    log-probabilities. One that samples needs those of the law that was sampled:
    servers log the raw law, which is that law at temperature 1 without
    truncation; elsewhere have the server log processed ones.

    With costs (--target-ms, or --costs RUN for those of a run played here), the
    speed-up of every draft length and the best one. What a drafted token costs
    is measured on this machine, along the log's own texts, unless it is given.

    `ngram` is vLLM's n-gram speculation: copyist with max_ngram=3, min_ngram=1,
    prefer=earliest.

    Examples:
      arena replay vllm.jsonl --drafter ngram -k 4

      arena replay vllm.jsonl --drafter small=hf:model=smollm2-135m,drop=[0.4,0.54] --drafter ngram -k 1,2,4,8

      arena replay vllm.jsonl --drafter ngram --target-ms 40 --verify-ms 0.5

      arena replay results/toy/20250101-120000-0a1b2c --drafter copyist --starts joint
    """
    from arena.engines import compare

    lengths = parse_lengths(k)
    known = pricing.passes(
        target_ms=target_ms, verify_ms=verify_ms, draft_ms=draft_ms, run=costs, lanes=lanes
    )
    drafters = fields.build(drafter or [])
    reading = reading_of(model, logprobs, assume)
    loaded = choose(load(log, reading), only)
    found = compare.score(
        loaded.traces,
        drafters,
        lengths,
        starts=starts.value,
        accounting=counting(accounting),
        note=progress(),
    )
    notes = [*said(loaded, drafters), *_refusals(found.refused)]
    if not found.low:
        raise ConfigError("no text of the log can be replayed with these drafters.\n" + "\n".join(notes))
    shown = compare.rows(found)
    body: dict[str, Any] = {
        "log": str(log),
        "starts": starts.value,
        "accounting": sorted({counting(accounting)(trace) for trace in loaded.traces}),
        "rows": shown,
        "pairs": compare.pairs(found),
        "categories": compare.rows(found, by_category=True),
        "unusable": list(loaded.unusable),
        "notes": notes,
    }
    if known is not None:
        used = {row["drafter"]: drafters[row["drafter"]] for row in shown}
        paid = pricing.prices(known, used, loaded.traces, max(lengths))
        body |= {"costs": paid.plain(), "best_k": pricing.price(shown, paid)}
        notes.append(paid.words())
    if format is Format.json:
        print_json(body)
    elif format is Format.csv:
        print_csv([*ROW, *(["speedup", "speedup_low", "speedup_high"] if known else [])], shown)
    else:
        _show(body, by_category)


def _refusals(refused: dict[str, list[str]]) -> list[str]:
    return [f"{name}: {len(why)} texts are not replayed; first: {why[0]}" for name, why in refused.items()]


def _show(body: dict[str, Any], by_category: bool) -> None:
    out = console()
    counted = "/".join(body["accounting"])
    title = f"replay of {body['log']}   starts {body['starts']}   accounting {counted}"
    out.print(Text(printable(title), style="bold"), soft_wrap=True)
    columns = [
        "drafter",
        "sampling",
        "K",
        "tokens/step",
        "95% interval",
        "hit rate",
        "drafts",
        "accepted by position",
    ]
    priced = "best_k" in body
    cells = [
        [
            row["drafter"],
            row["sampling"],
            str(row["k"]),
            number(row["acceptance_length"]),
            "-" if math.isnan(row["low"]) else f"{number(row['low'])} to {number(row['high'])}",
            number(row["hit_rate"]),
            number(row["drafts"], 1),
            " ".join(number(value, 1) for value in row["accepted"]),
            *([_speedup(row)] if priced else []),
        ]
        for row in body["rows"]
    ]
    out.print(table([*columns, *(["speed-up"] if priced else [])], cells, right=columns[2:4]))
    if body["pairs"]:
        out.print()
        show_rows("paired differences in tokens/step (a less b)", list(body["pairs"][0]), body["pairs"])
    if by_category:
        out.print()
        shown = ["category", "drafter", "sampling", "k", "acceptance_length", "low", "high", "texts"]
        show_rows("by category", shown, body["categories"])
    for name, k in body.get("best_k", {}).items():
        out.print(Text(printable(f"best K of {name}: {k}")))
    for text in body["notes"]:
        out.print(Text(printable(text), style="yellow"), soft_wrap=True)


def _speedup(row: dict[str, Any]) -> str:
    ends = f" ({number(row['speedup_low'], 2)} to {number(row['speedup_high'], 2)})"
    return number(row["speedup"], 2) + "x" + ("" if math.isnan(row["low"]) else ends)
