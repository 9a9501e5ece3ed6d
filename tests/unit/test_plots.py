from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from arena.errors import ConfigError, RunError
from arena.plot_numbers import Played, diversity_numbers, ends_of, hit_rate_numbers, survival_numbers
from arena.plot_style import style
from arena.plots import KINDS, plot
from arena.store import RunDirectory


@pytest.fixture(scope="module")
def run(finished: RunDirectory) -> Played:
    return Played("made, seed 0", finished.rounds(), finished.path)


def test_hit_rate_numbers_are_those_of_the_counts(run: Played) -> None:
    numbers = hit_rate_numbers(run)
    assert sorted(numbers) == run.names == ["five", "four", "one", "six", "three", "two"]
    for name, line in numbers.items():
        for number, rate, low, high in zip(line.x, line.y, line.low, line.high, strict=True):
            counts = run.records[int(number) - 1]["counts"][name]
            assert rate == counts["accepted"] / counts["offered"]
            assert 0 <= low <= rate <= high <= 1
    assert numbers["six"].x == (1, 2, 3, 4, 5)
    assert numbers["two"].x == (1,)  # it left in round 1


def test_diversity_numbers_are_means_over_lane_steps(run: Played) -> None:
    numbers, record = diversity_numbers(run), run.records[0]
    pairs = record["lane_steps"] * 15
    assert numbers["mean_distance"].y[0] == math.fsum(record["field"]["distance"]) / pairs
    assert numbers["union_coverage"].y[0] == record["field"]["coverage"] / record["lane_steps"]
    assert numbers["mean_distance"].x == (1, 2, 3, 4, 5)


def test_survival_numbers_over_two_runs(run: Played) -> None:
    shorter = Played("other", run.records[:1])
    numbers = survival_numbers([run, shorter])
    assert numbers["two"].y[:2] == (1.0, 0.0)
    assert numbers["six"].y == (1.0,) * 6
    assert numbers["one"].y[1:3] == (1.0, 0.0)  # of the one run that has a round 2
    assert len(numbers["six"].low) == 6


def test_ends_are_told(run: Played) -> None:
    assert list(ends_of(run).items())[:2] == [("six", "champion"), ("five", "out, round 5")]
    assert set(ends_of(Played("x", run.records[:1])).values()) == {"alive", "out, round 1"}
    broken = {**run.records[1], "withdrawn": [{"drafter": "two", "reason": "crashed"}]}
    first = {**run.records[0], "retired": None}
    assert ends_of(Played("x", [first, broken]))["two"] == "withdrawn, round 2"


def texts(figure: Figure) -> str:
    found: list[Any] = []
    for ax in figure.axes:
        legend = ax.get_legend()
        found += [
            ax.title,
            ax.xaxis.label,
            ax.yaxis.label,
            *ax.texts,
            *(legend.get_texts() if legend else ()),
        ]
    return "\n".join(item.get_text() for item in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("several", [False, True])
def test_every_plot_says_what_it_shows(run: Played, kind: str, several: bool) -> None:
    figure = KINDS[kind].figure(
        [run, replace(run, label="made, seed 1", records=run.records[:3])][: 1 + several]
    )
    said = texts(figure)
    assert all(ax.get_xlabel() and ax.get_ylabel() and ax.get_title() for ax in figure.axes)
    wanted = {"hit-rate": "six (champion)", "survival": "six", "diversity": "√JSD"}.get(kind, "tokens seen")
    assert wanted in said
    if several and kind == "diversity":
        assert "made, seed 1" in said


def test_lines_can_be_told_apart_without_colour() -> None:
    styles = [style(number) for number in range(14)]
    assert len({(style["marker"], str(style["linestyle"])) for style in styles[:7]}) == 7
    assert len({(style["color"], style["marker"]) for style in styles}) == 14


def test_files_are_pictures_of_a_readable_size(finished: RunDirectory, tmp_path: Path) -> None:
    path = plot([finished.path], "survival", tmp_path / "deep" / "er.png")
    picture = imread(path)
    assert picture.shape[0] > 400
    assert picture.shape[1] > 700
    assert 0.001 < (picture[..., :3].min(axis=2) < 0.9).mean() < 0.5  # something is drawn, most is paper
    assert plot([finished.path], "diversity", tmp_path / "a.svg").read_text().startswith("<?xml")


def test_by_default_a_plot_goes_into_the_run(played: Callable[..., RunDirectory], tmp_path: Path) -> None:
    made = played(tmp_path / "run", names=("a", "b"))
    assert plot([made.path], "survival") == made.path / "plots" / "survival.png"


def test_what_cannot_be_drawn_is_refused(finished: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'hit-rate'"):
        plot([finished.path], "hitrate", tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"\.pdf, \.png, \.svg"):
        plot([finished.path], "survival", tmp_path / "a.exe")
    with pytest.raises(ConfigError, match="cannot write"):
        plot([finished.path], "survival", finished.path / "manifest.json" / "a.png")
    with pytest.raises(ConfigError, match="no run"):
        plot([], "survival")
    empty = RunDirectory.create(tmp_path / "empty", "", {})
    with pytest.raises(RunError, match="no finished round"):
        plot([empty.path], "survival")


def test_names_are_no_formulae(run: Played, tmp_path: Path) -> None:
    hostile = Played("$\\frac{$\x1b[31m _x\u202e" + "y" * 500, run.records)
    figure = KINDS["hit-rate"].figure([hostile])
    figure.savefig(tmp_path / "hostile.png")
    assert not {"\x1b", "\u202e"} & set(texts(figure))
