"""What learners share: lessons made of feedback, and the loss against the verifier's law."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.types import Feedback, Floats32, Ints

if TYPE_CHECKING:
    import torch

_KEPT_TEXTS = 1024
"""Most texts whose ends are remembered; the lanes of a run are far fewer."""


@dataclass(frozen=True, slots=True)
class Example:
    """A piece of one lane's text, and the target laws at its committed positions.

    Attributes:
        offset: Position in the whole text of the first token here.
        tokens: int32[c + n], the context that is kept, then what was committed.
        context: c.
        support: int32[n, m].
        target_probs: float32[n, m].
        tail: float32[n].
    """

    offset: int
    tokens: Ints
    context: int
    support: Ints
    target_probs: Floats32
    tail: Floats32

    @property
    def size(self) -> int:
        """Positions that are learnt from."""
        return len(self.tokens) - self.context


class Texts:
    """The ends of the lanes' texts, kept by prompt id: whole contexts are told only once.

    Args:
        window: Tokens of context that are kept.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._ends: dict[str, tuple[int, Ints]] = {}

    def examples(self, batch: Sequence[Feedback]) -> list[Example]:
        """Turns feedback, sorted by (prompt_id, start), into one example a stretch of text.

        Lane-steps that follow one another are joined: each position is still predicted
        from what came before it. A stretch whose context is not known is left out.
        """
        made: list[Example] = []
        joined: list[Feedback] = []
        for item in batch:
            if joined and not _follows(joined[-1], item):
                made += self._close(joined)
                joined = []
            joined.append(item)
        made += self._close(joined)
        while len(self._ends) > _KEPT_TEXTS:
            del self._ends[next(iter(self._ends))]
        return made

    def _close(self, items: Sequence[Feedback]) -> Iterator[Example]:
        if not items:
            return
        prompt = items[0].step.prompt_id
        said = np.array([token for item in items for token in item.tokens], dtype=np.int32)
        if items[0].step.start == 0:
            context = np.array(items[0].context, dtype=np.int32)
            length = len(context)
        elif prompt in self._ends:
            length, context = self._ends.pop(prompt)
        else:
            return
        context = context[max(0, len(context) - self.window) :]
        tokens = np.concatenate([context, said])
        end = length + len(said)
        self._ends[prompt] = end, tokens[max(0, len(tokens) - self.window) :]
        if len(context) and len(said):
            yield Example(
                length - len(context),
                tokens,
                len(context),
                np.concatenate([item.support for item in items]),
                np.concatenate([item.target_probs for item in items]),
                np.concatenate([item.tail for item in items]),
            )

    def save(self) -> tuple[Ints, str]:
        """Gives the ends in one array, and the names, lengths and sizes as JSON."""
        ends = [end for _, end in self._ends.values()]
        index = [[prompt, length, len(end)] for prompt, (length, end) in self._ends.items()]
        return np.concatenate([np.empty(0, dtype=np.int32), *ends]), json.dumps(index)

    def load(self, ends: Ints, index: str) -> None:
        """Takes back what :meth:`save` gave."""
        self._ends, start = {}, 0
        for prompt, length, size in json.loads(index):
            self._ends[prompt] = int(length), ends[start : start + size]
            start += size


def _follows(one: Feedback, other: Feedback) -> bool:
    return one.step.prompt_id == other.step.prompt_id and one.step.start + len(one.tokens) == other.step.start


def pieces(examples: Sequence[Example], tokens: int) -> Iterator[list[Example]]:
    """Deals examples, in order, into lessons of at least so many positions (the last may have fewer)."""
    lesson: list[Example] = []
    for example in examples:
        lesson.append(example)
        if sum(each.size for each in lesson) >= tokens:
            yield lesson
            lesson = []
    if lesson:
        yield lesson


def loss_of(model: Any, lesson: Sequence[Example]) -> torch.Tensor:
    """Gives the mean KL(target || model) over the committed positions, nats, in one padded forward.

    The target law is known on a support, with the mass of the rest in one lump; the
    model's law is lumped alike, so that the divergence is exact on that coarser event
    space and a lower bound of the whole one.

    Args:
        model: A causal language model of transformers.
        lesson: The examples.

    Returns:
        A scalar that can be differentiated.
    """
    import torch

    device = next(model.parameters()).device
    width = max(len(each.tokens) for each in lesson) - 1  # the last token predicts nothing here
    tokens = np.zeros((len(lesson), width), dtype=np.int64)
    learnt = np.zeros((len(lesson), width), dtype=np.bool_)
    limit = getattr(model.config, "max_position_embeddings", None) or 1 << 30
    # Padding goes to the right: under a causal mask nothing that counts can see it.
    starts = np.array([min(each.offset, limit - width) for each in lesson])
    for row, each in enumerate(lesson):
        tokens[row, : len(each.tokens) - 1] = each.tokens[:-1]
        learnt[row, each.context - 1 : len(each.tokens) - 1] = True
    logits = model(
        input_ids=torch.from_numpy(tokens).to(device),
        position_ids=torch.from_numpy(starts[:, None] + np.arange(width)).to(device),
        use_cache=False,
        logits_to_keep=torch.from_numpy(learnt).to(device),
    ).logits
    support = torch.from_numpy(np.concatenate([each.support for each in lesson]).astype(np.int64)).to(device)
    target = torch.from_numpy(np.concatenate([each.target_probs for each in lesson])).to(device)
    tail = torch.from_numpy(np.concatenate([each.tail for each in lesson])).to(device)
    logq = torch.log_softmax(logits.float(), dim=-1)
    total = (torch.special.xlogy(target, target) - target * logq.gather(1, support)).sum()
    if support.shape[1] < logq.shape[1]:
        rest = logq.scatter(1, support, float("-inf")).logsumexp(dim=-1)
        total = total + (torch.special.xlogy(tail, tail) - tail * rest).sum()
    mean: torch.Tensor = total / len(support)
    return mean
