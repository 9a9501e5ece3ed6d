"""A language model over lanes: a batched cache with tree attention.

A *lane* is one text being continued. Lanes have different lengths and share one
forward: new tokens are written at each lane's own end, an additive mask lets a
node see the committed cache of its lane, its ancestors and itself, and its
position is the committed length plus its depth, so that siblings share a position.
Nothing is committed by :meth:`LaneModel.forward` itself: :meth:`LaneModel.keep`
moves the rows of the accepted path to the lane's end and drops the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import Cache

from arena.errors import ModelError
from arena.models.attention import grouped
from arena.models.cache import LaneLayer, Plan
from arena.models.trees import tree_shape

Ints = npt.NDArray[np.int64]

_FIRST_CAPACITY = 256


class LaneModel:
    """A causal language model with a cache of ``lanes`` texts of different lengths.

    Args:
        model: A causal language model of transformers with plain full attention
            (:func:`arena.models.load.load_model` refuses the others).
        lanes: Number of lanes.
        max_length: Most tokens a lane may hold; the model's ``max_position_embeddings`` by default.
        vocab: Logits are cut to this many tokens, for models whose vocabulary is padded.
    """

    def __init__(
        self, model: Any, lanes: int, max_length: int | None = None, vocab: int | None = None
    ) -> None:
        self.model = model
        self.lanes = lanes
        limit = getattr(model.config, "max_position_embeddings", None) or 1 << 30
        self.max_length: int = min(max_length or limit, limit)
        self.vocab: int = min(vocab or model.config.vocab_size, model.config.vocab_size)
        self.device: torch.device = next(model.parameters()).device
        self.dtype: torch.dtype = next(model.parameters()).dtype
        self._lengths: Ints = np.zeros(lanes, dtype=np.int64)
        self._layers = [LaneLayer() for _ in range(model.config.num_hidden_layers)]
        self._cache = Cache(layers=self._layers)
        self._capacity = _FIRST_CAPACITY
        # The trees of the last forward, a lane: what `keep` may keep.
        self._open: dict[int, Ints] = {}

    def length(self, lane: int) -> int:
        """Gives the committed tokens of a lane."""
        return int(self._lengths[lane])

    @property
    def lengths(self) -> Ints:
        """Committed tokens of every lane, int64[lanes] (a copy)."""
        return self._lengths.copy()

    def forward(
        self,
        lanes: npt.ArrayLike,
        tokens: npt.ArrayLike,
        parents: npt.ArrayLike,
        counts: npt.ArrayLike,
        logits_for: npt.ArrayLike | None = None,
    ) -> torch.Tensor:
        """Runs the model once over one tree a lane; nothing is committed.

        Args:
            lanes: int[B'], the lanes, each once.
            tokens: int[B', N], the token of each node.
            parents: int[B', N], the index of the parent node in the same row, before the node itself;
                -1 for a child of the committed cache.
            counts: int[B'], the valid nodes of each row; the rest is padding.
            logits_for: int[B', M], the nodes whose logits are wanted; all of them by default.

        Returns:
            float32[B', N, vocab] (or [B', M, vocab]), the logits after each node. Rows of padding
            nodes are finite but mean nothing.

        Raises:
            ModelError: A lane is named twice or too long, a token is not in the vocabulary, or a
                parent does not come before its child.
        """
        row = np.asarray(lanes, dtype=np.int64)
        token = np.asarray(tokens, dtype=np.int64)
        parent = np.asarray(parents, dtype=np.int64)
        count = np.asarray(counts, dtype=np.int64)
        depths, sees = tree_shape(parent, count)
        chosen = None if logits_for is None else np.asarray(logits_for, dtype=np.int64)
        logits = self._run(row, token, count, depths, sees, chosen)
        assert logits is not None
        for b, lane in enumerate(row.tolist()):
            self._open[lane] = parent[b, : count[b]].copy()
        return logits

    def keep(self, lanes: npt.ArrayLike, paths: Sequence[npt.ArrayLike]) -> None:
        """Commits one path of each lane's tree and drops the rest.

        Args:
            lanes: int[B'], lanes of the last :meth:`forward`.
            paths: For each lane the nodes kept, from a child of the committed text downwards; may be empty.

        Raises:
            ModelError: A lane has no open tree, or a path does not follow parents.
        """
        moves: list[Ints] = []
        for lane, nodes in zip(np.asarray(lanes, dtype=np.int64).tolist(), paths, strict=True):
            path = np.asarray(nodes, dtype=np.int64).reshape(-1)
            tree = self._open.pop(lane, None)
            if tree is None:
                raise ModelError(f"lane {lane} has no open tree: call `forward` before `keep`.")
            if path.size and (path.max() >= tree.size or path.min() < 0):
                raise ModelError(f"lane {lane}: path {path.tolist()} leaves its tree of {tree.size} nodes.")
            if np.any(tree[path] != np.concatenate([[-1], path[:-1]])[: path.size]):
                raise ModelError(
                    f"lane {lane}: path {path.tolist()} does not follow the parents {tree.tolist()}."
                )
            start = self._lengths[lane]
            step = np.flatnonzero(path != np.arange(path.size))  # a chain stays where it is
            moves.append(np.stack([np.full(step.size, lane), start + path[step], start + step]))
            self._lengths[lane] = start + path.size
        where = np.concatenate(moves, axis=1) if moves else np.zeros((3, 0), dtype=np.int64)
        if where.shape[1]:
            lane_index, source, target = torch.from_numpy(where).to(self.device)
            for layer in self._layers:
                layer.move(lane_index, source, target)

    def prefill(
        self, contexts: Mapping[int, npt.ArrayLike], *, chunk: int = 512, want_logits: bool = False
    ) -> torch.Tensor | None:
        """Appends tokens to lanes and commits them all, in batched causal chunks.

        Args:
            contexts: For each lane the tokens to append, int[n]; lanes may differ in length.
            chunk: Most tokens a lane puts into one forward.
            want_logits: Whether the logits after each lane's last token are wanted; then each lane must
                be given at least one.

        Returns:
            float32[len(contexts), vocab] in the order of ``contexts``, or None.

        Raises:
            ModelError: As for :meth:`forward`, or logits are wanted after no token.
        """
        texts = {int(lane): np.asarray(text, dtype=np.int64).reshape(-1) for lane, text in contexts.items()}
        if want_logits and any(text.size == 0 for text in texts.values()):
            raise ModelError("no logits can be given for a lane to which no token is appended.")
        last: dict[int, torch.Tensor] = {}
        groups: dict[int, list[int]] = {}
        for lane, text in texts.items():
            # Lanes of like length go together, so that at most half of a forward is padding.
            groups.setdefault(max(5, int(text.size - 1).bit_length()), []).append(lane)
        for group in groups.values():
            done = 0
            while active := [lane for lane in group if texts[lane].size > done]:
                pieces = [texts[lane][done : done + chunk] for lane in active]
                counts = np.array([piece.size for piece in pieces], dtype=np.int64)
                width = int(counts.max())
                tokens = np.zeros((len(active), width), dtype=np.int64)
                for b, piece in enumerate(pieces):
                    tokens[b, : piece.size] = piece
                depths = np.broadcast_to(np.arange(width), tokens.shape)
                sees = np.broadcast_to(np.tri(width, dtype=np.bool_), (*tokens.shape, width))
                last_node = counts[:, None] - 1
                logits = self._run(np.array(active), tokens, counts, depths, sees, last_node, want_logits)
                done += width
                for b, lane in enumerate(active):
                    self._lengths[lane] += counts[b]
                    if logits is not None and texts[lane].size <= done:
                        last[lane] = logits[b, 0]
        return torch.stack([last[lane] for lane in texts]) if want_logits else None

    def truncate(self, lane: int, length: int) -> None:
        """Forgets a lane's tokens from position ``length`` on, and its open tree.

        Raises:
            ModelError: The lane is shorter than that.
        """
        if not 0 <= length <= self._lengths[lane]:
            raise ModelError(f"lane {lane} holds {self._lengths[lane]} tokens; it cannot be cut to {length}.")
        self._lengths[lane] = length
        self._open.pop(lane, None)

    def clear(self, lanes: npt.ArrayLike | None = None) -> None:
        """Empties lanes (all of them by default)."""
        chosen = np.arange(self.lanes) if lanes is None else np.asarray(lanes, dtype=np.int64).reshape(-1)
        for lane in chosen.tolist():
            self.truncate(lane, 0)

    def _run(
        self,
        lanes: Ints,
        tokens: Ints,
        counts: Ints,
        depths: Ints,
        sees: npt.NDArray[np.bool_],
        logits_for: Ints | None,
        want_logits: bool = True,
    ) -> torch.Tensor | None:
        """One forward; see :meth:`forward` for shapes and :func:`tree_shape` for depths and sees."""
        rows, width = tokens.shape
        lengths = self._lengths[lanes]
        self._check(lanes, tokens, counts, depths)
        reach = int(lengths.max()) + width
        self._reserve(reach)
        hidden = float(torch.finfo(self.dtype).min)
        mask = np.full((rows, 1, width, reach), hidden, dtype=np.float32)
        for b, length in enumerate(lengths.tolist()):
            mask[b, 0, :, :length] = 0.0
            mask[b, 0, :, length : length + width][sees[b]] = 0.0
        columns = lengths[:, None] + np.arange(width)
        places = np.stack([np.broadcast_to(lanes[:, None], columns.shape), columns])
        where = torch.from_numpy(places).to(self.device)
        first = int(lanes[0])
        neighbours = bool(np.array_equal(lanes, np.arange(first, first + rows)))
        plan = Plan(
            lanes=self.lanes,
            capacity=self._capacity,
            rows=slice(first, first + rows) if neighbours else where[0, :, 0],
            writes=(where[0], where[1]),
            reach=reach,
        )
        for layer in self._layers:
            layer.plan = plan
        for lane in lanes.tolist():
            self._open.pop(lane, None)  # the columns of its old tree are about to be overwritten
        inputs: dict[str, Any] = {
            "input_ids": torch.from_numpy(tokens).to(self.device),
            "attention_mask": torch.from_numpy(mask).to(self.device, self.dtype),
            "position_ids": torch.from_numpy(lengths[:, None] + depths).to(self.device),
            "cache": self._cache,
            "use_cache": True,
        }
        with torch.no_grad(), grouped(self.model):
            if not want_logits:
                self.model.base_model(**inputs)
                return None
            if logits_for is not None:
                inputs["logits_to_keep"] = torch.from_numpy(logits_for).to(self.device)
            logits: torch.Tensor = self.model(**inputs).logits
            return logits[..., : self.vocab].float()

    def _check(self, lanes: Ints, tokens: Ints, counts: Ints, depths: Ints) -> None:
        if np.unique(lanes).size != lanes.size or lanes.min() < 0 or lanes.max() >= self.lanes:
            raise ModelError(f"lanes {lanes.tolist()} are not distinct numbers in [0, {self.lanes}).")
        if counts.min() < 1 or counts.max() > tokens.shape[1]:
            raise ModelError(f"counts {counts.tolist()} are not in [1, {tokens.shape[1]}].")
        # Checked here because a wrong id on a GPU would kill the whole process.
        if tokens.min() < 0 or tokens.max() >= self.model.config.vocab_size:
            raise ModelError(f"a token id is outside [0, {self.model.config.vocab_size}).")
        valid = np.arange(tokens.shape[1]) < counts[:, None]
        ends = self._lengths[lanes] + np.where(valid, depths, 0).max(axis=1) + 1
        if ends.max() > self.max_length:
            lane = int(lanes[ends.argmax()])
            raise ModelError(f"lane {lane} would hold {ends.max()} tokens; the limit is {self.max_length}.")

    def _reserve(self, columns: int) -> None:
        """Makes room for ``columns``, at least doubling, so that growth costs little a token."""
        if columns > self._capacity:
            self._capacity = max(2 * self._capacity, columns)
            for layer in self._layers:
                layer.grow(self._capacity)
