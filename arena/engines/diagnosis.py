"""Is an engine's speculation healthy? Checks that need logs and counters alone. Pure.

Each check says its statistic, the odds p that a healthy engine shows one as large, and
a verdict. Odds below ``ODDS`` convict: of a thousand healthy engines, one check convicts
about one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from arena import seeding
from arena.engines.replay import Odds, Shape, Tally, expect, pool, walk
from arena.metrics import ratio
from arena.sampling import is_greedy
from arena.traces.records import Trace, first_difference, law_fault

ODDS = 0.001
"""A check convicts below these odds."""

VOCABULARY = 1 << 18
"""Tokens assumed at most, where a log does not say: no vocabulary in use is larger."""

TIE = 0.25
"""Two greedy choices within so many nats of one another are a tie: two steps of bf16 logits of 16 to 32."""

_STAKES = (0.01, 0.05, 0.2)
_FLIPS = 9999
_WALKS = 199

Says = Literal["healthy", "convicted", "untested"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: Which.
        statistic: What was measured; nan where nothing could be.
        p: Odds of one as large from a healthy engine; nan for exact comparisons.
        verdict: What follows.
        says: One sentence for people.
    """

    name: str
    statistic: float
    p: float
    verdict: Says
    says: str


@dataclass(frozen=True, slots=True)
class Counters:
    """What an engine counted.

    Attributes:
        drafts: Drafts made.
        draft_tokens: Tokens drafted.
        accepted: Drafts that kept at least 1, 2, ... tokens.
    """

    drafts: float
    draft_tokens: float
    accepted: tuple[float, ...]


def verdict(checks: Sequence[Check]) -> str:
    """``convicted`` if any check convicts, ``acquitted`` if one was made, else ``untested``."""
    made = [check.verdict for check in checks if check.verdict != "untested"]
    return "convicted" if "convicted" in made else "acquitted" if made else "untested"


def untested(name: str, why: str) -> Check:
    """A check that could not be made."""
    return Check(name, math.nan, math.nan, "untested", why)


def rarity(traces: Sequence[Trace], vocabulary: int = VOCABULARY) -> Check:
    """Tests that the sampled tokens are as probable as sampled tokens must be.

    At most V tokens have p(x) <= u/V, so P(V p(x) <= u) <= u whatever the law: V p(x) is
    a conservative p-value of each token, 1/(2 sqrt(u)) a fair bet against it (Vovk & Wang
    2021, arXiv 1912.06116), and the capital of many small bets exceeds c with odds of at
    most 1/c (Ville).
    """
    usable = [
        one for one in traces if not is_greedy(one.sampling) and one.logprobs and law_fault(one) is None
    ]
    if not usable:
        return untested("rarity", "no sampled text has the log-probabilities of its own law")
    logs = np.concatenate([np.asarray(one.logprobs)[one.first :] for one in usable])
    with np.errstate(over="ignore"):
        bets = 0.5 * np.exp(-0.5 * np.minimum(0.0, logs + math.log(vocabulary)))
        capital = [float(np.log1p(stake * (np.minimum(bets, 1e300) - 1)).sum()) for stake in _STAKES]
    log_e = max(capital) + math.log(math.fsum(math.exp(c - max(capital)) for c in capital) / len(capital))
    p = min(1.0, math.exp(-min(log_e, 700.0)))
    says = (
        f"{len(logs)} sampled tokens, mean log-probability {logs.mean():.2f}, least {logs.min():.1f}; "
        f"at most {vocabulary} tokens in the vocabulary"
    )
    return Check("rarity", log_e / math.log(10), p, "convicted" if p < ODDS else "healthy", says)


def argmax(traces: Sequence[Trace], vocabulary: int = VOCABULARY) -> Check:
    """Tests that greedy tokens can have been the most probable: of V tokens that one has at least 1/V."""
    logs = [value for one in traces if is_greedy(one.sampling) for value in one.logprobs]
    if not logs:
        return untested("argmax", "no greedy text has log-probabilities")
    wrong = sum(value < -math.log(vocabulary) - 1e-3 for value in logs)
    says = (
        f"{len(logs)} greedy tokens, least log-probability {min(logs):.1f}; {wrong} cannot be the likeliest"
    )
    return Check("argmax", float(wrong), math.nan, "convicted" if wrong else "healthy", says)


def paired(traces: Sequence[Trace], plain: Sequence[Trace]) -> Check:
    """Tests that the text's log-probabilities have not moved against plain decoding of the same prompts.

    Prompts are the units: under a healthy engine a prompt's two texts are exchangeable, so
    the sign of the difference of their mean log-probabilities is a fair coin (an exact
    sign-flip test, two-sided).
    """
    mine, other = _means(traces), _means(plain)
    both = sorted(mine.keys() & other.keys())
    if len(both) < 10:
        return untested("plain", f"{len(both)} sampled prompts in both logs; expected at least 10")
    gaps = np.array([mine[key] - other[key] for key in both])
    flips = np.where(seeding.uniform(0, np.arange(_FLIPS)[:, None], np.arange(len(gaps))) < 0.5, -1.0, 1.0)
    extreme = int((np.abs(flips @ gaps) >= abs(gaps.sum()) - 1e-12).sum())
    p = (1 + extreme) / (_FLIPS + 1)
    says = (
        f"{len(both)} prompts: mean log-probability {np.mean([mine[k] for k in both]):.2f} here, "
        f"{np.mean([other[k] for k in both]):.2f} plain"
    )
    return Check("plain", float(gaps.mean()), p, "convicted" if p < ODDS else "healthy", says)


def _means(traces: Sequence[Trace]) -> dict[tuple[str, object], float]:
    """Mean log-probability a token, by prompt and sampling."""
    found: dict[tuple[str, object], list[float]] = {}
    for one in traces:
        if not is_greedy(one.sampling) and one.logprobs:
            found.setdefault((one.cluster, one.sampling), []).extend(one.logprobs)
    return {key: float(np.mean(values)) for key, values in found.items()}


def greedy(traces: Sequence[Trace], plain: Sequence[Trace], tie: float = TIE) -> Check:
    """Compares greedy texts token by token; a first difference is a tie or a fault.

    Batches change low-precision logits in their last bits, so that two nearly equal
    ones may change places: then both choices are about as probable, each in its own run.
    """
    theirs = {one.prompt_id: one for one in plain if is_greedy(one.sampling)}
    same = ties = faults = 0
    worst = 0.0
    for one in (one for one in traces if is_greedy(one.sampling)):
        other = theirs.get(one.prompt_id)
        if other is None:
            continue
        at = first_difference(one.tokens, other.tokens)
        if at is None:
            same += 1
        elif not (one.logprobs and other.logprobs):
            faults += 1
        else:
            gap = abs(one.logprobs[at] - other.logprobs[at])
            worst = max(worst, gap)
            ties, faults = (ties + 1, faults) if gap <= tie else (ties, faults + 1)
    total = same + ties + faults
    if not total:
        return untested("greedy", "no greedy prompt is in both logs")
    says = f"{total} prompts: {same} the same, {ties} part at a tie, {faults} at a fault"
    says += f" (largest gap {worst:.3f} nats, tie up to {tie})" if ties + faults else ""
    return Check("greedy", float(faults), math.nan, "convicted" if faults else "healthy", says)


def acceptance(
    texts: Sequence[tuple[Shape, Odds]], k: int, counters: Counters, *, sure: bool = False
) -> Check:
    """Compares an engine's counters with a replay of the very text that it committed.

    Given its text, a drafter of point masses leaves nothing to chance, and one that
    samples leaves its coins, which are thrown here. An engine also counts what it kept
    beyond a text's end: at most one more at each position a text.

    Args:
        texts: Each text's shape, and the drafter along it.
        k: Draft length.
        counters: What the engine reported.
        sure: The drafter sends point masses.
    """
    expected = pool([expect(shape, odds, k) for shape, odds in texts], k)
    slack = 2.0 + 0.01 * expected.drafts
    spread = np.zeros(_WALKS) if sure else _coins(texts, k, expected.accepted)
    observed = _outside(counters.accepted, expected.accepted, len(texts))
    p = (1 + int((spread >= observed - slack).sum())) / (_WALKS + 1)
    if observed > slack and float(spread.max(initial=0.0)) < observed - slack:
        p = min(p, ODDS / 2)  # no walk comes near: the odds are below what the walks can resolve
    shown = ", ".join(f"{value:.0f}" for value in expected.accepted)
    says = (
        f"accepted by position: predicted [{shown}] of {expected.drafts:.0f} drafts, reported "
        f"[{', '.join(f'{value:.0f}' for value in counters.accepted)}] of {counters.drafts:.0f}"
    )
    return Check("acceptance", observed, p, "convicted" if p < ODDS else "healthy", says)


def _coins(texts: Sequence[tuple[Shape, Odds]], k: int, expected: Sequence[float]) -> np.ndarray:
    """How far walks with coins fall from their expectation, in the measure of :func:`_outside`."""
    found = []
    for number in range(_WALKS):
        kept = np.zeros(k)
        for index, (shape, odds) in enumerate(texts):
            coins = seeding.uniform(number, index, np.arange(shape.length + 1)).tolist()
            for step in walk(shape, odds, k, coins.__getitem__):
                kept[: step.accepted] += 1
        found.append(_outside(kept.tolist(), expected, len(texts)))
    return np.array(found)


def _outside(reported: Sequence[float], expected: Sequence[float], beyond: int) -> float:
    """Largest distance of a position's count from [expected, expected + beyond]."""
    pairs = list(zip(reported, expected, strict=False))
    return max((max(want - got, got - want - beyond, 0.0) for got, want in pairs), default=0.0)


def against_plain(plain: Mapping[str, Tally], k: int, counters: Counters) -> Check:
    """Compares an engine's mean accepted length with what replay of a plain log predicts.

    Both are sums over the same prompts, of equal variance if the engine is healthy: the
    gap of the two ratios over sqrt(2) times the clustered standard error is about normal.
    """
    kept = np.array([tally.kept for tally in plain.values()])
    drafts = np.array([tally.drafts for tally in plain.values()])
    n, total = len(kept), float(drafts.sum())
    if n < 10 or not total:
        return untested("acceptance_plain", f"{n} plain prompts; expected at least 10 with drafts")
    rate, reported = ratio(float(kept.sum()), total), ratio(math.fsum(counters.accepted), counters.drafts)
    error = math.sqrt(2 * n / (n - 1) * float(((kept - rate * drafts) ** 2).sum())) / total
    z = abs(reported - rate) / error if error else math.inf if reported != rate else 0.0
    p = math.erfc(z / math.sqrt(2))
    says = f"accepted a draft: {rate:.3f} predicted from plain text, {reported:.3f} reported"
    return Check("acceptance_plain", reported - rate, p, "convicted" if p < ODDS else "healthy", says)
