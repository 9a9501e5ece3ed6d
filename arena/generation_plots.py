"""Figures of generations: what becomes of diversity, how far the law drifts, who descends from whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from arena.figures import grid, save
from arena.plot_style import plain, style

Rows = Sequence[Mapping[str, Any]]

_DRIFT = (
    (("kl",), "nats", "KL from the first verifier"),
    (("tv", "agreement"), "share", "Total variation; same most probable token"),
    (("perplexity",), "perplexity", "Of the first verifier's text"),
    (("law_entropy", "text_entropy"), "nats", "Entropy of the law there, and of its own text"),
)
_NAMES = {
    "kl": "KL",
    "tv": "total variation",
    "agreement": "same top token",
    "perplexity": "perplexity",
    "law_entropy": "mean entropy of the law",
    "text_entropy": "entropy of its own tokens",
    "distinct_1": "distinct-1",
    "distinct_2": "distinct-2",
    "distinct_3": "distinct-3",
    "mean_distance": "mean pairwise √JSD",
    "union_coverage": "union coverage",
}


def drift(rows: Rows, path: Path) -> Path:
    """Draws how far each generation's verifier is from generation 0's."""
    figure, axes = grid(2, 2, 5.6, 3.8)
    for ax, (keys, unit, title) in zip(axes, _DRIFT, strict=True):
        _lines(ax, rows, keys)
        ax.set(ylabel=unit, title=title)
        _floor(ax, 1 if unit == "perplexity" else 0)
    return save(figure, path)


def diversity(rows: Rows, path: Path) -> Path:
    """Draws the cohorts' diversity and the variety of the verifiers' own text, by generation."""
    figure, axes = grid(2, 2, 5.6, 3.8)
    _lines(axes[0], rows, ("mean_distance", "union_coverage"))
    axes[0].set(ylabel="0 to 1", title="The cohort in round 1", ylim=(0, 1.03))
    _lines(axes[1], rows, ("vendi",))
    axes[1].set(ylabel="effective number of drafters", title="The cohort's Vendi score in round 1")
    _floor(axes[1], 1)
    _lines(axes[2], rows, ("distinct_1", "distinct_2", "distinct_3"))
    axes[2].set(ylabel="distinct / all n-grams", title="The verifier's own text", ylim=(0, 1.03))
    for number, row in enumerate(row for row in rows if row.get("distance_by_round")):
        line = row["distance_by_round"]
        axes[3].plot(range(1, len(line) + 1), line, label=f"generation {row['generation']}", **style(number))
    axes[3].set(ylabel="mean pairwise √JSD", xlabel="round", title="Within a generation", ylim=(0, 1.03))
    axes[3].legend(frameon=False, fontsize="small", handlelength=4.0)
    longest = max((len(row.get("distance_by_round") or ()) for row in rows), default=1)
    axes[3].set_xticks(range(1, longest + 1))
    return save(figure, path)


def lineage(rows: Rows, path: Path) -> Path:
    """Draws the family: each verifier, its cohort in the order in which it left, and who rose."""
    figure = Figure(figsize=(3.4 * len(rows) + 0.4, 4.6), layout="constrained")
    ax = figure.subplots()
    ax.set_axis_off()
    deepest = max((len(row.get("order_out") or ()) for row in rows), default=0)
    ax.set_xlim(-0.55, len(rows) - 0.45)
    ax.set_ylim(-1.6 - 0.62 * (deepest + 1), 1.0)
    for x, row in enumerate(rows):
        _box(ax, x, 0.0, 1.2, "#DCE9F5", _verifier(row), "bold")
        names = [*(row.get("order_out") or ()), *([row["champion"]] if row.get("champion") else [])]
        for place, name in enumerate(reversed(names)):
            y = -1.55 - 0.62 * place
            rose = name == row["promoted"]
            crown = " (champion)" if name == row["champion"] else f" (out, round {len(names) - place})"
            _box(ax, x, y, 0.46, "#F6DFD0" if rose else "#F2F2F2", plain(name) + crown, "normal")
            if rose and x + 1 < len(rows):
                arrow = FancyArrowPatch(
                    (x + 0.36, y),
                    (x + 0.635, -0.3),
                    connectionstyle="arc3,rad=-0.15",
                    arrowstyle="-|>",
                    mutation_scale=15,
                    color="#D55E00",
                    linewidth=1.8,
                    zorder=3,
                )
                ax.add_patch(arrow)
    ax.set_title("Who descends from whom (orange: promoted)")
    return save(figure, path)


def _verifier(row: Mapping[str, Any]) -> str:
    kind = f"generation {row['generation']}"
    size = f"{row['layers']} layers, {row['parameters'] / 1e6:.1f} M"
    return f"{kind}\n{size}\nKL {row['kl']:.2f}, perplexity {row['perplexity']:.1f}"


def _box(ax: Axes, x: float, y: float, height: float, colour: str, text: str, weight: str) -> None:
    box = FancyBboxPatch(
        (x - 0.36, y - height / 2),
        0.72,
        height,
        boxstyle="round,pad=0.0,rounding_size=0.06",
        facecolor=colour,
        edgecolor="#444444",
        linewidth=0.8,
    )
    ax.add_patch(box)
    ax.text(x, y, text, ha="center", va="center", fontsize=9, weight=weight)


def _floor(ax: Axes, low: float) -> None:
    """Lets the axis begin at a value that means something, with room above the highest point."""
    high = max((float(np.max(np.asarray(line.get_ydata()))) for line in ax.get_lines()), default=low)
    ax.set_ylim(low - 0.02 * (high - low), high + 0.08 * (high - low) or low + 1)


def _lines(ax: Axes, rows: Rows, keys: Sequence[str]) -> None:
    for number, key in enumerate(keys):
        points = [(row["generation"], row[key]) for row in rows if row.get(key) is not None]
        x, y = ([point[side] for point in points] for side in (0, 1))
        ax.plot(x, y, label=_NAMES.get(key, key), **style(number))
    ax.set_xticks([row["generation"] for row in rows])
    ax.set_xlim(-0.2, len(rows) - 0.8)
    ax.set_xlabel("generation")
    if len(keys) > 1:
        ax.legend(frameon=False, fontsize="small", handlelength=4.0)
