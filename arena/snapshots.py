"""What learners had learnt at each barrier, so that a run can go on from any of them.

``snapshots/round=NNN/<drafter>/<file>``; the last two are kept, since the newest may
have been written for a round whose line never was.
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
        number: The round, from 1.
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
    for old in sorted(final.parent.glob("round=*"))[:-KEPT]:
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
