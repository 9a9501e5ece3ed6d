"""Ends of texts (CASES 1 and 2)."""

from __future__ import annotations

import numpy as np
import pytest

from arena.acceptance.ending import effective_length, offered, settle, truncate_at_end
from arena.types import Chain

EOS = (0, 9)


def chain(*tokens: int) -> Chain:
    ids = np.array(tokens, dtype=np.int32)
    return Chain(ids, ids[:, None], np.ones((len(tokens), 1)))


def test_drafts_are_capped_at_what_can_still_be_used() -> None:
    assert [effective_length(4, remaining) for remaining in (1, 2, 4, 5, 6)] == [0, 1, 3, 4, 4]
    assert effective_length(4, 0) == 0


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [((1, 2, 3), (1, 2, 3)), ((1, 9, 3), (1, 9)), ((0, 1), (0,)), ((1, 2, 9), (1, 2, 9)), ((), ())],
)
def test_a_chain_stops_at_its_first_end_token(tokens: tuple[int, ...], kept: tuple[int, ...]) -> None:
    cut = truncate_at_end(chain(*tokens), EOS)
    assert tuple(cut.tokens.tolist()) == kept
    assert cut.support.shape == cut.draft_probs.shape == (len(kept), 1)
    assert len(truncate_at_end(chain(*tokens), ())) == len(tokens)


@pytest.mark.parametrize(
    ("path", "token", "remaining", "expected"),
    [
        ((1, 2), 3, 9, ((1, 2, 3), 2, "")),
        ((1, 2), 3, 3, ((1, 2, 3), 2, "length")),
        ((1, 2), 9, 9, ((1, 2, 9), 2, "stop")),
        ((1, 2), 9, 3, ((1, 2, 9), 2, "stop")),
        ((1, 9), 3, 9, ((1, 9), 2, "stop")),
        ((1, 9, 2, 4), 3, 9, ((1, 9), 2, "stop")),
        ((0,), 0, 1, ((0,), 1, "stop")),
        ((), 5, 1, ((5,), 0, "length")),
        ((), 9, 4, ((9,), 0, "stop")),
        ((1, 2, 3), 4, 1, ((1,), 1, "length")),
        ((1, 2, 3), 4, 3, ((1, 2, 3), 3, "length")),
    ],
)
def test_settle(
    path: tuple[int, ...], token: int, remaining: int, expected: tuple[tuple[int, ...], int, str]
) -> None:
    assert settle(path, token, EOS, remaining) == expected


def test_offered() -> None:
    assert offered(4, (1, 2), EOS) == 4
    assert offered(4, (), EOS) == 4
    assert offered(4, (1, 9), EOS) == 2
    assert offered(4, (0,), EOS) == 1
