"""``arena doctor``: is an engine's speculation healthy, from its logs alone?"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from arena.commands import fields
from arena.commands.output import FORMAT, Format, console, print_csv, print_json, printable, table
from arena.commands.readings import (
    ASSUME,
    LOG,
    LOGPROBS,
    MODEL,
    ONLY,
    Logged,
    Only,
    choose,
    reading_of,
    said,
)
from arena.engines import diagnosis
from arena.errors import ConfigError
from arena.protocols import Drafter
from arena.traces import Trace, load

PLAIN = Annotated[
    Path | None, typer.Option(metavar="LOG0", help="A log of the same prompts without speculation.")
]
COUNTERS = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help='Its counters of this log: {"drafts": n, "draft_tokens": n, "accepted": \\[n, ...]}, or '
        "vLLM's /metrics page.",
    ),
]


_BY_POSITION = re.compile(
    r"^vllm:spec_decode_num_accepted_tokens_per_pos(?:_total)?"
    r'\{[^}]*position="(\d+)"[^}]*\}\s+(\S+)',
    re.MULTILINE,
)


def doctor(
    log: LOG,
    plain: PLAIN = None,
    counters: COUNTERS = None,
    drafter: Annotated[
        str, typer.Option(metavar="KIND[:opt=val,...]", help="What the engine drafted with.")
    ] = "ngram",
    k: Annotated[int, typer.Option("-k", min=1, max=64, help="Its draft length.")] = 4,
    tie: Annotated[
        float, typer.Option(min=0.0, help="Greedy choices so close are a tie, nats.")
    ] = diagnosis.TIE,
    vocabulary: Annotated[
        int, typer.Option(min=2, help="Tokens in the vocabulary, at most.")
    ] = diagnosis.VOCABULARY,
    model: MODEL = None,
    logprobs: LOGPROBS = Logged.raw,
    assume: ASSUME = None,
    only: ONLY = Only.every,
    format: FORMAT = Format.table,
) -> None:
    """Check from logs whether an engine's speculation is healthy.

    rarity, argmax: from LOG alone. Sampled tokens must not be rarer than the law
    that they were drawn from allows; greedy ones must be able to be the likeliest.

    plain: with --plain, log-probabilities must not have moved (prompts are units).

    greedy: with --plain, greedy texts must be the same, but for ties.

    acceptance: with --counters, counts by position must be a replay's of this text.

    acceptance_plain: with both, the accepted length must be what plain text predicts.

    A check convicts at odds below 1 in 1000. Exit code 1 if any does.

    Examples:
      arena doctor speculative.jsonl --plain plain.jsonl

      arena doctor speculative.jsonl --counters metrics.txt --drafter ngram -k 4
    """
    reading = reading_of(model, logprobs, assume)
    loaded = choose(load(log, reading), only)
    checks = [diagnosis.rarity(loaded.traces, vocabulary), diagnosis.argmax(loaded.traces, vocabulary)]
    base = load(plain, reading).traces if plain is not None else ()
    if base:
        checks += [diagnosis.paired(loaded.traces, base), diagnosis.greedy(loaded.traces, base, tie)]
    else:
        checks += [diagnosis.untested(name, "needs --plain LOG0") for name in ("plain", "greedy")]
    notes: list[str] = []
    if counters is not None:
        counted, field = read_counters(counters), fields.build([drafter])
        notes = said(loaded, field)
        ((name, who),) = field.items()
        sure = who.capabilities.deterministic
        checks.append(diagnosis.acceptance(_texts(name, who, loaded.traces, k), k, counted, sure=sure))
        alike = [one for one in base if one.sampling in {trace.sampling for trace in loaded.traces}]
        if alike:
            checks.append(diagnosis.against_plain(_tallies(name, who, alike, k), k, counted))
    else:
        checks.append(diagnosis.untested("acceptance", "needs --counters FILE"))
    verdict = diagnosis.verdict(checks)
    body: dict[str, Any] = {
        "verdict": verdict,
        "checks": [asdict(check) for check in checks],
        "notes": [*notes, *loaded.unusable[:1]],
    }
    if format is Format.json:
        print_json(body)
    elif format is Format.csv:
        print_csv(("name", "statistic", "p", "verdict", "says"), body["checks"])
    else:
        _show(body, str(log))
    if verdict == "convicted":
        raise typer.Exit(1)


def _texts(name: str, drafter: Drafter, traces: Sequence[Trace], k: int) -> list[Any]:
    from arena.engines.forcing import odds_of
    from arena.engines.replay import shape_of

    return [(shape_of(one, "engine"), odds_of(name, drafter, one, k, "engine")) for one in traces]


def _tallies(name: str, drafter: Drafter, traces: Sequence[Trace], k: int) -> dict[str, Any]:
    from arena.engines.replay import expect, pool

    parts: dict[str, list[Any]] = {}
    for one, (shape, odds) in zip(traces, _texts(name, drafter, traces, k), strict=True):
        parts.setdefault(one.cluster, []).append(expect(shape, odds, k))
    return {prompt: pool(tallies, k) for prompt, tallies in parts.items()}


def read_counters(path: Path) -> diagnosis.Counters:
    """Reads an engine's counters, JSON or Prometheus text.

    Raises:
        ConfigError: It is neither.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--counters {str(path)!r}: {error}.") from error
    try:
        body = json.loads(text)
        return diagnosis.Counters(
            float(body["drafts"]), float(body["draft_tokens"]), tuple(float(x) for x in body["accepted"])
        )
    except (ValueError, KeyError, TypeError):
        pass
    drafts, tokens = _metric(text, "num_drafts"), _metric(text, "num_draft_tokens")
    by_position = _BY_POSITION.findall(text)
    if math.isnan(drafts) or not by_position:
        raise ConfigError(
            f'--counters {str(path)!r}: expected {{"drafts": n, "draft_tokens": n, "accepted": [n, ...]}} or '
            "vLLM's metrics with vllm:spec_decode_num_drafts and ..._accepted_tokens_per_pos."
        )
    counts: dict[int, float] = {}
    for position, value in by_position:
        counts[int(position)] = counts.get(int(position), 0.0) + float(value)
    return diagnosis.Counters(drafts, tokens, tuple(counts[i] for i in sorted(counts)))


def _metric(text: str, name: str) -> float:
    """Sums a counter over its labels (engines of one server)."""
    found = re.findall(rf"^vllm:spec_decode_{name}(?:_total)?(?:\{{[^}}]*\}})?\s+(\S+)", text, re.M)
    return math.fsum(float(value) for value in found) if found else math.nan


def _show(body: dict[str, Any], log: str) -> None:
    out = console()
    style = {"convicted": "bold red", "acquitted": "bold green"}.get(body["verdict"], "bold")
    out.print(Text(printable(f"{log}: {body['verdict']}"), style=style), soft_wrap=True)
    cells = [
        [
            check["name"],
            check["verdict"],
            "-" if math.isnan(check["statistic"]) else f"{check['statistic']:.3g}",
            "-" if math.isnan(check["p"]) else f"{check['p']:.2g}",
            check["says"],
        ]
        for check in body["checks"]
    ]
    out.print(table(["check", "verdict", "statistic", "p", ""], cells, right=["statistic", "p"]))
    for note in body["notes"]:
        out.print(Text(printable(note), style="yellow"), soft_wrap=True)
