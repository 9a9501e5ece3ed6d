"""The command line as people use it: what is printed where, and how it exits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.cli import app
from arena.errors import ConfigError

QUICK = ["--backend", "local", "rounds.prompts=4", "rounds.max_new_tokens=8"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toy") / "run"
    result = CliRunner().invoke(app, ["run", "toy", "--out", str(path), *QUICK])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == str(path)
    return path


def invoke(*words: str):
    return CliRunner().invoke(app, list(words))


def test_run_leaves_the_directory_of_the_schema(toy: Path) -> None:
    names = {path.name for path in toy.iterdir()}
    assert {
        "config.resolved.yaml",
        "manifest.json",
        "rounds.jsonl",
        "champion.json",
        "steps",
        "commits",
    } <= names
    manifest = json.loads((toy / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert {"schema_version", "seed", "argv", "versions", "host", "created"} <= set(manifest)


def test_show_prints_one_json_object(toy: Path) -> None:
    result = invoke("show", str(toy), "-f", "json")
    body = json.loads(result.stdout)
    assert (body["status"], len(body["rounds"])) == ("complete", 5)
    row = body["rounds"][0]["standings"][0]
    assert {"drafter", "offered", "drafted", "accepted", "hit_rate", "precision", "acceptance_length"} <= set(
        row
    )
    assert body["rounds"][0]["retired"]["drafter"] in body["rounds"][0]["alive"]


def test_show_table_and_csv(toy: Path) -> None:
    table = invoke("show", str(toy)).stdout
    assert "champion" in table
    csv = invoke("show", str(toy), "-f", "csv").stdout.splitlines()
    assert csv[0].startswith("round,drafter,")
    assert len(csv) == 1 + 6 + 5 + 4 + 3 + 2


def test_resume_of_a_finished_run_says_so(toy: Path) -> None:
    before = (toy / "rounds.jsonl").read_bytes()
    result = invoke("resume", str(toy))
    assert result.exit_code == 0
    assert "nothing to do" in result.stderr
    assert (toy / "rounds.jsonl").read_bytes() == before


def test_plot_writes_pictures(toy: Path) -> None:
    result = invoke("plot", str(toy))
    assert result.exit_code == 0, result.output
    assert {p.suffix for p in (toy / "plots").iterdir()} == {".png"}
    assert len(list((toy / "plots").iterdir())) >= 3


def test_dry_run_starts_nothing_and_shows_the_plan(tmp_path: Path) -> None:
    result = invoke("run", "toy", "--dry-run", "engine.draft_length=6", "--seed", "9")
    assert result.exit_code == 0
    for words in ("draft_length: 6", "seed: 9", "roster", "resources", "verifier passes"):
        assert words in result.stdout
    assert invoke("validate", "toy").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "tоy"], "Known:"),
        (["run", "toi"], "Did you mean 'toy'?"),
        (["run", "../experiments/toy"], "unknown experiment"),
        (["run", "toy", "engine.lanez=3"], "Did you mean 'lanes'?"),
        (["run", "toy", "drafters.ada.mixx=3"], "Did you mean 'mix'?"),
        (["run", "toy", "drafters.ada.kind=tabel"], "Did you mean 'table'?"),
        (["run", "toy", "retirement.kind=lowest"], "lowest_hit_rate"),
        (["run", "toy", "rules.score=recursive"], "tree rule"),
        (["run", "toy", "rules.commit=nothing"], "Known:"),
        (["run", "toy", "rules.commit=kseq"], "arena audit"),
        (["run", "toy", "sampling.temperature=-1"], "temperature"),
        (["run", "toy", "sampling.temperature=.nan"], "temperature"),
        (["run", "toy", "sampling.top_p=0"], "top_p"),
        (["run", "toy", "engine.draft_length=0"], "draft_length"),
        (["run", "toy", "name=../up"], "name"),
        (["run", "toy", "oops"], "section.key=value"),
        (["run", "missing.yaml"], "no experiment file"),
        (["run", "toy", "drafters.ada.kind=./nowhere.py:Mine"], "no file"),
        (["run", "toy", "drafters.ada.vocab=31"], "vocabulary"),
    ],
)
def test_mistakes_exit_with_2_and_say_what_is_known(words: list[str], said: str) -> None:
    result = invoke(*words, "--dry-run")
    assert isinstance(result.exception, ConfigError)
    assert result.exception.exit_code == 2
    assert said in str(result.exception)


def test_a_taken_directory_is_never_reused(toy: Path) -> None:
    result = invoke("run", "toy", "--out", str(toy), *QUICK)
    assert isinstance(result.exception, ConfigError)
    assert "never reused" in str(result.exception)


@pytest.mark.parametrize("command", ["run", "validate", "resume", "show", "plot", "ls", "audit", "predict"])
def test_help_teaches(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert len(result.stdout) > 300


def test_the_installed_command_reports_errors_without_a_traceback() -> None:
    got = subprocess.run(
        [sys.executable, "-m", "arena.cli", "run", "toy", "engine.lanez=3"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert got.returncode == 2
    assert got.stdout == ""
    assert "Did you mean 'lanes'?" in got.stderr
    assert "Traceback" not in got.stderr


def test_ls(toy: Path) -> None:
    for what, name in (
        ("drafters", "copyist"),
        ("rules", "recursive"),
        ("experiments", "story"),
        ("runs", ""),
    ):
        result = invoke("ls", what)
        assert result.exit_code == 0
        assert name in result.stdout
