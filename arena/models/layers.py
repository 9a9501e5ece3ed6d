"""Sub-models: keeping some layers of a model, named by fractions of its depth."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from arena.errors import ModelError


def layer_depths(n_layers: int, drop: tuple[float, float]) -> tuple[int, ...]:
    """Turns depth fractions into the layers that stay.

    Args:
        n_layers: Layers of the model.
        drop: Layers from the first to the second fraction of the depth are dropped, both rounded to whole
            layers: (0.2667, 0.6) of 30 drops 8 to 17.

    Returns:
        Indices kept, rising.

    Raises:
        ModelError: The fractions are not 0 <= from <= to <= 1, or no layer stays.
    """
    low, high = drop
    if not 0 <= low <= high <= 1:
        raise ModelError(f"drop fractions {drop} are not 0 <= from <= to <= 1.")
    first, end = int(low * n_layers + 0.5), int(high * n_layers + 0.5)
    kept = tuple(index for index in range(n_layers) if not first <= index < end)
    if not kept:
        raise ModelError(f"drop fractions {drop} leave none of {n_layers} layers.")
    return kept


def skip_layers(model: Any, kept: Sequence[int], *, share: bool = False) -> Any:
    """Builds a model of some of the layers of another, renumbered.

    Args:
        model: A causal language model of transformers; it is left as it is.
        kept: Indices of the layers to keep, rising.
        share: Whether both models use the same weight tensors (no memory, but never train such a model).

    Returns:
        A model of the same class with ``len(kept)`` layers; it saves and loads like any other.

    Raises:
        ModelError: The indices are not rising and within the model, or its layers are not found.
    """
    total = int(model.config.num_hidden_layers)
    keep = [int(index) for index in kept]
    if not keep or keep != sorted(set(keep)) or keep[0] < 0 or keep[-1] >= total:
        raise ModelError(f"layers {keep} are not rising indices in [0, {total}).")
    name, layers = _layer_list(model)
    dropped = [layers[index] for index in range(total) if index not in keep]
    memo: dict[int, Any] = {}
    for module in [model] if share else dropped:
        # A tensor already in deepcopy's memo is not copied.
        memo |= {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    small = copy.deepcopy(model, memo)
    _, stack = _layer_list(small)
    setattr(small.base_model, name, type(stack)([stack[index] for index in keep]))
    for position, layer in enumerate(getattr(small.base_model, name)):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = position
    for key, value in list(vars(small.config).items()):
        # Lists of one entry a layer, such as layer_types.
        if isinstance(value, (list, tuple)) and len(value) == total and not key.endswith("_token_id"):
            setattr(small.config, key, [value[index] for index in keep])
    small.config.num_hidden_layers = len(keep)
    return small


def layers_of(model: Any) -> list[Any]:
    """Gives the layers of a causal language model of transformers, in order.

    Raises:
        ModelError: They are not found.
    """
    return list(_layer_list(model)[1])


def _layer_list(model: Any) -> tuple[str, Any]:
    total = model.config.num_hidden_layers
    for name, child in model.base_model.named_children():
        if type(child).__name__ == "ModuleList" and len(child) == total:
            return name, child
    raise ModelError(
        f"cannot find the {total} layers of {type(model).__name__}; layer-skip needs one list of them."
    )
