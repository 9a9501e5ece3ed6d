"""Loads models for lanes, and refuses those whose cache is more than full attention."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from arena.errors import ModelError, one_of
from arena.models.files import missing, resolve, rounded
from arena.models.layers import layer_depths, skip_layers
from arena.models.tokens import encode, eos_ids, fingerprint, load_tokenizer, vocab_fingerprint, vocab_size

__all__ = [
    "auto_dtype",
    "encode",
    "eos_ids",
    "fingerprint",
    "layer_depths",
    "load_config",
    "load_model",
    "load_tokenizer",
    "quiet",
    "resolve",
    "skip_layers",
    "unsupported",
    "vocab_fingerprint",
    "vocab_size",
]

_DTYPES = ("auto", "float32", "bfloat16", "float16")


def load_model(
    name: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    keep_layers: Sequence[int] | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Loads a causal language model, ready for :class:`arena.models.lanes.LaneModel`.

    Args:
        name: As for :func:`arena.models.files.resolve`.
        dtype: ``auto`` (see :func:`auto_dtype`), ``float32``, ``bfloat16`` or ``float16``.
        device: ``auto`` (CUDA where there is one, else the CPU) or a torch device.
        keep_layers: Indices of the layers to keep, as from :func:`arena.models.layers.layer_depths`; all
            by default.
        trust_remote_code: Whether code shipped with the model may run.

    Returns:
        The model in eval mode, its weights without gradients.

    Raises:
        ModelError: It is not found, has no safetensors, or its cache cannot hold a tree.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    if dtype not in _DTYPES:
        raise ModelError(one_of("dtype", dtype, _DTYPES))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    config = load_config(name, trust_remote_code=trust_remote_code)
    if reason := unsupported(config):
        raise ModelError(f"model {name!r} cannot be used: {reason}. Choose a model of plain full attention.")
    dtype = auto_dtype(device) if dtype == "auto" else dtype
    source = resolve(name)
    for place in dict.fromkeys([rounded(source, dtype), source]):
        try:
            with quiet():
                model: Any = AutoModelForCausalLM.from_pretrained(
                    str(place),
                    dtype=getattr(torch, dtype),
                    attn_implementation="sdpa",
                    use_safetensors=True,
                    trust_remote_code=trust_remote_code,
                )
            break
        except (OSError, ValueError, SafetensorError) as error:
            if place == source:  # else a damaged copy: what it was rounded from is still there
                raise missing(name, error) from error
    known = inspect.signature(model.forward).parameters
    if absent := {"attention_mask", "position_ids", "cache", "logits_to_keep"} - set(known):
        raise ModelError(f"model {name!r} cannot be used: its forward takes no {', '.join(sorted(absent))}.")
    if keep_layers is not None:
        model = skip_layers(model, keep_layers, share=True)
    return model.to(device).eval().requires_grad_(False)


def load_config(name: str, *, trust_remote_code: bool = False) -> Any:
    """Loads a model's config alone (layers, sizes), without its weights.

    Raises:
        ModelError: It is not found, with the next step.
    """
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(str(resolve(name)), trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise missing(name, error) from error


def auto_dtype(device: str) -> str:
    """Gives ``bfloat16`` where the hardware multiplies it, else ``float32``.

    Args:
        device: A torch device.

    Returns:
        ``bfloat16`` on CUDA and on CPUs with AVX512-BF16 or AMX, else ``float32``.
    """
    import torch

    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    try:
        able = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    except AttributeError:  # private names: another torch may lack them
        able = False
    return "bfloat16" if able else "float32"


def unsupported(config: Any) -> str:
    """Tells why a model's cache cannot hold trees of many lanes; empty when it can.

    Args:
        config: A config of transformers.

    Returns:
        The reason, or an empty string.
    """
    from transformers import AutoModelForCausalLM
    from transformers.cache_utils import get_layer_types_and_kwargs

    if config.is_encoder_decoder:
        return "it is an encoder-decoder"
    text = config.get_text_config(decoder=True)
    model_class = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if getattr(model_class, "_is_stateful", False):
        return "it keeps a recurrent state, from which a rejected branch cannot be taken out"
    if getattr(text, "alibi", False):
        return "its attention bias (ALiBi) follows the order of the cache, not the positions in a tree"
    rope = (getattr(text, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope in ("dynamic", "longrope"):
        return f"its rotary frequencies ({rope}) depend on the longest lane: lanes would change each other"
    types, settings = get_layer_types_and_kwargs(text)
    for kind, setting in zip(types, settings, strict=True):
        window = setting.get("sliding_window")
        if kind == "sliding_attention" and window and window >= text.max_position_embeddings:
            continue
        if kind != "full_attention":
            size = text.max_position_embeddings
            return f"it has layers of {kind}" + (f" over {window} tokens of {size}" if window else "")
    return ""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides transformers' progress bars: six actors would print six of them."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
