"""The audit tells the truth about every rule, and convicts every broken build."""

from __future__ import annotations

from time import process_time

import broken
import pytest

from arena import acceptance
from arena.acceptance.audit import THRESHOLD, Row, audit, audit_rule, variants
from arena.acceptance.enumeration import Field, Independent, Law
from arena.acceptance.grid import Case, Group, grid, table
from arena.acceptance.rule import ChainRule, TreeRule
from arena.errors import ConfigError

P = table(60, 3)
QS = [table(61, 3), table(62, 3), table(63, 3)]


@pytest.fixture(scope="module")
def timed() -> tuple[list[Row], float]:
    began = process_time()
    return audit(), process_time() - began


@pytest.fixture(scope="module")
def rows(timed: tuple[list[Row], float]) -> list[Row]:
    return timed[0]


def test_every_claim_is_true(rows: list[Row]) -> None:
    assert [row.rule for row in rows if not row.honest] == []
    assert {row.rule for row in rows} == set(acceptance.RULES)
    assert all(row.max_tv < 1e-12 for row in rows if row.claimed_lossless)
    assert all(row.max_tv > 0.01 for row in rows if not row.claimed_lossless)
    assert all(row.cases >= 10 for row in rows)


def test_it_stays_under_a_minute(timed: tuple[list[Row], float]) -> None:
    assert timed[1] < 60  # about 20 s of one slow core


def test_what_the_numbers_say(rows: list[Row]) -> None:
    found = {(row.rule, row.options.get("order", "")): row for row in rows}
    one = {row.rule: row.lengths["one"] for row in rows if "one" in row.lengths}
    assert one["recursive"] == pytest.approx(one["speculative"], abs=1e-12)
    assert one["traversal"] == pytest.approx(one["block"], abs=1e-12)
    assert one["kseq"] == pytest.approx(one["speculative"], abs=1e-12)
    assert one["greedy"] < one["point_mass"] < one["speculative"] < one["block"]
    assert found["speculative", ""].share_of_bound == pytest.approx(1.0, abs=1e-12)
    for order in ("keyed", "standing", "overlap"):
        recursive, traversal = found["recursive", order], found["traversal", order]
        assert recursive.acceptance_length < traversal.acceptance_length
        assert recursive.share_of_bound is not None
        assert 0.9 < recursive.share_of_bound < 1.0
        assert traversal.share_of_bound is None
    assert found["recursive", "overlap"].share_of_bound > found["recursive", "keyed"].share_of_bound


def test_the_grid_is_within_its_limits() -> None:
    names = [case.name for case in grid()]
    assert len(set(names)) == len(names)
    for case in grid():
        vocab = len(case.target(()))
        drafters = len(case.drafters.laws) if isinstance(case.drafters, Independent) else 0
        assert drafters >= 1
        assert vocab ** (case.k * drafters) <= 5000


def test_names() -> None:
    assert [row.rule for row in audit(["greedy"])] == ["greedy"]
    assert len(variants("recursive")) == 3
    with pytest.raises(ConfigError, match="Did you mean 'speculative'"):
        audit(["speculativ"])


BROKEN_RULES: list[ChainRule | TreeRule] = [
    broken.UncappedBlock(),
    broken.TokenwiseBlock(),
    broken.OtherTemperature(),
    broken.ForgottenResidual(),
    broken.StaleResidual(),
    broken.SkippedDuplicate(),
    broken.OrderByToken(),
    broken.OrderByNextToken(),
    broken.SampleABranch(),
]


@pytest.mark.parametrize("rule", BROKEN_RULES, ids=lambda rule: type(rule).__name__)
def test_broken_rules_are_convicted(rule: ChainRule | TreeRule) -> None:
    # The grid's own cases; of the fields only the quick ones.
    cases = [case for case in grid() if case.group == "one" or "three mixed" in case.name]
    row = audit_rule(rule, cases)
    assert row.max_tv > 1e-4 > THRESHOLD
    assert not row.found_lossless
    assert not row.honest


def test_the_frame_of_the_broken_rules_is_sound() -> None:
    assert audit_rule(broken.Walk(), grid()[:12]).found_lossless
    assert audit_rule(broken.Walk(), [Case("three", "field", P, Independent(QS), 2)]).found_lossless


def worst(name: str, fields: list[tuple[Law, Field]], k: int) -> float:
    rule = acceptance.get(name)
    group: Group = "one" if isinstance(rule, ChainRule) else "field"
    cases = [Case(str(n), group, target, drafters, k) for n, (target, drafters) in enumerate(fields)]
    return audit_rule(rule, cases).max_tv


def laws(seed: int, n: int) -> list[Law]:
    return [table(seed * 10 + i, 3) for i in range(n)]


@pytest.mark.parametrize("name", ["recursive", "traversal"])
@pytest.mark.parametrize("k", [1, 2])
def test_drafters_that_share_noise_are_convicted(name: str, k: int) -> None:
    shared = [(table(seed, 3), broken.SharedNoise(laws(seed, 2))) for seed in range(100, 110)]
    assert worst(name, shared, k) > 0.02
    assert worst(name, [(p, Independent(field.laws)) for p, field in shared[:3]], k) < THRESHOLD


@pytest.mark.parametrize("name", ["speculative", "block", "recursive", "traversal"])
def test_a_drafter_that_drops_its_own_unlikely_token_is_convicted(name: str) -> None:
    n = 1 if name in ("speculative", "block") else 2
    dropped = [(table(seed, 3), broken.DropsUnlikely(laws(seed, n), below=0.3)) for seed in range(110, 114)]
    assert worst(name, dropped, 2) > 0.02
    # To stop *after* an unlikely token is allowed.
    stopped = [(p, Independent(field.laws, stop_below=0.3)) for p, field in dropped]
    assert worst(name, stopped, 2) < THRESHOLD


@pytest.mark.parametrize("name", ["point_mass", "greedy"])
def test_rules_without_a_draft_law_do_not_mind(name: str) -> None:
    # Any proposal will do for them, whatever made it, so a dropped token does no harm.
    dropped = [(table(seed, 3), broken.DropsUnlikely(laws(seed, 1), below=0.3)) for seed in range(110, 114)]
    assert worst(name, dropped, 2) < THRESHOLD


def test_a_lossy_rule_that_claims_to_be_lossless_is_dishonest() -> None:
    class Boastful(acceptance.RULES["margin"]):  # type: ignore[misc]
        lossless = True

    row = audit_rule(Boastful(), [Case("one", "one", P, Independent(QS[:1]), 2)])
    assert (row.claimed_lossless, row.found_lossless, row.honest) == (True, False, False)
