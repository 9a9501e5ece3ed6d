"""Figures of studies; drawn like those of :mod:`arena.plots`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from arena.figures import grid, legend, save
from arena.plot_numbers import Series
from arena.plot_style import plain, style

_PANELS = {
    "acceptance_length": ("tokens a pass", "Joint acceptance length"),
    "tokens_per_s": ("tokens a second and lane", "Joint goodput, drafters side by side"),
    "union_coverage": ("target probability", "Union coverage: mass of all first tokens"),
    "vendi": ("effective number of drafters", "Diversity of the laws (Vendi score)"),
}


def selection(numbers: Mapping[str, Mapping[str, Series]], size: int, seeds: int, path: Path) -> Path:
    """Draws what is left of a field under each retirement rule, round by round.

    Args:
        numbers: Measure to rule to its line over rounds.
        size: Drafters at the start.
        seeds: How many seeds each point is a mean of.
        path: Where to.
    """
    figure, axes = grid(2, 2, 6.2, 4.2)
    for ax, key in zip(axes, numbers, strict=True):
        _lines(ax, numbers[key])
        label, title = _PANELS[key]
        last = max((int(x) for line in numbers[key].values() for x in line.x), default=1)
        ax.set(ylabel=label, title=title)
        ax.set_xticks(range(1, last + 1), [f"{r}\n({size - r + 1})" for r in range(1, last + 1)])
        ax.set_xlabel("round (drafters left in it under elimination)")
    bands = "bands: 95% over seeds" if seeds > 1 else "one seed"
    legend(axes[1], f"retirement rule\n({seeds} seeds; {bands})" if seeds > 1 else "retirement rule")
    return save(figure, path)


def _lines(ax: Axes, lines: Mapping[str, Series]) -> None:
    for number, (name, line) in enumerate(lines.items()):
        look = style(number)
        ax.plot(line.x, line.y, label=plain(name), **look)
        if all(low == low for low in line.low):
            ax.fill_between(line.x, line.low, line.high, alpha=0.15, color=look["color"], linewidth=0)


def replicates(
    curves: Mapping[str, Series],
    table: Mapping[str, Mapping[str, Any]],
    story: Mapping[str, int],
    seeds: int,
    path: Path,
) -> Path:
    """Draws survivor curves over seeds, and in how many seeds each drafter left when.

    Args:
        curves: Drafter to its survival, from round 0 on, with intervals.
        table: Drafter to ``out_1``, ``out_2``, ..., ``wins`` and ``mean_round``.
        story: Drafter to the round in which the story lets it leave; framed.
        seeds: How many.
        path: Where to.
    """
    figure, (left, right) = grid(1, 2, 6.4, 4.2)
    names = sorted(curves)
    order = sorted(names, key=lambda name: (-float(table[name]["mean_round"]), name))
    for place, name in enumerate(order):
        line, look = curves[name], style(names.index(name))
        lift = 0.004 * (place - len(order) / 2)  # curves that coincide stay visible
        left.step(line.x, [y + lift for y in line.y], where="post", label=plain(name), **look)
        left.fill_between(
            line.x, line.low, line.high, step="post", alpha=0.12, color=look["color"], linewidth=0
        )
    left.set(xlabel="round", ylabel="share of seeds in which it is still alive", ylim=(-0.03, 1.03))
    left.set_title(f"Survival over {seeds} seeds (bands: 95%, bootstrap)")
    left.legend(frameon=False, fontsize="small", loc="lower left", handlelength=4.0)
    columns = [key for key in next(iter(table.values())) if key.startswith("out_")]
    columns.append("wins")
    shares = [[float(table[name][key]) / seeds for key in columns] for name in order]
    right.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for row, name in enumerate(order):
        for column, share in enumerate(shares[row]):
            told = story.get(name) == column + 1
            shown = f"{share:.0%}" if share else "0" if told else ""
            colour = "white" if share > 0.55 else "black"
            right.text(column, row, shown, ha="center", va="center", color=colour)
            if told:
                frame = Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, fill=False, ec="#D55E00", lw=2)
                right.add_patch(frame)
    right.set_yticks(range(len(order)), [plain(name) for name in order])
    right.set_xticks(range(len(columns)), [key.removeprefix("out_") for key in columns])
    right.set(
        xlabel="round after which it left", title="Share of seeds" + (" (framed: the story)" if story else "")
    )
    right.grid(visible=False)
    right.tick_params(length=0)
    return save(figure, path)
