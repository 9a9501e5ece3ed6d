"""Small tournaments for tests: run one, get its directory and champion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arena import config
from arena.crown import Champion
from arena.replayed import make
from arena.store import RunDirectory
from arena.tournament import Watcher, make_backend

TABLE = {"kind": "table", "vocab": 12, "order": 2, "seed": 3, "sharpness": 1.5}


def body(**changes: Any) -> dict[str, Any]:
    """A tournament of four table drafters and a copyist that takes a second."""
    field = {
        "near": {**TABLE, "mix": 0.1, "other_seed": 5},
        "middle": {**TABLE, "mix": 0.4, "other_seed": 6},
        "far": {**TABLE, "mix": 0.8, "other_seed": 7},
        "sure": {**TABLE, "argmax": True},
        "copy": {"kind": "copyist"},
    }
    base: dict[str, Any] = {
        "name": "small",
        "seed": 4,
        "verifier": {**TABLE, "eos": 0},
        "drafters": field,
        "prompts": {"synthetic": 30, "length": 5},
        "rounds": {"prompts": 6, "max_new_tokens": 14},
        "engine": {"draft_length": 3, "lanes": 3},
        "backend": {"kind": "local"},
    }
    for key, value in changes.items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) and key != "drafters" else value
    return base


def run(path: Path, values: dict[str, Any] | None = None, watcher: Watcher | None = None) -> Champion | None:
    """Plays (or goes on with) a tournament at ``path``."""
    experiment = config.build(values or body(), "test")
    if (path / "manifest.json").exists():
        directory = RunDirectory.open(path)
    else:
        directory = RunDirectory.create(path, experiment.to_yaml(), {"created": "2026-01-01T00:00:00Z"})
    backend = make_backend(experiment)
    try:
        return make(experiment, directory, backend, watcher or Watcher()).run()
    finally:
        backend.shutdown()


def files(path: Path) -> dict[str, bytes]:
    """The files that must be the same, byte for byte, whatever the lanes and the backend."""
    found = [path / "rounds.jsonl", *sorted(path.glob("steps/*")), *sorted(path.glob("commits/*"))]
    return {str(file.relative_to(path)): file.read_bytes() for file in found}
