"""The sprinter: a back-off n-gram table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from arena import seeding
from arena.errors import ConfigError, RunError
from arena.protocols import Capabilities
from arena.sampling import truncate, warp
from arena.types import Draft, Feedback, Floats, Ints, ProposeRequest, Sampling
from drafters.base import LaneDrafter, Law, Rows, log_probs, roll

Counts = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_FILE = "sprinter.npz"
_KEPT_TAILS = 4096


class Sprinter(LaneDrafter):
    """Always drafts the full K at almost no cost, from an interpolated n-gram law.

    The law is Witten-Bell's: with c(h, w) the count of w after context h, c(h) their
    sum and t(h) how many different w were seen there,
    p(w | h) = (c(h, w) + t(h) p(w | h')) / (c(h) + t(h)), where h' is h without its
    oldest token; p(w) at the end is the relative frequency. Its ``support`` most
    probable tokens are kept, then warped as the request says. Counts come from
    ``corpus`` and, unless ``learns`` is off, from committed text (prompts are read as
    context, not counted). Before any count it draws from the relative frequencies of
    the lane's own text. Sources: Witten & Bell 1991; Chen & Goodman 1998, section 2.5.

    Args:
        name: Seat in the roster.
        order: Longest n-gram, tokens; the context is one shorter.
        learns: Count the tokens that were committed.
        corpus: File of token ids to count beforehand: ``.npy`` (one text, integers), or text
            with one text a line, ids separated by spaces.
        support: Most tokens of a law that is sent.
    """

    def __init__(
        self, *, name: str, order: int = 4, learns: bool = True, corpus: str | None = None, support: int = 64
    ) -> None:
        super().__init__(name=name)
        if order < 1 or support < 1:
            raise ConfigError(
                f"drafter {name!r}: order is {order} and support {support}; expected at least 1."
            )
        self.order = order
        self.learns = learns
        self.support = support
        self._levels = [_Level() for _ in range(order)]
        self._tails: dict[str, Ints] = {}
        if corpus is not None:
            self._count(_read_corpus(Path(corpus)))

    @property
    def capabilities(self) -> Capabilities:
        """A scored law over whatever tokens were seen."""
        return Capabilities(deterministic=False, learns=self.learns, can_score=True)

    def score(self, context: Sequence[int], output: Sequence[int], sampling: Sampling) -> Floats:
        """Gives the log-probability of each output token under the law it would send, float64[n]."""
        text = np.array([*context, *output], dtype=np.int32)
        laws = self._laws([text[: len(context) + j] for j in range(len(output))], sampling)
        return log_probs(laws, output)

    def learn(self, batch: Sequence[Feedback]) -> None:
        """Counts the committed tokens, each after those before it."""
        if not self.learns:
            return
        texts = []
        for feedback in batch:
            prompt = feedback.step.prompt_id
            tail = self._tails.pop(prompt, np.empty(0, dtype=np.int32))
            if feedback.step.start == 0:
                tail = self._tail(np.array(feedback.context, dtype=np.int32))
            text = np.concatenate([tail, np.array(feedback.tokens, dtype=np.int32)])
            texts.append((text, len(tail)))
            self._tails[prompt] = self._tail(text)
        while len(self._tails) > _KEPT_TAILS:
            del self._tails[next(iter(self._tails))]
        self._count(texts)

    def save(self, folder: Path) -> None:
        """Writes the counts, and the ends of the texts being read, to ``sprinter.npz``."""
        arrays: dict[str, npt.NDArray[np.generic]] = {"order": np.array(self.order)}
        for size, level in enumerate(self._levels):
            arrays |= {
                f"context_{size}": level.context,
                f"token_{size}": level.token,
                f"count_{size}": level.count,
            }
        arrays["prompts"] = np.array(list(self._tails), dtype=np.str_)
        arrays["tail_lengths"] = np.array([len(tail) for tail in self._tails.values()], dtype=np.int64)
        arrays["tails"] = np.concatenate([np.empty(0, dtype=np.int32), *self._tails.values()])
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / _FILE, allow_pickle=False, **arrays)

    def load(self, folder: Path) -> None:
        """Reads what ``save`` wrote.

        Raises:
            RunError: The file is missing, damaged, or of a table of another order.
        """
        path = folder / _FILE
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            order = int(arrays["order"])
            levels = [
                _Level(arrays[f"context_{size}"], arrays[f"token_{size}"], arrays[f"count_{size}"])
                for size in range(order)
            ]
            ends = np.cumsum(arrays["tail_lengths"])[:-1]
            tails = np.split(arrays["tails"], ends) if len(arrays["tail_lengths"]) else []
            prompts = [str(prompt) for prompt in arrays["prompts"]]
        except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
            raise RunError(
                f"{path} is missing or damaged ({error}); expected a saved n-gram table."
            ) from error
        if order != self.order:
            raise RunError(f"{path} holds a table of order {order}; expected order {self.order}.")
        self._levels = levels
        self._tails = dict(zip(prompts, tails, strict=True))

    def _draft(self, request: ProposeRequest) -> Draft:
        def law_of(rows: Rows, drafted: Ints) -> Law:
            texts = [
                np.concatenate([self.context(request.lanes[row].lane), mine])
                for row, mine in zip(rows.tolist(), drafted, strict=True)
            ]
            return self._laws(texts, request.sampling)

        return roll(request, self.name, law_of)

    def _tail(self, text: Ints) -> Ints:
        return text[max(0, len(text) - self.order + 1) :]

    def _count(self, texts: Iterable[tuple[Ints, int]]) -> None:
        """Counts the tokens of each text from a position on."""
        read = list(texts)
        for size, level in enumerate(self._levels):
            firsts = [(text, max(start, size)) for text, start in read if max(start, size) < len(text)]
            if not firsts:
                continue
            words = [
                np.concatenate([text[first - back : len(text) - back] for text, first in firsts])
                for back in range(size, 0, -1)
            ]
            ids = np.concatenate([text[first:] for text, first in firsts])
            level.add(np.broadcast_to(_hash(words), ids.shape), ids)

    def _laws(self, texts: Sequence[Ints], sampling: Sampling) -> Law:
        ids = np.full((len(texts), self.support), -1, dtype=np.int32)
        mass = np.zeros((len(texts), self.support))
        for row, (text, found) in enumerate(zip(texts, self._followers(texts), strict=True)):
            candidates, law = self._interpolated(text, found)
            # The most probable first, ties by lowest id; then by id, as warp and truncate break ties.
            top = np.sort(np.argsort(-law, kind="stable")[: self.support])
            ids[row, : top.size], mass[row, : top.size] = candidates[top], law[top]
        support, probs = ids.copy(), np.zeros(mass.shape, dtype=np.float32)
        drawn = mass.any(axis=1)
        if drawn.any():
            with np.errstate(divide="ignore"):
                index, probs[drawn] = truncate(warp(np.log(mass[drawn]), sampling), self.support)
            support[drawn] = np.where(index >= 0, np.take_along_axis(ids[drawn], index, -1), -1)
        return support, probs

    def _followers(self, texts: Sequence[Ints]) -> list[list[tuple[Ints, Counts]]]:
        """Gives what followed the ends of each text before, shortest end first, until one is new."""
        found: list[list[tuple[Ints, Counts]]] = [[] for _ in texts]
        for size in range(1, self.order):
            rows = [
                row for row, text in enumerate(texts) if len(text) >= size and len(found[row]) == size - 1
            ]
            if rows:
                ends = np.array([texts[row][len(texts[row]) - size :] for row in rows])
                for row, (ids, counts) in zip(
                    rows, self._levels[size].after(_hash(list(ends.T))), strict=True
                ):
                    if ids.size:
                        found[row].append((ids, counts))
        return found

    def _interpolated(self, text: Ints, found: Sequence[tuple[Ints, Counts]]) -> tuple[Ints, Floats]:
        """Gives Witten-Bell's law after a text: the ids that can be among the top, rising, and their mass."""
        base = self._levels[0]
        if not base.token.size:
            seen, times = np.unique(text, return_counts=True)
            return seen, times / max(1, len(text))
        # A token that followed none of these contexts has a fixed multiple of its relative
        # frequency: only the most frequent ones can be among the top.
        candidates = np.unique(np.concatenate([base.most_frequent(self.support), *(ids for ids, _ in found)]))
        mass = base.count[np.searchsorted(base.token, candidates)] / base.total
        for ids, counts in found:
            total, types = counts.sum(), len(ids)
            mass = types * mass
            mass[np.searchsorted(candidates, ids)] += counts
            mass = mass / (total + types)
        return candidates, mass


class _Level:
    """Counts of tokens after contexts of one length, sorted by context and token."""

    def __init__(
        self, context: Hashes | None = None, token: Ints | None = None, count: Counts | None = None
    ) -> None:
        self.context = np.empty(0, dtype=np.uint64) if context is None else context
        self.token = np.empty(0, dtype=np.int32) if token is None else token
        self.count = np.empty(0, dtype=np.int64) if count is None else count
        if not self.context.shape == self.token.shape == self.count.shape:
            raise ValueError("its columns differ in length")
        self.total = int(self.count.sum())
        self._top: tuple[int, Ints] | None = None

    def add(self, context: Hashes, token: Ints) -> None:
        """Counts tokens once more each."""
        contexts = np.concatenate([self.context, context])
        tokens = np.concatenate([self.token, token]).astype(np.int32)
        counts = np.concatenate([self.count, np.ones(len(token), dtype=np.int64)])
        order = np.lexsort((tokens, contexts))
        contexts, tokens, counts = contexts[order], tokens[order], counts[order]
        new = np.flatnonzero(
            (np.diff(contexts, prepend=~contexts[:1]) != 0) | (np.diff(tokens, prepend=-1) != 0)
        )
        self.context, self.token = contexts[new], tokens[new]
        self.count = np.add.reduceat(counts, new)
        self.total += len(token)
        self._top = None

    def after(self, contexts: Hashes) -> list[tuple[Ints, Counts]]:
        """Gives the tokens seen after each context, rising, and their counts."""
        left, right = (np.searchsorted(self.context, contexts, side).tolist() for side in ("left", "right"))
        return [(self.token[a:b], self.count[a:b]) for a, b in zip(left, right, strict=True)]

    def most_frequent(self, m: int) -> Ints:
        """Gives the m most frequent tokens of the empty context (kept until counts change)."""
        if self._top is None or self._top[0] != m:
            self._top = m, self.token[np.argsort(-self.count, kind="stable")[:m]]
        return self._top[1]


def _hash(words: Sequence[Ints]) -> Hashes:
    """Hashes contexts given as one array a position, oldest first."""
    return np.atleast_1d(seeding.fold(0, "n-gram", len(words), *words))


def _read_corpus(path: Path) -> list[tuple[Ints, int]]:
    try:
        if path.suffix == ".npy":
            texts = [np.load(path, allow_pickle=False)]
        else:
            lines = path.read_text(encoding="utf-8").splitlines()
            texts = [np.array([int(word) for word in line.split()], dtype=np.int64) for line in lines]
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"corpus {path} cannot be read ({error}); expected token ids.") from error
    if any(text.ndim != 1 or text.dtype.kind not in "iu" or (text < 0).any() for text in texts):
        raise ConfigError(f"corpus {path}: expected rows of token ids, integers from 0.")
    return [(text.astype(np.int32), 0) for text in texts]
