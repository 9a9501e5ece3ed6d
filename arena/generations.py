"""One generation: a tournament, a promotion, and how far it has gone from the first verifier."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arena import durable, promotion, prompts, seeding, texts
from arena.config import Experiment
from arena.diversity import distinct_n, entropy
from arena.errors import ConfigError
from arena.prompts import Prompt
from arena.records import summary
from arena.store import RunDirectory
from arena.types import Feedback

Note = Callable[[str], None]


def split(experiment: Experiment, held_out: int, vocab: int) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    """Deals an experiment's prompts into those that are played on and those that are measured on.

    Raises:
        ConfigError: Too few are left to play on.
    """
    every = texts.prompt_set(experiment, vocab)
    needed = held_out + experiment.rounds.prompts
    if len(every) < needed:
        raise ConfigError(
            f"{len(every)} prompts, but {held_out} are held out and a round plays "
            f"{experiment.rounds.prompts}: expected at least {needed}. Lower held_out.prompts."
        )
    order = seeding.permutation(seeding.fold(experiment.seed, "held out"), len(every)).tolist()
    ordered = sorted(every, key=lambda prompt: prompt.id)
    aside = set(order[:held_out])
    return (
        tuple(ordered[i] for i in range(len(ordered)) if i not in aside),
        tuple(ordered[i] for i in sorted(aside)),
    )


def write_prompts(path: Path, chosen: tuple[Prompt, ...]) -> None:
    """Writes prompts as a file that an experiment can play on."""
    lines = []
    for prompt in chosen:
        line: dict[str, Any] = {"category": prompt.category}
        if prompt.tokens:
            line["tokens"] = list(prompt.tokens)
        elif prompt.messages:
            line["messages"] = [{"role": role, "content": content} for role, content in prompt.messages]
        else:
            line["text"] = prompt.text
        lines.append(json.dumps(line))
    durable.write(path, "\n".join(lines) + "\n")


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Reads what :func:`write_prompts` wrote."""
    return prompts.load(path).prompts


def measure(
    model: str, first: str, held_out: tuple[Prompt, ...], new_tokens: int, seed: int, note: Note
) -> dict[str, Any]:
    """Measures a generation's verifier beside generation 0 on held-out prompts.

    Args:
        model: The verifier's folder or name.
        first: Generation 0's.
        held_out: Prompts that no generation plays on.
        new_tokens: Most tokens of a text.
        seed: Keys the noise; the same for every generation.
        note: Shows progress.

    Returns:
        Drift on the text of generation 0 (see :class:`arena.models.drift.Drift`), the
        variety of the model's own text, its layers and parameters; nan is None.
    """
    from arena.models import drift, export, load

    reference, net = (load.load_model(name, dtype="float32") for name in (first, model))
    layers, parameters = export.size(net)
    vocab = min(reference.config.vocab_size, net.config.vocab_size)
    note(f"measuring {model} beside {first}")
    old = _texts(reference, first, held_out, new_tokens, seed)
    own = old if model == first else _texts(net, model, held_out, new_tokens, seed)
    found = asdict(drift.compare(reference, net, old, vocab))
    found |= {"law_entropy": found.pop("entropy"), "layers": layers, "parameters": parameters}
    said = [text.tokens for text in own]
    found |= {f"distinct_{n}": distinct_n(said, n) for n in (1, 2, 3)}
    found |= {"text_entropy": entropy(token for text in said for token in text)}
    found |= {"own_tokens": sum(len(text) for text in said)}
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value for key, value in found.items()
    }


def _texts(net: Any, model: str, held_out: tuple[Prompt, ...], new_tokens: int, seed: int) -> list[Feedback]:
    from arena.errors import ModelError
    from arena.models import decode, load
    from arena.models.lanes import LaneModel

    contexts = texts.tokens_of(held_out, model, int(net.config.max_position_embeddings) - new_tokens)
    try:
        tokenizer = load.load_tokenizer(model)
    except ModelError:
        tokenizer = None
    vocab = load.vocab_size(tokenizer) if tokenizer is not None else None
    lanes = LaneModel(net, max(1, len(contexts)), vocab=vocab)
    key = int(seeding.fold(seed, "held-out text"))
    return decode.decode(lanes, contexts, new_tokens, key=key, eos=load.eos_ids(net, tokenizer))


def play(
    values: Mapping[str, Any], path: Path, note: Note, tournament: Callable[[Mapping[str, Any], Path], Any]
) -> dict[str, Any]:
    """Plays what is left of a generation and promotes its champion; nothing is done twice.

    Args:
        values: Plain values of its tournament.
        path: Its run directory.
        note: Shows progress.
        tournament: Plays the values at a path, or goes on there.

    Returns:
        Who won, who was promoted and where to, and the cohort's diversity in round 1.
    """
    folder = path / "promoted"
    lineage = promotion.read_lineage(folder)
    if lineage is None:
        tournament(values, path)
        lineage = dict(promotion.promote(path, measure=False, note=note).lineage)
    directory = RunDirectory.open(path)
    records = directory.rounds()
    opening = summary(records[0])
    by_round = [summary(record) for record in records]
    return {
        "champion": lineage["champion"],
        "promoted": lineage["promoted"],
        "kind": lineage["drafter"]["kind"],
        "hit_rate": lineage["scores"].get("hit_rate"),
        "order_out": [row["retired"] for row in by_round if row["retired"]],
        "mean_distance": opening["mean_distance"],
        "vendi": opening["vendi"],
        "union_coverage": opening["union_coverage"],
        "distance_by_round": [row["mean_distance"] for row in by_round],
        "folder": str(folder),
    }
