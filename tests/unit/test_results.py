from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from arena.commands import known, results
from arena.commands.output import plain, printable
from arena.errors import ConfigError, RunError
from arena.store import RunDirectory

app = typer.Typer()
for command in (results.show, known.ls, results.plot):
    app.command()(command)


def call(*arguments: str) -> str:
    answer = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_show_as_json_has_the_documented_shape(finished: RunDirectory) -> None:
    found = json.loads(call("show", str(finished.path), "-f", "json"))
    assert list(found) == ["run", "status", "champion", "rules", "costs", "tokens_saved", "pace", "rounds"]
    assert (found["status"], found["champion"], len(found["rounds"])) == ("complete", "six", 5)
    first = found["rounds"][0]
    assert list(first) == ["round", "alive", "retired", "withdrawn", "share_of_bound", "standings"]
    assert first["share_of_bound"] == pytest.approx(0.5 / 0.6)
    assert set(first["retired"]) == {"drafter", "reason"}
    documented = "drafter offered drafted accepted hit_rate precision acceptance_length low high goodput"
    assert list(first["standings"][0]) == documented.split()
    rates = [row["hit_rate"] for row in first["standings"]]
    assert rates == sorted(rates, reverse=True)
    assert first["standings"][-1]["drafter"] == first["retired"]["drafter"] == "two"
    assert first["standings"][0]["goodput"] is None


def test_show_as_csv_is_a_table_of_all_rounds(finished: RunDirectory) -> None:
    rows = list(csv.DictReader(io.StringIO(call("show", str(finished.path), "-f", "csv"))))
    assert len(rows) == 6 + 5 + 4 + 3 + 2
    assert float(rows[0]["hit_rate"]) == int(rows[0]["accepted"]) / int(rows[0]["offered"])
    assert rows[0]["goodput"] == ""


def test_show_for_people(finished: RunDirectory) -> None:
    said = call("show", str(finished.path))
    assert "champion six" in said
    assert "round 5: 2 drafters" in said
    assert "retired two: lowest hit rate" in said


def test_latest_is_understood_and_a_run_in_progress_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="arena run toy"):
        call("show")
    RunDirectory.create(Path("results/toy/run"), "", {"experiment": "toy", "created": "2025"})
    assert "no round is finished yet" in call("show", "latest")
    assert json.loads(call("show", "-f", "json"))["rounds"] == []
    rows = json.loads(call("ls", "runs", "-f", "json"))["runs"]
    assert rows == [
        {
            "run": "results/toy/run", "experiment": "toy", "seed": None, "status": "running",
            "rounds": 0, "champion": None, "created": "2025",
        }
    ]  # fmt: skip


def test_what_others_wrote_cannot_command_the_terminal(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", "", {"error": "[red]\x1b]0;owned\x07 \u202eevil[/red]"})
    said = call("show", str(run.path))
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert r"[red]\x1b]0;owned\x07 \u202eevil[/red]" in said


def test_printable_and_plain() -> None:
    assert printable("naïve 漢字 √") == "naïve 漢字 √"
    assert printable("a\tb\nc\x9b") == r"a\tb\nc\x9b"
    assert plain({"a": [float("nan"), float("inf"), 1.5], "b": (None,)}) == {
        "a": [None, None, 1.5],
        "b": [None],
    }


def test_ls_names_what_can_be_named() -> None:
    rules = {row["rule"]: row for row in json.loads(call("ls", "rules", "-f", "json"))["rules"]}
    assert rules["lowest_hit_rate"]["kind"] == "retirement"
    assert rules["recursive"]["lossless"] is True
    assert "copyist" in call("ls", "drafters")
    assert call("ls", "experiments", "-f", "csv").startswith("experiment,about\n")


def test_a_broken_drafter_of_others_is_listed_as_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.registry.catalogue", lambda: {"theirs": "no_such_module:Thing"})
    row = json.loads(call("ls", "drafters", "-f", "json"))["drafters"][0]
    assert row["about"].startswith("cannot be used")


def test_plot_prints_where_the_pictures_are(finished: RunDirectory, tmp_path: Path) -> None:
    said = call("plot", str(finished.path), "--kind", "survival", "--out", str(tmp_path / "s.png"))
    assert said.strip() == str(tmp_path / "s.png")
    assert (tmp_path / "s.png").stat().st_size > 5000
    said = call("plot", str(finished.path), "--kind", "diversity", "--out", str(tmp_path))
    assert said.strip() == str(tmp_path / "diversity.png")
    with pytest.raises(ConfigError, match="add --kind"):
        call("plot", str(finished.path), "--out", str(tmp_path / "s.png"))
