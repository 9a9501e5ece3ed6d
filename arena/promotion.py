"""Promotion: the champion of a run becomes a verifier that any process can load.

What is written is a plain Hugging Face folder: safetensors, config, tokenizer, chat
template, beside a ``lineage.json`` and a model card. It appears by one rename.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arena import cards, config, provenance, registry, seeding, snapshots, texts
from arena import prompts as prompt_sets
from arena.config import Experiment
from arena.errors import ConfigError, RunError
from arena.records import standings_of
from arena.roster import Roster, resolve
from arena.store import RunDirectory

LINEAGE = "lineage.json"
SCHEMA_VERSION = 1
_MEASURED = (8, 48)
"""Prompts and new tokens on which the law is measured."""

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Promotion:
    """What was promoted, and where to.

    Attributes:
        folder: The Hugging Face folder.
        drafter: Who it was.
        lineage: What ``lineage.json`` holds.
    """

    folder: Path
    drafter: str
    lineage: Mapping[str, Any]


def candidates(champion: Mapping[str, Any], policy: str) -> tuple[str, ...]:
    """Names who may be promoted, the first that can verify is: a pure function.

    Args:
        champion: What ``champion.json`` holds.
        policy: ``refuse`` (the champion or nobody) or ``best`` (the ranking, best first).
    """
    ranking = tuple(champion["ranking"])
    return ranking if policy == "best" else ranking[:1]


def promote(
    run: Path, to: Path | None = None, *, measure: bool = True, note: Note = lambda text: None
) -> Promotion:
    """Writes the champion of a finished run as a model folder.

    Args:
        run: The run directory.
        to: Where to; ``promoted/`` in the run directory by default. Must be new or empty.
        measure: Whether to measure how far the champion's law is from the verifier's.
        note: Shows progress.

    Raises:
        RunError: The run has no champion yet, or none that can verify.
        ConfigError: The folder is taken, or cannot be written.
    """
    directory = RunDirectory.open(run)
    champion = directory.champion()
    if champion is None:
        raise RunError(
            f"{str(run)!r} has no champion yet (status {directory.manifest.get('status')}); "
            "play it to its end with `arena resume`."
        )
    folder = to if to is not None else directory.path / "promoted"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{str(folder)!r} is not empty, and a model is never overwritten: choose another place with --to."
        )
    experiment = config.build(
        config.parse(directory.config_yaml, "config.resolved.yaml"), "config.resolved.yaml"
    )
    roster = resolve(experiment)
    name, drafter, weights = _promotable(directory.path, experiment, roster, champion, note)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as error:
        raise ConfigError(f"cannot write {str(folder)!r}: {error}.") from error
    try:
        note(f"writing {name} to {folder}")
        drafter.export(scratch)
        del drafter
        lineage = _lineage(directory, experiment, roster, champion, name, weights)
        lineage |= _measured(experiment, roster, directory, scratch, measure, note)
        text = json.dumps(lineage, indent=2, allow_nan=False) + "\n"
        (scratch / LINEAGE).write_text(text, encoding="utf-8")
        (scratch / "README.md").write_text(cards.model_card(lineage), encoding="utf-8")
        for file in scratch.iterdir():
            file.chmod(0o644)
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        scratch.chmod(0o755)
        os.replace(scratch, folder)  # onto nothing, or onto an empty folder
    except OSError as error:
        raise ConfigError(f"cannot write {str(folder)!r}: {error}.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Promotion(folder, name, json.loads(text))


def read_lineage(folder: Path | str) -> dict[str, Any] | None:
    """Reads where a promoted model comes from; None for a model that was not promoted."""
    path = Path(folder).expanduser() / LINEAGE
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _promotable(
    run: Path, experiment: Experiment, roster: Roster, champion: Mapping[str, Any], note: Note
) -> tuple[str, Any, str]:
    """Rebuilds the first candidate that can verify, with what it had learnt."""
    refused = []
    for name in candidates(champion, experiment.on_unpromotable):
        seat = roster.drafters[name]
        drafter = registry.load_class(seat.target)(name=name, **seat.options)
        if drafter.capabilities.can_verify and hasattr(drafter, "export"):
            weights = "frozen"
            if drafter.capabilities.learns:
                kept = snapshots.last(run, name)
                weights = f"learnt, {kept.parent.name}" if kept else "as built: nothing was kept of it"
                if kept is not None:
                    drafter.load(kept)
            return name, drafter, weights
        refused.append(name)
        kind = f"{name} ({seat.kind}) is no language model and cannot verify"
        if experiment.on_unpromotable == "refuse":
            raise RunError(
                f"the champion {kind}; nothing is promoted. To take the best that can, play with "
                "on_unpromotable=best."
            )
        note(f"{kind}; trying the next of the ranking")
    raise RunError(
        f"none of {', '.join(refused)} is a language model that can verify: nothing can be promoted. "
        "Let a drafter of kind hf, steady or mirror take part."
    )


def _lineage(
    directory: RunDirectory,
    experiment: Experiment,
    roster: Roster,
    champion: Mapping[str, Any],
    name: str,
    weights: str,
) -> dict[str, Any]:
    model = str(roster.verifier.options.get("model", roster.verifier.kind))
    above = read_lineage(model)
    generation = int(above["generation"]) if above else 0
    parent = {"model": model, "generation": generation}
    if above:
        parent |= {key: above[key] for key in ("promoted", "run", "config_hash")}
    scores = {}
    for record in directory.rounds():
        for row in standings_of(record):
            if row.drafter == name:
                scores = {"round": record["round"], **_plain(asdict(row))}
    return {
        "schema_version": SCHEMA_VERSION,
        "generation": generation + 1,
        "promoted": name,
        "champion": champion["champion"],
        "how": champion["how"],
        "ranking": list(champion["ranking"]),
        "parents": [parent, *(above["parents"] if above else [])],
        "drafter": {"kind": roster.drafters[name].kind, "options": dict(roster.drafters[name].options)},
        "weights": weights,
        "experiment": experiment.name,
        "seed": experiment.seed,
        "run": str(directory.path),
        "config_hash": experiment.digest,
        "scores": scores,
        "date": provenance.utc_now(),
    }


def _measured(
    experiment: Experiment, roster: Roster, directory: RunDirectory, folder: Path, measure: bool, note: Note
) -> dict[str, Any]:
    """Loads what was written and measures it beside its parent, on prompts of a round that was not played."""
    from arena.models import decode, drift, export, load
    from arena.models.lanes import LaneModel

    child = load.load_model(str(folder), dtype="float32")
    layers, parameters = export.size(child)
    found: dict[str, Any] = {"layers": layers, "parameters": parameters, "drift": None}
    model = roster.verifier.options.get("model", "smollm2-135m")
    if not measure:
        return found
    parent = load.load_model(model, dtype="float32")
    vocab = min(parent.config.vocab_size, child.config.vocab_size)
    prompts = texts.prompt_set(experiment, vocab)
    dealt = prompt_sets.round_slice(
        prompts,
        len(directory.rounds()),
        min(experiment.rounds.prompts, len(prompts)),
        seeding.fold(experiment.seed, 0),
    )
    prompts_measured, new = _MEASURED
    longest = parent.config.max_position_embeddings - new
    contexts = texts.tokens_of(dealt[:prompts_measured], model, longest)
    note(f"measuring how far the law has moved, on {len(contexts)} prompts")
    key = int(seeding.fold(experiment.seed, "promotion"))
    lanes = LaneModel(parent, max(1, len(contexts)), vocab=vocab)
    said = decode.decode(lanes, contexts, new, key=key, eos=load.eos_ids(parent))
    return found | {"drift": _plain(asdict(drift.compare(parent, child, said, vocab)))}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turns nan into null."""
    return {key: None if value != value else value for key, value in values.items()}
