"""A live run's verdicts beside replay of the very text that it committed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from arena import registry
from arena.engines import compare
from arena.store import RunDirectory
from arena.traces import load


def build(kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    known = registry.catalogue()
    found = {}
    for name, options in kinds.items():
        cls = registry.load_class(known[options["kind"]])
        found[name] = cls(name=name, **{key: value for key, value in options.items() if key != "kind"})
    return found


def differences(path: Path, kinds: dict[str, dict[str, Any]], k: int, starts: Any) -> dict[str, np.ndarray]:
    """Accepted tokens of each drafter a text: live less replayed."""
    traces = load(path).traces
    scored = compare.score(traces, build(kinds), [k], starts=starts)
    live: dict[tuple[str, str], float] = defaultdict(float)
    directory = RunDirectory.open(path)
    for record in directory.rounds():
        for row in directory.read_table("steps", record["round"]).to_pylist():
            live[row["drafter"], f"{row['prompt_id']}-r{record['round']}"] += row["n_accepted"]
    found: dict[str, Any] = defaultdict(list)
    for (_, name, _), tallies in scored.low.items():
        for text, tally in tallies.items():
            if (name, text) in live:
                found[name].append((live[name, text] - tally.kept, tally.kept))
    return {name: np.array(values) for name, values in found.items()}


def agree(values: np.ndarray) -> None:
    """The mean difference over prompts lies within 4.5 standard errors of 0.

    Of few prompts the spread is not known well: it is at least that of as many rare events.
    """
    gap, n = values[:, 0], len(values)
    assert values[:, 1].sum() > 0
    variance = n * gap.var(ddof=1)
    if n < 30:
        variance = max(variance, values[:, 1].sum())
    assert abs(gap.sum()) <= 4.5 * np.sqrt(variance) + 1e-9
