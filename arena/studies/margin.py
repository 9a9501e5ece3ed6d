"""One tournament under two rules: who is cut first, and what has become of the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from arena import acceptance, seeding
from arena.acceptance import ChainRule
from arena.acceptance.audit import THRESHOLD
from arena.acceptance.enumeration import (
    Independent,
    Law,
    RuleStep,
    Step,
    Text,
    plain_step,
    text_law,
    total_variation,
)
from arena.config import Count
from arena.crown import Champion, crown
from arena.errors import ConfigError
from arena.metrics import hit_rate, pool
from arena.models.table import TableLaw, at_overlap
from arena.records import tally_of
from arena.studies.base import Note, Result, Study
from arena.studies.playing import Job, play
from arena.types import Sampling

COLUMNS = ("rule", "drafter", "overlap", "hit_rate", "cut_in_round", "text_tv")
"""``hit_rate`` of round 1 over all seeds; ``cut_in_round`` by seed, a dash for the champion; ``text_tv`` the
exact total variation of the text with this drafter alone."""
_TABLE = {"order": 2, "seed": 1, "sharpness": 1.5}


class MarginTournament(Study):
    """Plays the same tables under each rule, as score and as commit, over some seeds.

    Each drafter overlaps the verifier by exactly its number after every context. How
    far the text has moved is computed, not sampled: the law of the first K + 1 tokens
    after some contexts, every draft and every choice of the rule summed.
    """

    rules: tuple[str, ...] = ("speculative", "margin")
    overlaps: dict[str, Annotated[float, Field(ge=0, le=1)]]
    vocab: Annotated[int, Field(ge=2, le=8)] = 6
    draft_length: Annotated[int, Field(ge=1, le=3)] = 2
    seeds: Count = 3
    contexts: Count = 4
    prompts: Count = 12
    max_new_tokens: Annotated[int, Field(ge=2)] = 32

    def play(self, out: Path, note: Note) -> Result:
        """Plays ``seeds`` tournaments a rule, and enumerates the text's law."""
        rows: list[dict[str, Any]] = []
        notes: list[str] = []
        moved: dict[str, dict[str, float]] = {}
        for name in self.rules:
            rule = acceptance.get(name)
            if not isinstance(rule, ChainRule):
                raise ConfigError(f"rules: {name!r} judges trees; expected rules that judge one chain.")
            played = []
            for seed in range(self.seed, self.seed + self.seeds):
                note(f"{name}, seed {seed}: {len(self.overlaps)} drafters")
                played.append(play(Job(self._tournament(name, seed), str(out / f"{name}-seed={seed}"))))
            note(f"{name}: the law of the text, by enumeration")
            alone, field = self.text_distances(rule)
            moved[name] = {"mean": float(np.mean(field)), "max": max(field)}
            rows += [self._row(name, drafter, played, alone[drafter]) for drafter in self.overlaps]
            notes.append(_sentence(name, played, moved[name], self.draft_length + 1))
        notes += self._mirrors(rows)
        return Result("The same tournament under each rule", COLUMNS, rows, notes, {"text_tv": moved})

    def text_distances(self, rule: ChainRule) -> tuple[dict[str, float], list[float]]:
        """Gives the exact total variation of the first K + 1 tokens from the target's law.

        Returns:
            With each drafter alone, the mean over contexts; and with the whole field
            (one drafter, any with the same odds, commits at each step) at each context.
        """
        target, drafters = self._laws()
        steps = {name: self._step(rule, target, law) for name, law in drafters.items()}
        budget, plain = self.draft_length + 1, plain_step(target)
        alone: dict[str, list[float]] = {name: [] for name in steps}
        field = []
        for context in self._contexts():
            lossless = text_law(context, budget, (), plain)
            for name, step in steps.items():
                alone[name].append(total_variation(text_law(context, budget, (), step), lossless))
            mixed = partial(_mixed, tuple(steps.values()))
            field.append(total_variation(text_law(context, budget, (), mixed), lossless))
        return {name: float(np.mean(values)) for name, values in alone.items()}, field

    def _laws(self) -> tuple[Law, dict[str, Law]]:
        """The verifier's law and each drafter's, as the tournament's workers have them."""
        model = TableLaw(self.vocab, **_TABLE)  # type: ignore[arg-type]

        @cache
        def target(context: Text) -> Any:
            return model.law(context[-model.order :], Sampling())

        def drafter(place: int, overlap: float) -> Law:
            other = TableLaw(self.vocab, model.order, self._other(place), model.sharpness)

            @cache
            def law(context: Text) -> Any:
                tail = context[-model.order :]
                return at_overlap(target(tail), other.law(tail, Sampling()), overlap)

            return lambda context: law(context[-model.order :])

        laws = {name: drafter(place, overlap) for place, (name, overlap) in enumerate(self.overlaps.items())}
        return lambda context: target(context[-model.order :]), laws

    def _step(self, rule: ChainRule, target: Law, law: Law) -> Step:
        whole = RuleStep(rule, target, Independent([law]), self.draft_length)
        return cache(lambda context, remaining: whole(context, remaining))

    def _contexts(self) -> list[Text]:
        tokens = seeding.uniform(self.seed, "contexts", np.arange(2 * self.contexts)) * self.vocab
        return [tuple(pair) for pair in tokens.astype(int).reshape(-1, 2).tolist()]

    def _other(self, place: int) -> int:
        return 100 + place

    def _tournament(self, rule: str, seed: int) -> dict[str, Any]:
        table = {"kind": "table", "vocab": self.vocab, **_TABLE}
        return {
            "name": f"{self.name}_{rule}",
            "seed": seed,
            "verifier": table,
            "drafters": {
                name: {**table, "overlap": overlap, "other_seed": self._other(place)}
                for place, (name, overlap) in enumerate(self.overlaps.items())
            },
            "rules": {"score": rule, "commit": rule, "measure_bound": False},
            "prompts": {"synthetic": self.prompts * max(1, len(self.overlaps) - 1)},
            "rounds": {"prompts": self.prompts, "max_new_tokens": self.max_new_tokens},
            "engine": {"draft_length": self.draft_length, "lanes": self.prompts, "calibrate": False},
            "backend": {"kind": "local"},
        }

    def _row(
        self, rule: str, drafter: str, played: Sequence[Sequence[Mapping[str, Any]]], distance: float
    ) -> dict[str, Any]:
        counts = [tally_of(records[0]).per_drafter[drafter] for records in played]
        return {
            "rule": rule,
            "drafter": drafter,
            "overlap": self.overlaps[drafter],
            "hit_rate": hit_rate(pool(counts)),
            "cut_in_round": " ".join(_cut(records, drafter) for records in played),
            "text_tv": distance,
        }

    def _mirrors(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        mirrors = [name for name, overlap in self.overlaps.items() if overlap == 1.0]
        return [
            f"{name} is a perfect mirror (q = p): its hit rate is "
            + ", ".join(
                f"{row['hit_rate']:.3f} under {row['rule']}" for row in rows if row["drafter"] == name
            )
            + "."
            for name in mirrors
        ]


def _mixed(
    steps: Sequence[Callable[[Text, int], Mapping[Text, float]]], context: Text, remaining: int
) -> Any:
    """The law of one step in which each drafter commits with the same odds."""
    law: dict[Text, float] = {}
    for step in steps:
        for tokens, prob in step(context, remaining).items():
            law[tokens] = law.get(tokens, 0.0) + prob / len(steps)
    return law


def _cut(records: Sequence[Mapping[str, Any]], drafter: str) -> str:
    gone = [str(r["round"]) for r in records if r["retired"] and r["retired"]["drafter"] == drafter]
    return gone[0] if gone else "-"


def _sentence(
    rule: str, played: Sequence[Sequence[Mapping[str, Any]]], moved: Mapping[str, float], n: int
) -> str:
    first = Counter(records[0]["retired"]["drafter"] for records in played if records[0]["retired"])
    last: Counter[str] = Counter()
    for records in played:
        champion: Champion | None = crown(records)
        last[champion.champion if champion else "nobody"] += 1
    off = f"has moved by a total variation of {moved['mean']:.3f} (at most {moved['max']:.3f})"
    if moved["max"] < THRESHOLD:
        off = f"is the verifier's own (total variation {moved['max']:.0e}, rounding)"
    return (
        f"Under {rule}: cut first, {_counted(first, len(played))}; champion, {_counted(last, len(played))}; "
        f"the exact law of the field's first {n} tokens {off}."
    )


def _counted(names: Counter[str], n: int) -> str:
    return ", ".join(f"{name} in {count} of {n} seeds" for name, count in names.most_common())
