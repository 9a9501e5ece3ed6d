"""What learners had learnt at each barrier, so that a run can go on from any of them.

``snapshots/round=NNN/<drafter>/<file>``; the last two rounds are kept, since the
newest may have been written for a round whose line never was. Round 0 is what was
bred before the run. A drafter that has left keeps its last snapshot in
``snapshots/last/<drafter>``, from which it can be promoted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

KEPT = 2

Files = Mapping[str, bytes]


def _folder(run: Path, number: int) -> Path:
    return run / "snapshots" / f"round={number:03d}"


def write(run: Path, number: int, learnt: Mapping[str, Files]) -> None:
    """Stores what each learner's ``save`` wrote after a round; all of it or nothing.

    Args:
        run: The run directory.
        number: The round, from 1; 0 for what was bred before the first.
        learnt: Drafter to file name to content; nothing is written if empty.
    """
    if not learnt:
        return
    final = _folder(run, number)
    temporary = final.with_name(f".{final.name}.tmp")
    for stale in (temporary, final):  # of a round that was cut short before its line
        shutil.rmtree(stale, ignore_errors=True)
    for drafter, files in learnt.items():
        (temporary / drafter).mkdir(parents=True)
        for name, content in files.items():
            with open(temporary / drafter / Path(name).name, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    os.replace(temporary, final)
    rounds = sorted(final.parent.glob("round=*"))
    for old in rounds[:-KEPT]:
        for kept in old.iterdir():
            if not any((newer / kept.name).is_dir() for newer in rounds[-KEPT:]):
                place = final.parent / "last" / kept.name
                shutil.rmtree(place, ignore_errors=True)
                place.parent.mkdir(exist_ok=True)
                os.replace(kept, place)
        shutil.rmtree(old)


def read(run: Path, number: int) -> dict[str, dict[str, bytes]]:
    """Gives what :func:`write` stored after a round; empty if nothing was."""
    folder = _folder(run, number)
    if not folder.is_dir():
        return {}
    return {
        drafter.name: {path.name: path.read_bytes() for path in sorted(drafter.iterdir())}
        for drafter in sorted(folder.iterdir())
    }


def last(run: Path, drafter: str) -> Path | None:
    """Gives the folder of the newest snapshot of a drafter of a finished run, or None.

    Of one that was retired it is what it had learnt before its last round.
    """
    root = run / "snapshots"
    for folder in (*sorted(root.glob("round=*"), reverse=True), root / "last"):
        if (folder / drafter).is_dir():
            return folder / drafter
    return None
