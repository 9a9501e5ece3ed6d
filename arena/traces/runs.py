"""Every live run is a trace: its commits, under the prompts that it wrote down at its start."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from arena import durable, tables
from arena.errors import ConfigError, RunError
from arena.store import RunDirectory
from arena.traces.records import Loaded, Trace
from arena.types import Sampling, Vocabulary

PROMPTS = "prompts.parquet"


def write_prompts(
    folder: Path, tokens: Mapping[str, Sequence[int]], categories: Mapping[str, str], vocabulary: Vocabulary
) -> None:
    """Writes a run's prompts as token ids, with what a reader must know of the vocabulary."""
    import pyarrow as pa

    names = sorted(tokens)
    rows = {
        "prompt_id": names,
        "tokens": [list(tokens[name]) for name in names],
        "category": [categories.get(name, "") for name in names],
    }
    columns = [("prompt_id", pa.string()), ("tokens", pa.list_(pa.int32())), ("category", pa.string())]
    facts = {"fingerprint": vocabulary.fingerprint, "eos": " ".join(map(str, vocabulary.eos))}
    with durable.replacing(folder / PROMPTS) as temporary:
        tables.write(pa.Table.from_pydict(rows, schema=pa.schema(columns, metadata=facts)), temporary)


def read(folder: Path, rounds: Sequence[int] | None = None) -> Loaded:
    """Reads a run's rounds as texts, their steps' starts included.

    Args:
        folder: A run directory.
        rounds: Which rounds; all by default.

    Raises:
        ConfigError: The run keeps no prompts, or its rule bends the law.
    """
    directory = RunDirectory.open(folder)
    body = yaml.safe_load(directory.config_yaml)
    if not isinstance(body, dict) or "rounds" not in body or not (folder / PROMPTS).is_file():
        raise ConfigError(
            f"{str(folder)!r} keeps no {PROMPTS}, so its text has no contexts; "
            "expected a tournament's run directory."
        )
    prompts = tables.read(folder / PROMPTS)
    facts = {key.decode(): value.decode() for key, value in (prompts.schema.metadata or {}).items()}
    known = {row["prompt_id"]: row for row in prompts.to_pylist()}
    stored = [record["round"] for record in directory.rounds()]
    found = [
        _trace(list(rows), known, facts, body, number)
        for number in stored
        if rounds is None or number in rounds
        for _, rows in itertools.groupby(
            directory.read_table("commits", number).to_pylist(), key=lambda row: row["prompt_id"]
        )
    ]
    if not found:
        raise RunError(f"{str(folder)!r} has no finished round yet; expected at least one.")
    return Loaded(tuple(found))


def _trace(
    rows: Sequence[Mapping[str, Any]],
    known: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, str],
    body: Mapping[str, Any],
    number: int,
) -> Trace:
    name, finish = rows[0]["prompt_id"], rows[-1]["finish"]
    tokens = tuple(token for row in rows for token in row["tokens"])
    rule = str(body["rules"]["commit"])
    max_tokens = int(body["rounds"]["max_new_tokens"])
    return Trace(
        # A prompt that is played again in a later round is a text of its own.
        prompt_id=f"{name}-r{number}",
        prompt=tuple(known[name]["tokens"]),
        tokens=tokens,
        logprobs=tuple(value for row in rows for value in row["logprobs"]),
        law="sampled",
        sampling=Sampling(**body["sampling"]),
        warped="" if _lossless(rule) else f"the lossy commit rule {rule!r}",
        finish=finish,
        end_logged=finish == "stop",
        max_tokens=len(tokens) if finish == "length" else max_tokens,
        fingerprint=facts.get("fingerprint", ""),
        source="run",
        category=str(known[name]["category"] or ""),
        starts=tuple(row["start"] for row in rows),
        eos=tuple(int(word) for word in facts.get("eos", "").split()),
    )


def _lossless(rule: str) -> bool:
    from arena.acceptance import RULES

    return rule in RULES and RULES[rule].lossless
