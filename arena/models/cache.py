"""One layer of the lane cache: a key and a value tensor shared by all lanes.

Transformers' own layers append every new token to one common end. Here each lane
has its own end, so the columns that a forward writes are chosen by a :class:`Plan`
which :class:`arena.models.lanes.LaneModel` sets before it calls the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import CacheLayerMixin


@dataclass
class Plan:
    """Where the next forward writes, and how much of the cache it reads.

    Attributes:
        lanes: Size of the batch dimension of the whole cache.
        capacity: Columns that the cache must have.
        rows: The lanes of the forward: a slice where they are neighbours, else int64[B'].
        writes: Flat lane and column index of every new token, each int64[B', N].
        reach: Columns read: the longest lane's length plus the new tokens.
    """

    lanes: int
    capacity: int
    rows: slice | torch.Tensor
    writes: tuple[torch.Tensor, torch.Tensor]
    reach: int


class LaneLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is untyped to mypy
    """Keys and values of one layer, ``[lanes, heads, capacity, head size]`` each."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.plan: Plan | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocates the tensors in the shape, dtype and device of the first states seen."""
        assert self.plan is not None
        lanes, capacity = self.plan.lanes, self.plan.capacity

        def like(states: torch.Tensor) -> torch.Tensor:
            # Zeros, not `empty`: a masked column has weight 0, but 0 times NaN is NaN.
            return states.new_zeros((lanes, states.shape[1], capacity, states.shape[3]))

        self.keys, self.values = like(key_states), like(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the new states at each lane's own end.

        Args:
            key_states: New keys, ``[B', heads, N, head size]``.
            value_states: New values, of the same shape but perhaps another head size.
            *args: Ignored; for the interface of transformers.
            **kwargs: Ignored; for the interface of transformers.

        Returns:
            Keys and values of the lanes of the forward, ``[B', heads, reach, head size]``.
        """
        plan = self.plan
        assert plan is not None
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        for store, states in ((self.keys, key_states), (self.values, value_states)):
            store[plan.writes[0], :, plan.writes[1]] = states.transpose(1, 2)
        if isinstance(plan.rows, slice):
            # Neighbouring lanes are a view: nothing is copied.
            return self.keys[plan.rows, :, : plan.reach], self.values[plan.rows, :, : plan.reach]
        read = (self.keys[:, :, : plan.reach], self.values[:, :, : plan.reach])
        return read[0].index_select(0, plan.rows), read[1].index_select(0, plan.rows)

    def grow(self, capacity: int) -> None:
        """Enlarges both tensors; every old column stays, since other lanes may have open trees."""
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros((old.shape[0], old.shape[1], capacity, old.shape[3]))
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)

    def move(self, lanes: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copies columns within lanes; all are read before any is written.

        Args:
            lanes: int64[M], the lane of each copied column.
            source: int64[M], the column read.
            target: int64[M], the column written.
        """
        for store in (self.keys, self.values):
            store[lanes, :, target] = store[lanes, :, source]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Gives the columns that are read, and no offset (transformers' interface)."""
        return (self.plan.reach if self.plan else query_length), 0

    def get_seq_length(self) -> int:
        """Gives 0: lanes have lengths, the layer has none (positions are always explicit)."""
        return 0

    def get_max_length(self) -> int:
        """Gives -1: the layer grows (transformers' interface)."""
        return -1
