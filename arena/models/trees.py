"""The shape of token trees, as arrays: who is whose ancestor, and how deep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from arena.errors import ModelError

Ints = npt.NDArray[np.int64]


def tree_shape(parents: Ints, counts: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Gives depths and visibility of the nodes of trees.

    Args:
        parents: int[B, N], the parent node in the same row, -1 for a child of the committed text.
        counts: int[B], the valid nodes of each row; the rest is padding.

    Returns:
        Depths int64[B, N] (0 for a child of the committed text) and bool[B, N, N], true where the node of
        the second axis sees the node of the third: its ancestors and itself. Padding sees itself alone.

    Raises:
        ModelError: A parent does not come before its child.
    """
    rows, width = parents.shape
    valid = np.arange(width) < counts[:, None]
    if np.any(valid & ((parents < -1) | (parents >= np.arange(width)))):
        raise ModelError("a tree must list each parent before its children, with -1 for the committed text.")
    depths = np.zeros((rows, width), dtype=np.int64)
    sees = np.zeros((rows, width, width), dtype=np.bool_)
    row = np.arange(rows)
    for node in range(width):
        child = valid[:, node] & (parents[:, node] >= 0)
        parent = np.where(child, parents[:, node], 0)
        depths[:, node] = np.where(child, depths[row, parent] + 1, 0)
        sees[:, node] = sees[row, parent] & child[:, None]
        sees[:, node, node] = True
    return depths, sees
