"""Contributions in a run: what is stored, who leaves by them, and that nothing else moves."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from arena import config
from arena.acceptance.contribution import UNIT, shapley_of
from arena.errors import ConfigError
from arena.retirement import LowestContribution, Standings
from arena.roster import resolve
from arena.scoreboard import RoundTally
from arena.store import RunDirectory

from ..runs import body, files, run

BY_WORTH = {"retirement": {"kind": "lowest_contribution"}}
PRICED = {"engine": {"contribution": True, "draft_length": 3, "lanes": 3}}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("priced") / "run"
    run(path, body(**PRICED, **BY_WORTH))
    return path


def every_file(path: Path) -> dict[str, bytes]:
    tables = {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.glob("contributions/*"))}
    return files(path) | tables


def test_the_least_worth_leaves(played: Path) -> None:
    for record in RunDirectory.open(played).rounds():
        worth = record["contribution"]["shapley"]
        assert record["retired"]["drafter"] == min(worth, key=lambda name: worth[name])


@pytest.mark.parametrize(("lanes", "in_flight"), [(1, 1), (2, 3)])
def test_lanes_and_groups_change_nothing(played: Path, tmp_path: Path, lanes: int, in_flight: int) -> None:
    engine = {"engine": {**PRICED["engine"], "lanes": lanes, "in_flight": in_flight}}
    run(tmp_path / "run", body(**engine, **BY_WORTH))
    assert every_file(tmp_path / "run") == every_file(played)


def test_record_and_table_say_the_same(played: Path) -> None:
    run_directory = RunDirectory.open(played)
    for record in run_directory.rounds():
        priced, names = record["contribution"], record["alive"]
        table = run_directory.read_table("contributions", record["round"]).to_pandas()
        steps = run_directory.read_table("steps", record["round"]).to_pandas()
        assert len(priced["worths"]) == 2 ** len(names)
        assert [UNIT * value for value in shapley_of(priced["worths"])] == list(priced["shapley"].values())
        for d, name in enumerate(names):
            rows = table[table.drafter == name]
            assert priced["shapley"][name] == pytest.approx(rows.shapley.sum(), abs=1e-6)
            assert priced["leave_one_out"][name] == pytest.approx(rows.leave_one_out.sum(), abs=1e-6)
            assert priced["coverage_share"][name] == math.fsum(rows.coverage_share)
            # Alone, a drafter is worth what its own chain was expected to keep.
            alone = steps[steps.drafter == name].expected_accepted.sum()
            assert UNIT * priced["worths"][1 << d] == pytest.approx(alone, abs=1e-6)
        joint = table[table.drafter == names[0]].field_worth.sum()
        assert UNIT * priced["worths"][-1] == pytest.approx(joint, abs=1e-6)


def test_pricing_changes_no_text(tmp_path: Path) -> None:
    run(tmp_path / "plain", body(rounds={"max": 1}))
    run(tmp_path / "priced", body(**PRICED, rounds={"max": 1}))
    for kind in ("steps", "commits"):
        name = f"{kind}/round=001.parquet"
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "priced" / name).read_bytes()
    assert not (tmp_path / "plain" / "contributions").exists()
    assert "contribution" not in RunDirectory.open(tmp_path / "plain").rounds()[0]


def test_unpriced_rule_and_wide_fields_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine\.contribution=true"):
        resolve(config.build(body(**BY_WORTH), "test"))
    many = {f"d{i}": {"kind": "copyist"} for i in range(13)}
    with pytest.raises(ConfigError, match="13 drafters; expected at most 12"):
        resolve(config.build(body(drafters=many, **PRICED), "test"))


def test_negative_worths_leave_first_and_ties_go_by_name() -> None:
    standings = Standings(1, ("b", "a", "c"), RoundTally({}, {}), contribution={"a": 0.1, "b": 0.1, "c": 0.2})
    gone = LowestContribution().retire(standings)
    assert gone is not None
    assert gone.drafter == "a"
    standings = Standings(1, ("b", "a"), RoundTally({}, {}), contribution={"a": 0.0, "b": -2.0})
    gone = LowestContribution().retire(standings)
    assert gone is not None
    assert (gone.drafter, gone.numbers["contribution"]) == ("b", -2.0)
    assert LowestContribution().retire(Standings(1, ("a",), RoundTally({}, {}))) is None
