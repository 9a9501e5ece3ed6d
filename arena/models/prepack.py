"""Linear layers laid out for few rows: what a speculative pass multiplies on a CPU.

Torch rearranges the weights of a product anew each time it is taken, for few rows as for
many: with 2 to 16 rows that can double its time. oneDNN takes weights that were rearranged
once, as torch.compile has it do when it freezes a model. Where torch's own kernels are the
faster ones depends on the number format and the processor; :func:`least_rows` knows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from arena.models.load import auto_dtype

ROWS = 8
"""Rows that the layout is chosen for; it serves any number."""


class PrepackedLinear(torch.nn.Module):
    """A linear layer with a second copy of its weights, in oneDNN's layout.

    Args:
        linear: The layer; its own weights are shared, not copied.
        least: Fewer rows than this are multiplied by the weights as they were.
    """

    def __init__(self, linear: torch.nn.Linear, least: int) -> None:
        super().__init__()
        self.weight, self.bias, self._least = linear.weight, linear.bias, least
        self._prepacked: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Gives x times the weights, plus the bias."""
        if x.numel() < self._least * x.shape[-1]:
            return functional.linear(x, self.weight, self.bias)
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._prepacked, self.bias, "none", [], "")
        return out


def least_rows(dtype: torch.dtype, *, bfloat16: bool, avx512: bool) -> int | None:
    """Gives the rows from which a prepacked product is the faster one, measured over SmolLM2-135M's layers.

    By the kind of processor and not by a clock, so that a tournament of the same seed has the same last bits.

    Args:
        dtype: Of the weights.
        bfloat16: Whether the processor multiplies bf16.
        avx512: Whether it has AVX-512, for which torch's own fp32 kernels of 2 and 3 rows are written.

    Returns:
        1 or more; None where it never pays.
    """
    if dtype == torch.bfloat16:
        return 1 if bfloat16 else None
    if dtype == torch.float32:
        return 4 if avx512 else 2
    return None


def prepack(model: Any) -> bool:
    """Prepacks a model's linear layers in place; their weights must not change afterwards.

    Sums are taken in another order: logits move by rounding, as between batch sizes.

    Args:
        model: Any module.

    Returns:
        Whether it did: only on a CPU, in float32 or in a bfloat16 that it multiplies, where torch has oneDNN.
    """
    first = next(model.parameters())
    able = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # absent where torch was built without oneDNN
    if not able or first.device.type != "cpu":
        return False
    least = least_rows(
        first.dtype,
        bfloat16=auto_dtype("cpu") == "bfloat16",
        avx512=torch.backends.cpu.get_cpu_capability() == "AVX512",
    )
    if least is None:
        return False
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                setattr(parent, name, PrepackedLinear(child, least))
    return True
