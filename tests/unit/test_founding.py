"""The two studies of a founding article's numbers, and the drafters of exact overlap that they use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena import acceptance, config, registry, studies
from arena.acceptance import ChainRule
from arena.errors import ConfigError
from arena.models.table import at_overlap
from arena.studies.margin import MarginTournament
from arena.studies.seed_table import SeedTable
from arena.types import LaneStep, LaneWork, ProposeRequest, Sampling


def study(name: str, **changes: Any) -> Any:
    return studies.build({**config.read(name), **changes}, name)


@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.5, 0.888, 1.0])
def test_overlap_is_hit_after_every_context(overlap: float) -> None:
    rng = np.random.default_rng(0)
    target, other = rng.dirichlet(np.full(8, 0.5), (2, 300))
    target[:50, 3] = 0.0  # a token that the target never says: any overlap can be had
    target /= target.sum(axis=-1, keepdims=True)
    law = at_overlap(target, other, overlap)
    found = np.minimum(target, law).sum(axis=-1)
    assert law.sum(axis=-1) == pytest.approx(1.0)
    assert law.min() >= 0
    assert found == pytest.approx(np.maximum(overlap, target.min(axis=-1)))


def test_overlap_of_equal_laws_is_still_had() -> None:
    target = np.array([0.5, 0.3, 0.2])
    assert np.minimum(target, at_overlap(target, target, 0.7)).sum() == pytest.approx(0.7)
    assert (at_overlap(target, target, 1.0) == target).all()


def test_the_table_drafter_sends_a_law_of_that_overlap() -> None:
    cls = registry.load_class(registry.catalogue()["table"])
    drafter = cls(name="x", vocab=12, seed=3, overlap=0.6, other_seed=9)
    same = cls(name="y", vocab=12, seed=3)
    work = LaneWork(0, LaneStep("p", 0), True, (1, 2, 3), 1)
    request = ProposeRequest(5, Sampling(), (work,))
    laws = []
    for one in (drafter, same):
        draft = one.propose(request)
        dense = np.zeros(12)
        dense[draft.support[0, 0]] = draft.probs[0, 0]
        laws.append(dense)
    assert np.minimum(*laws).sum() == pytest.approx(0.6, abs=1e-6)


def test_overlap_and_mix_are_not_both_given() -> None:
    cls = registry.load_class(registry.catalogue()["table"])
    for bad in ({"overlap": 1.2}, {"overlap": 0.5, "mix": 0.1}):
        with pytest.raises(ConfigError, match="expected one of them"):
            cls(name="x", **bad)


def test_rates_that_the_founding_table_needs() -> None:
    found: SeedTable = study("seed_table")
    first, second = found.claims
    assert first.needed(100, 10) == pytest.approx((0.888, 0.965), abs=5e-4)
    assert second.needed(100, 10) == pytest.approx((0.741, 0.812), abs=5e-4)
    worked = found.worked()
    assert worked["without_bonus"] == pytest.approx(2.857, abs=1e-3)
    assert worked["with_bonus"] == pytest.approx(3.571, abs=1e-3)
    assert len(found.all_rates()) == 9


def test_the_founding_table_reproduced(tmp_path: Path) -> None:
    found: SeedTable = study("seed_table", prompts=8, max_new_tokens=80, rates=[0.5])
    result = found.play(tmp_path, lambda text: None)
    assert len(result.rows) == 2 * 5
    for row in result.rows:
        assert row["low"] <= row["ms"] <= row["high"]
        # Five standard errors and more: the interval is that of 8 prompts.
        assert abs(row["ms"] - row["exact_ms"]) < 3 * (row["high"] - row["low"])
        assert 0 < row["q_below_p"] < 1
    fits = {(row["k"], round(row["alpha"], 3)) for row in result.rows if row["fits"] == "yes"}
    assert fits == {(4, 0.888), (4, 0.965), (8, 0.741), (8, 0.812)}
    said = " ".join(result.notes)
    assert "0.888-0.965" in said
    assert "0.741-0.812" in said
    assert "No single acceptance rate gives all claimed rows." in said
    assert "400/140 = 2.86x" in said
    assert "500/140 = 3.57x" in said
    again = found.play(tmp_path, lambda text: None)  # what is there is used again
    assert again.rows == result.rows


def test_a_claim_that_no_rate_gives(tmp_path: Path) -> None:
    found: SeedTable = study(
        "seed_table",
        claims=[{"k": 2, "ms": [10, 30], "speedup": [3.3, 10]}],
        rates=[0.5],
        prompts=2,
        max_new_tokens=20,
    )
    result = found.play(tmp_path, lambda text: None)
    assert "K=2: no acceptance rate gives 10-30 ms a token." in result.notes


def test_margin_cuts_the_mirror_first_and_moves_the_text(tmp_path: Path) -> None:
    found: MarginTournament = study(
        "margin_tournament",
        overlaps={"mirror": 1.0, "fair": 0.7, "poor": 0.3},
        vocab=4,
        seeds=1,
        contexts=2,
        prompts=8,
        max_new_tokens=20,
    )
    result = found.play(tmp_path, lambda text: None)
    rows = {(row["rule"], row["drafter"]): row for row in result.rows}
    assert rows["speculative", "mirror"]["hit_rate"] == pytest.approx(1.0, abs=0.01)
    assert rows["margin", "mirror"]["hit_rate"] == 0.0
    assert rows["margin", "mirror"]["cut_in_round"] == "1"
    assert rows["speculative", "poor"]["cut_in_round"] == "1"
    assert rows["speculative", "mirror"]["cut_in_round"] == "-"
    assert result.more["text_tv"]["speculative"]["max"] < 1e-12
    assert result.more["text_tv"]["margin"]["mean"] > 0.01
    assert any("cut first, mirror in 1 of 1 seeds" in text for text in result.notes)


def test_the_margin_rule_moves_the_text_by_what_its_golden_says() -> None:
    # p = (.6, .3, .1), q = (.3, .3, .4): the law is (.66, .255, .085), acceptance .15.
    found: MarginTournament = study("margin_tournament", draft_length=1, contexts=1)
    rule = acceptance.get("margin")
    assert isinstance(rule, ChainRule)
    p, q = np.array([0.6, 0.3, 0.1]), np.array([0.3, 0.3, 0.4])
    found_laws = (lambda context: p, {"x": lambda context: q})
    object.__setattr__(found, "_laws", lambda: found_laws)
    alone, field = found.text_distances(rule)
    assert alone["x"] == pytest.approx(0.06)  # of the pair of tokens: the second is the target's own
    assert field == [alone["x"]]


def test_margin_refuses_a_rule_that_judges_trees(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'recursive' judges trees"):
        study("margin_tournament", rules=["recursive"]).play(tmp_path, lambda text: None)
