"""A language model as drafter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.errors import ConfigError, DrafterFault, LawError, ModelError
from arena.protocols import Capabilities
from arena.types import Draft, Floats, Ints, ProposeRequest, Sampling
from drafters.base import LaneDrafter, Law, Rows, log_probs, roll

if TYPE_CHECKING:
    import torch

    from arena.models.lanes import LaneModel

DEFAULT_MODEL = "smollm2-135m"

_SCORED_AT_ONCE = 64
"""Positions a teacher-forced pass scores in one forward."""


class LanguageModel(LaneDrafter):
    """Any causal language model with the verifier's vocabulary, or a sub-model of one.

    Its law is warped as the verifier's is, cut to its ``support`` most probable tokens
    and renormalised; each token is drawn from that. A cache is kept in step: a call
    runs the model once over the tokens committed since the last call (of which those
    it had drafted are mostly cached) and once for each further token. Source:
    Leviathan et al. 2211.17192; dropping layers: Zhang et al. 2309.08168 (Draft & Verify).

    Args:
        name: Seat in the roster.
        model: The embedded model's name, a folder, a ``.gguf`` file, or a hub id.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        device: ``auto`` or a torch device.
        support: Most tokens of a law that is sent.
        drop: Layers between these two fractions of the depth are left out.
        max_layers: Of the layers that remain, keep the first so many.
        argmax: Propose the most probable token as a point mass.
        stop_below: End a draft after a token whose probability under the law sent is below this.
        trust_remote_code: Whether code that comes with the model may run.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str = DEFAULT_MODEL,
        dtype: str = "auto",
        device: str = "auto",
        support: int = 64,
        drop: tuple[float, float] | None = None,
        max_layers: int | None = None,
        argmax: bool = False,
        stop_below: float = 0.0,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__(name=name)
        if support < 1 or not 0 <= stop_below <= 1:
            raise ConfigError(
                f"drafter {name!r}: support is {support} and stop_below {stop_below}; "
                "expected at least 1, and 0 to 1."
            )
        from arena.models import load

        self.support = support
        self.argmax = argmax
        self.stop_below = stop_below
        self._source = model
        self._trust = trust_remote_code
        config, tokenizer = _describe(model, trust_remote_code)
        self._fingerprint = _fingerprint(config, tokenizer)
        keep = kept_layers(int(config.num_hidden_layers), drop, max_layers)
        self.model: Any = load.load_model(
            model, dtype=dtype, device=device, keep_layers=keep, trust_remote_code=trust_remote_code
        )
        self._eos = load.eos_ids(self.model, tokenizer)
        self._vocab = int(config.vocab_size)
        if tokenizer is not None:
            self._vocab = min(self._vocab, load.vocab_size(tokenizer))
        self._cache: LaneModel | None = None
        self._cached: dict[int, Ints] = {}

    @classmethod
    def vocabulary_fingerprint(cls, **options: Any) -> str | None:
        """Hashes the tokenizer's vocabulary, loading no weights."""
        from arena.models import load

        trust, model = bool(options.get("trust_remote_code", False)), options.get("model", DEFAULT_MODEL)
        try:
            return load.fingerprint(model, trust_remote_code=trust)
        except ModelError:
            return _fingerprint(load.load_config(model, trust_remote_code=trust), None)

    @property
    def capabilities(self) -> Capabilities:
        """A scored law of a model that can verify."""
        return Capabilities(
            deterministic=self.argmax, can_score=True, can_verify=True, fingerprint=self._fingerprint
        )

    def reset(self, contexts: Mapping[int, Sequence[int]]) -> None:
        """Starts lanes over with full contexts; their caches are rebuilt at the next draft."""
        super().reset(contexts)
        for lane in contexts:
            self._cached.pop(lane, None)

    def score(self, context: Sequence[int], output: Sequence[int], sampling: Sampling) -> Floats:
        """Gives the log-probability of each output token under the law it would send, float64[n].

        Tokens for which it would draft nothing (no context, or one too long) score -inf.
        """
        cache = self._new_cache(1)
        text = np.array([*context, *output], dtype=np.int64)
        scores = np.full(len(output), -np.inf)
        # The law of output token j comes after text[: len(context) + j].
        done = max(0, len(context) - 1)
        last = min(len(text) - 1, cache.max_length)
        if done < last:
            cache.prefill({0: text[:done]})
        while done < last:
            piece = text[done : min(done + _SCORED_AT_ONCE, last)]
            nodes = np.arange(piece.size)
            logits = cache.forward([0], piece[None], nodes[None] - 1, [piece.size])
            cache.keep([0], [nodes])
            first = done + 1 - len(context)
            scores[first : first + piece.size] = log_probs(
                self._law(logits[0], sampling), text[done + 1 : done + 1 + piece.size]
            )
            done += piece.size
        return scores

    def export(self, folder: Path) -> None:
        """Writes the model as it is now, with its tokenizer, as a Hugging Face folder.

        A plain ``AutoModelForCausalLM.from_pretrained`` of the folder gives the logits
        that this drafter drafts from.

        Args:
            folder: Where to; made if absent.
        """
        from arena.models import export

        export.write(self.model, _describe(self._source, self._trust)[1], folder)

    def _draft(self, request: ProposeRequest) -> Draft:
        lanes = [work.lane for work in request.lanes]
        cache = self._room(max(lanes, default=0) + 1)
        lengths = np.array([len(self.context(lane)) for lane in lanes], dtype=np.int64)
        # The cache ends one token before the draft does; without a text there is no law.
        limits = np.where(lengths > 0, cache.max_length + 1 - lengths, 0)

        def law_of(rows: Rows, drafted: Ints) -> Law:
            if drafted.shape[1] == 0:
                fresh = {lanes[row]: self._rewind(lanes[row]) for row in rows.tolist()}
            else:
                fresh = {lanes[row]: drafted[i, -1:] for i, row in enumerate(rows.tolist())}
            logits = cache.prefill(fresh, want_logits=True)
            assert logits is not None
            for lane, tokens in fresh.items():
                self._cached[lane] = np.concatenate([self._cached[lane], tokens])
                self._in_step(cache, lane, drafted.shape[1])
            return self._law(logits, request.sampling)

        def stop(drawn: Ints, probs: Floats) -> Any:
            return np.isin(drawn, self._eos) | (probs < self.stop_below)

        return roll(request, self.name, law_of, limits=limits, stop=stop)

    def _in_step(self, cache: LaneModel, lane: int, drafted: int) -> None:
        """Stops on a cache that holds anything but the committed text and what is drafted after it."""
        wanted = len(self.context(lane)) + drafted
        if not cache.length(lane) == len(self._cached[lane]) == wanted:
            raise DrafterFault(
                self.name, f"lane {lane} of its cache holds {cache.length(lane)} tokens; expected {wanted}"
            )

    def _rewind(self, lane: int) -> Ints:
        """Cuts a lane's cache to what was committed; gives the tokens it lacks, at least one."""
        assert self._cache is not None
        text, cached = self.context(lane), self._cached.get(lane, np.empty(0, dtype=np.int32))
        reach = min(len(text) - 1, len(cached))
        differ = np.flatnonzero(text[:reach] != cached[:reach])
        same = int(differ[0]) if differ.size else reach
        self._cache.truncate(lane, same)
        self._cached[lane] = cached[:same]
        return text[same:]

    def _room(self, lanes: int) -> LaneModel:
        if self._cache is None or self._cache.lanes < lanes:
            self._cache = self._new_cache(max([lanes, *(lane + 1 for lane in self._lanes)]))
            self._cached.clear()
        return self._cache

    def _new_cache(self, lanes: int) -> LaneModel:
        from arena.models.lanes import LaneModel

        return LaneModel(self.model, lanes, vocab=self._vocab)

    def _law(self, logits: torch.Tensor, sampling: Sampling) -> Law:
        """Turns logits, float32[A, V], into the laws that are sent."""
        law = self._warped(logits, sampling)
        top = law.topk(1 if self.argmax else min(self.support, law.shape[-1]), dim=-1)
        return sparse(top.indices.cpu().numpy(), top.values.cpu().numpy())

    def _warped(self, logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
        from arena.models.laws import target_law

        try:
            return target_law(logits, sampling.temperature, sampling.top_k, sampling.top_p)
        except LawError as error:
            raise DrafterFault(self.name, f"its model failed: {error}") from error


def sparse(ids: Any, mass: Any) -> Law:
    """Renormalises partial laws, [A, m] each, most probable first, ties by lowest id."""
    order = np.lexsort((ids, -mass))
    ids, wide = np.take_along_axis(ids, order, -1), np.take_along_axis(mass, order, -1).astype(np.float64)
    total = wide.sum(axis=-1, keepdims=True)
    probs = np.divide(wide, total, out=np.zeros_like(wide), where=total > 0).astype(np.float32)
    return np.where(probs > 0, ids, -1).astype(np.int32), probs


def kept_layers(
    total: int, drop: tuple[float, float] | None, max_layers: int | None
) -> tuple[int, ...] | None:
    """Gives the layers that remain, or None where all do."""
    if drop is None and max_layers is None:
        return None
    from arena.models.load import layer_depths

    if max_layers is not None and max_layers < 1:
        raise ConfigError(f"max_layers is {max_layers}; expected at least 1.")
    return layer_depths(total, drop if drop is not None else (0.0, 0.0))[:max_layers]


def _describe(model: str, trust_remote_code: bool) -> tuple[Any, Any]:
    """Loads a model's config, and its tokenizer or None where it has none."""
    from arena.models import load

    config = load.load_config(model, trust_remote_code=trust_remote_code)
    try:
        return config, load.load_tokenizer(model, trust_remote_code=trust_remote_code)
    except ModelError:
        return config, None


def _fingerprint(config: Any, tokenizer: Any) -> str:
    """Hashes a vocabulary; one without a tokenizer is known by its size alone, and so fits no verifier."""
    from arena.models import load

    return f"ids-{config.vocab_size}" if tokenizer is None else load.vocab_fingerprint(tokenizer)
