"""A round on a GPU: verifier and a neural drafter share it; skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.store import RunDirectory

from ..runs import body, run


@pytest.mark.gpu
@pytest.mark.model
def test_a_round_on_a_gpu(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    field = {
        "copy": {"kind": "copyist"},
        "cut": {"kind": "steady", "model": "verifier", "device": "cuda"},
    }
    values = body(
        drafters=field,
        rounds={"prompts": 4, "max_new_tokens": 16, "max": 1},
        backend={"kind": "ray"},
    )
    values["verifier"] = {"kind": "hf", "model": "smollm2-135m", "device": "cuda"}
    values["prompts"] = {"path": "mixed", "limit": 8}
    assert run(tmp_path / "run", values) is not None
    record = RunDirectory.open(tmp_path / "run").rounds()[0]
    assert not record["withdrawn"]
    assert record["counts"]["cut"]["accepted"] > 0
