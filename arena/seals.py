"""Seals: digests by which a changed byte in a run directory is found.

Each line of ``rounds.jsonl`` carries the digests of the tables that it commits, the
seal of the line before it, and its own; so do the manifest and, for what may hold
clock values or belongs to one machine, ``seals/round=NNN.json``. A seal finds damage.
It keeps nobody out: whoever can write the files can seal them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEY = "seal"
ALONGSIDE = ("config.resolved.yaml", "prompts.parquet")
"""Files of the whole run that each round seals anew."""


def canonical(value: Any) -> str:
    """Writes JSON in the one way that equal values share; NaN and infinities are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def close(value: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """Adds a seal: some facts, and the digest of all that is there, the facts included."""
    return {**value, KEY: {**facts, "self": _self({**value, KEY: facts})}}


def fault(value: Mapping[str, Any], previous: str | None = None) -> str | None:
    """Says what is wrong with a sealed value; None if nothing is, or if it was never sealed.

    Args:
        value: As read back.
        previous: The seal that this one must name as the one before it.
    """
    seal = value.get(KEY)
    if seal is None:
        return None
    if not isinstance(seal, dict) or "self" not in seal:
        return "its seal is unreadable"
    facts = {key: item for key, item in seal.items() if key != "self"}
    if seal["self"] != _self({**value, KEY: facts}):
        return "its seal does not fit what it says"
    if previous is not None and seal.get("previous") != previous:
        return "it does not follow the line before it"
    return None


def bare(value: Mapping[str, Any]) -> dict[str, Any]:
    """The value without its seal."""
    return {key: item for key, item in value.items() if key != KEY}


def own(value: Mapping[str, Any]) -> str:
    """The digest that the next line names; empty for a value that was never sealed."""
    seal = value.get(KEY)
    return str(seal.get("self", "")) if isinstance(seal, dict) else ""


def _self(value: Mapping[str, Any]) -> str:
    return digest(canonical(value).encode())


def place(run: Path, number: int) -> Path:
    """Where the seals of a round lie that cannot be in its line."""
    return run / "seals" / f"round={number:03d}.json"


def beside(run: Path, number: int, timing: bytes) -> str:
    """Seals what a round leaves outside its line: clock values, snapshots, config and prompts.

    Args:
        run: The run directory.
        number: The round, from 1; the first seals what was bred before it, too.
        timing: Its table of clock values.

    Returns:
        The text of the file.
    """
    found = {f"timing/round={number:03d}.parquet": digest(timing)}
    learnt = [run / "snapshots" / f"round={n:03d}" for n in ((0, 1) if number == 1 else (number,))]
    paths = [path for folder in learnt for path in folder.rglob("*") if path.is_file()]
    for path in (*paths, *(run / name for name in ALONGSIDE)):
        if path.is_file():
            found[path.relative_to(run).as_posix()] = digest(path.read_bytes())
    return canonical(close({"files": found})) + "\n"


def files(run: Path, number: int) -> dict[str, str] | None:
    """Digests by relative path that :func:`beside` wrote for a round; None if there are none.

    Raises:
        ValueError: The file is damaged.
    """
    path = place(run, number)
    if not path.is_file():
        return None
    data = path.read_bytes()
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(value, dict) or data != (canonical(value) + "\n").encode() or KEY not in value:
        raise ValueError("it is not as it was written")
    if not isinstance(value.get("files"), dict):
        raise ValueError("it lists no files")
    if (wrong := fault(value)) is not None:
        raise ValueError(wrong)
    return {str(name): str(item) for name, item in value["files"].items()}
