"""Plots of finished rounds. A plot is a function that gives numbers and one that draws them on ``ax``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from arena.errors import ConfigError, RunError, one_of
from arena.figures import grid, legend, save
from arena.forecast import Forecast
from arena.learning import draw_all
from arena.places import resolve
from arena.plot_numbers import (
    Played,
    diversity_numbers,
    ends_of,
    hit_rate_numbers,
    pass_numbers,
    survival_numbers,
    token_numbers,
)
from arena.plot_style import COLOURS, plain, style
from arena.store import RunDirectory
from arena.survival import survivors

SUFFIXES = (".png", ".svg", ".pdf")
HEIGHT = 4.4
"""Of a panel, inches."""


def draw_hit_rate(ax: Axes, run: Played) -> None:
    """Draws hit rates by round, side by side within a round, so that intervals can be told apart."""
    numbers, ends = hit_rate_numbers(run), ends_of(run)
    top = 0.05
    for place, name in enumerate(ends):
        line, number = numbers[name], run.names.index(name)
        shift = 0.3 * (place / max(1, len(ends) - 1) - 0.5)
        x = [value + shift for value in line.x]
        low = [y - _or(end, y) for y, end in zip(line.y, line.low, strict=True)]
        high = [_or(end, y) - y for y, end in zip(line.y, line.high, strict=True)]
        label = f"{plain(name)} ({ends[name]})"
        ax.errorbar(x, line.y, yerr=[low, high], capsize=2.5, elinewidth=0.9, label=label, **style(number))
        top = max([top, *(_or(end, 0.0) for end in (*line.high, *line.y))])
    ax.set_ylim(-0.03 * top, min(1.02, 1.05 * top))  # a rate of 0 or 1 is not cut in half
    ax.set(xlabel="round", ylabel="hit rate (accepted / offered draft tokens)")
    ax.set_title(f"Hit rate by round, {plain(run.label)}")
    _rounds(ax, 1, len(run.records))
    legend(ax, "last standing first;\nbars: 95%, prompts as clusters")


def draw_staircase(ax: Axes, run: Played) -> None:
    """Draws how many drafters of one run are left after each round, and who left."""
    alive, last = survivors(run.records), len(run.records)
    ax.step(range(last + 1), alive, where="post", color=COLOURS[0], linewidth=2)
    ax.plot(range(last + 1), alive, linestyle="", marker="o", color=COLOURS[0])
    for number, record in enumerate(run.records, start=1):
        left = [f"{one['drafter']} (withdrawn)" for one in record["withdrawn"]]
        left += [record["retired"]["drafter"]] if record["retired"] else []
        if left:
            middle = (alive[number - 1] + alive[number]) / 2
            ax.annotate(
                plain(", ".join(left)) + " out",
                (number, middle),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
            )
    stay = [name for name, end in ends_of(run).items() if end in ("champion", "alive")]
    ax.annotate(
        plain(", ".join(stay)) + (": champion" if len(stay) == 1 else ""),
        (last, alive[-1]),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        weight="bold",
    )
    ax.set(xlabel="round", ylabel="drafters alive after the round")
    ax.set_title(f"Survivors, {plain(run.label)}")
    ax.set_ylim(0, max(alive) + 0.6)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xticks(range(0, last + 1, 1 + last // 20))
    ax.set_xlim(-0.15, last + 0.3 + 0.2 * last)  # room for the names at the right


def draw_survival(ax: Axes, runs: Sequence[Played]) -> None:
    """Draws each drafter's survival curve over runs (Kaplan–Meier), with bootstrap bands."""
    numbers = survival_numbers(runs)
    order = sorted(numbers, key=lambda name: (-sum(numbers[name].y), name))
    names, last = sorted(numbers), 0
    for place, name in enumerate(order):
        line, look = numbers[name], style(names.index(name))
        lift = 0.004 * (place - len(order) / 2)  # curves that coincide stay visible
        y = [value + lift for value in line.y]
        ax.step(line.x, y, where="post", label=plain(name), **look)
        ax.fill_between(
            line.x, line.low, line.high, step="post", alpha=0.10, color=look["color"], linewidth=0
        )
        last = len(line.x) - 1
    ax.set(xlabel="round", ylabel="share of runs in which it is still alive")
    ax.set_title(f"Survival over {len(runs)} runs (Kaplan-Meier)")
    ax.set_ylim(-0.03, 1.03)
    _rounds(ax, 0, last)
    legend(ax, "longest survival first;\nbands: 95%, bootstrap over runs")


def draw_diversity(ax: Axes, runs: Sequence[Played], key: str) -> None:
    """Draws one measure of diversity by round, one line a run."""
    names = {
        "mean_distance": ("mean pairwise √JSD", "How far apart the drafters' laws are (1: disjoint)"),
        "union_coverage": ("target probability", "Union coverage: mass of all first tokens proposed"),
    }
    for number, run in enumerate(runs):
        line = diversity_numbers(run)[key]
        ax.plot(line.x, line.y, label=plain(run.label), **style(number))
    ax.set(xlabel="round", ylabel=names[key][0], ylim=(0.0, 1.03))
    ax.set_title(names[key][1])
    _rounds(ax, 1, max(len(run.records) for run in runs))
    if len(runs) == 1:
        record = runs[0].records
        ax.set_xticks(
            [one["round"] for one in record], [f"{one['round']}\n({len(one['alive'])})" for one in record]
        )
        ax.set_xlabel("round (drafters alive in it)")


def draw_passes(ax: Axes, found: Forecast) -> None:
    """Draws measured verifier passes and the fitted line."""
    points, line = pass_numbers(found)
    ax.plot(points.x, points.y, "o", color=COLOURS[4], markersize=3.5, alpha=0.5, label="measured passes")
    label = f"fit: {found.fixed:.2f} + {found.verify:.3f} ms a node"
    ax.plot(line.x, line.y, color=COLOURS[1], linewidth=2, label=label)
    ax.set(xlabel="tree nodes in the pass, all lanes", ylabel="time of the pass (ms)")
    ax.set_ylim(bottom=0)
    ax.set_title("Verifier passes")
    ax.legend(loc="lower right", frameon=False)


def draw_tokens(ax: Axes, found: Forecast) -> None:
    """Draws each drafter's expected time a token over K, a ring at the best K."""
    names = sorted(one.drafter for one in found.drafters)
    for one, (name, line) in zip(found.drafters, token_numbers(found).items(), strict=True):
        look = style(names.index(name))
        ax.plot(line.x, line.y, label=f"{plain(name)} (K={one.best_k})", **look)
        best = (line.x[one.best_k], line.y[one.best_k])
        ax.plot(*best, "o", markersize=13, markerfacecolor="none", color=look["color"], markeredgewidth=1.8)
    ax.set(xlabel="draft length K (0: plain decoding)", ylabel="expected time a token (ms)")
    ax.set_ylim(bottom=0)
    ax.set_title(f"Each drafter alone, {found.lanes} lanes")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(ax, "fastest first;\nrings: best K")


def _hit_rate(runs: Sequence[Played]) -> Figure:
    figure, axes = grid(len(runs), 1, 8.4, HEIGHT)
    for ax, run in zip(axes, runs, strict=True):
        draw_hit_rate(ax, run)
    return figure


def _survival(runs: Sequence[Played]) -> Figure:
    figure, (ax,) = grid(1, 1, 8.0, HEIGHT)
    if len(runs) == 1:
        draw_staircase(ax, runs[0])
    else:
        draw_survival(ax, runs)
    return figure


def _diversity(runs: Sequence[Played]) -> Figure:
    figure, (left, right) = grid(1, 2, 5.0 if len(runs) == 1 else 6.0, HEIGHT)
    draw_diversity(left, runs, "mean_distance")
    draw_diversity(right, runs, "union_coverage")
    if len(runs) > 1:
        legend(right, "run")
    else:
        figure.suptitle(f"Diversity by round, {plain(runs[0].label)}")
    return figure


@dataclass(frozen=True, slots=True)
class Kind:
    """A plot that can be asked for by name: what it shows, and how a figure of runs is made."""

    about: str
    figure: Callable[[Sequence[Played]], Figure]


KINDS: dict[str, Kind] = {
    "hit-rate": Kind("hit rate by round of each drafter, with intervals", _hit_rate),
    "survival": Kind("who is left: a staircase for one run, curves over several", _survival),
    "learning": Kind("hit rate against tokens seen", lambda r: draw_all(grid(len(r), 1, 8.4, HEIGHT), r)),
    "diversity": Kind("distance between the drafters' laws, and union coverage, by round", _diversity),
}


def plot(runs: Sequence[Path | str], kind: str, path: Path | str | None = None) -> Path:
    """Draws a plot of finished rounds to a file.

    Args:
        runs: Run directories, or ``latest``.
        kind: A name in ``KINDS``.
        path: Where to; PNG, SVG or PDF by its suffix. By default
            ``plots/<kind>.png`` in the (first) run directory.

    Returns:
        The path written.

    Raises:
        ConfigError: If the kind or the suffix is not known, or the file cannot be written.
        RunError: If a run is missing or has no round yet.
    """
    if kind not in KINDS:
        raise ConfigError(one_of("plot", kind, KINDS))
    directories = [RunDirectory.open(resolve(run)) for run in runs]
    if not directories:
        raise ConfigError("no run to plot: name one, or `latest`.")
    target = Path(path) if path else directories[0].path / "plots" / f"{kind}.png"
    if target.suffix.lower() not in SUFFIXES:
        raise ConfigError(one_of("plot file type", target.suffix, SUFFIXES))
    played = [_played(directory) for directory in directories]
    return _save(KINDS[kind].figure(played), target)


def plot_forecast(found: Forecast, path: Path | str) -> Path:
    """Draws a run's measured passes with their fit, and each drafter's time a token over K.

    Args:
        found: Of the run.
        path: Where to; PNG, SVG or PDF by its suffix.

    Returns:
        The path written.

    Raises:
        ConfigError: If the suffix is not known, or the file cannot be written.
    """
    figure, (left, right) = grid(1, 2, 5.6, HEIGHT)
    draw_passes(left, found)
    draw_tokens(right, found)
    return _save(figure, Path(path))


def _save(figure: Figure, target: Path) -> Path:
    if target.suffix.lower() not in SUFFIXES:
        raise ConfigError(one_of("plot file type", target.suffix, SUFFIXES))
    return save(figure, target)


def _played(directory: RunDirectory) -> Played:
    records = directory.rounds()
    if not records:
        raise RunError(f"{str(directory.path)!r} has no finished round yet: nothing to plot.")
    facts = directory.manifest
    label = f"{facts.get('experiment', directory.path.name)}, seed {facts.get('seed')}"
    return Played(label, records, directory.path)


def _rounds(ax: Axes, first: int, last: int) -> None:
    ax.set_xlim(first - 0.35, last + 0.35)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, nbins=12))


def _or(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value
