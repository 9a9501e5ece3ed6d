"""Text that models or users wrote, made safe to look at."""

from __future__ import annotations


def printable(value: object) -> str:
    """Shows text as it is, but for what a terminal would obey, which is written out as an escape.

    Control sequences, marks that turn the writing direction, and invisible characters
    are all of them not printable by Unicode's account.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in str(value)
    )


def printable_lines(value: object) -> str:
    """The same for text of several lines: line ends stay."""
    return "\n".join(printable(line) for line in str(value).split("\n"))
