"""What importing costs: the light parts load no heavy library."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("ray", "torch", "transformers", "matplotlib", "pandas", "scipy")


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import arena", ()),
        ("import drafters", ()),
        ("import arena.cli", ()),
        ("import arena.engines.seats, drafters.copyist, drafters.sprinter, drafters.table", ()),
        ("import arena.verifiers.hf, drafters.hf, drafters.mirror", ()),
        ("import arena.backends.ray", ("ray",)),
        ("import arena.testing", ()),
    ],
)
def test_no_heavy_import(statement: str, allowed: tuple[str, ...]) -> None:
    code = f"{statement}\nimport sys\nprint([m for m in {HEAVY} if m in sys.modules and m not in {allowed}])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert out.stdout.strip() == "[]"
