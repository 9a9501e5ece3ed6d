"""The tokenizer's part in reading a log: used where ids are absent, and then checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arena.models import tokens as models


class Unusable(Exception):
    """A line of a log that cannot be used, with the reason."""


class Tokenizer:
    """The tokenizer of the model that wrote a log.

    Args:
        model: As for :func:`arena.models.files.resolve`.
    """

    def __init__(self, model: str) -> None:
        self._tokenizer = models.load_tokenizer(model)
        self.fingerprint = models.vocab_fingerprint(self._tokenizer)
        self.eos = models.eos_ids(None, self._tokenizer)

    def encode(self, messages: Sequence[Mapping[str, Any]] | None, text: str | None) -> list[int]:
        """Turns a prompt into ids; a chat by the model's template."""
        if messages is None and text is None:
            raise Unusable("it has neither prompt token ids, nor messages, nor a prompt")
        return models.encode(self._tokenizer, messages, text if messages is None else None)

    def decode(self, ids: Sequence[int]) -> str:
        """Turns ids into text, special tokens left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def again(self, text: str, pieces: Sequence[str | None]) -> list[int]:
        """Tokenises output text again.

        The pieces that a log lists name the tokens more surely than the whole text does,
        where each of them is the text of one token.

        Raises:
            Unusable: It does not round-trip, or into another number of tokens than logged.
        """
        vocabulary = self._tokenizer.get_vocab()
        exact = [vocabulary.get(piece) for piece in pieces]
        ids = [int(token) for token in self._tokenizer(text, add_special_tokens=False)["input_ids"]]
        if pieces and len(ids) == len(pieces) - 1 and (not pieces[-1] or exact[-1] in self.eos):
            ids.append(exact[-1] if exact[-1] in self.eos else self.eos[0])
        if pieces and len(ids) != len(pieces):
            raise Unusable(f"its text is {len(ids)} tokens here and {len(pieces)} in the log")
        if self.decode(ids) != text:
            raise Unusable("its text does not round-trip through the tokenizer")
        return ids

    def confirm(self, ids: Sequence[int], text: Any) -> None:
        """Checks that ids mean the text that stands beside them.

        Raises:
            Unusable: They are of another tokenizer.
        """
        if isinstance(text, str) and "\ufffd" not in text and self.decode(ids).strip() != text.strip():
            raise Unusable(
                "its token ids do not spell its text: the log is of another tokenizer than --model"
            )
