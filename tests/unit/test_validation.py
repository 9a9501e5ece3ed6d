from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arena.sampling import SUM_TOLERANCE
from arena.types import Draft
from arena.validation import validate_draft

VOCAB = 8
KS = (3, 2, 0)


def sound() -> Draft:
    tokens = np.array([[1, 2, 7], [0, 5, -1], [-1, -1, -1]], dtype=np.int32)
    support = np.stack([tokens, np.where(tokens >= 0, (tokens + 1) % VOCAB, -1)], axis=-1).astype(np.int32)
    probs = np.where(support >= 0, 0.5, 0.0).astype(np.float32)
    return Draft(tokens, np.array([3, 2, 0], dtype=np.int32), support, probs)


def put(array: Any, index: Any, value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


def test_a_sound_draft_passes() -> None:
    assert validate_draft(sound(), KS, VOCAB) is None


def test_shorter_and_wider_drafts_pass() -> None:
    draft = sound()
    assert validate_draft(draft, (3, 3, 5), VOCAB) is None  # silence is allowed
    wide = Draft(
        np.pad(draft.tokens, ((0, 0), (0, 2)), constant_values=-1),
        draft.lengths,
        np.pad(draft.support, ((0, 0), (0, 2), (0, 3)), constant_values=-1),
        np.pad(draft.probs, ((0, 0), (0, 2), (0, 3))),
    )
    assert validate_draft(wide, KS, VOCAB) is None


def test_no_lanes_and_no_tokens_pass() -> None:
    for lanes, width in ((0, 0), (0, 4), (2, 0), (2, 4)):
        draft = Draft(
            np.full((lanes, width), -1, dtype=np.int32),
            np.zeros(lanes, dtype=np.int32),
            np.full((lanes, width, 1), -1, dtype=np.int32),
            np.zeros((lanes, width, 1), dtype=np.float32),
        )
        assert validate_draft(draft, [width] * lanes, VOCAB) is None


def test_other_integer_types_pass_and_rubbish_laws_beyond_the_length_are_not_looked_at() -> None:
    draft = sound()
    assert validate_draft(replace(draft, tokens=draft.tokens.astype(np.int64)), KS, VOCAB) is None
    assert validate_draft(replace(draft, probs=put(draft.probs, (2, 0), np.nan)), KS, VOCAB) is None


@pytest.mark.parametrize("answer", [None, 3, "draft", [[1, 2]], np.zeros((2, 2)), {"tokens": []}])
def test_other_objects_are_refused(answer: object) -> None:
    assert "expected an arena.types.Draft" in str(validate_draft(answer, KS, VOCAB))


D = sound()
CASES: dict[str, tuple[Draft, str]] = {
    "one lane short": (
        Draft(D.tokens[:2], D.lengths[:2], D.support[:2], D.probs[:2]),
        "tokens is for 2 lanes; expected 3",
    ),
    "support of other lanes": (replace(D, support=D.support[:2]), "support is for 2 lanes; expected 3"),
    "float tokens": (replace(D, tokens=D.tokens.astype(float)), "tokens holds float64; expected integers"),
    "bool tokens": (replace(D, tokens=D.tokens > 0), "tokens holds bool; expected integers"),
    "a list": (replace(D, tokens=D.tokens.tolist()), "tokens is a list"),
    "flat tokens": (replace(D, tokens=D.tokens[:, 0]), "tokens has 1 axes; expected 2"),
    "float support": (replace(D, support=D.support.astype(float)), "support holds float64"),
    "integer probs": (replace(D, probs=D.support), "probs holds int32; expected floats"),
    "float64 probs": (replace(D, probs=D.probs.astype(float)), "probs holds float64; expected float32"),
    "other width": (replace(D, support=D.support[:, :2], probs=D.probs[:, :2]), "have shapes"),
    "other m": (replace(D, support=D.support[..., :1]), "have shapes"),
    "more than K": (replace(D, lengths=put(D.lengths, 2, 1)), "lane 2 holds 1 tokens; expected 0 to 0"),
    "negative length": (replace(D, lengths=put(D.lengths, 0, -1)), "lane 0 holds -1 tokens"),
    "token V": (replace(D, tokens=put(D.tokens, (0, 1), VOCAB)), "lane 0, position 1: token 8 is not in"),
    "token -2": (replace(D, tokens=put(D.tokens, (1, 0), -2)), "lane 1, position 0: token -2 is not in"),
    "padding inside": (replace(D, tokens=put(D.tokens, (0, 0), -1)), "lane 0, position 0: token -1"),
    "token beyond the length": (replace(D, tokens=put(D.tokens, (1, 2), 3)), "lies beyond the lane's length"),
    "NaN": (replace(D, probs=put(D.probs, (0, 1, 1), np.nan)), "lane 0, position 1: its law holds NaN"),
    "infinity": (replace(D, probs=put(D.probs, (0, 1, 1), np.inf)), "holds NaN or infinity"),
    "negative": (replace(D, probs=put(D.probs, (0, 1), (1.5, -0.5))), "holds a negative probability"),
    "sum": (
        replace(D, probs=put(D.probs, (1, 1), (0.5, 0.4))),
        "lane 1, position 1: its law does not sum to 1",
    ),
    "zero law": (replace(D, probs=put(D.probs, (1, 1), 0)), "does not sum to 1 but to 0"),
    "own token": (
        replace(D, probs=put(D.probs, (1, 0), (0, 1))),
        "lane 1, position 0: its law excludes its own",
    ),
    "support V": (replace(D, support=put(D.support, (0, 0, 1), 8)), "names a token that is not in"),
    "support -2": (replace(D, support=put(D.support, (0, 0, 1), -2)), "names a token that is not in"),
    "mass on padding": (replace(D, support=put(D.support, (0, 0, 1), -1)), "gives probability to padding"),
    "a token twice": (replace(D, support=put(D.support, (0, 0, 1), 1)), "names a token twice"),
    "no support": (replace(D, support=D.support[..., :0], probs=D.probs[..., :0]), "have no support"),
    "no room": (
        Draft(D.tokens[:, :1], np.array([3, 1, 0], dtype=np.int32), D.support[:, :1], D.probs[:, :1]),
        "lane 0 claims 3 tokens; the array has room for 1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_unusable_drafts_are_refused_by_their_reason(name: str) -> None:
    draft, words = CASES[name]
    assert words in str(validate_draft(draft, KS, VOCAB))


def test_the_sum_may_be_off_by_rounding_only() -> None:
    draft = sound()
    for off, fine in ((0.5 * SUM_TOLERANCE, True), (2 * SUM_TOLERANCE, False)):
        law = replace(draft, probs=put(draft.probs, (0, 0, 0), 0.5 + off))
        assert (validate_draft(law, KS, VOCAB) is None) is fine


def test_it_is_fast() -> None:
    lanes, k, m = 16, 8, 64
    support = np.broadcast_to(np.arange(m, dtype=np.int32), (lanes, k, m)).copy()
    draft = Draft(
        support[..., 0].copy(),
        np.full(lanes, k, dtype=np.int32),
        support,
        np.full((lanes, k, m), 1 / m, dtype=np.float32),
    )
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        assert validate_draft(draft, [k] * lanes, 49152) is None
        best = min(best, time.perf_counter() - start)
    assert best < 0.01  # 0.3 ms on two slow cores
