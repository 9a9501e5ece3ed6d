"""The tokenizer's side: text to ids, end tokens, and the fingerprint of a vocabulary."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from arena import durable
from arena.models.files import cache_root, missing, resolve

_TOKENIZER_FILES = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".vocab", ".codes", ".spm")
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>")


def load_tokenizer(name: str, *, trust_remote_code: bool = False) -> Any:
    """Loads the tokenizer of a model.

    Args:
        name: As for :func:`arena.models.files.resolve`.
        trust_remote_code: Whether code shipped with the model may run.

    Returns:
        A tokenizer of transformers.

    Raises:
        ModelError: There is none, with the next step.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(resolve(name)), trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise missing(name, error) from error


def encode(
    tokenizer: Any, messages: Sequence[Mapping[str, str]] | None = None, text: str | None = None
) -> list[int]:
    """Turns a prompt into token ids.

    Args:
        tokenizer: A tokenizer of transformers.
        messages: ``{"role", "content"}`` turns, put through the chat template with the answer's opening;
            without a template their contents are joined by newlines.
        text: Raw text, given to the tokenizer as it is. Exactly one of the two is given.

    Returns:
        Token ids, perhaps none.
    """
    if (messages is None) == (text is None):
        raise ValueError("give exactly one of messages and text.")
    if messages is not None and tokenizer.chat_template:
        templated = tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
        )
        # The template writes its own opening tokens: adding them again would double them.
        return [int(token) for token in tokenizer(templated, add_special_tokens=False)["input_ids"]]
    if text is None:
        text = "\n".join(message["content"] for message in messages or ())
    ids = [int(token) for token in tokenizer(text)["input_ids"]]
    # Some tokenizers close every text; a prompt must stay open.
    if ids and ids[-1] == tokenizer.eos_token_id and not text.endswith(str(tokenizer.eos_token)):
        ids.pop()
    return ids


def eos_ids(model: Any = None, tokenizer: Any = None) -> tuple[int, ...]:
    """Gives the ids that end a text, sorted.

    The generation config decides, else the model's config, else the tokenizer, so that a text ends where
    ``generate`` of transformers ends it. The token that ends a chat turn is added where the template
    writes it.

    Args:
        model: A model of transformers, or None.
        tokenizer: Its tokenizer, or None.

    Returns:
        Distinct ids, possibly none.
    """
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), getattr(model, "config", None), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            found = set(ids) if isinstance(ids, (list, tuple)) else {int(ids)}
            break
    template = getattr(tokenizer, "chat_template", None) or ""
    vocabulary = tokenizer.get_vocab() if template else {}
    found |= {vocabulary[end] for end in _TURN_ENDS if end in str(template) and end in vocabulary}
    return tuple(sorted(int(token) for token in found))


def vocab_size(tokenizer: Any) -> int:
    """Gives the number of real token ids (the largest plus one); a model's logits may be padded beyond it."""
    return 1 + max(int(index) for index in tokenizer.get_vocab().values())


def vocab_fingerprint(tokenizer: Any) -> str:
    """Hashes a tokenizer's token-to-id map (16 hex digits): equal means the same tokens."""
    digest = hashlib.blake2b(digest_size=8)
    for token, index in sorted(tokenizer.get_vocab().items()):
        digest.update(f"{token}\0{index}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def fingerprint(name: str, *, trust_remote_code: bool = False) -> str:
    """Hashes the vocabulary of a model by its name, without loading weights.

    Args:
        name: As for :func:`arena.models.files.resolve`.
        trust_remote_code: Whether code shipped with the model may run.

    Returns:
        16 hex digits; see :func:`vocab_fingerprint`.
    """
    return _fingerprint(name, str(resolve(name)), trust_remote_code)


@functools.lru_cache(maxsize=64)  # a roster names one model many times
def _fingerprint(name: str, resolved: str, trust_remote_code: bool) -> str:
    """Reads it off the user's cache where the tokenizer is files alone: to import one takes seconds."""
    known = None if trust_remote_code or not Path(resolved).is_dir() else _known(Path(resolved))
    if known is not None:
        with contextlib.suppress(OSError):  # not known yet, or not to be read
            found = known.read_text("ascii", "replace")
            if re.fullmatch("[0-9a-f]{16}", found):
                return found
    found = vocab_fingerprint(load_tokenizer(name, trust_remote_code=trust_remote_code))
    if known is not None:
        with contextlib.suppress(OSError):  # without a cache it is worked out the next time too
            known.parent.mkdir(parents=True, exist_ok=True)
            durable.write(known, found)
    return found


def _known(folder: Path) -> Path | None:
    """Where the fingerprint of a folder's tokenizer is kept, by all that it is read from; None if nowhere."""
    facts = [version("transformers"), version("tokenizers")]
    try:
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.suffix in _TOKENIZER_FILES:
                with file.open("rb") as handle:
                    facts += [file.name, hashlib.file_digest(handle, "sha256").hexdigest()]
        root = cache_root()
    except (OSError, RuntimeError):  # a file that cannot be read; no home folder
        return None
    return root / "vocabularies" / hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()
