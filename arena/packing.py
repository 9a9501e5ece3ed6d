"""Token ids in as few bytes as they need: most of what a draft weighs on its way is its support."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def pack(ids: Any) -> Any:
    """Packs ids from -1 on into two or three bytes each.

    Args:
        ids: int32[...]; whatever else it is, is given back itself.

    Returns:
        uint8[..., bytes], or ``ids`` where they cannot be packed.
    """
    size = _width(ids)
    if size is None:
        return ids
    wide = np.ascontiguousarray(ids + 1, dtype="<u4")
    return np.ascontiguousarray(wide.view(np.uint8).reshape(*ids.shape, 4)[..., :size])


def size_of(ids: Any) -> int:
    """Gives the bytes of what :func:`pack` would give, packing nothing."""
    size = _width(ids)
    return int(ids.nbytes if size is None else ids.size * size)


def _width(ids: Any) -> int | None:
    """Bytes that each id needs; None where they cannot be packed."""
    if not isinstance(ids, np.ndarray) or ids.dtype != np.int32 or not ids.size:
        return None
    if int(ids.min()) < -1 or int(ids.max()) >= 0xFFFFFE:
        return None
    return 2 if int(ids.max()) < 0xFFFF else 3


def unpack(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Gives back what was packed, int32[...]."""
    wide = np.zeros((*packed.shape[:-1], 4), dtype=np.uint8)
    wide[..., : packed.shape[-1]] = packed
    return wide.view("<u4")[..., 0].astype(np.int32) - np.int32(1)


def travel(make: Any, tokens: Any, lengths: Any, support: Any, probs: Any) -> tuple[Any, ...]:
    """Gives what ``__reduce__`` of a draft gives: how it is made again, and from what."""
    packed = pack(support)
    if packed is support:
        return make, (tokens, lengths, support, probs)
    return _arrive, (make, tokens, lengths, packed, probs)


def _arrive(make: Any, tokens: Any, lengths: Any, packed: npt.NDArray[np.uint8], probs: Any) -> Any:
    return make(tokens, lengths, unpack(packed), probs)
