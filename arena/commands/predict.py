"""``arena predict``: which draft length is fastest, and when speculation pays."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from arena.commands.output import FORMAT, Format, console, number, print_csv, print_json, table
from arena.costs import MAX_K, StepCosts, best_k, break_even, curve, paying_lanes
from arena.errors import ConfigError

TARGET = Annotated[float, typer.Option(help="One verifier pass that decodes one token a lane, ms.")]
DRAFT = Annotated[float, typer.Option(help="One drafted token, all lanes together, ms.")]
ALPHA = Annotated[
    float, typer.Option(help="Chance that a draft token is kept, given that those before it were.")
]
VERIFY = Annotated[float, typer.Option(help="Part of --target-ms that each node of a lane costs, ms.")]
LANES = Annotated[int, typer.Option(min=1, help="Prompts continued in one pass; each brings its own nodes.")]
LONGEST = Annotated[int, typer.Option("--max-k", min=1, max=1000, help="Longest draft to consider, tokens.")]


def predict(
    target_ms: TARGET,
    draft_ms: DRAFT,
    alpha: ALPHA,
    verify_ms: VERIFY = 0.0,
    lanes: LANES = 1,
    max_k: LONGEST = MAX_K,
    format: FORMAT = Format.table,
) -> None:
    """Predict the time a token for every draft length K, from costs and acceptance.

    A step of draft length K gives (1 - alpha^(K+1)) / (1 - alpha) tokens and
    takes one verifier pass and K drafted tokens.

    Without --verify-ms, a pass over K + 1 tokens costs what a pass over one
    does: true of small batches, where reading the weights is all there is.
    --verify-ms says what each further node adds; with it, more lanes make
    speculation dearer, and the number at which it stops paying is given.

    Break-even is the alpha below which no draft length beats plain decoding.

    Examples:
      arena predict --target-ms 100 --draft-ms 10 --alpha 0.8

      arena predict --target-ms 50 --draft-ms 2 --alpha 0.6 --verify-ms 1.5 --lanes 8
    """
    if verify_ms * lanes > target_ms:
        raise ConfigError(
            f"--verify-ms {verify_ms} for {lanes} lanes is more than a whole pass, --target-ms {target_ms}; "
            "expected the part of a pass that its nodes cost."
        )
    costs = StepCosts(target_ms - verify_ms * lanes, draft_ms, verify_ms, lanes)
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
