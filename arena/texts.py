"""An experiment's prompts as tokens, where a model reads them outside of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from arena import prompts as prompt_sets
from arena import seeding
from arena.config import Experiment
from arena.errors import ModelError
from arena.prompts import Prompt


def prompt_set(experiment: Experiment, vocab: int) -> tuple[Prompt, ...]:
    """Gives the prompts that the experiment plays on, bad lines left out.

    Args:
        experiment: Whose prompts.
        vocab: Tokens of the vocabulary, for synthetic prompts.
    """
    section = experiment.prompts
    if section.synthetic is not None:
        root = seeding.fold(experiment.seed, 0)
        return tuple(prompt_sets.synthetic(section.synthetic, section.length, vocab, root))
    return prompt_sets.load(section.path, on_error="skip", limit=section.limit).prompts


def tokens_of(prompts: Iterable[Prompt], model: str, longest: int) -> dict[str, tuple[int, ...]]:
    """Turns prompts into tokens with a model's tokenizer, as its verifier does.

    Args:
        prompts: Those that hold tokens already need no tokenizer.
        model: As for :func:`arena.models.files.resolve`.
        longest: Prompts of more tokens are left out.

    Returns:
        Prompt id to tokens; empty prompts are left out.
    """
    from arena.models import load

    tokenizer: Any = None
    found = {}
    for prompt in prompts:
        tokens = list(prompt.tokens)
        if not tokens:
            try:
                tokenizer = tokenizer or load.load_tokenizer(model)
            except ModelError:  # a model without a tokenizer reads nothing but tokens
                continue
            turns = [{"role": role, "content": content} for role, content in prompt.messages]
            tokens = load.encode(tokenizer, turns) if turns else load.encode(tokenizer, text=prompt.text)
        if 0 < len(tokens) <= longest:
            found[prompt.id] = tuple(tokens)
    return found
