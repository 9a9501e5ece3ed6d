"""Learning curves: hit rate against the tokens that were seen, from the stored steps alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arena.errors import RunError
from arena.plot_numbers import Played, Series
from arena.plot_style import plain, style
from arena.store import RunDirectory

PIECES = 3
"""Points in a round."""


def learning_numbers(path: Path, pieces: int = PIECES) -> dict[str, Series]:
    """Gives each drafter's hit rate over the tokens that were committed before.

    A round's lane-steps are put in the order of their start, since lanes play side by
    side, and cut into pieces of equal count. Every drafter is shown, not the learners
    alone: where all of them rise, the text has become easier.

    Args:
        path: The run directory.
        pieces: Points in a round.

    Returns:
        Drafter to its curve; ``x`` is committed tokens up to the middle of a piece.
    """
    run = RunDirectory.open(path)
    points: dict[str, list[tuple[float, float]]] = {}
    seen = 0
    for record in run.rounds():
        commits = run.read_table("commits", record["round"]).to_pandas()
        steps = run.read_table("steps", record["round"]).to_pandas()
        order = commits.sort_values(["start", "prompt_id"])
        lengths = order["tokens"].map(len).to_numpy()
        places = {key: n for n, key in enumerate(zip(order["prompt_id"], order["start"], strict=True))}
        where = [places[key] for key in zip(steps["prompt_id"], steps["start"], strict=True)]
        edges = np.linspace(0, len(lengths), min(pieces, len(lengths)) + 1).astype(int)
        steps["piece"] = np.searchsorted(edges, where, side="right") - 1
        sums = steps.groupby(["drafter", "piece"], observed=True)[["n_offered", "n_accepted"]].sum()
        upto = seen + np.concatenate([[0], lengths.cumsum()])
        for (name, piece), counts in sums.iterrows():
            if counts["n_offered"]:
                middle = (upto[edges[piece]] + upto[edges[piece + 1]]) / 2
                rate = float(counts["n_accepted"] / counts["n_offered"])
                points.setdefault(str(name), []).append((float(middle), rate))
        seen += int(lengths.sum())
    return {
        name: Series(tuple(x for x, _ in line), tuple(y for _, y in line)) for name, line in points.items()
    }


def draw_all(canvas: tuple[Any, Sequence[Any]], runs: Sequence[Played]) -> Any:
    """Draws the learning curves of runs, one panel a run, on a figure and its axes."""
    figure, axes = canvas
    for ax, run in zip(axes, runs, strict=True):
        if run.path is None:
            raise RunError(f"{run.label}: its steps are not at hand, so there is no learning curve.")
        numbers = learning_numbers(run.path)
        order = sorted(numbers, key=lambda name: (-numbers[name].x[-1], -numbers[name].y[-1], name))
        for name in order:
            ax.plot(numbers[name].x, numbers[name].y, label=plain(name), **style(run.names.index(name)))
        ax.set(xlabel="tokens committed before, in this run", ylabel="hit rate (accepted / offered)")
        ax.set_title(f"Hit rate against tokens seen, {plain(run.label)}")
        ax.set_ylim(bottom=0)
        ax.legend(title="longest alive first", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return figure
