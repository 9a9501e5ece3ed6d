"""How ``arena show`` prints last words and paces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from arena import config
from arena.commands.output import console, number, printable, table
from arena.errors import ArenaError
from arena.last_words import Words, last_words
from arena.pace import pace
from arena.store import RunDirectory

COLUMNS = (
    "drafter",
    "round",
    "retired",
    "kind",
    "prompt_id",
    "start",
    "before",
    "drafted",
    "committed",
    "token",
    "target_prob",
)
"""Keys of a last word, in the order in which they are printed as CSV."""

Speak = Callable[[Sequence[int]], str]


def rows_of(directory: RunDirectory) -> list[dict[str, Any]]:
    """Gives the last words of a run as text (as token ids where the verifier has no text)."""
    speak = _speaker(directory)
    return [_row(words, speak) for words in last_words(directory)]


def print_words(directory: RunDirectory) -> None:
    """Prints each retired drafter's last words beside what the verifier said instead."""
    out, speak, said = console(), _speaker(directory), ""
    for words in last_words(directory):
        row = _row(words, speak)
        if words.drafter != said:
            out.print()
            out.print(Text(f"{printable(words.drafter)}, retired after round {words.round}", style="bold"))
            said = words.drafter
        line = Text()
        line.append(f"  {words.kind:<9} ", style="dim")
        line.append("…" + printable(row["before"]) if row["before"] else "(the answer begins)", style="dim")
        line.append(" | ")
        parts = (words.drafted[: words.place], words.drafted[words.place + 1 :])
        line.append(printable(speak(parts[0])))
        line.append(printable(_join(speak, words.place > 0) + row["token"]), style="bold")
        line.append(printable(_join(speak, bool(parts[1])) + speak(parts[1])))
        out.print(line, soft_wrap=True)
        odds = f"p = {words.target_prob:.2g} for {row['token']!r}"
        out.print(Text(f"            the verifier: {printable(row['committed'])}   ({odds})"), soft_wrap=True)


def pace_rows(directory: RunDirectory, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Gives each drafter's pace over rounds; none where the run has no clock values."""
    try:
        return [asdict(row) for row in pace(directory, records)]
    except (ArenaError, KeyError):  # timing files hold nothing that the results need
        return []


def print_paces(rows: Sequence[dict[str, Any]]) -> None:
    """Prints the table of paces."""
    if not rows:
        return
    columns = ["drafter", "ms a drafted token", "answered first", "passes"]
    cells = [
        [
            row["drafter"],
            number(row["ms_per_token"]),
            "-" if row["answered_first"] != row["answered_first"] else f"{row['answered_first']:.1%}",
            row["passes"],
        ]
        for row in rows
    ]
    out = console()
    out.print()
    out.print(Text("pace (clock values; no decision reads them)", style="bold"))
    out.print(table(columns, cells, right=columns[1:]))


def _row(words: Words, speak: Speak) -> dict[str, Any]:
    texts = {key: speak(getattr(words, key)) for key in ("before", "drafted", "committed")}
    token = speak(words.drafted[words.place : words.place + 1])
    facts = {
        key: getattr(words, key)
        for key in ("drafter", "round", "retired", "kind", "prompt_id", "start", "target_prob")
    }
    ids = {f"{key}_tokens": list(getattr(words, key)) for key in ("before", "drafted", "committed")}
    return {**facts, **texts, "token": token, **ids}


def _speaker(directory: RunDirectory) -> Speak:
    """Turns tokens into the verifier's text; only its tokenizer is loaded."""
    experiment = config.build(config.parse(directory.config_yaml, "config"), "config.resolved.yaml")
    options = experiment.verifier.options
    if experiment.verifier.kind != "hf":
        return _numbers
    from arena.models.tokens import load_tokenizer

    trust = bool(options.get("trust_remote_code", False))
    tokenizer = load_tokenizer(str(options.get("model", "smollm2-135m")), trust_remote_code=trust)
    return lambda tokens: str(tokenizer.decode(list(tokens)))


def _numbers(tokens: Sequence[int]) -> str:
    return " ".join(str(token) for token in tokens)


def _join(speak: Speak, more: bool) -> str:
    """Numbers need a space between them; text brings its own."""
    return " " if speak is _numbers and more else ""
