"""The audit of a model through the live code: sound builds pass, broken ones are found."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from arena import model_audit, seeding
from arena.acceptance.choices import KeyedChoices
from arena.commands.audit import audit as command
from arena.errors import ConfigError
from arena.model_audit import classify
from arena.verifiers.table import TableVerifier

TABLE = ("arena.verifiers.table:TableVerifier", {"vocab": 16, "order": 2, "seed": 1, "sharpness": 1.5})
SAMPLES = 200


def audit(**changes: Any) -> model_audit.ModelAudit:
    return model_audit.audit_model(*TABLE, **{"samples": SAMPLES, "lanes": 50, **changes})


def test_a_sound_build_passes() -> None:
    found = audit(rules=["recursive", "traversal"], samples=150)
    assert found.passed
    assert [fit.rule for fit in found.rules] == ["recursive", "traversal"]
    assert all(fit.first.samples == 150 and fit.acceptance_length > 1.3 for fit in found.rules)
    assert found.threshold == model_audit.FALSE_ALARM / 4
    assert (found.dtype, found.tolerance, found.divergences) == ("float64", 1e-9, ())
    assert found.greedy_tokens == model_audit.GREEDY_PROMPTS * model_audit.GREEDY_TOKENS


def stuck(*words: Any) -> Any:
    return np.zeros(np.shape(seeding.fold(*words)))


def test_uniforms_stuck_at_zero_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding, "uniform", stuck)
    found = audit()
    assert not found.passed
    assert found.rules[0].first.p < 1e-12


def test_acceptance_uniforms_alone_stuck_at_zero_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Drafts are sampled well, but whatever can be kept is kept.
    monkeypatch.setattr(KeyedChoices, "accept", lambda self, prob, depth, drafter: prob > 0)
    found = audit()
    assert not found.passed
    assert min(found.rules[0].first.p, found.rules[0].bigram.p) < 1e-9


def test_a_lossy_rule_is_seen_but_claims_nothing() -> None:
    found = audit(rules=["argmax_match"], samples=400)
    assert found.rules[0].alarm
    assert found.passed
    assert found.rules[0].honest


def test_a_pass_that_differs_by_its_width_is_a_fault_or_a_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TableVerifier.forward

    def wide(self: TableVerifier, trees: Any, sampling: Any) -> Any:
        laws = whole(self, trees, sampling)
        if sampling.temperature > 0 or max(len(tree.tokens) for tree in trees.values()) == 1:
            return laws
        for law in laws.values():  # the second token wins in wide passes
            second = np.argsort(-law.raw, axis=-1)[:, 1]
            law.target_probs[:] = 0.0
            np.put_along_axis(law.target_probs, second[:, None], 1.0, axis=-1)
        return laws

    monkeypatch.setattr(TableVerifier, "forward", wide)
    found = audit(samples=100)
    assert not found.passed
    assert {one.verdict for one in found.divergences} == {"fault"}
    assert all(one.position == 0 and one.gap > 0 for one in found.divergences)
    monkeypatch.setitem(model_audit.TOLERANCE, "float64", 100.0)
    assert audit(samples=100).passed  # so near that another order of sums may decide


def test_ties_and_faults() -> None:
    scores = {5: -1.0, 7: -1.1, 9: -3.0}
    assert classify(0, 4, scores, 7, 0.125).verdict == "tie"
    assert classify(0, 4, scores, 9, 0.125).verdict == "fault"
    assert classify(0, 4, scores, 1, 0.125).gap == math.inf
    assert classify(2, 4, scores, 7, 0.05).verdict == "fault"
    neighbours = {5: -1.7, 7: -1.8250000087}  # logits one step of bf16 apart, through a softmax in float32
    assert classify(0, 4, neighbours, 7, 0.125).verdict == "tie"


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 100"):
        audit(samples=10)
    for rule in ("kseq", "greedy"):
        with pytest.raises(ConfigError, match=rule):
            audit(rules=[rule])


def test_the_command_states_its_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()
    app.command()(command)
    monkeypatch.setitem(__import__("arena.registry").registry.VERIFIERS, "hf", f"{Path(__file__)}:Stand")
    said = CliRunner().invoke(app, ["--model", "any", "--samples", "100"], catch_exceptions=False)
    assert said.exit_code == 0
    assert "once in 1000 audits" in said.stdout
    assert "0 ties and 0 faults" in said.stdout
    found = CliRunner().invoke(app, ["--model", "any", "--samples", "100", "-f", "json"]).stdout
    body = json.loads(found[found.index("{") :])
    assert body["passed"] is True
    assert body["rules"][0]["rule"] == "recursive"
    assert body["greedy"]["divergences"] == []


class Stand(TableVerifier):
    """A table in the place of a language model."""

    def __init__(self, *, model: str, dtype: str, lanes: int) -> None:
        super().__init__(vocab=16, order=2, seed=1)
