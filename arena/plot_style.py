"""Colours, marks and words of plots; nothing here needs matplotlib.

Colours are those of Okabe & Ito, which colour-blind readers can tell apart; each comes
with a marker and a line style of its own, so that a grey print can be read too.
"""

from __future__ import annotations

from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


def style(number: int) -> dict[str, Any]:
    """Gives the look of the number-th line."""
    colour = number % len(COLOURS)
    turn = (number + number // len(COLOURS)) % len(DASHES)  # an eighth line differs from the first
    return {
        "color": COLOURS[colour],
        "marker": MARKERS[turn],
        "linestyle": DASHES[turn],
        "markersize": 5,
        "linewidth": 1.6,
    }


def plain(text: str) -> str:
    """Makes text safe for matplotlib: no formulae, nothing that hides it, one line, not too long."""
    shown = "".join(character if character.isprintable() else "?" for character in text)[:80]
    return shown.replace("$", r"\$")
