"""Where runs are: names that cannot leave ``results/``, and what a user may type for RUN."""

from __future__ import annotations

import contextlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from arena.errors import ConfigError, RunError

ROOT = Path("results")
MANIFEST = "manifest.json"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)


def check_name(name: str, what: str = "experiment name") -> str:
    """Gives back a name that cannot leave its folder: letters, digits, dash, underscore.

    Raises:
        ConfigError: If it holds anything else, nothing, or more than 100 characters.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what} {name[:60]!r} cannot be used: expected 1 to 100 of letters A-Z a-z, digits, '-' and '_'."
        )
    return name


def default_path(
    experiment: str, config_hash: str, *, root: Path | str = ROOT, now: datetime | None = None
) -> Path:
    """Gives ``root/<experiment>/<UTC yyyymmdd-hhmmss>-<6 hex>``, a path that does not exist yet.

    Raises:
        ConfigError: If the experiment's name could leave ``root``.
    """
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    stem = f"{moment:%Y%m%d-%H%M%S}-{check_name(config_hash[:6], 'config hash')}"
    folder = Path(root) / check_name(experiment)
    path, copies = folder / stem, 1
    while path.exists():
        copies += 1
        path = folder / f"{stem}-{copies}"
    return path


def find(root: Path | str = ROOT) -> list[Path]:
    """Lists the run directories under ``root``, oldest first (by the manifest's ``created``)."""
    found = []
    for pattern in (f"*/{MANIFEST}", f"*/*/{MANIFEST}"):
        for path in Path(root).glob(pattern):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                created = json.loads(path.read_text(encoding="utf-8")).get("created", "")
                found.append((str(created), str(path.parent)))
    return [Path(path) for _, path in sorted(found)]


def latest(root: Path | str = ROOT) -> Path:
    """Gives the run directory with the newest manifest.

    Raises:
        RunError: If there is none.
    """
    runs = find(root)
    if not runs:
        raise RunError(f"no run under {str(root)!r} yet: start one with `arena run toy`.")
    return runs[-1]


def resolve(run: str | Path, root: Path | str = ROOT) -> Path:
    """Turns what a user typed for RUN (``latest``, a path, or a path below ``root``) into a directory.

    Raises:
        RunError: If no run is there.
    """
    if str(run) == "latest":
        return latest(root)
    with contextlib.suppress(OSError, ValueError):  # too long, or NUL
        for path in (Path(run), Path(root) / run):
            if (path / MANIFEST).is_file():
                return path
    raise RunError(
        f"no run at {str(run)[:200]!r}: expected a directory with a {MANIFEST}, or 'latest'. "
        "`arena ls runs` shows the runs there are."
    )
