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
    from arena.model_audit import ModelAudit, RuleFit

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


MODEL = Annotated[
    str | None,
    typer.Option(
        help="Sample a language model instead: the embedded model's name, a folder, .gguf or hub id."
    ),
]
SAMPLES = Annotated[int, typer.Option(help="With --model: texts to sample under each rule.")]
DTYPE = Annotated[str, typer.Option(help="With --model: auto, float32, bfloat16 or float16.")]


def audit(
    rules: RULES = None,
    model: MODEL = None,
    samples: SAMPLES = 2000,
    dtype: DTYPE = "auto",
    format: FORMAT = Format.table,
) -> None:
    """Prove which verification rules leave the target's text law as it is.

    Every draft, every choice of a rule and every completion of the text is
    enumerated over a grid of small laws: zeros, point masses, temperatures, end
    tokens, budgets. So the total variation (TV) printed is exact: a lossless
    rule shows rounding, about 1e-16; one that moves the law by 1e-9 is
    convicted.

    Acceptance length is 1 + the draft tokens kept a step, over three groups of
    cases: one drafter, different drafters, several draws from one (siblings).
    "Of bound": its share of what optimal transport allows a lossless rule, node
    by node; a dash where that bound does not apply.

    With --model, a language model is sampled through the live code (recursive,
    or the rules named) and its first tokens and bigrams are compared with its
    own law by G-tests, whose odds of a false alarm are stated; greedy text is
    compared with plain decoding, and its first difference called a tie or a
    fault.

    Exit code 1 if any claim is false.

    Examples:
      arena audit

      arena audit speculative margin -f json

      arena audit --model smollm2-135m --samples 1000
    """
    if model is not None:
        _of_model(model, rules or ["recursive"], samples, dtype, format)
        return
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


def _of_model(model: str, rules: list[str], samples: int, dtype: str, format: Format) -> None:
    from arena import model_audit, registry

    progress, lanes = Console(stderr=True, highlight=False, markup=False), 32
    options = {"model": model, "dtype": dtype, "lanes": lanes}
    found = model_audit.audit_model(
        registry.VERIFIERS["hf"], options, rules=rules, samples=samples, lanes=lanes, note=progress.print
    )
    rows = [_fit_row(fit) for fit in found.rules]
    if format is Format.json:
        print_json(
            {
                "model": model,
                **{key: getattr(found, key) for key in ("samples", "threshold", "dtype", "passed")},
                "rules": rows,
                "greedy": {
                    "tokens": found.greedy_tokens,
                    "tolerance": found.tolerance,
                    "divergences": [asdict(one) for one in found.divergences],
                },
            }
        )
    elif format is Format.csv:
        print_csv(list(rows[0]), rows)
    else:
        _print_model(model, found, rows)
    if not found.passed:
        raise typer.Exit(1)


def _fit_row(fit: RuleFit) -> dict[str, Any]:
    return {
        "rule": fit.rule,
        "claimed_lossless": fit.claimed_lossless,
        "fits": not fit.alarm,
        "acceptance_length": fit.acceptance_length,
        **{
            f"{name}_{key}": getattr(test, key)
            for name, test in (("token", fit.first), ("bigram", fit.bigram))
            for key in ("cells", "statistic", "p")
        },
    }


def _print_model(model: str, found: ModelAudit, rows: list[dict[str, Any]]) -> None:
    numbers = ["first token: G", "cells", "odds", "bigram: G", "cells ", "odds "]
    cells = [
        [
            row["rule"],
            _yes(row["claimed_lossless"]),
            _yes(row["fits"]) + ("" if fit.honest else "  FALSE CLAIM"),
            number(row["acceptance_length"]),
            *(
                value
                for test in ("token", "bigram")
                for value in (
                    number(row[f"{test}_statistic"], 1),
                    row[f"{test}_cells"],
                    f"{row[f'{test}_p']:.2g}",
                )
            ),
        ]
        for row, fit in zip(rows, found.rules, strict=True)
    ]
    out = console()
    columns = ["rule", "claimed lossless", "fits the model", "tokens/step", *numbers]
    out.print(table(columns, cells, right=["tokens/step", *numbers]))
    out.print()
    alarm = len(found.rules) * 2 * found.threshold
    ties = sum(one.verdict == "tie" for one in found.divergences)
    lines = [
        f"{model}, {found.dtype}: {found.samples} sampled texts a rule. A test alarms below odds of "
        f"{found.threshold:.1g}; a sound build raises any alarm here once in {1 / alarm:.0f} audits.",
        f"greedy: {found.greedy_tokens} tokens equal plain decoding; {ties} ties and "
        f"{len(found.divergences) - ties} faults (a tie: logits within {found.tolerance:g} nats).",
        *(
            f"  prompt {one.prompt}, token {one.position}: {one.verdict}, {one.gap:.4f} nats apart"
            for one in found.divergences
        ),
        "passed" if found.passed else "FAILED",
    ]
    for line in lines:
        out.print(Text(line), soft_wrap=True)


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
