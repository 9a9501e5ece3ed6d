"""The audit of what cannot be enumerated: a real language model behind the live code.

Sampled: many copies of one prompt are played through the live engine, with drafters whose
laws are given, and the tokens that come out are tested against the model's own law, which
is read off plain forwards. Greedy: several prompts are decoded plainly, a token a pass,
and speculatively, and the first difference is a tie or a fault.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from arena import acceptance
from arena.audit_bench import Bench
from arena.errors import ConfigError
from arena.goodness import Fit, g_test
from arena.prompts import load
from arena.sampling import truncate
from arena.traces.records import first_difference
from arena.types import Floats, Sampling

FALSE_ALARM = 1e-3
"""Odds that an audit of a sound build raises a false alarm, all of its tests together."""

TOLERANCE = {"bfloat16": 0.125, "float16": 0.03, "float32": 1e-3, "float64": 1e-9}
"""Nats between two logits within which another order of sums may decide."""

LOG_ROUNDING = 1e-5
"""Part of a tolerance: logits one step of bf16 apart (0.125 from 16 to 32) are not quite so as logarithms."""

PROMPT = "The quick brown fox"
DRAFT_LENGTH, SUPPORT, FIRSTS = 2, 64, 16
GREEDY_PROMPTS, GREEDY_TOKENS, GREEDY_LENGTH = 6, 48, 4
GREEDY = Sampling(temperature=0.0)

Note = Callable[[str], None]


def _flatter(law: Floats) -> Floats:
    return np.asarray(law**0.5)


def _blurred(law: Floats) -> Floats:
    return np.asarray(law + 1.0 / law.size)


def _argmax(law: Floats) -> Floats:
    return np.asarray(np.arange(law.size) == 0, dtype=np.float64)


_CHANGES: dict[str, Callable[[Floats], Floats]] = {
    "flat": _flatter, "mixed": _blurred, "sure": _argmax,
}  # fmt: skip
"""What three drafters make of the model's own law, its likeliest token first."""


@dataclass(frozen=True, slots=True)
class RuleFit:
    """What the samples say about a rule.

    Attributes:
        rule: Its name.
        claimed_lossless: What it claims.
        first: Test of the first token.
        bigram: Test of the first two tokens.
        alarm: Whether one of the odds is too small to be chance.
        acceptance_length: Tokens a lane-step, the correction or bonus included.
    """

    rule: str
    claimed_lossless: bool
    first: Fit
    bigram: Fit
    alarm: bool
    acceptance_length: float

    @property
    def honest(self) -> bool:
        """Whether the samples agree with the claim to be lossless (a lossy rule claims nothing)."""
        return not (self.claimed_lossless and self.alarm)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a greedy text first differs from plain decoding.

    Attributes:
        prompt: Number of the prompt.
        position: In the output.
        gap: Nats between the plain token's logit and that of the one committed.
        verdict: A tie (within the tolerance) or a fault.
    """

    prompt: int
    position: int
    gap: float
    verdict: Literal["tie", "fault"]


@dataclass(frozen=True, slots=True)
class ModelAudit:
    """What was found.

    Attributes:
        samples: Texts sampled under each rule.
        threshold: Odds below which a single test is an alarm.
        rules: One a rule.
        dtype: The model's number format.
        tolerance: Nats within which greedy decoding may differ.
        greedy_tokens: Tokens compared greedily, up to the first difference of each prompt.
        divergences: Of the greedy texts.
    """

    samples: int
    threshold: float
    rules: tuple[RuleFit, ...]
    dtype: str
    tolerance: float
    greedy_tokens: int
    divergences: tuple[Divergence, ...]

    @property
    def passed(self) -> bool:
        """Whether every lossless claim stands and no greedy text is at fault."""
        return all(rule.honest for rule in self.rules) and all(d.verdict == "tie" for d in self.divergences)


def audit_model(
    target: str,
    options: Mapping[str, Any],
    *,
    rules: Sequence[str] = ("recursive",),
    samples: int = 2000,
    lanes: int = 32,
    note: Note = lambda text: None,
) -> ModelAudit:
    """Audits a verifier.

    Args:
        target: ``"module:Class"`` of the verifier.
        options: Its constructor's; it must hold at least ``lanes`` lanes.
        rules: Commit rules to test.
        samples: Texts to sample under each.
        lanes: Texts sampled at a time.
        note: Shows progress.

    Raises:
        ConfigError: A rule cannot be played, or there are too few samples to tell anything.
    """
    if samples < 100:
        raise ConfigError(f"--samples is {samples}; expected at least 100: fewer could not tell anything.")
    for name in rules:
        rule = acceptance.get(name)
        if not rule.in_run or name == "greedy":
            raise ConfigError(f"rule {name!r} cannot be sampled from one chain a drafter at temperature 1.")
    bench = Bench(target, options, lanes)
    threshold = FALSE_ALARM / (2 * len(rules))
    fits = [_sample(bench, name, samples, threshold, note) for name in rules]
    tokens, divergences = _greedy(bench, note)
    dtype = str(bench.ask("dtype"))
    return ModelAudit(samples, threshold, tuple(fits), dtype, TOLERANCE[dtype], tokens, tuple(divergences))


def _sample(bench: Bench, rule: str, samples: int, threshold: float, note: Note) -> RuleFit:
    context = bench.ask("encode", [((), PROMPT)])[0]
    (first,) = bench.ask("next_laws", [context], Sampling())
    best = np.argsort(-first, kind="stable")[: min(FIRSTS, bench.lanes)].tolist()
    laws = bench.ask("next_laws", [[*context, token] for token in best], Sampling())
    seconds = dict(zip(best, laws, strict=True))
    average = sum(first[token] * law for token, law in seconds.items()) + 1e-12
    bench.seat(_drafters([first, average / average.sum()]))
    bench.ask("play_by", rule, Sampling())
    note(f"{rule}: {samples} texts of {DRAFT_LENGTH + 1} tokens, three drafters")
    prompts = {f"sample {i}": context for i in range(samples)}
    texts, length = bench.play(tuple(_CHANGES), prompts, Sampling(), DRAFT_LENGTH, DRAFT_LENGTH + 1)
    singles = g_test(Counter(text[0] for text in texts.values()), dict(enumerate(first.tolist())))
    pairs: Counter[Any] = Counter(tuple(text[:2]) for text in texts.values())
    fit = g_test(pairs, _bigrams(first, seconds, bench.vocabulary.eos))
    alarm = min(singles.p, fit.p) < threshold
    return RuleFit(rule, acceptance.get(rule).lossless, singles, fit, alarm, length)


def _drafters(laws: Sequence[Floats]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Three drafters near the laws of the output's positions."""
    support, probs = zip(*(truncate(law, SUPPORT) for law in laws), strict=True)
    made = {}
    for name, change in _CHANGES.items():
        changed = [change(row.astype(np.float64)) for row in probs]
        values = [(row / row.sum()).tolist() for row in changed]
        made[name] = ("FixedLaws", {"support": [row.tolist() for row in support], "probs": values})
    return made


def _bigrams(first: Floats, seconds: Mapping[int, Floats], eos: Sequence[int]) -> dict[Any, float]:
    law: dict[Any, float] = {}
    for token, second in seconds.items():
        if token in eos:
            law[(token,)] = float(first[token])
            continue
        for other, prob in enumerate((first[token] * second).tolist()):
            law[token, other] = prob
    return law


def _greedy(bench: Bench, note: Note) -> tuple[int, list[Divergence]]:
    chosen = load("mixed", limit=GREEDY_PROMPTS).prompts
    contexts = bench.ask("encode", [(prompt.messages, prompt.text) for prompt in chosen])
    note(f"greedy: {len(contexts)} prompts, {GREEDY_TOKENS} tokens, plainly and speculatively")
    plain = bench.ask("decode", contexts, GREEDY_TOKENS)
    names = [f"greedy {i}" for i in range(len(contexts))]
    texts = {name: [next(iter(at)) for at in text] for name, text in zip(names, plain, strict=True)}
    common = {"texts": texts, "vocab": bench.vocabulary.size}
    bench.seat(
        {"good": ("KnownTexts", {**common, "wrong": 0.1}), "fair": ("KnownTexts", {**common, "wrong": 0.4})}
    )
    bench.ask("play_by", "recursive", GREEDY)
    found, _ = bench.play(
        ("fair", "good"), dict(zip(names, contexts, strict=True)), GREEDY, GREEDY_LENGTH, GREEDY_TOKENS
    )
    tolerance = TOLERANCE[str(bench.ask("dtype"))]
    divergences, tokens = [], 0
    for prompt, name in enumerate(names):
        same = first_difference(texts[name], found[name])
        tokens += len(texts[name]) if same is None else same
        if same is not None:
            divergences.append(classify(prompt, same, plain[prompt][same], found[name][same], tolerance))
        elif len(texts[name]) != len(found[name]):
            divergences.append(Divergence(prompt, len(found[name]), math.inf, "fault"))
    return tokens, divergences


def classify(
    prompt: int, position: int, scores: Mapping[int, float], got: int, tolerance: float
) -> Divergence:
    """Tells a tie from a fault by the logits of the plain pass.

    Args:
        prompt: Its number.
        position: Where the texts first differ.
        scores: Log-probabilities of the likeliest tokens there, in plain decoding.
        got: The token committed instead of the likeliest.
        tolerance: Nats within which it is a tie.
    """
    gap = max(scores.values()) - scores.get(got, -math.inf)
    return Divergence(prompt, position, gap, "tie" if gap <= tolerance * (1 + LOG_ROUNDING) else "fault")
