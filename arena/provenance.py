"""Where a run comes from: versions, commit, machine, command line, time.

All of it goes to the manifest and nowhere else: no decision and no score file
depends on a clock or a host.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("draft-arena", "numpy", "scipy", "ray", "torch", "transformers", "pyarrow", "pandas")
"""Distributions whose versions are worth keeping."""


def config_hash(config_yaml: str) -> str:
    """Hashes a resolved config (seed included): SHA-256, hexadecimal."""
    return hashlib.sha256(config_yaml.encode()).hexdigest()


def utc_now() -> str:
    """Gives the time, UTC, ISO 8601 with microseconds: such strings sort by time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def versions() -> dict[str, str | None]:
    """Gives the versions of Python and of ``PACKAGES``, without importing them; None if absent."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Gives the commit of the source tree, and whether it has changes; None outside of one.

    Args:
        folder: Where to look; by default where this package lies.
    """
    folder = folder or Path(__file__).resolve().parent
    try:
        commit, tracked = _git(folder, "rev-parse", "HEAD"), _git(folder, "ls-files", ".")
        if not tracked:  # installed inside somebody else's repository
            return None
        return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def host() -> dict[str, Any]:
    """Gives facts about the machine: system, processor, usable cores, memory (bytes), GPUs."""
    return {
        "name": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory(),
        "gpus": _gpus(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _gpus() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.splitlines() if line.strip()]


def manifest(
    *,
    experiment: str,
    config_yaml: str,
    seed: int,
    argv: Sequence[str] | None = None,
    parent: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Gathers the manifest of a new run.

    Args:
        experiment: Its name.
        config_yaml: The resolved config, as text.
        seed: Of the run.
        argv: The command line; by default that of this process.
        parent: The run that this one goes back to, if any.
        **more: Further fields, e.g. ``costs``; plain JSON values.
    """
    return {
        "experiment": experiment,
        "config_hash": config_hash(config_yaml),
        "seed": seed,
        "created": utc_now(),
        "argv": list(sys.argv if argv is None else argv),
        "versions": versions(),
        "git": git_state(),
        "host": host(),
        "parent": parent,
        **more,
    }
