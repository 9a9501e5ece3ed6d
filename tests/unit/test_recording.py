"""Recording: the text depends on seed, prompt and position alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena import config, recording
from arena.errors import ConfigError
from arena.traces import load
from tests import runs


def experiment(**changes: Any) -> config.Experiment:
    return config.build(runs.body(prompts={"synthetic": 10, "length": 5}, **changes), "test")


def test_lanes_and_parts_do_not_change_a_byte(tmp_path, monkeypatch):
    one = recording.record(experiment(), tmp_path / "one.parquet", lanes=8)
    monkeypatch.setattr(recording, "PART", 3)
    two = recording.record(experiment(), tmp_path / "two.parquet", lanes=2)
    assert one.read_bytes() == two.read_bytes()
    assert not two.with_name("two.parquet.parts").exists()


def test_an_interrupted_recording_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "PART", 3)
    whole = recording.record(experiment(), tmp_path / "whole.parquet", lanes=2)
    played = []
    real = recording.play

    def stops(*arguments: Any) -> Any:
        played.append(arguments[0].prompts)
        if len(played) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(recording, "play", stops)
    out = tmp_path / "cut.parquet"
    with pytest.raises(KeyboardInterrupt):
        recording.record(experiment(), out, lanes=2)
    with pytest.raises(ConfigError, match="other settings"):
        recording.record(experiment(seed=5), out, lanes=2)
    recording.record(experiment(), out, lanes=2)
    assert len(played) == 5  # parts 1 and 2, the third cut short, then 3 and 4
    assert out.read_bytes() == whole.read_bytes()
    with pytest.raises(ConfigError, match="does not exist"):
        recording.record(experiment(), out, lanes=2)


def test_a_recording_says_what_replay_must_know(tmp_path):
    path = recording.record(experiment(), tmp_path / "one.parquet", lanes=4)
    for text in load(path).traces:
        assert (text.law, text.source, text.eos, text.fingerprint) == ("sampled", "trace", (0,), "table-12")
        assert len(text.logprobs) == len(text.tokens) <= (text.max_tokens or 0) == 14
        assert (text.finish == "stop") == text.end_logged == (text.tokens[-1] == 0)


def test_its_law_is_the_verifiers(tmp_path: Path):
    from arena.models.table import TableLaw
    from arena.types import Sampling

    path = recording.record(experiment(), tmp_path / "one.parquet", lanes=4)
    law = TableLaw(12, 2, 3, 1.5)
    text = load(path).traces[0]
    for position, token in enumerate(text.tokens):
        expected = law.law((*text.prompt, *text.tokens[:position]), Sampling())[token]
        assert 2.718281828459045 ** text.logprobs[position] == pytest.approx(expected)
