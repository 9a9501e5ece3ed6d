"""Who is champion: a pure function of the stored rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from arena.metrics import Counts, acceptance_length, best_first, hit_rate, require
from arena.records import tally_of

How = Literal["last_survivor", "walkover", "best_at_cap"]


@dataclass(frozen=True, slots=True)
class Champion:
    """The winner of a tournament.

    Attributes:
        champion: Its name.
        how: The last survivor, alone by walkover, or the best when the rounds ran out.
        rounds: Rounds played.
        hit_rate: Of the last round, None if it was offered nothing.
        acceptance_length: Of the last round, tokens a pass.
        ranking: All drafters that were not withdrawn, the champion first, then by how
            late they left.
        withdrawn: Those that crashed or were unusable: censored, not beaten.
    """

    champion: str
    how: How
    rounds: int
    hit_rate: float | None
    acceptance_length: float | None
    ranking: tuple[str, ...]
    withdrawn: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """Plain values for ``champion.json``."""
        return asdict(self)


def alive_after(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Sorted names of those who go on after a round."""
    left = record["retired"]["drafter"] if record["retired"] else None
    return tuple(name for name in record["alive"] if name != left)


def crown(records: Sequence[Mapping[str, Any]]) -> Champion | None:
    """Names the champion of a finished tournament.

    Args:
        records: Of all rounds, oldest first; at least one.

    Returns:
        The champion, or None where every drafter was withdrawn.
    """
    last = records[-1]
    alive = alive_after(last)
    if not alive:
        return None
    counts = tally_of(last).per_drafter
    best = best_first(alive, counts)
    left = [record["retired"]["drafter"] for record in records if record["retired"]]
    how: How = "best_at_cap" if len(alive) > 1 else "walkover" if last["walkover"] else "last_survivor"
    mine = counts.get(best[0], Counts())
    require(best[0] in records[0]["alive"], f"the champion {best[0]!r} was never in the roster")
    require(len({*best, *left}) == len(best) + len(left), f"somebody of {[*best, *left]} left twice")
    return Champion(
        champion=best[0],
        how=how,
        rounds=len(records),
        hit_rate=hit_rate(mine) if mine.offered else None,
        acceptance_length=acceptance_length(mine) if mine.lane_steps else None,
        ranking=(*best, *reversed(left)),
        withdrawn=tuple(item["drafter"] for record in records for item in record["withdrawn"]),
    )
