"""Generations: each champion becomes the verifier, and six new drafters appear before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from arena import config, durable, generations
from arena.config import BackendSection, Count, Strict
from arena.errors import ConfigError
from arena.studies.base import Note, Result, Study
from arena.studies.playing import Job, base, play

COLUMNS = (
    "generation",
    "layers",
    "kl",
    "tv",
    "perplexity",
    "law_entropy",
    "distinct_2",
    "distinct_3",
    "mean_distance",
    "vendi",
    "promoted",
)
"""What fits a terminal; ``result.json`` holds all."""


class HeldOut(Strict):
    """On what each generation is measured; no generation plays or breeds on these prompts."""

    prompts: Count = 8
    new_tokens: Annotated[int, Field(ge=2)] = 48


class Generations(Study):
    """Plays tournaments in a row.

    Attributes:
        base: The experiment of every generation: a packaged name, or a .yaml file. Its
            drafters must name depth fractions and ``model: verifier`` (a ``cohort`` does).
        changes: Overrides of it, ``section.key=value``.
        generations: Tournaments.
        held_out: See :class:`HeldOut`.
        backend: Where workers run.
    """

    base: str = "story"
    changes: tuple[str, ...] = ()
    generations: Count = 3
    held_out: HeldOut = HeldOut()
    backend: BackendSection = BackendSection()

    @model_validator(mode="after")
    def _playable(self) -> Generations:
        if "model" not in self._values(self.seed)["verifier"]:
            raise ConfigError(
                f"base: {self.base}: its verifier is no language model; expected kind hf with a model, "
                "since a champion must be able to take its place."
            )
        return self

    def play(self, out: Path, note: Note) -> Result:
        """Plays the generations that are not played yet, measures each, and draws them."""
        values = self._values(self.seed)
        first = model = str(values["verifier"]["model"])
        self._deal(values, out / "prompts")
        held = generations.read_prompts(out / "prompts" / "held_out.jsonl")
        rows: list[dict[str, Any]] = []
        for number in range(self.generations + 1):
            row: dict[str, Any] = {"generation": number, "verifier": model}
            row |= self._measured(
                out / "measured" / f"generation={number:03d}.json", model, first, held, note
            )
            if number < self.generations:
                note(f"generation {number}: six drafters before {model}")
                path = out / f"generation={number:03d}"
                row |= generations.play(self._of(number, model, out), path, note, self._tournament(note))
                model = row["folder"]
                note(f"generation {number}: {row['promoted']} is promoted")
            rows.append(row)
        return self._sum_up(rows, out)

    def _values(self, seed: int) -> dict[str, Any]:
        return base(self.base, self.changes, self.backend, seed)

    def _of(self, number: int, model: str, out: Path) -> dict[str, Any]:
        """Gives the values of a generation's tournament."""
        values = self._values(self.seed + number)
        values["name"] = f"{values['name']}-gen{number}"
        values["verifier"] = {**values["verifier"], "model": model}
        values["prompts"] = {"path": str(out / "prompts" / "played.jsonl")}
        return config.build(values, f"generation {number}").plain()

    def _deal(self, values: Mapping[str, Any], folder: Path) -> None:
        if (folder / "held_out.jsonl").is_file():
            return
        from arena.models import load

        folder.mkdir(parents=True, exist_ok=True)
        vocab = int(load.load_config(str(values["verifier"]["model"])).vocab_size)
        played, held = generations.split(config.build(values, self.base), self.held_out.prompts, vocab)
        generations.write_prompts(folder / "played.jsonl", played)
        generations.write_prompts(folder / "held_out.jsonl", held)

    def _measured(self, path: Path, model: str, first: str, held: Any, note: Note) -> dict[str, Any]:
        if path.is_file():
            kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return kept
        found = generations.measure(model, first, held, self.held_out.new_tokens, self.seed, note)
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write(path, json.dumps(found, sort_keys=True, indent=2) + "\n")
        return found

    def _tournament(self, note: Note) -> Callable[[Mapping[str, Any], Path], Any]:
        def closed(record: Mapping[str, Any]) -> None:
            left = record["retired"]["drafter"] if record["retired"] else "nobody"
            note(f"round {record['round']}: {left} leaves, {record['committed']} tokens committed")

        return lambda values, path: play(Job(values, str(path)), closed)

    def _sum_up(self, rows: list[dict[str, Any]], out: Path) -> Result:
        from arena import generation_plots

        pictures = [
            generation_plots.diversity(rows, out / "plots" / "diversity.png"),
            generation_plots.drift(rows, out / "plots" / "drift.png"),
            generation_plots.lineage(rows, out / "plots" / "lineage.png"),
        ]
        last = rows[-1]
        return Result(
            title=f"{self.generations} generations from {rows[0]['verifier']}",
            columns=COLUMNS,
            rows=rows,
            notes=[
                "kl (nats), tv, agreement, perplexity: on generation 0's text after held-out prompts",
                "distinct, text_entropy: of its own text there",
                "mean_distance, vendi: of its cohort in round 1",
                f"after {self.generations} promotions the law is {last['tv']:.2f} away from the first "
                f"verifier's in total variation, with {last['layers']} of {rows[0]['layers']} layers left: "
                "what is lossless within a generation is not across them",
                *(f"figure: {picture}" for picture in pictures),
            ],
        )
