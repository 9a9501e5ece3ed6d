"""Plain batched decoding: a model's own text, with the raw law behind every token.

It makes the text on which drafters are bred and models are compared. Every draw is
keyed by the prompt and the position, so neither the batch nor the order matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from arena import seeding
from arena.models.lanes import LaneModel
from arena.models.laws import target_law
from arena.sampling import draw
from arena.types import Feedback, LaneStep, Sampling


def decode(
    cache: LaneModel,
    contexts: Mapping[str, Sequence[int]],
    new_tokens: int,
    *,
    key: int,
    sampling: Sampling | None = None,
    eos: Sequence[int] = (),
    top: int = 64,
) -> list[Feedback]:
    """Continues texts, all of them side by side, until an end token or the budget.

    Args:
        cache: A model with at least as many lanes as there are texts.
        contexts: Prompt id to its tokens, at least one each.
        new_tokens: Most tokens of each continuation.
        key: With the prompt id and the position it keys every draw.
        sampling: Warping of the law that is drawn from; plain by default.
        eos: Tokens that end a text.
        top: Support of the raw laws that are kept.

    Returns:
        One record a text, in the order of ``contexts``: all that was said, and the raw
        law (top and tail) at each position, as the verifier of a run tells learners.
    """
    warp = sampling or Sampling()
    names = list(contexts)
    said: dict[str, list[int]] = {name: [] for name in names}
    laws: dict[str, list[tuple[Any, Any, float]]] = {name: [] for name in names}
    cache.clear(range(len(names)))
    # Without a text there is no law; the limit leaves room for every token that is fed back.
    budgets = {name: min(new_tokens, cache.max_length - len(contexts[name])) for name in names}
    fresh = {
        lane: np.asarray(contexts[name], dtype=np.int64)
        for lane, name in enumerate(names)
        if budgets[name] > 0
    }
    while fresh:
        logits = cache.prefill(fresh, want_logits=True)
        assert logits is not None
        best = torch.softmax(logits, dim=-1).topk(min(top, logits.shape[-1]), dim=-1)
        ids = best.indices.cpu().numpy().astype(np.int32)
        mass = best.values.cpu().numpy().astype(np.float64)
        warped = target_law(logits, warp.temperature, warp.top_k, warp.top_p).double()
        law = (warped / warped.sum(dim=-1, keepdim=True)).cpu().numpy()
        lanes = list(fresh)
        words = np.array([seeding.name_word(names[lane]) for lane in lanes], dtype=np.uint64)
        places = np.array([len(said[names[lane]]) for lane in lanes], dtype=np.uint64)
        drawn = draw(law, seeding.uniform(key, words, places, "decode"))
        fresh = {}
        for row, lane in enumerate(lanes):
            name, token = names[lane], int(drawn[row])
            said[name].append(token)
            laws[name].append((ids[row], mass[row], float(max(0.0, 1.0 - mass[row].sum()))))
            if token not in eos and len(said[name]) < budgets[name]:
                fresh[lane] = np.array([token])
    return [_record(name, contexts[name], said[name], laws[name]) for name in names]


def _record(name: str, context: Sequence[int], said: list[int], laws: list[Any]) -> Feedback:
    width = len(laws[0][0]) if laws else 1
    return Feedback(
        step=LaneStep(name, 0),
        context=tuple(int(token) for token in context),
        tokens=tuple(said),
        support=np.array([law[0] for law in laws], dtype=np.int32).reshape(-1, width),
        target_probs=np.array([law[1] for law in laws], dtype=np.float32).reshape(-1, width),
        tail=np.array([law[2] for law in laws], dtype=np.float32),
    )
