"""The race as people watch it: a live table on a terminal, plain lines elsewhere.

Everything goes to stderr, so that stdout stays free for data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from arena.engines.live import RoundPlan, RoundPlay
from arena.records import standings_of
from arena.shown import printable
from arena.tournament import Watcher

BAR = 10
"""Width of the bar of a hit rate, characters."""


class Race:
    """Shows a tournament while it runs; use as a context manager.

    Args:
        kinds: Drafter name to its kind.
        verifier: What to call the verifier.
        console: Where to print; stderr if not given.
    """

    def __init__(self, kinds: Mapping[str, str], verifier: str, console: Console | None = None) -> None:
        self._kinds = kinds
        self._verifier = verifier
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._left: list[tuple[str, str]] = []
        self._began = time.monotonic()

    def __enter__(self) -> Race:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def watcher(self) -> Watcher:
        """The callbacks that a tournament is given."""
        return Watcher(passed=self._passed, closed=self._closed, note=self._note)

    def _note(self, text: str) -> None:
        self._console.print(Text(f"{self._clock()} {printable(text)}", style="dim"))

    def _passed(self, plan: RoundPlan, play: RoundPlay, standings: Sequence[Mapping[str, Any]]) -> None:
        if not self._live.is_started:
            return
        finished = sum(1 for commit in play.commits if commit.finish)
        tokens = sum(len(commit.tokens) for commit in play.commits)
        head = Text(
            f"{self._clock()} round {plan.number}: {finished}/{len(plan.prompts)} prompts, "
            f"{tokens} tokens, {play.passes} passes of {printable(self._verifier)}"
        )
        self._live.update(Group(head, self._table(standings), *self._retired()))

    def _closed(self, record: Mapping[str, Any]) -> None:
        rows = [
            {
                "drafter": row.drafter,
                "hit_rate": row.hit_rate,
                "low": row.low,
                "high": row.high,
                "precision": row.precision,
                "acceptance_length": row.acceptance_length,
            }
            for row in standings_of(record)
        ]
        gone = [(item["drafter"], f"withdrawn: {item['reason']}") for item in record["withdrawn"]]
        if record["retired"]:
            gone.append((record["retired"]["drafter"], f"retired: {record['retired']['reason']}"))
        self._console.print(
            Text(
                f"\n{self._clock()} round {record['round']} closed: {record['committed']} tokens",
                style="bold",
            )
        )
        self._console.print(self._table(rows, {name for name, _ in gone}))
        for name, why in gone:
            self._console.print(f"  [red]✗[/red] {escape(name)} {escape(printable(why))}")
        self._left.extend(gone)

    def _retired(self) -> list[RenderableType]:
        return [Text(f"  ✗ {name}", style="dim") for name, _ in self._left]

    def _table(self, rows: Sequence[Mapping[str, Any]], leaving: set[str] | None = None) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("drafter", max_width=14, no_wrap=True)
        table.add_column("kind", max_width=10, no_wrap=True)
        table.add_column("hit rate", justify="right", min_width=8)
        table.add_column("", min_width=BAR)
        table.add_column("95% interval", min_width=13)
        table.add_column("precision", justify="right", min_width=9)
        table.add_column("tokens/pass", justify="right", min_width=11)
        for row in rows:
            name = str(row["drafter"])
            table.add_row(
                escape(name),
                escape(printable(self._kinds.get(name, ""))),
                _number(row["hit_rate"]),
                _bar(row["hit_rate"]),
                f"{_number(row['low'])} – {_number(row['high'])}",
                _number(row["precision"]),
                _number(row["acceptance_length"], 2),
                style="red" if leaving and name in leaving else "",
            )
        return table

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"[{seconds // 60}:{seconds % 60:02d}]"


def _number(value: float, digits: int = 3) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def _bar(value: float) -> str:
    if math.isnan(value):
        return ""
    eighths = round(value * BAR * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
