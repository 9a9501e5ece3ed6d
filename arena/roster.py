"""From an experiment to workers: kinds resolved, options checked, vocabularies compared.

Everything here happens before anything is loaded, so that a mistake costs a second
and not a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from arena import acceptance, chaos, registry, retirement
from arena.acceptance.contribution import MOST
from arena.config import Choice, Experiment
from arena.errors import ConfigError
from arena.protocols import WorkerSpec
from arena.sampling import is_greedy
from arena.types import Sampling

VERIFIER_MODEL = "verifier"
"""``model: verifier`` in a drafter's options stands for the verifier's own model."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One worker's class and checked options.

    Attributes:
        kind: As named in the experiment.
        target: ``"module:Class"``.
        options: Checked.
        fingerprint: Vocabulary it is bound to, or None where any will do.
        neural: Whether it runs a model (and would use a GPU).
    """

    kind: str
    target: str
    options: Mapping[str, Any]
    fingerprint: str | None
    neural: bool


@dataclass(frozen=True, slots=True)
class Roster:
    """The checked field: the verifier and the drafters by sorted name."""

    verifier: Seat
    drafters: Mapping[str, Seat]


def resolve(experiment: Experiment) -> Roster:
    """Checks an experiment's kinds, options, rules and vocabularies.

    Raises:
        ConfigError: Naming what is wrong, what is known, and the next step.
    """
    _check_rules(experiment)
    chaos.check(experiment.chaos, list(experiment.drafters))
    verifier = _seat(experiment.verifier, "verifier", registry.VERIFIERS, "verifier kind", None)
    known, model = registry.catalogue(), verifier.options.get("model")
    drafters = {
        name: _seat(choice, f"drafters.{name}", known, "drafter kind", model)
        for name, choice in sorted(experiment.drafters.items())
    }
    for name, seat in drafters.items():
        if seat.fingerprint is not None and seat.fingerprint != verifier.fingerprint:
            raise ConfigError(
                f"drafters.{name}: its vocabulary {seat.fingerprint} is not the verifier's "
                f"{verifier.fingerprint}; a token means the same only in one vocabulary. Give it a model "
                "with the verifier's tokenizer."
            )
    return Roster(verifier, drafters)


def _check_rules(experiment: Experiment) -> None:
    """Refuses rules that are unknown, or that could not do anything sensible in this experiment."""
    rules = experiment.rules
    score, commit = acceptance.get(rules.score), acceptance.get(rules.commit, **rule_options(experiment))
    for place, rule in (("score", score), ("commit", commit)):
        if not rule.in_run:
            raise ConfigError(
                f"rules.{place}: {rule.name!r} needs several draws of one drafter, and a drafter sends one "
                f"chain; it is for `arena audit` only. In a run: {_names(place)}."
            )
        if rule.name == "greedy" and not one_choice(experiment.sampling.record()):
            raise ConfigError(
                f"rules.{place}: 'greedy' keeps a token only where the target law leaves no other choice, "
                f"which at sampling.temperature={experiment.sampling.temperature} is next to nowhere: "
                "every drafter would score 0. Set sampling.temperature=0, or use 'speculative'."
            )
    if isinstance(score, acceptance.TreeRule):
        raise ConfigError(
            f"rules.score: {rules.score!r} is a tree rule, and a score judges one drafter's chain alone; "
            f"expected one of: {_names('score')}. Name {rules.score!r} as rules.commit instead."
        )
    if rules.order != "keyed" and "order" not in rule_options(experiment):
        raise ConfigError(
            f"rules.order is {rules.order!r}, but rules.commit {rules.commit!r} tries no drafters in turn; "
            "expected 'keyed' there, or a commit rule with an order (recursive, traversal)."
        )
    retirement.get(experiment.retirement.kind, **experiment.retirement.options)
    kind, calibrated = experiment.retirement.kind, experiment.engine.calibrate
    by_goodput = kind == "lowest_goodput" or experiment.retirement.options.get("by") == "goodput"
    if by_goodput and (not calibrated or experiment.engine.kind == "replay"):
        raise ConfigError(
            f"retirement.kind {kind!r} by goodput divides by what a step costs, which only a live run with "
            "engine.calibrate=true measures; set that, or retire by hit rate."
        )
    if experiment.retirement.kind == "lowest_contribution" and not experiment.engine.contribution:
        raise ConfigError(
            "retirement.kind 'lowest_contribution' retires by Shapley values, but engine.contribution is "
            "false; set engine.contribution=true, or retire by 'lowest_hit_rate'."
        )
    if experiment.engine.contribution and len(experiment.drafters) > MOST:
        raise ConfigError(
            f"engine.contribution prices every sub-roster, 2^n of them, and there are "
            f"{len(experiment.drafters)} drafters; expected at most {MOST}. Set engine.contribution=false."
        )


def _names(place: str) -> str:
    """The rules that an experiment may name at a place."""
    known = [rule for rule in acceptance.RULES.values() if rule.in_run]
    return ", ".join(rule.name for rule in known if place == "commit" or rule.kind == "chain")


def one_choice(sampling: Sampling) -> bool:
    """Whether the warped target law is always a point mass."""
    return is_greedy(sampling) or sampling.top_k == 1


def text_is_exact(experiment: Experiment) -> bool:
    """Whether the text has exactly the target's law.

    A lossy rule is exact where the law leaves no choice: every rule here keeps a token
    only if the law can give it, and replaces a refused one by a draw from that law.
    """
    return acceptance.RULES[experiment.rules.commit].lossless or one_choice(experiment.sampling.record())


def rule_options(experiment: Experiment) -> dict[str, Any]:
    """The commit rule's options that the experiment sets and the rule has."""
    wanted = {"order": experiment.rules.order, "measure": experiment.rules.measure_bound}
    rule = acceptance.RULES.get(experiment.rules.commit)
    known: list[str] = (
        [field.name for field in fields(rule)] if rule is not None and is_dataclass(rule) else []
    )
    return {name: value for name, value in wanted.items() if name in known}


def _seat(choice: Choice, where: str, known: Mapping[str, str], what: str, model: str | None) -> Seat:
    target = registry.target_of(choice.kind, known, what)
    cls = registry.load_class(target)
    options = dict(choice.options)
    if options.get("model") == VERIFIER_MODEL:
        if model is None:
            raise ConfigError(f"{where}.model is 'verifier', but the verifier has no model of that kind.")
        options["model"] = model
    options = registry.check_options(cls, options, where)
    fingerprint = cls.vocabulary_fingerprint(**options) if hasattr(cls, "vocabulary_fingerprint") else None
    return Seat(choice.kind, target, options, fingerprint, "model" in registry.parameters(cls))


def worker_specs(
    experiment: Experiment, roster: Roster, *, cpus: int, gpus: float, lanes: int
) -> dict[str, WorkerSpec]:
    """How to build every worker of a run.

    With a GPU the verifier and the neural drafters share one by fractions that sum to
    at most 1. On CPU a drafter gets one thread, since drafters run beside each other,
    and the verifier, which runs when they are done, gets every core.
    """
    backend, has_gpu = experiment.backend, gpus > 0
    cores = backend.worker_cpus or 0.0
    neural = [name for name, seat in roster.drafters.items() if seat.neural]
    share = int(1000 * backend.drafter_gpus / len(neural)) / 1000 if neural else 0.0
    total = backend.verifier_gpus + backend.drafter_gpus
    if has_gpu and total > 1:
        raise ConfigError(
            f"backend.verifier_gpus + backend.drafter_gpus is {total}; they share one GPU: at most 1."
        )
    live = "arena.engines.seats"
    held = {"lanes": lanes} if roster.verifier.neural else {}
    specs = {
        "verifier": WorkerSpec(
            f"{live}:VerifierSeat",
            {
                "target": roster.verifier.target,
                "options": {**held, **roster.verifier.options},
                "score": experiment.rules.score,
                "commit": experiment.rules.commit,
                "rule_options": rule_options(experiment),
                "sampling": experiment.sampling.record(),
                "measure": experiment.rules.measure_bound,
                "contribution": experiment.engine.contribution,
            },
            num_cpus=cores,
            num_gpus=backend.verifier_gpus if has_gpu and roster.verifier.neural else 0.0,
            threads=backend.threads or cpus,
        ),
        "scoreboard": WorkerSpec(f"{live}:ScoreboardSeat", {}, num_cpus=cores, threads=1),
    }
    for name, seat in roster.drafters.items():
        specs[name] = WorkerSpec(
            f"{live}:DrafterSeat",
            {"name": name, "target": seat.target, "options": dict(seat.options)},
            num_cpus=cores,
            num_gpus=share if has_gpu and seat.neural else 0.0,
            threads=backend.threads or 1,
        )
    return specs


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will ask of the verifier, before it starts.

    Attributes:
        rounds: At most so many rounds.
        tokens: At most so many committed tokens.
        fewest_passes: If every draft is kept whole.
        most_passes: If none is kept.
        nodes: At most so many tree nodes a pass, all lanes together.
    """

    rounds: int
    tokens: int
    fewest_passes: int
    most_passes: int
    nodes: int


def estimate(experiment: Experiment) -> Estimate:
    """Bounds a run's verifier passes from its numbers alone."""
    rounds, engine = experiment.rounds, experiment.engine
    n = max(1, len(experiment.drafters) - 1)
    if experiment.retirement.kind == "confident":  # it may wait so many rounds for each retirement
        n *= int(experiment.retirement.options.get("cap", retirement.Confident().cap))
    n = min(n, rounds.max) if rounds.max else n
    lanes = min(engine.lanes, rounds.prompts)
    per_round = rounds.prompts * rounds.max_new_tokens
    fewest = -(-rounds.prompts // lanes) * -(-rounds.max_new_tokens // (engine.draft_length + 1))
    most = -(-rounds.prompts // lanes) * rounds.max_new_tokens
    nodes = lanes * (1 + engine.draft_length * len(experiment.drafters))
    return Estimate(n, n * per_round, n * fewest, n * most, nodes)
