"""A Hugging Face language model as verifier: one forward a pass over the trees of all lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.models.load import encode, eos_ids, load_model, load_tokenizer, vocab_fingerprint, vocab_size
from arena.models.tokens import fingerprint
from arena.sampling import is_greedy
from arena.types import DraftTree, Floats, Floats32, Ints, Sampling, Vocabulary

# Torch is imported where it is used: who checks an experiment looks at this class, and runs no model.
if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class ModelLaws:
    """Target laws of one lane's tree; a node's dense law is made only when it is visited.

    Attributes:
        warped: float32[N, V], the warped laws.
        mass: float64[N], their sums: rounding is divided out in float64.
        logits: float32[N, V] torch tensor, for the raw law.
    """

    warped: Floats32
    mass: Floats
    logits: torch.Tensor

    def law(self, node: int) -> Floats:
        """float64[V] at a node, summing to 1."""
        return np.asarray(self.warped[node].astype(np.float64) / self.mass[node])

    def probs(self, node: int, tokens: Ints) -> Floats:
        """Probabilities of tokens at a node; 0 where a token is -1."""
        found = self.warped[node][tokens].astype(np.float64) / self.mass[node]
        return np.asarray(np.where(tokens >= 0, found, 0.0))

    def top(self, node: int, m: int) -> tuple[Ints, Floats, float]:
        """The m most probable tokens of the raw law, their mass, and the tail's."""
        best = self.logits[node].softmax(dim=-1).topk(min(m, self.logits.shape[-1]))
        mass = best.values.cpu().numpy().astype(np.float64)
        return best.indices.cpu().numpy().astype(np.int32), mass, float(max(0.0, 1.0 - mass.sum()))


class HFVerifier:
    """Serves a causal language model with full attention.

    Args:
        model: The embedded model's name, a folder, a ``.gguf`` file, or a hub id.
        dtype: ``auto`` (bf16 where the hardware multiplies it, else fp32), or a name.
        device: ``auto`` (CUDA where there is one) or a torch device.
        max_context: Longest context served, tokens; the model's own limit if not given.
        lanes: Lanes held at once; a run sets it by itself.
        prepack: Keep a second copy of the weights that multiplies few rows faster (on a CPU, in fp32 or in a
            bf16 that it multiplies; elsewhere nothing is done).
        trust_remote_code: Whether code that comes with the model may run.
    """

    def __init__(
        self,
        *,
        model: str = "smollm2-135m",
        dtype: str = "auto",
        device: str = "auto",
        max_context: int | None = None,
        lanes: int = 8,
        prepack: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        from arena.models.lanes import LaneModel
        from arena.models.prepack import prepack as lay_out

        self._tokenizer: Any = load_tokenizer(model, trust_remote_code=trust_remote_code)
        net = load_model(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        if prepack:
            lay_out(net)
        self._vocabulary = Vocabulary(
            min(vocab_size(self._tokenizer), int(net.config.vocab_size)),
            vocab_fingerprint(self._tokenizer),
            eos_ids(net, self._tokenizer),
        )
        self._lanes = LaneModel(net, lanes, max_context, self._vocabulary.size)

    @classmethod
    def vocabulary_fingerprint(cls, **options: Any) -> str:
        """The tokenizer's fingerprint; no weights are loaded."""
        trust = bool(options.get("trust_remote_code", False))
        return fingerprint(options.get("model", "smollm2-135m"), trust_remote_code=trust)

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens, padding sliced off."""
        return self._vocabulary

    @property
    def dtype(self) -> str:
        """The model's number format, e.g. ``float32``."""
        return str(self._lanes.dtype).removeprefix("torch.")

    @property
    def net(self) -> Any:
        """The model itself, to be measured beside what is built on it."""
        return self._lanes.model

    @property
    def max_context(self) -> int:
        """Longest context, tokens."""
        return self._lanes.max_length

    def encode(self, messages: Sequence[tuple[str, str]], text: str) -> list[int]:
        """Turns a prompt into token ids, by the chat template where there is one."""
        if messages:
            return encode(self._tokenizer, [{"role": r, "content": c} for r, c in messages])
        return encode(self._tokenizer, text=text)

    def decode_text(self, tokens: Sequence[int]) -> str:
        """Turns token ids into text."""
        return str(self._tokenizer.decode(list(tokens)))

    def open(self, contexts: Mapping[int, Sequence[int]]) -> None:
        """Starts lanes over; all but the last token of each context are cached."""
        self._lanes.clear(list(contexts))
        self._lanes.prefill({lane: np.asarray(context[:-1]) for lane, context in contexts.items()})

    def forward(self, trees: Mapping[int, DraftTree], sampling: Sampling) -> dict[int, ModelLaws]:
        """Gives the laws at every node of the trees of all given lanes, by one forward."""
        from arena.models.laws import target_law

        width = max(len(tree.tokens) for tree in trees.values())
        shape = (len(trees), width)
        tokens, parents = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        counts = np.array([len(tree.tokens) for tree in trees.values()])
        for row, tree in enumerate(trees.values()):
            tokens[row, : counts[row]] = tree.tokens
            parents[row, : counts[row]] = tree.parents
            parents[row, counts[row] :] = -1
        logits = self._lanes.forward(list(trees), tokens, parents, counts)
        laws = {}
        for row, lane in enumerate(trees):
            raw = logits[row, : counts[row]]
            warped = target_law(raw, sampling.temperature, sampling.top_k, sampling.top_p)
            # A point mass is 1 exactly: nothing to add up over the vocabulary.
            mass = np.ones(len(raw)) if is_greedy(sampling) else _mass(warped)
            laws[lane] = ModelLaws(warped.cpu().numpy(), mass, raw)
        return laws

    def cached(self, lane: int) -> int:
        """How many tokens a lane's cache holds."""
        return self._lanes.length(lane)

    def keep(self, paths: Mapping[int, Sequence[int]]) -> None:
        """Keeps the cache rows of each lane's root and accepted nodes."""
        self._lanes.keep(list(paths), [np.array([0, *path]) for path in paths.values()])

    def cut(self, lane: int, length: int) -> None:
        """Forgets a lane's tokens from a position on."""
        self._lanes.truncate(lane, length)


def _mass(warped: torch.Tensor) -> Floats:
    import torch

    return np.asarray(warped.sum(dim=-1, dtype=torch.float64).cpu().numpy())
