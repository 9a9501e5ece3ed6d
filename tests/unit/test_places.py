from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from arena import provenance
from arena.errors import ConfigError, RunError
from arena.places import check_name, default_path, find, latest, resolve
from arena.store import RunDirectory


@pytest.mark.parametrize("name", ["story", "a-b_C9", "x" * 100])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/etc",
        "a/b",
        "a\\b",
        "a\0b",
        "a b",
        "a.b",
        "é",
        "x" * 4096,
        "😀",
        "a\n",
        "~",
        "$HOME",
    ],
)
def test_names_that_could_leave_results_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        default_path(name, "0a1b2c")


def test_the_default_place(tmp_path: Path) -> None:
    noon = datetime(2025, 3, 1, 12, tzinfo=UTC)
    path = default_path("toy", "0a1b2c3d", root=tmp_path, now=noon)
    assert path == tmp_path / "toy" / "20250301-120000-0a1b2c"
    path.mkdir(parents=True)
    assert default_path("toy", "0a1b2c3d", root=tmp_path, now=noon).name == "20250301-120000-0a1b2c-2"


def test_latest_is_the_newest_manifest(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run under"):
        latest(tmp_path)
    for name, created in (("b/old", "2025-01-02"), ("a/new", "2025-01-03"), ("own", "2025-01-01")):
        RunDirectory.create(tmp_path / name, "", {"created": created})
    (tmp_path / "c" / "broken").mkdir(parents=True)
    (tmp_path / "c" / "broken" / "manifest.json").write_text("{")
    assert [path.name for path in find(tmp_path)] == ["own", "old", "new"]
    assert resolve("latest", tmp_path) == latest(tmp_path) == tmp_path / "a" / "new"
    assert resolve("b/old", tmp_path) == resolve(tmp_path / "b" / "old") == tmp_path / "b" / "old"


@pytest.mark.parametrize("run", ["nothing", "a\0b", "x" * 5000, ""])
def test_a_run_that_is_not_there(run: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run at"):
        resolve(run, tmp_path)


def test_the_manifest_says_where_a_run_comes_from() -> None:
    made = provenance.manifest(
        experiment="toy", config_yaml="seed: 1\n", seed=1, argv=["arena", "run"], costs=None
    )
    json.dumps(made, allow_nan=False)
    assert made["config_hash"] == provenance.config_hash("seed: 1\n") != provenance.config_hash("seed: 2\n")
    assert made["versions"]["python"].startswith("3.")
    assert made["versions"]["numpy"]
    assert made["host"]["cpus"] >= 1
    assert made["argv"] == ["arena", "run"]
    assert made["created"].endswith("Z")


def test_no_commit_outside_of_a_source_tree(tmp_path: Path) -> None:
    assert provenance.git_state(tmp_path) is None
