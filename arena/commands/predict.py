"""``arena predict``: which draft length is fastest, and when speculation pays."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from arena.commands.output import FORMAT, Format, console, number, print_csv, print_json, printable, table
from arena.costs import MAX_K, StepCosts, best_k, break_even, curve, paying_lanes
from arena.errors import ConfigError
from arena.places import resolve
from arena.store import RunDirectory

if TYPE_CHECKING:
    from arena.forecast import Forecast

RUN = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="A run directory, or `latest`: costs and rates are taken from it."),
]
TARGET = Annotated[float | None, typer.Option(help="One verifier pass that decodes one token a lane, ms.")]
DRAFT = Annotated[float | None, typer.Option(help="One drafted token, all lanes together, ms.")]
ALPHA = Annotated[
    float | None, typer.Option(help="Chance that a draft token is kept, given that those before it were.")
]
VERIFY = Annotated[float, typer.Option(help="Part of --target-ms that each node of a lane costs, ms.")]
LANES = Annotated[
    int | None,
    typer.Option(min=1, help="Prompts continued in one pass; each brings its own nodes. Of a RUN: its own."),
]
LONGEST = Annotated[int, typer.Option("--max-k", min=1, max=1000, help="Longest draft to consider, tokens.")]
PLOT = Annotated[
    Path | None, typer.Option(help="Draw a RUN's measured passes, the fit and the best K to this file.")
]


def predict(
    run: RUN = None,
    target_ms: TARGET = None,
    draft_ms: DRAFT = None,
    alpha: ALPHA = None,
    verify_ms: VERIFY = 0.0,
    lanes: LANES = None,
    max_k: LONGEST = MAX_K,
    plot: PLOT = None,
    format: FORMAT = Format.table,
) -> None:
    """Predict the time a token for every draft length K, from costs and acceptance.

    Given a RUN, costs are fitted to its clock values (a pass: fixed + verify x
    nodes; a draft: K tokens) and acceptance by position is counted from its
    verdicts, for each drafter as if it were alone. K goes no further than it
    was played. The rates are those at the run's own block starts.

    Given numbers instead: a step of draft length K gives
    (1 - alpha^(K+1)) / (1 - alpha) tokens and takes one verifier pass and K
    drafted tokens. Without --verify-ms, a pass over K + 1 tokens costs what a
    pass over one does: true of small batches, where reading the weights is all
    there is. --verify-ms says what each further node adds; with it, more lanes
    make speculation dearer, and the number at which it stops paying is given.

    Break-even is the alpha below which no draft length beats plain decoding.

    Examples:
      arena predict --target-ms 100 --draft-ms 10 --alpha 0.8

      arena predict --target-ms 50 --draft-ms 2 --alpha 0.6 --verify-ms 1.5 --lanes 8

      arena predict latest --plot speed.png
    """
    given = {"--target-ms": target_ms, "--draft-ms": draft_ms, "--alpha": alpha}
    if run is not None:
        if named := [name for name, value in given.items() if value is not None] + ["--verify-ms"] * (
            verify_ms != 0
        ):
            raise ConfigError(f"a RUN brings its own costs and rates: leave out {', '.join(named)}.")
        _of_run(run, lanes, plot, format)
        return
    if plot is not None:
        raise ConfigError(
            "--plot draws what was measured: name a RUN, e.g. `arena predict latest --plot f.png`."
        )
    if target_ms is None or draft_ms is None or alpha is None:
        missing = ", ".join(name for name, value in given.items() if value is None)
        raise ConfigError(f"missing {missing}; expected a RUN, or all of --target-ms, --draft-ms, --alpha.")
    _of_numbers(target_ms, draft_ms, alpha, verify_ms, lanes or 1, max_k, format)


def _of_numbers(
    target_ms: float, draft_ms: float, alpha: float, verify_ms: float, lanes: int, max_k: int, format: Format
) -> None:
    costs = StepCosts.of_pass(target_ms, draft_ms, verify_ms, lanes)
    rows, best = curve(alpha, costs, max_k), best_k(alpha, costs, max_k)
    found: dict[str, Any] = {
        "rows": [asdict(row) for row in rows],
        "best_k": best,
        "break_even": break_even(costs, max_k),
        "paying_lanes": paying_lanes(alpha, costs, max_k),
    }
    if format is Format.json:
        print_json(found)
    elif format is Format.csv:
        print_csv(("k", "tokens_per_step", "ms_per_token", "speedup"), found["rows"])
    else:
        _print_table(found)


def _of_run(run: str, lanes: int | None, plot: Path | None, format: Format) -> None:
    from arena.forecast import forecast

    found = forecast(RunDirectory.open(resolve(run)), lanes)
    rows = [{"drafter": one.drafter, **asdict(row)} for one in found.drafters for row in one.rows]
    if plot is not None:
        from arena.plots import plot_forecast

        typer.echo(f"drawn to {plot_forecast(found, plot)}", err=True)
    if format is Format.json:
        keys = ("drafter", "draft_ms", "rates", "best_k", "break_even", "paying_lanes")
        drafters = [{key: getattr(one, key) for key in keys} for one in found.drafters]
        costs = {"fixed": found.fixed, "verify": found.verify}
        print_json(
            {"run": found.run, "lanes": found.lanes, "costs": costs, "rows": rows, "drafters": drafters}
        )
    elif format is Format.csv:
        print_csv(("drafter", "k", "tokens_per_step", "ms_per_token", "speedup"), rows)
    else:
        _print_forecast(found)


def _print_forecast(found: Forecast) -> None:
    longest = max((len(one.rows) for one in found.drafters), default=1)
    lengths = [f"K={k}" for k in range(longest)]
    numbers = ["ms/draft token", *lengths, "best K", "speed-up", "break-even", "pays below"]
    cells = [
        [
            one.drafter,
            number(one.draft_ms, 2),
            *(number(row.ms_per_token, 2) for row in one.rows),
            *["-"] * (longest - len(one.rows)),
            str(one.best_k) if one.best_k else "0 (plain)",
            number(one.rows[one.best_k].speedup, 2) + "x",
            number(one.break_even, 3),
            _lanes(one.paying_lanes),
        ]
        for one in found.drafters
    ]
    out = console()
    out.print(Text(printable(f"run {found.run}"), style="bold"), soft_wrap=True)
    out.print(
        Text(
            f"a verifier pass takes {found.fixed:.2f} + {found.verify:.3f} ms a node "
            f"(fitted to {len(found.passes)} passes; {found.left_out} outliers left out)"
        ),
        soft_wrap=True,
    )
    out.print()
    out.print(Text(f"ms a token, each drafter alone, {found.lanes} lanes", style="bold"))
    out.print(table(["drafter", *numbers], cells, right=numbers))
    out.print()
    out.print(
        Text(
            "Break-even: alpha below which no K beats plain decoding (K=0). Pays below: speculation pays "
            "with fewer lanes than this at these rates, which are those at the run's own block starts."
        ),
        soft_wrap=True,
    )


def _lanes(lanes: float) -> str:
    return "never" if lanes == 0 else "any lanes" if math.isinf(lanes) else f"{lanes:.1f} lanes"


def _print_table(found: dict[str, Any]) -> None:
    columns = ["K", "tokens/step", "ms/token", "speed-up"]
    cells = [
        [
            str(row["k"]),
            number(row["tokens_per_step"]),
            number(row["ms_per_token"], 2),
            number(row["speedup"], 2) + "x",
            "best" if row["k"] == found["best_k"] else "",
        ]
        for row in found["rows"]
    ]
    out = console()
    out.print(table([*columns, ""], cells, right=columns))
    out.print()
    out.print(Text(_summary(found)), soft_wrap=True)


def _summary(found: dict[str, Any]) -> str:
    needed, lanes = found["break_even"], found["paying_lanes"]
    if needed is None:
        return "Speculation cannot pay here: not even with every draft token kept."
    best = f"Best K: {found['best_k']}." if found["best_k"] else "Plain decoding is fastest."
    pays = f"It pays above alpha {needed:.3f}"
    if 0 < lanes < float("inf"):
        pays += f", and with fewer than {lanes:.1f} lanes at this alpha"
    return f"{best} {pays}."
