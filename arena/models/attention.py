"""Attention of few queries over many cached keys, without copying the keys for each query head.

Where several query heads share a key head, transformers repeats keys and values for each
of them before it calls torch on a CPU: over a context of thousands that copy costs more
than the attention. Torch's kernel takes the shared heads as they are and gives the same
bits; a test holds the two together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "arena_grouped"


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Does what transformers' ``sdpa`` does; for several masked queries, without its copies.

    Args:
        module: The attention layer.
        query: [B, heads, N, head size].
        key: [B, key heads, reach, head size].
        value: Alike.
        attention_mask: Additive, [B, 1, N, reach].
        dropout: 0 outside training.
        scaling: Of the scores.
        **kwargs: Whatever else the layer passes on.
    """
    special = any(kwargs.get(name) is not None for name in ("position_bias", "softcap"))
    if attention_mask is None or special or query.shape[2] == 1 or query.shape[1] == key.shape[1]:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return found
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextlib.contextmanager
def grouped(model: Any) -> Iterator[None]:
    """Uses :func:`grouped_attention` for a while, where the model runs on a CPU with ``sdpa``.

    (On a GPU, torch's fast kernels take either a mask or shared heads, not both.)
    """
    config = model.config
    if model.device.type != "cpu" or config._attn_implementation != "sdpa":
        yield
        return
    config._attn_implementation_internal = NAME
    try:
        yield
    finally:
        config._attn_implementation_internal = "sdpa"
