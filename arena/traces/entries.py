"""One logged output token, as chat and completion responses list them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One logged output token: its id, the log of its probability, its text, the other logged ones."""

    id: int | None
    logprob: float | None
    text: str | None = None
    tops: tuple[float, ...] = ()
    processed: bool = False


def entries_of(logprobs: Any) -> list[Entry]:
    """Reads chat (``content``) and completion (``tokens``) log-probabilities."""
    if not logprobs:
        return []
    if logprobs.get("content") is not None:
        return [_chat_entry(item) for item in logprobs["content"]]
    tokens, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    tops = logprobs.get("top_logprobs") or [None] * len(tokens)
    found = []
    for token, value, top in zip(tokens, values, tops, strict=True):
        others = tuple(float(x) for name, x in (top or {}).items() if name != token)
        found.append(Entry(_named(token), value, token, _contiguous(value, others)))
    return found


def _chat_entry(item: Mapping[str, Any]) -> Entry:
    processed = "prob" in item  # llama-server under post_sampling_probs
    value = item.get("logprob")
    if processed:
        value = math.log(item["prob"]) if item["prob"] > 0 else -math.inf
    others = tuple(
        float(top["logprob"])
        for top in item.get("top_logprobs") or ()
        if "logprob" in top and top.get("token") != item.get("token")
    )
    token_id = item.get("id")
    name = item.get("token")
    return Entry(
        int(token_id) if token_id is not None else _named(name),
        None if value is None else float(value),
        name,
        _contiguous(value, others),
        processed,
    )


def _named(token: Any) -> int | None:
    """Reads vLLM's ``return_tokens_as_token_ids`` names."""
    prefix = "token_id:"
    return int(token[len(prefix) :]) if isinstance(token, str) and token.startswith(prefix) else None


def _contiguous(own: float | None, others: Sequence[float]) -> tuple[float, ...]:
    """The most probable logged tokens without a gap: the sampled one only if it is among them."""
    ranked = sorted(others, reverse=True)
    if own is not None and (not ranked or own >= ranked[-1]):
        # Alone, it need not be the most probable one: some servers list the sampled token first.
        return tuple(sorted([*ranked, own], reverse=True)) if ranked else ()
    return tuple(ranked)
