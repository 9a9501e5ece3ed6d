"""Writes a model as a Hugging Face folder that loads in a plain process, without this package."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from arena.models.load import quiet


def write(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes safetensors, config, generation config and, where there is one, the tokenizer.

    Args:
        model: A causal language model of transformers, perhaps cut by
            :func:`arena.models.layers.skip_layers`.
        tokenizer: Its tokenizer with its chat template, or None.
        folder: Where to; made if absent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The folder stands for itself now: the parent's path would leak into its config.
    with contextlib.suppress(AttributeError):
        model.config._name_or_path = ""
    # `save_pretrained` writes tied weights once and reads back what `from_pretrained` expects.
    with quiet():
        model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def size(model: Any) -> tuple[int, int]:
    """Gives a model's layers and its parameters, tied ones counted once."""
    return int(model.config.num_hidden_layers), sum(each.numel() for each in model.parameters())
