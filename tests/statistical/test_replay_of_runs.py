"""A live run's verdicts against replay of the very text that it committed, prompt by prompt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.engines import compare
from arena.traces import load
from tests import runs
from tests.replays import agree, build, differences


def big(kinds: dict[str, Any], prompts: int) -> dict[str, Any]:
    """A tournament whose only round is large."""
    rounds = {"prompts": prompts, "max_new_tokens": 20}
    return runs.body(drafters=kinds, prompts={"synthetic": prompts}, rounds=rounds)


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("middle", {}),
        ("middle", {"temperature": 0.7, "top_p": 0.9}),
        ("middle", {"temperature": 0.0}),
        ("copy", {"temperature": 0.7}),
    ],
)
def test_a_roster_of_one_agrees_with_replay_at_its_own_starts(tmp_path, name, sampling):
    kinds = {name: runs.body()["drafters"][name]}
    body = {**big(kinds, 60), "sampling": sampling}
    runs.run(tmp_path / "run", body)
    values = differences(tmp_path / "run", kinds, 3, "own")[name]
    if name == "copy":
        # Point masses: given the text there is no chance left.
        assert np.abs(values[:, 0]).max() < 1e-9
    else:
        agree(values)


def test_verdicts_of_a_field_agree_with_replay_at_its_recorded_starts(tmp_path):
    kinds = runs.body()["drafters"]
    kinds["sixth"] = {**runs.TABLE, "mix": 0.6, "other_seed": 9}
    body = {**big(kinds, 80), "retirement": {"kind": "never"}}
    body["rounds"]["max"] = 1
    runs.run(tmp_path / "run", body)
    found = differences(tmp_path / "run", kinds, 3, "joint")
    assert set(found) == set(kinds)
    for values in found.values():
        agree(values)


@pytest.mark.skipif(
    "DRAFT_ARENA_LOGS" not in os.environ, reason="needs real engines' logs (DRAFT_ARENA_LOGS)"
)
@pytest.mark.parametrize(
    ("log", "temperature", "drafts", "drafted", "accepted"),
    [
        ("vllm_plain", 0.0, 1271, 5062, [354, 221, 168, 132]),
        ("vllm_plain", 1.0, 1109, 4412, [144, 64, 29, 19]),
        ("vllm_ngram4_greedy", 0.0, 1277, 5086, [355, 221, 168, 132]),
        ("vllm_ngram4_t1", 1.0, 477, 1892, [269, 195, 148, 116]),
    ],
)
def test_replay_of_a_real_engines_log_gives_its_known_counts(log, temperature, drafts, drafted, accepted):
    traces = load(Path(os.environ["DRAFT_ARENA_LOGS"]) / f"{log}.jsonl").traces
    chosen = [one for one in traces if one.sampling.temperature == temperature]
    kinds = {"ngram": {"kind": "copyist", "prefer": "earliest"}}
    found = compare.score(chosen, build(kinds), [4], accounting=lambda trace: "engine")
    (row,) = compare.rows(found)
    assert (row["drafts"], row["drafted"], row["accepted"]) == (drafts, drafted, accepted)
