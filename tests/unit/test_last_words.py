"""Last words and paces: read from what a run stored, in a fixed order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.cli import app
from arena.errors import RunError
from arena.last_words import BEFORE, last_words
from arena.pace import pace
from arena.store import RunDirectory

from ..runs import body, run


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    path = tmp_path_factory.mktemp("words") / "run"
    run(path, body(rounds={"prompts": 4, "max_new_tokens": 12}))
    return RunDirectory.open(path)


def test_the_retired_speak_in_their_last_round(played: RunDirectory) -> None:
    left = [record["retired"]["drafter"] for record in played.rounds()]
    found = last_words(played)
    assert list(dict.fromkeys(words.drafter for words in found)) == [
        name for name in left if name in {words.drafter for words in found}
    ]
    for words in found:
        assert words.round == left.index(words.drafter) + 1
        steps = played.read_table("steps", words.round).to_pylist()
        mine = [row for row in steps if row["drafter"] == words.drafter and row["tokens"]]
        (row,) = [r for r in mine if (r["prompt_id"], r["start"]) == (words.prompt_id, words.start)]
        assert tuple(row["tokens"]) == words.drafted
        assert words.target_prob == min(row["target_prob"]) == row["target_prob"][words.place]
        if words == next(one for one in found if one.drafter == words.drafter):
            assert words.target_prob == min(min(r["target_prob"]) for r in mine)


def test_the_verifier_answers_beside_them(played: RunDirectory) -> None:
    for words in last_words(played, ["near"], strangest=2, last=1):
        commits = played.read_table("commits", words.round).to_pylist()
        mine = sorted(
            (row for row in commits if row["prompt_id"] == words.prompt_id), key=lambda row: row["start"]
        )
        text = [token for row in mine for token in row["tokens"]]
        end = words.start + len(words.committed)
        assert text[words.start : end] == list(words.committed)
        assert text[max(0, words.start - BEFORE) : words.start] == list(words.before)
        if words.kind == "last":
            assert end == len(text)


def test_a_word_said_often_is_told_once(played: RunDirectory) -> None:
    strange = [words for words in last_words(played, ["near"], strangest=9) if words.kind == "strangest"]
    tokens = [words.drafted[words.place] for words in strange]
    assert len(set(tokens)) == len(tokens)


def test_strangers_and_empty_runs_are_refused(played: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="near"):
        last_words(played, ["neer"])
    empty = RunDirectory.create(tmp_path / "run", "seed: 1\n", {})
    with pytest.raises(RunError, match="no finished round"):
        last_words(empty)


def test_paces_add_up(played: RunDirectory) -> None:
    rows = pace(played)
    assert {row.drafter for row in rows} == set(played.rounds()[0]["alive"])
    known = [row.ms_per_token for row in rows if row.ms_per_token == row.ms_per_token]
    assert known == sorted(known)
    assert all(0 <= row.answered_first <= 1 and row.passes > 0 for row in rows)
    # In every pass somebody was first, unless nobody said a thing.
    passes = max(row.passes for row in rows)
    assert sum(row.answered_first * row.passes for row in rows) == pytest.approx(passes)


def test_show_prints_both(played: RunDirectory) -> None:
    shown = CliRunner().invoke(app, ["show", str(played.path)])
    assert "answered first" in shown.stdout
    told = json.loads(CliRunner().invoke(app, ["show", str(played.path), "-f", "json"]).stdout)
    assert {"drafter", "ms_per_token", "answered_first", "passes"} == set(told["pace"][0])
    words = CliRunner().invoke(app, ["show", str(played.path), "--last-words"])
    assert "the verifier:" in words.stdout
    rows = json.loads(
        CliRunner().invoke(app, ["show", str(played.path), "--last-words", "-f", "json"]).stdout
    )["last_words"]
    assert rows[0]["drafted"] == " ".join(str(token) for token in rows[0]["drafted_tokens"])
    table = CliRunner().invoke(app, ["show", str(played.path), "--last-words", "-f", "csv"]).stdout
    assert table.startswith("drafter,round,retired,kind,")
    assert len(table.splitlines()) == len(rows) + 1
