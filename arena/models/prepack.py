"""Linear layers laid out for few rows: what a speculative pass multiplies on a CPU.

A product of weights with 2 to 16 rows takes torch's default kernel up to twice the time of
one row, since it rearranges the weights first, every time anew. oneDNN takes weights that
were rearranged once, as torch.compile has it do when it freezes a model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

ROWS = 8
"""Rows that the layout is chosen for; it serves any number."""


class PrepackedLinear(torch.nn.Module):
    """A linear layer with a second copy of its weights, in oneDNN's layout.

    One row is multiplied by the weights as they were: nothing is rearranged for it anyway.

    Args:
        linear: The layer; its own weights are shared, not copied.
    """

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self._prepacked: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Gives x times the weights, plus the bias."""
        if x.numel() == x.shape[-1]:
            return functional.linear(x, self.weight, self.bias)
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._prepacked, self.bias, "none", [], "")
        return out


def prepack(model: Any) -> bool:
    """Prepacks a model's linear layers in place; their weights must not change afterwards.

    Sums are taken in another order: logits move by rounding, as between batch sizes.

    Args:
        model: Any module.

    Returns:
        Whether it did: only in float32 on a CPU, where torch has oneDNN.
    """
    first = next(model.parameters())
    able = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # absent where torch was built without oneDNN
    if not able or first.device.type != "cpu" or first.dtype != torch.float32:
        return False
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                setattr(parent, name, PrepackedLinear(child))
    return True
