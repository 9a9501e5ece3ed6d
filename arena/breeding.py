"""Breeding: what a cohort learns before its first round, from its verifier's own text.

Text is decoded from the verifier on prompts that the rounds will not play, and every
drafter that learns is taught it. Both are kept in the user's cache by content (the
verifier's files, the prompts, the settings), so that the same cohort is bred once:
text by parts and students one by one, so that breeding goes on where it was cut short.
A run takes its copy into ``snapshots/round=000`` and no longer needs the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arena import prompts as prompt_sets
from arena import registry, seeding, snapshots, texts
from arena.config import Experiment
from arena.durable import replacing
from arena.errors import ConfigError, RunError
from arena.models import files
from arena.roster import Roster, Seat, resolve
from arena.types import Feedback, LaneStep

Note = Callable[[str], None]

FORMAT = 1
"""Part of every key: raise it when text or lessons change."""
PART = 16
"""Texts in one part: decoded side by side, kept together."""
LONGEST = 96
"""Most new tokens of one text."""
LESSON = 4
"""Texts in one call of ``learn``."""
TOP = 64


@dataclass(frozen=True, slots=True)
class Bred:
    """What was bred, and where it is kept.

    Attributes:
        tokens: Tokens of the verifier's text.
        texts: Texts.
        folder: Where the text is.
        students: Drafter to the folder of what it learnt.
        seconds: That this call took, the cache included.
    """

    tokens: int
    texts: int
    folder: str
    students: Mapping[str, str]
    seconds: float


def stock(experiment: Experiment, run: Path, note: Note) -> None:
    """Puts what the experiment's cohort was bred to into a new run, as snapshots of round 0."""
    if experiment.cohort is None or not experiment.cohort.warm_tokens or (run / "snapshots").is_dir():
        return
    bred = breed(experiment, note)
    learnt = {
        name: {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        for name, folder in bred.students.items()
    }
    snapshots.write(run, 0, learnt)
    with replacing(run / "bred.json") as temporary:
        temporary.write_text(json.dumps(asdict(bred), sort_keys=True, indent=2) + "\n", encoding="utf-8")


def breed(experiment: Experiment, note: Note = lambda text: None) -> Bred:
    """Decodes the verifier's text and teaches it to every drafter that learns.

    Raises:
        ConfigError: There is no cohort to breed, or no language model to breed it from.
    """
    began = time.monotonic()
    roster = resolve(experiment)
    wanted = experiment.cohort.warm_tokens if experiment.cohort else 0
    model = roster.verifier.options.get("model")
    if not wanted or model is None:
        raise ConfigError(
            "nothing to breed: expected cohort.warm_tokens of at least 1 and a verifier with a model "
            "(kind hf); add e.g. cohort.warm_tokens=2000."
        )
    key, contexts = _plan(experiment, roster, str(model), wanted)
    folder = files.cache_root() / "cohorts" / f"texts-{key}"
    said = _decoded(experiment, roster.verifier, contexts, wanted, folder, note)
    students = {}
    for name, seat in roster.drafters.items():
        place = _student(name, seat, key, said, note)
        if place is not None:
            students[name] = str(place)
    total = sum(len(text.tokens) for text in said)
    return Bred(total, len(said), str(folder), students, round(time.monotonic() - began, 1))


def _plan(
    experiment: Experiment, roster: Roster, model: str, wanted: int
) -> tuple[str, dict[str, tuple[int, ...]]]:
    """Gives the key of the text and the contexts that it continues, in order."""
    from arena.models import load

    config = load.load_config(model)
    every = texts.prompt_set(experiment, int(config.vocab_size))
    spare = unplayed(experiment, every) or every  # a small set is played whole: then on other noise
    longest = int(config.max_position_embeddings) - LONGEST
    tokens = texts.tokens_of(sorted(spare, key=lambda prompt: prompt.id), model, longest)
    if not tokens:
        raise ConfigError(f"none of {len(spare)} prompts can be read by {model!r}: nothing to breed on.")
    # Further turns over the prompts, each on noise of its own, until there is text enough.
    turns = -(-wanted // (LONGEST * len(tokens)))
    contexts = {f"{name}#{turn}": text for turn in range(turns) for name, text in tokens.items()}
    facts = [
        FORMAT,
        content(model),
        wanted,
        LONGEST,
        TOP,
        experiment.seed,
        asdict(experiment.sampling.record()),
    ]
    facts.append(roster.verifier.options.get("dtype", "auto"))
    return _hash([*facts, sorted((name, list(text)) for name, text in contexts.items())]), contexts


def unplayed(experiment: Experiment, prompts: Sequence[prompt_sets.Prompt]) -> tuple[prompt_sets.Prompt, ...]:
    """Gives the prompts that no round of the experiment deals."""
    section = experiment.rounds
    rounds = max(1, len(experiment.drafters) - 1)
    rounds = min(rounds, section.max) if section.max else rounds
    if section.prompts > len(prompts):
        return ()
    key = seeding.fold(experiment.seed, 0)
    dealt = {
        prompt.id
        for index in range(rounds)
        for prompt in prompt_sets.round_slice(prompts, index, section.prompts, key)
    }
    return tuple(prompt for prompt in prompts if prompt.id not in dealt)


def content(model: str) -> str:
    """Hashes what a model is: its files where it is a folder, else its hub id (16 hex digits)."""
    place = files.resolve(model)
    digest = hashlib.blake2b(digest_size=8)
    if not isinstance(place, Path):
        digest.update(place.encode())
        return digest.hexdigest()
    for file in sorted(place.iterdir()):
        if file.suffix in (".safetensors", ".json", ".jinja") and file.name != "lineage.json":
            digest.update(file.name.encode())
            with file.open("rb") as handle:
                while block := handle.read(1 << 22):
                    digest.update(block)
    return digest.hexdigest()


def _hash(facts: Any) -> str:
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()


def _decoded(
    experiment: Experiment,
    verifier: Seat,
    contexts: Mapping[str, tuple[int, ...]],
    wanted: int,
    folder: Path,
    note: Note,
) -> list[Feedback]:
    """Gives the text, part by part from the cache or from the verifier, until it is enough."""
    from arena.models import decode, load
    from arena.models.lanes import LaneModel

    folder.mkdir(parents=True, exist_ok=True)
    names = list(contexts)
    said: list[Feedback] = []
    lanes: LaneModel | None = None
    eos: tuple[int, ...] = ()
    new = min(LONGEST, max(2, -(-wanted // len(names))))
    key = int(seeding.fold(experiment.seed, "breeding"))
    for number, first in enumerate(range(0, len(names), PART)):
        path = folder / f"part-{number:03d}.npz"
        some = {name: contexts[name] for name in names[first : first + PART]}
        if path.is_file():
            part = list(_read(path, some))
        else:
            if lanes is None:
                model = str(verifier.options["model"])
                options = {key: verifier.options.get(key, "auto") for key in ("dtype", "device")}
                net = load.load_model(model, **options)
                tokenizer = load.load_tokenizer(model)
                vocab = load.vocab_size(tokenizer)
                lanes, eos = LaneModel(net, PART, vocab=vocab), load.eos_ids(net, tokenizer)
            began = time.monotonic()
            part = decode.decode(
                lanes, some, new, key=key, sampling=experiment.sampling.record(), eos=eos, top=TOP
            )
            _write(path, part)
            took = time.monotonic() - began
            done = sum(len(text.tokens) for text in [*said, *part])
            note(f"decoded {done} of {wanted} tokens from the verifier ({took:.0f} s a part)")
        said += part
        if sum(len(text.tokens) for text in said) >= wanted:
            break
    return said


def _student(name: str, seat: Seat, key: str, said: Sequence[Feedback], note: Note) -> Path | None:
    """Gives the folder of what a drafter learnt of the text; None if it does not learn."""
    facts = [FORMAT, key, len(said), seat.target, sorted(seat.options.items()), LESSON]
    place = files.cache_root() / "cohorts" / f"student-{_hash(json.loads(json.dumps(facts, default=str)))}"
    if place.is_dir():
        note(f"{name}: bred before, taken from the cache")
        return place
    drafter = registry.load_class(seat.target)(name=name, **seat.options)
    if not drafter.capabilities.learns:
        return None
    began = time.monotonic()
    for first in range(0, len(said), LESSON):
        drafter.learn(list(said[first : first + LESSON]))
        if first // LESSON % 4 == 3 and time.monotonic() - began > 10:
            note(f"{name}: {min(first + LESSON, len(said))} of {len(said)} texts learnt")
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}-"))
    try:
        drafter.save(scratch)
        scratch.chmod(0o755)
        os.replace(scratch, place)
    except OSError as error:
        if not place.is_dir():  # else another process was first, with the same content
            raise RunError(f"cannot write {str(place)!r}: {error}; set DRAFT_ARENA_CACHE.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    note(f"{name}: bred in {time.monotonic() - began:.0f} s")
    return place


def _write(path: Path, part: Sequence[Feedback]) -> None:
    width = max(text.support.shape[1] for text in part)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            names=np.array([text.step.prompt_id for text in part]),
            lengths=np.array([len(text.tokens) for text in part]),
            tokens=np.array([token for text in part for token in text.tokens], dtype=np.int32),
            support=np.concatenate([text.support.reshape(-1, width) for text in part]),
            target_probs=np.concatenate([text.target_probs.reshape(-1, width) for text in part]),
            tail=np.concatenate([text.tail for text in part]),
        )


def _read(path: Path, contexts: Mapping[str, tuple[int, ...]]) -> Iterator[Feedback]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = dict(file)
        if [str(name) for name in found["names"]] != list(contexts):
            raise ValueError("it is of other prompts")
    except (OSError, KeyError, ValueError, EOFError) as error:
        raise RunError(f"{path} is damaged ({error}); delete it and breed again.") from error
    end = 0
    for name, length in zip(contexts, found["lengths"].tolist(), strict=True):
        start, end = end, end + length
        yield Feedback(
            LaneStep(name, 0),
            contexts[name],
            tuple(found["tokens"][start:end].tolist()),
            *(found[key][start:end] for key in ("support", "target_probs", "tail")),
        )
