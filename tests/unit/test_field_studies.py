"""Selection rules and replicates on a small field: paired, resumable, honest about small numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena import studies
from arena.errors import ConfigError
from arena.store import RunDirectory
from arena.studies.field_rounds import rounds_of, speeds, tree_sizes
from arena.studies.replicates import LINES, claim, comparisons, leaving
from arena.survival import Departure

from ..runs import body

QUIET = lambda text: None  # noqa: E731


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("base") / "small.yaml"
    small = body(rounds={"prompts": 2, "max_new_tokens": 8}, engine={"calibrate": False})
    small["drafters"] = {name: small["drafters"][name] for name in ("near", "far", "sure")}
    path.write_text(yaml.safe_dump(small), encoding="utf-8")
    return str(path)


def rules(base: str, **changes: Any) -> Any:
    costs = {"fixed": 10.0, "verify": 0.1, "draft": {"near": 1.0, "far": 0.5, "sure": 2.0}}
    values = {"name": "rules", "study": "selection_rules", "base": base, "replicates": 2, "costs": costs}
    values["rules"] = ["lowest_hit_rate", "lowest_goodput", "never"]
    return studies.build({**values, **changes}, "test")


def replicates(base: str, **changes: Any) -> Any:
    values = {"name": "again", "study": "story_replicates", "base": base, "replicates": 3, "keep": False}
    return studies.build({**values, **changes}, "test")


@pytest.fixture(scope="module")
def compared(base: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("rules")
    return out, rules(base).play(out, QUIET)


def test_rules_meet_the_same_first_round(compared: tuple[Path, Any]) -> None:
    _, result = compared
    first = [row for row in result.rows if row["round"] == 1]
    assert len(first) == 3
    assert len({row["length"] for row in first}) == 1
    assert all(row["vs_full"] == 0 for row in first if row["rule"] != "never")
    assert all(row["worth"] == row["best"] == 1.0 for row in first)


def test_rosters_are_priced_on_the_field_and_the_best_is_best(compared: tuple[Path, Any]) -> None:
    _, result = compared
    priced = [row for row in result.rows if row["rule"] != "never"]
    assert {row["alive"] for row in priced} == {3, 2, 1}
    assert all(row["worth"] <= row["best"] + 1e-12 for row in priced)
    assert all(row["per_s"] > 0 for row in result.rows)
    assert {row["alive"] for row in result.rows if row["rule"] == "never"} == {3}
    assert any("elimination by hit rate, 2 left" in note for note in result.notes)


def test_the_figure_is_there_and_a_finished_study_is_only_read(compared: tuple[Path, Any], base: str) -> None:
    out, result = compared
    assert (out / "plots" / "selection.png").stat().st_size > 10_000
    stamps = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.parquet")}
    assert repr(rules(base).play(out, QUIET).rows) == repr(result.rows)
    assert stamps == {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.parquet")}


def test_joint_measures_of_a_round(compared: tuple[Path, Any]) -> None:
    out, _ = compared
    directory = RunDirectory.open(out / "runs" / "lowest_hit_rate" / "seed=0000")
    rows = rounds_of(directory)
    assert [len(row["alive"]) for row in rows] == [3, 2, 1]
    kept = directory.read_table("commits", 1)["n_accepted"].to_pylist()
    assert rows[0]["acceptance_length"] == 1 + sum(kept) / len(kept)
    assert rows[2]["alive"] == [name for name in rows[1]["alive"] if name != rows[1]["left"]]
    assert rows[0]["tokens_per_s"] > rows[0]["tokens_per_s_serial"]


def test_trees_are_counted_by_distinct_prefixes() -> None:
    drafts = [("p", 0, [1, 2]), ("p", 0, [1, 3]), ("p", 0, []), ("p", 4, [5])]
    rows = [{"prompt_id": p, "start": s, "tokens": t} for p, s, t in drafts]
    assert tree_sizes(rows) == [4, 2]
    assert math.isnan(speeds(2.0, ["a"], 5.0, None)["tokens_per_s"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rules": ["lowest_hitrate"]}, "lowest_hit_rate"),
        ({"costs": {"fixed": 1.0, "draft": {"near": 1.0}}}, "no price for 'far'"),
        ({"base": "clone"}, "clones"),
        ({"replicate": 3}, "replicates"),
    ],
)
def test_mistakes_are_named(base: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rules(**{"base": base, **changes})


def test_seeds_are_played_once_and_a_torn_line_again(base: str, tmp_path: Path) -> None:
    study = replicates(base, replicates=2, story={"near": 3})
    whole = study.play(tmp_path / "a", QUIET) if (tmp_path / "a").mkdir() is None else None
    assert whole is not None
    lines = (tmp_path / "a" / LINES).read_bytes()
    assert [json.loads(line)["seed"] for line in lines.splitlines()] == [0, 1]
    assert sum(row["wins"] for row in whole.rows) == 2
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / LINES).write_bytes(lines[:-20])
    notes: list[str] = []
    again = study.play(tmp_path / "b", notes.append)
    assert notes[0] == "1 seeds are played already, 1 are left"
    assert (tmp_path / "b" / LINES).read_bytes() == lines
    assert repr(again.rows) == repr(whole.rows)
    assert (tmp_path / "b" / "plots" / "replicates.png").stat().st_size > 10_000


def test_a_kept_seed_goes_on_from_its_last_round(base: str, tmp_path: Path) -> None:
    study = replicates(base, replicates=1, keep=True)
    study.play(tmp_path, QUIET)
    run = tmp_path / "runs" / "seed=0000"
    lines = (run / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rounds.jsonl").write_bytes(lines[0])
    RunDirectory.open(run).update_manifest(status="interrupted")
    (tmp_path / LINES).write_bytes(b"")
    study.play(tmp_path, QUIET)
    assert (run / "rounds.jsonl").read_bytes() == b"".join(lines)


def test_stories_are_checked(base: str) -> None:
    with pytest.raises(ConfigError, match="near"):
        replicates(base, story={"neer": 1})
    with pytest.raises(ConfigError, match="expected a round from 1 to 3"):
        replicates(base, story={"near": 4})


def seeds(*orders: str) -> list[list[Departure]]:
    """Runs by their order of leaving; the last letter won."""
    return [
        [Departure(name, place, True) for place, name in enumerate(order[:-1], 1)]
        + [Departure(order[-1], len(order) - 1, False)]
        for order in orders
    ]


def test_claims_are_held_against_chance() -> None:
    often = seeds(*["abc"] * 9, "bac")
    assert claim(often, "a", 1, 2, 3)["verdict"] == "reproduced"
    assert claim(often, "c", 3, 2, 3)["times"] == 10
    assert claim(often, "b", 1, 2, 3)["verdict"] == "NOT reproduced: no more often than chance"
    assert "too few seeds" in claim(seeds("abc"), "a", 1, 2, 3)["verdict"]
    mixed = seeds(*["abc"] * 40, *["bac"] * 60)
    assert claim(mixed, "a", 1, 2, 6)["verdict"] == "NOT reproduced, though more often than chance"


def test_departures_are_counted_and_compared_in_pairs() -> None:
    gone = seeds("abc", "abc", "bac", "cab")
    table = leaving(gone, "abc", 2)
    assert [table["a"][key] for key in ("out_1", "out_2", "wins", "mean_round")] == [2, 2, 0, 1.5]
    rows = {(row["a"], row["b"]): row for row in comparisons(gone, "abc")}
    assert rows["a", "b"]["a_later"] == 1
    assert rows["a", "b"]["mean_rounds_later"] == -0.5
    # 1, 1, -1, 1 rounds: |sum| >= 2 in 10 of the 16 ways to choose signs.
    assert rows["a", "b"]["p"] == pytest.approx(10 / 16)
    assert all(row["p_holm"] >= row["p"] for row in rows.values())
