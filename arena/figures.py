"""What all figures share: their panels, their legend, and how they are written."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from arena.errors import ConfigError


def grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Makes a figure of panels, row by row.

    Args:
        rows: Of panels.
        columns: Of panels.
        width: Of a panel, inches.
        height: Of a panel, inches.
    """
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for ax in axes:
        ax.grid(axis="y", alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend(ax: Axes, title: str) -> None:
    """Sets the legend beside the panel, where it hides no line."""
    ax.legend(
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        alignment="left",
        title_fontsize="small",
        handlelength=4.0,
    )


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure; the folder is made.

    Raises:
        ConfigError: If it cannot be written.
    """
    FigureCanvasAgg(figure)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write the plot to {str(path)[:200]!r}: {error}.") from error
    return path
