"""Prompts on their way into a run: read, turned into tokens by the verifier, and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena import prompts as prompt_sets
from arena.config import Experiment
from arena.errors import PromptError
from arena.seeding import Keys
from arena.types import Vocabulary


@dataclass(frozen=True, slots=True)
class Intake:
    """What can be played.

    Attributes:
        prompts: The usable prompts.
        tokens: Prompt id to token ids, of these and of those skipped.
        skipped: One sentence for each that was left out.
    """

    prompts: tuple[prompt_sets.Prompt, ...]
    tokens: Mapping[str, tuple[int, ...]]
    skipped: tuple[str, ...]

    @property
    def playable(self) -> dict[str, tuple[int, ...]]:
        """Token ids of the usable prompts."""
        return {prompt.id: self.tokens[prompt.id] for prompt in self.prompts}

    @property
    def categories(self) -> dict[str, str]:
        """Category of the usable prompts."""
        return {prompt.id: prompt.category for prompt in self.prompts}


def take_in(
    experiment: Experiment,
    key: Keys,
    encode: Callable[[Sequence[tuple[Any, str]]], Sequence[Sequence[int] | str]],
    vocabulary: Vocabulary,
    max_context: int,
) -> Intake:
    """Reads an experiment's prompts.

    Args:
        experiment: Says where they are, and whether a bad one is skipped.
        key: Of the generation; made-up prompts are drawn with it.
        encode: The verifier's; turns (messages, text) pairs into ids, or a reason.
        vocabulary: The verifier's.
        max_context: Longest context that the verifier serves.

    Raises:
        PromptError: A prompt cannot be played, and none may be skipped.
    """
    section = experiment.prompts
    if section.synthetic is not None:
        found = prompt_sets.synthetic(section.synthetic, section.length, vocabulary.size, key)
        loaded = prompt_sets.LoadedPrompts(found)
    else:
        loaded = prompt_sets.load(section.path, on_error=section.on_error, limit=section.limit)
    texts = [prompt for prompt in loaded.prompts if not prompt.tokens]
    encoded = encode([(prompt.messages, prompt.text) for prompt in texts]) if texts else []
    tokens = {prompt.id: prompt.tokens for prompt in loaded.prompts if prompt.tokens}
    failed: dict[str, str] = {}
    for prompt, ids in zip(texts, encoded, strict=True):
        if isinstance(ids, str):
            failed[prompt.id], ids = ids, ()
        tokens[prompt.id] = tuple(ids)
    kept, skipped = [], list(loaded.skipped)
    origins = loaded.origins or tuple(prompt.id for prompt in loaded.prompts)
    for prompt, origin in zip(loaded.prompts, origins, strict=True):
        reason = failed.get(prompt.id) or unplayable(tokens[prompt.id], vocabulary, max_context)
        if reason is None:
            kept.append(prompt)
        elif section.on_error == "skip":
            skipped.append(f"{origin}: {reason}")
        else:
            raise PromptError(f"{origin}: {reason} Shorten it, or set prompts.on_error=skip.")
    return Intake(tuple(kept), tokens, tuple(skipped))


def unplayable(tokens: Sequence[int], vocabulary: Vocabulary, max_context: int) -> str | None:
    """Says why a prompt cannot be played, or None if it can."""
    if not tokens:
        return "the prompt has no tokens."
    if len(tokens) > max_context - 2:
        return f"the prompt has {len(tokens)} tokens; the context holds {max_context} with the output."
    if max(tokens) >= vocabulary.size:
        return f"token {max(tokens)} is outside the vocabulary of {vocabulary.size}."
    return None
