"""How far one model's law is from another's, on given text: what promotion changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from arena.types import Feedback


@dataclass(frozen=True, slots=True)
class Drift:
    """Means over the positions of a text that the reference said.

    Attributes:
        positions: How many.
        kl: KL(reference || other), nats.
        tv: Total variation, 0 (equal) to 1 (disjoint).
        agreement: Share of positions with the same most probable token.
        reference_perplexity: Of the text under the model that said it.
        perplexity: Of the same text under the other model.
        entropy: Of the other model's laws there, nats.
    """

    positions: int
    kl: float
    tv: float
    agreement: float
    reference_perplexity: float
    perplexity: float
    entropy: float


def compare(reference: Any, other: Any, texts: Sequence[Feedback], vocab: int) -> Drift:
    """Compares two models' raw laws position by position, teacher forced.

    Args:
        reference: The model that said the texts, of transformers.
        other: The model that is compared with it.
        texts: What was said, each with its whole context.
        vocab: Tokens of the vocabulary, padding cut off.

    Returns:
        Means over all positions; nan where the texts are empty.
    """
    sums = torch.zeros(6, dtype=torch.float64)
    count = 0
    for text in texts:
        if not text.tokens:
            continue
        p, q = (_log_laws(model, text, vocab) for model in (reference, other))
        said = torch.tensor(text.tokens)[:, None]
        sums += torch.stack(
            [
                (p.exp() * (p - q)).sum(),
                (p.exp() - q.exp()).abs().sum() / 2,
                (p.argmax(dim=-1) == q.argmax(dim=-1)).double().sum(),
                -p.gather(1, said).sum(),
                -q.gather(1, said).sum(),
                -(q.exp() * q).sum(),
            ]
        )
        count += len(text.tokens)
    kl, tv, same, own, theirs, entropy = (sums / count).tolist() if count else [math.nan] * 6
    return Drift(count, max(0.0, kl), tv, same, math.exp(own), math.exp(theirs), entropy)


def _log_laws(model: Any, text: Feedback, vocab: int) -> torch.Tensor:
    """Log-probabilities at the positions that were said, float64[n, vocab]."""
    whole = [*text.context, *text.tokens]
    device = next(model.parameters()).device
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([whole[:-1]], device=device),
            use_cache=False,
            logits_to_keep=len(text.tokens),
        ).logits[0, :, :vocab]
    return torch.log_softmax(logits.double().cpu(), dim=-1)
