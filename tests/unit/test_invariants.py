"""Invariants are asserted where the numbers are made: each broken build is stopped, and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena import crown
from arena.engines import seats
from arena.metrics import InvariantError
from arena.store import RunDirectory
from arena.verifiers.table import TableVerifier

from ..runs import body, run

QUICK = {"rounds": {"prompts": 3, "max_new_tokens": 8}, "engine": {"calibrate": False}}


def test_a_cache_out_of_step_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TableVerifier.keep

    def forgetful(self: TableVerifier, paths: Any) -> None:
        whole(self, {lane: list(path)[:1] for lane, path in paths.items()})

    monkeypatch.setattr(TableVerifier, "keep", forgetful)
    with pytest.raises(InvariantError, match=r"the verifier's cache holds \d+ of lane \d+, expected \d+"):
        run(tmp_path / "run", body(**QUICK))


def test_commits_that_do_not_add_up_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = seats.VerifierSeat.step

    def greedy(self: Any, request: Any, *drafts: Any) -> Any:
        result = whole(self, request, *drafts)
        first = result.commits[0]
        if first.finish:  # one token more than its lane-step gave
            longer = replace(first, step=replace(first.step, start=first.step.start + 1))
            return replace(result, commits=(longer, *result.commits[1:]))
        return result

    monkeypatch.setattr(seats.VerifierSeat, "step", greedy)
    with pytest.raises(InvariantError):
        run(tmp_path / "run", body(**QUICK))


def test_a_champion_from_nowhere_is_a_fault(tmp_path: Path) -> None:
    run(tmp_path / "run", body(**QUICK))
    rounds = RunDirectory.open(tmp_path / "run").rounds()
    rounds[-1]["alive"] = [
        "ghost" if name != rounds[-1]["retired"]["drafter"] else name for name in rounds[-1]["alive"]
    ]
    with pytest.raises(InvariantError, match="'ghost' was never in the roster"):
        crown.crown(rounds)
    again = [*rounds[:1], *rounds[:1], *rounds[1:]]
    again[-1] = {**again[-1], "alive": RunDirectory.open(tmp_path / "run").rounds()[-1]["alive"]}
    with pytest.raises(InvariantError, match="left twice"):
        crown.crown(again)
