"""Prompts: reading them from files, making them up, and dealing them out to rounds.

A prompt's id is a hash of its content, and rounds slice a keyed permutation of the
sorted ids, so neither the order of a file nor its name changes a run.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import numpy as np

from arena.errors import ConfigError, PromptError, one_of
from arena.seeding import Keys, fold, permutation, uniform

Messages = tuple[tuple[str, str], ...]
_LAYOUTS = ("turns", "messages", "prompt", "text", "tokens")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_MAX_TOKEN = 2**31 - 1  # beyond any vocabulary, and safe in every integer array


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: exactly one of ``messages``, ``text`` and ``tokens`` is not empty.

    Attributes:
        id: Hash of the content; the 2nd, 3rd, ... of equal content end in ``-1``, ``-2``, ...
        category: What kind of prompt it is, for results by category.
        messages: A conversation of (role, content) pairs.
        text: Raw text, to be continued without a chat template.
        tokens: Raw token ids.
    """

    id: str
    category: str
    messages: Messages = ()
    text: str = ""
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedPrompts:
    """What a prompt file held.

    Attributes:
        prompts: The usable prompts, in the order of the file.
        skipped: One message for each line left out, naming file and line.
        origins: File and line of each prompt, for checks that only a model can make.
    """

    prompts: tuple[Prompt, ...]
    skipped: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


def load(
    path: str | Path, *, on_error: Literal["refuse", "skip"] = "refuse", limit: int | None = None
) -> LoadedPrompts:
    """Reads prompts from a ``.jsonl`` or ``.txt`` file, or from a packaged set.

    A JSONL line is an object with an optional ``category`` and exactly one of:
    ``turns`` (Spec-Bench; the first turn is played), ``messages`` (chat), ``prompt``
    (one user message), ``text`` (raw, no chat template) or ``tokens`` (raw ids). Other
    keys are ignored. In a text file every line that is not blank is a user message.

    Args:
        path: A file, or the bare name of a packaged set such as ``mixed``.
        on_error: Whether a bad line refuses the whole file or is skipped.
        limit: Stop after this many usable prompts; lines after them are not judged.

    Returns:
        The prompts, the messages of the skipped lines, and where each prompt stood.

    Raises:
        PromptError: The file cannot be read, a line is bad, or no prompt is usable.
        ConfigError: ``on_error`` or ``limit`` is not one of its values.
    """
    if on_error not in ("refuse", "skip") or (limit is not None and limit < 1):
        raise ConfigError(f"prompts: {on_error=}, {limit=}; expected refuse or skip, and a limit from 1.")
    name, file = _locate(path)
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        raise PromptError(f"prompt file {name}: {error}; expected a readable file.") from None
    found: list[Prompt] = []
    origins: list[str] = []
    skipped: list[str] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(_parse(line.strip(), plain=name.lower().endswith(".txt")))
            origins.append(f"{name}, line {number}")
        except PromptError as error:
            skipped.append(f"{name}, line {number}: {error}")
            if on_error == "refuse":
                raise PromptError(f"{skipped[0]} Correct it, or set prompts.on_error=skip.") from None
        if len(found) == limit:
            break
    if not found:
        got = f"{len(skipped)} bad lines, the first: {skipped[0]}" if skipped else "an empty file."
        raise PromptError(f"prompt file {name}: expected at least one usable prompt, got {got}")
    return LoadedPrompts(_number(found), tuple(skipped), tuple(origins))


def synthetic(count: int, length: int, vocab: int, key: Keys | int) -> tuple[Prompt, ...]:
    """Makes ``count`` random prompts of ``length`` tokens from ``range(vocab)``, for table models.

    A token is keyed by its prompt's index and its position: asking for more prompts or
    longer ones changes none of the tokens there were. Raises ConfigError out of range.
    """
    if min(count, length, vocab) < 1:
        raise ConfigError(f"synthetic prompts: {count=}, {length=}, {vocab=}; expected each at least 1.")
    draws = uniform(fold(key, "synthetic prompts"), np.arange(count)[:, None], np.arange(length))
    rows: list[list[int]] = np.floor(draws * vocab).astype(np.int64).tolist()
    return _number(_prompt("synthetic", tokens=tuple(row)) for row in rows)


def round_slice(
    prompts: Sequence[Prompt], round_index: int, per_round: int, key: Keys | int
) -> tuple[Prompt, ...]:
    """Returns the prompts of one round, all different, in the order in which they are dealt.

    The rounds cut an endless row of passes over the set into equal pieces. A pass is a
    freshly keyed permutation of the prompts sorted by id. Where a round spans two
    passes, the second puts off the prompts that the round already holds.

    Args:
        prompts: The whole set, in any order.
        round_index: The round, counted from 0.
        per_round: How many prompts a round plays.
        key: The key of the permutations.

    Raises:
        ConfigError: Fewer prompts than ``per_round``, equal ids, or a number out of range.
    """
    n = len(prompts)
    if round_index < 0 or not 1 <= per_round <= n:
        got = f"round {round_index}, {per_round} prompts a round, {n} loaded"
        raise ConfigError(f"{got}; expected a round from 0 and 1 to {n}. Load more prompts, or play fewer.")
    ordered = sorted(prompts, key=lambda prompt: prompt.id)
    if len({prompt.id for prompt in prompts}) < n:
        raise ConfigError("two prompts have the same id; expected distinct ids, as in one loaded file.")
    first = round_index * per_round // n
    # A pass that shares a round depends on the pass before: begin where pass and round did together.
    begin = first - first % (per_round // math.gcd(n, per_round))
    row: list[int] = []
    for index in range(begin, first + 2):
        fresh: list[int] = permutation(fold(key, "prompt order", index), n).tolist()
        shared = index * n % per_round  # so many prompts of its first round are dealt already
        held = set(row[-shared:] if shared else ())
        head = [i for i in fresh if i not in held][: per_round - shared]
        row += dict.fromkeys(head + fresh)  # the head, then the rest as permuted
    start = round_index * per_round - begin * n
    return tuple(ordered[i] for i in row[start : start + per_round])


def _number(prompts: Iterable[Prompt]) -> tuple[Prompt, ...]:
    """Appends occurrence numbers to equal ids."""
    result, seen = list(prompts), Counter[str]()
    # By category first: or prompts of equal content would swap ids when a file is shuffled.
    for i in sorted(range(len(result)), key=lambda i: result[i].category):
        base = result[i].id
        result[i] = replace(result[i], id=f"{base}-{seen[base]}" if seen[base] else base)
        seen[base] += 1
    return tuple(result)


def _locate(path: str | Path) -> tuple[str, Path | Traversable]:
    """Finds a file or a packaged set, and its name to be shown."""
    if Path(path).suffix.lower() in (".jsonl", ".txt"):
        return str(path), Path(path)
    known: dict[str, Traversable] = {}
    with suppress(ModuleNotFoundError):
        entries = resources.files("experiments.prompts").iterdir()
        known = {e.name.removesuffix(".jsonl"): e for e in entries if e.name.endswith(".jsonl")}
    if (entry := known.get(str(path))) is None:
        raise PromptError(f"{one_of('prompt set', path, known)} A file's name ends in .jsonl or .txt.")
    return entry.name, entry


def _prompt(category: str, messages: Messages = (), text: str = "", tokens: tuple[int, ...] = ()) -> Prompt:
    canonical = json.dumps([messages, text, tokens], separators=(",", ":")).encode()
    return Prompt(hashlib.blake2b(canonical, digest_size=8).hexdigest(), category, messages, text, tokens)


def _parse(raw: bytes, *, plain: bool) -> Prompt:
    """Turns one line into a prompt, or says what is wrong with it."""
    try:
        line: object = {"prompt": raw.decode()} if plain else json.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, malformed, or nested without end
        got = str(error).replace(": line 1 ", " at ")  # JSON's line is not the file's
        raise PromptError(f"{got}; expected {'' if plain else 'a JSON object in '}UTF-8.") from None
    layouts = [key for key in _LAYOUTS if key in line] if isinstance(line, dict) else []
    if not isinstance(line, dict) or len(layouts) != 1:
        raise _bad("unknown layout: the line", line, f"an object with exactly one of {', '.join(_LAYOUTS)}")
    layout, value = layouts[0], line[layouts[0]]
    category = "other" if line.get("category") is None else _text("category", line["category"])
    if layout == "text":
        return _prompt(category, text=_text(layout, value))
    if layout == "prompt":
        return _prompt(category, (("user", _text(layout, value)),))
    if not isinstance(value, list) or not value:
        raise _bad(layout, value, "a list that is not empty")
    if layout == "turns":
        return _prompt(category, (("user", _text("turns[0]", value[0])),))
    if layout == "tokens":
        for token in value:  # of type int exactly: bool is an int too, but true is no token id
            if type(token) is not int or not 0 <= token <= _MAX_TOKEN:
                raise _bad("a token id", token, f"an integer from 0 to {_MAX_TOKEN}")
        return _prompt(category, tokens=tuple(value))
    messages = tuple(_message(message) for message in value)
    # A blank system message, or an assistant's that only called a tool, is common and harmless.
    if not any(content.strip() for role, content in messages if role not in ("system", "developer")):
        raise PromptError("empty prompt: only a system message has content; expected a user message.")
    return _prompt(category, messages)


def _message(value: object) -> tuple[str, str]:
    if not isinstance(value, dict) or not {"role", "content"} <= value.keys():
        raise _bad("a message", value, "an object with role and content")
    if value["role"] not in _ROLES:
        raise _bad("a message's role", value["role"], f"one of {', '.join(_ROLES)}")
    return value["role"], _text("a message's content", value["content"], blank=True)


def _text(what: str, value: object, *, blank: bool = False) -> str:
    if not isinstance(value, str) or not (blank or value.strip()):
        raise _bad(what, value, "a text that is not empty")
    # JSON can write half a surrogate pair, which no tokenizer and no result file takes.
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise _bad(what, value, "text that UTF-8 can hold, without half surrogate pairs")
    return value


def _bad(what: str, value: object, expected: str) -> PromptError:
    """Words a refusal, briefly however large or deep the value is."""
    return PromptError(f"{what} is {reprlib.repr(value)}; expected {expected}.")
