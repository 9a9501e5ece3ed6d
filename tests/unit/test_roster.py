"""What is refused when an experiment is read, and how the bound and the rules are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena import acceptance, config
from arena.acceptance.share import chain_share
from arena.commands.results import overview
from arena.errors import ConfigError
from arena.records import summary
from arena.roster import resolve, rule_options, text_is_exact, worker_specs
from arena.store import RunDirectory
from arena.types import Chain

from ..runs import body, run

AUDIT_ONLY = [name for name, rule in acceptance.RULES.items() if not rule.in_run]
TREE = [name for name, rule in acceptance.RULES.items() if rule.in_run and rule.kind == "tree"]


def experiment(**rules: Any) -> config.Experiment:
    sampling = {"temperature": rules.pop("temperature", 1.0), "top_k": rules.pop("top_k", 0)}
    return config.build(body(rules=rules, sampling=sampling), "test")


@pytest.mark.parametrize("name", TREE)
def test_a_tree_rule_cannot_score(name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"rules.score: '{name}' is a tree rule.*speculative.*rules.commit"
    ):
        resolve(experiment(score=name))


@pytest.mark.parametrize("place", ["score", "commit"])
@pytest.mark.parametrize("name", AUDIT_ONLY)
def test_rules_for_siblings_are_for_the_audit(name: str, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"rules.{place}: '{name}' needs several draws.*arena audit"):
        resolve(experiment(**{place: name}))


@pytest.mark.parametrize("place", ["score", "commit"])
def test_greedy_is_refused_where_it_would_keep_nothing(place: str) -> None:
    with pytest.raises(ConfigError, match=rf"rules.{place}: 'greedy'.*temperature=1.0.*temperature=0"):
        resolve(experiment(**{place: "greedy"}))
    resolve(experiment(**{place: "greedy"}, temperature=0))
    resolve(experiment(**{place: "greedy"}, top_k=1))


def test_an_order_is_refused_where_nothing_is_ordered() -> None:
    with pytest.raises(ConfigError, match=r"rules.order is 'overlap', but rules.commit 'speculative'"):
        resolve(experiment(commit="speculative", order="overlap"))
    resolve(experiment(commit="traversal", order="overlap"))


def test_unknown_rules_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'recursive'"):
        resolve(experiment(commit="recursiv"))


def test_goodput_needs_costs() -> None:
    values = body(retirement={"kind": "lowest_goodput"}, engine={"calibrate": False})
    with pytest.raises(ConfigError, match=r"engine.calibrate=true"):
        resolve(config.build(values, "test"))


def test_every_other_rule_can_be_named() -> None:
    for name, rule in acceptance.RULES.items():
        if rule.in_run and name != "greedy":
            resolve(experiment(commit=name, score=name if rule.kind == "chain" else "speculative"))


def test_which_texts_are_exact() -> None:
    exact = {name: text_is_exact(experiment(commit=name)) for name, r in acceptance.RULES.items() if r.in_run}
    lossy = {name for name, value in exact.items() if not value}
    assert lossy == {"top_k_tolerance", "typical", "argmax_match", "margin"}
    assert all(text_is_exact(experiment(commit=name, temperature=0)) for name in lossy)


def test_seats_are_told_to_measure() -> None:
    for measure in (True, False):
        found = config.build(body(rules={"measure_bound": measure}), "test")
        options = worker_specs(found, resolve(found), cpus=2, gpus=0, lanes=3)["verifier"].options
        assert options["measure"] is measure
        assert rule_options(found)["measure"] is measure


@pytest.mark.parametrize(
    ("commit", "low", "high"),
    [("recursive", 0.8, 1.0), ("speculative", 1.0, 1.0), ("point_mass", 0.1, 0.9), ("margin", None, None)],
)
def test_a_run_reports_its_share_of_the_bound(
    tmp_path: Path, commit: str, low: float | None, high: float | None
) -> None:
    run(tmp_path / "run", body(rules={"commit": commit}, rounds={"max": 1, "prompts": 3}))
    (shown,) = overview(RunDirectory.open(tmp_path / "run"))["rounds"]
    if low is None or high is None:
        assert np.isnan(shown["share_of_bound"])
    else:
        assert low - 1e-9 <= shown["share_of_bound"] <= high + 1e-9


def test_no_share_where_it_was_not_asked_for(tmp_path: Path) -> None:
    run(tmp_path / "run", body(rules={"measure_bound": False}, rounds={"max": 1, "prompts": 2}))
    assert np.isnan(summary(RunDirectory.open(tmp_path / "run").rounds()[0])["share_of_bound"])


def test_lossy_runs_say_so(tmp_path: Path) -> None:
    run(tmp_path / "run", body(rules={"commit": "margin"}, rounds={"max": 1, "prompts": 2}))
    shown = overview(RunDirectory.open(tmp_path / "run"))
    assert shown["rules"] == {"score": "speculative", "commit": "margin", "exact": False, "starts": "joint"}


class Fixed:
    """The same target law at every node."""

    def __init__(self, law: list[float]) -> None:
        self._law = np.array(law)

    def law(self, node: int) -> np.ndarray:
        return self._law

    def probs(self, node: int, tokens: np.ndarray) -> np.ndarray:
        return self._law[tokens]


def test_the_share_of_a_chain_by_hand() -> None:
    laws = Fixed([0.5, 0.3, 0.2])
    q = np.array([[0.2, 0.2, 0.6]] * 2)
    chain = Chain(np.array([2, 0], np.int32), np.tile(np.arange(3, dtype=np.int32), (2, 1)), q)
    speculative, point = acceptance.get("speculative"), acceptance.get("point_mass")
    assert isinstance(speculative, acceptance.ChainRule)
    assert isinstance(point, acceptance.ChainRule)
    # One node visited (the first token refused), then two; the bound of one draft is sum min(p, q).
    assert chain_share(speculative, chain, [0, 1, 2], laws, 0) == pytest.approx((0.6, 0.6))  # type: ignore[arg-type]
    assert chain_share(speculative, chain, [0, 1, 2], laws, 2) == pytest.approx((1.2, 1.2))  # type: ignore[arg-type]
    expected = 0.2 * 0.5 + 0.2 * 0.3 + 0.6 * 0.2
    assert chain_share(point, chain, [0, 1, 2], laws, 1) == pytest.approx((2 * expected, 1.2))  # type: ignore[arg-type]
