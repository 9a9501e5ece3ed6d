"""The founding article's table, played on a virtual clock with drafters of known overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from arena.config import Count, Strict
from arena.costs import MAX_K, StepCosts, best_k, required_alpha, time_per_token
from arena.errors import ConfigError
from arena.metrics import interval
from arena.store import RunDirectory
from arena.studies.base import Note, Result, Study
from arena.studies.playing import Job, play
from arena.types import MAX_DRAFTERS

COLUMNS = (
    "k", "alpha", "claimed_ms", "ms", "low", "high", "exact_ms",
    "claimed_x", "x", "fits", "best_k", "best_ms", "q_below_p",
)  # fmt: skip
"""``ms`` a token as played with its 95% interval, and as computed; ``x`` is the speed-up, ``q_below_p`` the
share of drafted tokens with q <= p, ``fits`` whether the computed time is in the claim."""
SLACK = 1e-6
"""Rounding allowed at the ends of a claim, ms: the rates that it needs lie exactly there."""
Rate = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


class Claim(Strict):
    """A row of the article's table: the time a token and the speed-up at one draft length, as ranges."""

    k: Count
    ms: tuple[Positive, Positive]
    speedup: tuple[Positive, Positive]

    def needed(self, target_ms: float, draft_ms: float) -> tuple[float | None, float | None]:
        """Gives the acceptance rates that the slow and the fast end of the claim need."""
        fast, slow = sorted(self.ms)
        return tuple(required_alpha(self.k, ms, target_ms, draft_ms) for ms in (slow, fast))  # type: ignore[return-value]


class Worked(Strict):
    """The article's worked example: time without and with speculation, for so many drafted tokens kept."""

    kept: Count
    plain_ms: Positive
    speculative_ms: Positive


class SeedTable(Study):
    """Plays every claimed draft length at every rate, and at the rates that the claims need.

    Time is virtual: a step of draft length K takes ``target_ms + K draft_ms``. All rates
    of a draft length are drafters of one field in front of one verifier, each with
    exactly that overlap after every context, so they are compared on the same text.
    """

    target_ms: Positive = 100.0
    draft_ms: Annotated[float, Field(ge=0)] = 10.0
    claims: tuple[Claim, ...]
    worked_example: Worked
    rates: tuple[Rate, ...] = (0.5, 0.6, 0.7, 0.8, 0.9)
    prompts: Count = 20
    max_new_tokens: Annotated[int, Field(ge=20)] = 300

    def play(self, out: Path, note: Note) -> Result:
        """Plays one tournament a claimed draft length; nobody is retired."""
        rates = self.all_rates()
        rows = []
        for claim in self.claims:
            note(f"K={claim.k}: {len(rates)} drafters of known overlap in front of one verifier")
            path = out / f"k={claim.k}"
            play(Job(self._tournament(claim.k, rates), str(path)))
            steps = _steps(RunDirectory.open(path), claim.k)
            rows += [self._row(claim, alpha, steps[_name(alpha)]) for alpha in rates]
        return Result(
            title=f"Claimed and reproduced: {self.target_ms:g} ms target, {self.draft_ms:g} ms draft",
            columns=COLUMNS,
            rows=rows,
            notes=[*self._claims(), *self._best(rates), self._worked(), _below(rows)],
            more={
                "needed": [
                    {"k": c.k, "ms": c.ms, "alpha": c.needed(self.target_ms, self.draft_ms)}
                    for c in self.claims
                ],
                "worked_example": self.worked(),
            },
        )

    def all_rates(self) -> tuple[float, ...]:
        """The rates asked for, and those that the claims need, in order."""
        needed = [rate for c in self.claims for rate in c.needed(self.target_ms, self.draft_ms)]
        rates = tuple(sorted({*self.rates, *(rate for rate in needed if rate is not None)}))
        if len(rates) > MAX_DRAFTERS:
            raise ConfigError(
                f"{len(rates)} rates, those that the claims need included; at most {MAX_DRAFTERS}."
            )
        return rates

    def worked(self) -> dict[str, float]:
        """The worked example's speed-up, without the bonus token (as the article has it) and with it."""
        example = self.worked_example
        token_ms = example.plain_ms / example.kept
        return {
            "without_bonus": example.plain_ms / example.speculative_ms,
            "with_bonus": (example.plain_ms + token_ms) / example.speculative_ms,
        }

    def _tournament(self, k: int, rates: Sequence[float]) -> dict[str, Any]:
        table = {"kind": "table", "vocab": 32, "order": 2, "seed": 1, "sharpness": 2.0}
        field = {
            _name(alpha): {**table, "overlap": alpha, "other_seed": 100 + place}
            for place, alpha in enumerate(rates)
        }
        return {
            "name": f"{self.name}_k{k}",
            "seed": self.seed,
            "verifier": table,
            "drafters": field,
            "rules": {"measure_bound": False},
            "retirement": {"kind": "never"},
            "prompts": {"synthetic": self.prompts},
            "rounds": {"prompts": self.prompts, "max_new_tokens": self.max_new_tokens, "max": 1},
            "engine": {"draft_length": k, "lanes": min(self.prompts, 16), "calibrate": False},
            "backend": {"kind": "local"},
        }

    def _row(self, claim: Claim, alpha: float, steps: Steps) -> dict[str, Any]:
        costs = StepCosts(self.target_ms, self.draft_ms)
        step_ms, fastest = costs.step(claim.k), best_k(alpha, costs)
        few, many = interval(steps.tokens, steps.counts, lowest=1.0, highest=claim.k + 1.0)
        ms = step_ms * sum(steps.counts) / sum(steps.tokens)
        exact = time_per_token(claim.k, alpha, costs)
        return {
            "k": claim.k,
            "alpha": alpha,
            "claimed_ms": f"{claim.ms[0]:g}-{claim.ms[1]:g}",
            "ms": ms,
            "low": step_ms / many,
            "high": step_ms / few,
            "exact_ms": exact,
            "claimed_x": f"{claim.speedup[0]:g}-{claim.speedup[1]:g}",
            "x": self.target_ms / ms,
            "fits": "yes" if claim.ms[0] - SLACK <= exact <= claim.ms[1] + SLACK else "no",
            "best_k": fastest,
            "best_ms": time_per_token(fastest, alpha, costs),
            "q_below_p": steps.below / max(1, steps.drafted),
        }

    def _claims(self) -> list[str]:
        costs, said, spans = StepCosts(self.target_ms, self.draft_ms), [], []
        for claim in self.claims:
            low, high = claim.needed(self.target_ms, self.draft_ms)
            if low is None or high is None:
                said.append(
                    f"K={claim.k}: no acceptance rate gives {claim.ms[0]:g}-{claim.ms[1]:g} ms a token."
                )
                continue
            spans.append((low, high))
            others = ", ".join(
                f"K={other.k} would take {time_per_token(other.k, high, costs):.1f}-"
                f"{time_per_token(other.k, low, costs):.1f} ms (claimed {other.ms[0]:g}-{other.ms[1]:g})"
                for other in self.claims
                if other is not claim
            )
            said.append(
                f"K={claim.k}: {claim.ms[0]:g}-{claim.ms[1]:g} ms a token needs an acceptance rate of "
                f"{low:.3f}-{high:.3f}; there, {others}."
            )
        if len(spans) > 1 and max(low for low, _ in spans) > min(high for _, high in spans):
            said.append("No single acceptance rate gives all claimed rows.")
        return said

    def _best(self, rates: Sequence[float]) -> list[str]:
        costs = StepCosts(self.target_ms, self.draft_ms)
        best = {alpha: best_k(alpha, costs) for alpha in rates}
        shown = ", ".join(f"{k}{'+' * (k == MAX_K)} at {alpha:.3f}" for alpha, k in best.items())
        return [f"Best K by acceptance rate: {shown}."]

    def _worked(self) -> str:
        example, found = self.worked_example, self.worked()
        token_ms = example.plain_ms / example.kept
        return (
            f"Worked example: {example.plain_ms:g}/{example.speculative_ms:g} = {found['without_bonus']:.2f}x"
            f" counts {example.kept} kept tokens and leaves out the bonus token of the same pass; with it, "
            f"{example.plain_ms + token_ms:g}/{example.speculative_ms:g} = {found['with_bonus']:.2f}x."
        )


@dataclass(frozen=True, slots=True)
class Steps:
    """A drafter's lane-steps of full draft length (whether one is full hangs on the budget alone).

    Attributes:
        tokens: Tokens gained by prompt, the correction or bonus token included.
        counts: Lane-steps by prompt.
        drafted: Draft tokens.
        below: Those of them with q <= p.
    """

    tokens: list[int]
    counts: list[int]
    drafted: int
    below: int


def _steps(directory: RunDirectory, k: int) -> dict[str, Steps]:
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in directory.read_table("steps", 1).to_pylist():
        if row["n_offered"] == k:
            found.setdefault(row["drafter"], {}).setdefault(row["prompt_id"], []).append(row)
    return {name: _sum(prompts) for name, prompts in found.items()}


def _sum(prompts: Mapping[str, list[Mapping[str, Any]]]) -> Steps:
    rows = [row for part in prompts.values() for row in part]
    target = np.concatenate([row["target_prob"] for row in rows])
    draft = np.concatenate([row["draft_prob"] for row in rows])
    return Steps(
        tokens=[sum(1 + row["n_accepted"] for row in part) for part in prompts.values()],
        counts=[len(part) for part in prompts.values()],
        drafted=len(draft),
        below=int((draft <= target * (1 + 1e-6)).sum()),  # laws are sent in float32
    )


def _name(alpha: float) -> str:
    return f"a{alpha:.4f}".replace(".", "_")


def _below(rows: Sequence[Mapping[str, Any]]) -> str:
    shares = [row["q_below_p"] for row in rows]
    return (
        f"Drafted tokens with q <= p: {min(shares):.2f} of them at the lowest rate here, "
        f"{max(shares):.2f} at the highest; for laws that sum to 1, all of them means q = p."
    )
