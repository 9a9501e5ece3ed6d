"""A table law that is looked up is the one that is worked out, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from arena.models.table import TableLaw


@pytest.mark.parametrize(("vocab", "order"), [(5, 0), (7, 1), (32, 2), (6, 3)])
def test_looked_up_is_worked_out(vocab: int, order: int) -> None:
    law = TableLaw(vocab, order, seed=3, sharpness=1.5)
    contexts = np.random.default_rng(0).integers(-1, vocab, (40, order + 2))
    assert law.logits(contexts).tobytes() == law._hashed(contexts).tobytes()
    for context in contexts:  # one at a time, and cut short: missing tokens are those before the text
        assert law.logits(context[2:]).tobytes() == law._hashed(context[2:]).tobytes()
        short = context[3:] if order else context[2:]
        assert law.logits(short).tobytes() == law._hashed(short).tobytes()
        filled = np.concatenate([np.full(5, -1), short])
        assert law.logits(short).tobytes() == law.logits(filled).tobytes()


def test_unknown_tokens_are_hashed() -> None:
    law = TableLaw(4, 2)
    assert np.isfinite(law.logits(np.array([9, 1]))).all()
