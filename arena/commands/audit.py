"""``arena audit``: every verification rule's claim, proved or refuted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from arena.commands.output import FORMAT, Format, console, number, print_csv, print_json, table

if TYPE_CHECKING:
    from arena.acceptance.audit import Row

COLUMNS = (
    "rule",
    "options",
    "claimed_lossless",
    "found_lossless",
    "max_tv",
    "acceptance_length",
    "share_of_bound",
    "one",
    "field",
    "siblings",
    "worst_case",
    "cases",
    "seconds",
)
RULES = Annotated[
    list[str] | None, typer.Argument(metavar="[RULE]...", help="Names of rules; all if absent.")
]


def audit(rules: RULES = None, format: FORMAT = Format.table) -> None:
    """Prove which verification rules leave the target's text law as it is.

    Every draft, every choice of a rule and every completion of the text is
    enumerated over a grid of small laws: zeros, point masses, temperatures, end
    tokens, budgets. So the total variation (TV) printed is exact: a lossless
    rule shows rounding, about 1e-16; one that moves the law by 1e-9 is convicted.

    Acceptance length is 1 + the draft tokens kept a step, over three groups of
    cases: one drafter, different drafters, several draws from one (siblings).
    "Of bound": its share of what optimal transport allows a lossless rule, node
    by node; a dash where that bound does not apply.

    Exit code 1 if any claim is false.

    Examples:
      arena audit

      arena audit speculative margin -f json
    """
    from arena.acceptance.audit import audit as run_audit

    progress = Console(stderr=True, highlight=False)
    if progress.is_terminal:
        with progress.status("enumerating ...") as status:
            rows = run_audit(rules, lambda row: status.update(f"enumerating ... {row.rule} done"))
    else:
        rows = run_audit(rules)
    if format is Format.json:
        print_json({"rules": [_flat(row) for row in rows]})
    elif format is Format.csv:
        print_csv(COLUMNS, [_flat(row) | {"options": _options(row)} for row in rows])
    else:
        _print_table(rows)
    if not all(row.honest for row in rows):
        raise typer.Exit(1)


def _flat(row: Row) -> dict[str, Any]:
    found = asdict(row)
    lengths = found.pop("lengths")
    return found | {group: lengths.get(group) for group in ("one", "field", "siblings")}


def _options(row: Row) -> str:
    return " ".join(f"{key}={value}" for key, value in row.options.items())


def _print_table(rows: list[Row]) -> None:
    numbers = ["max TV", "one drafter", "different", "siblings", "of bound"]
    cells = [
        [
            f"{row.rule} {_options(row)}".strip(),
            _yes(row.claimed_lossless),
            _yes(row.found_lossless) + ("" if row.honest else "  FALSE CLAIM"),
            f"{row.max_tv:.1e}",
            number(row.lengths.get("one")),
            number(row.lengths.get("field")),
            number(row.lengths.get("siblings")),
            number(row.share_of_bound),
        ]
        for row in rows
    ]
    out = console()
    out.print(table(["rule", "claimed lossless", "found", *numbers], cells, right=numbers))
    wrong = sum(not row.honest for row in rows)
    verdict = f"{wrong} of {len(rows)} claims are FALSE" if wrong else f"all {len(rows)} claims are true"
    seconds = sum(row.seconds for row in rows)
    out.print()
    out.print(
        Text(
            f"{verdict}; {sum(row.cases for row in rows)} cases enumerated in {seconds:.0f} s. "
            "One drafter, different, siblings: acceptance length there."
        ),
        soft_wrap=True,
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
