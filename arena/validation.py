"""Says whether a drafter's answer can be used, and if not, why.

Asked for every draft of every pass, so it is vectorised; it never raises, whatever
it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.sampling import SUM_TOLERANCE
from arena.types import Draft

_Mask = npt.NDArray[np.bool_]


def validate_draft(draft: object, ks: Sequence[int], vocab: int) -> str | None:
    """Gives the reason why a drafter's answer is unusable.

    Args:
        draft: What the drafter answered, anything at all.
        ks: Tokens that were asked for in each lane, K_eff.
        vocab: Vocabulary size; token ids lie below it.

    Returns:
        One sentence for people, naming lane and position (both from 0), or None where the draft is sound.
    """
    if not isinstance(draft, Draft):
        return f"it answered a {type(draft).__name__}; expected an arena.types.Draft."
    return _shape_fault(draft, len(ks)) or _token_fault(draft, ks, vocab) or _law_fault(draft, vocab)


def _shape_fault(draft: Draft, lanes: int) -> str | None:
    wanted = (("tokens", "iu", 2), ("lengths", "iu", 1), ("support", "iu", 3), ("probs", "f", 3))
    for name, kinds, ndim in wanted:
        array = getattr(draft, name)
        if not isinstance(array, np.ndarray):
            return f"{name} is a {type(array).__name__}; expected a numpy array."
        if array.dtype.kind not in kinds:
            return f"{name} holds {array.dtype}; expected {'floats' if kinds == 'f' else 'integers'}."
        if array.ndim != ndim:
            return f"{name} has {array.ndim} axes; expected {ndim}."
        if array.shape[0] != lanes:
            return f"{name} is for {array.shape[0]} lanes; expected {lanes}."
    if draft.probs.dtype != np.float32:
        return f"probs holds {draft.probs.dtype}; expected float32."
    width = draft.tokens.shape[1]
    if draft.support.shape != draft.probs.shape or draft.support.shape[1] != width:
        return (
            f"tokens, support and probs have shapes {draft.tokens.shape}, {draft.support.shape} and "
            f"{draft.probs.shape}; expected [B, K], [B, K, m] and [B, K, m]."
        )
    return None


def _token_fault(draft: Draft, ks: Sequence[int], vocab: int) -> str | None:
    tokens, lengths = draft.tokens, draft.lengths
    width = tokens.shape[1]
    asked = np.asarray(ks, dtype=np.int64).reshape(-1)
    wrong = (lengths < 0) | (lengths > asked)
    if wrong.any():
        lane = int(wrong.argmax())
        return f"lane {lane} holds {int(lengths[lane])} tokens; expected 0 to {int(asked[lane])}."
    if lengths.size and lengths.max() > width:
        lane = int(lengths.argmax())
        return f"lane {lane} claims {int(lengths[lane])} tokens; the array has room for {width}."
    drafted = np.arange(width) < lengths[:, None]
    outside = np.where(drafted, (tokens < 0) | (tokens >= vocab), tokens != -1)
    if outside.any():
        lane, position = _first(outside)
        got = int(tokens[lane, position])
        if drafted[lane, position]:
            return f"lane {lane}, position {position}: token {got} is not in the vocabulary of {vocab}."
        return f"lane {lane}, position {position}: token {got} lies beyond the lane's length; expected -1."
    return None


def _law_fault(draft: Draft, vocab: int) -> str | None:
    support, probs = draft.support, draft.probs
    drafted: _Mask = np.arange(draft.tokens.shape[1]) < draft.lengths[:, None]
    if not drafted.any():
        return None
    if support.shape[2] == 0:
        return "the laws have no support; expected at least the drafted token."
    with np.errstate(invalid="ignore", over="ignore"):
        total = probs.sum(axis=-1, dtype=np.float64)
        # NaN and infinity survive a sum; inf - inf is NaN.
        checks: list[tuple[str, Any]] = [
            ("holds NaN or infinity", ~np.isfinite(total)),
            ("holds a negative probability", (probs < 0).any(axis=-1)),
            ("does not sum to 1", np.abs(total - 1.0) > SUM_TOLERANCE),
            (
                "names a token that is not in the vocabulary",
                ((support < -1) | (support >= vocab)).any(axis=-1),
            ),
            ("gives probability to padding", ((support == -1) & (probs != 0)).any(axis=-1)),
        ]
    own = ((support == draft.tokens[..., None]) & (probs > 0)).any(axis=-1)
    checks.append(("excludes its own token", ~own))
    if support.shape[2] > 1:
        ordered = np.sort(support, axis=-1)
        twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
        checks.append(("names a token twice", twice.any(axis=-1)))
    for fault, where in checks:
        wrong = where & drafted
        if wrong.any():
            lane, position = _first(wrong)
            detail = f" but to {total[lane, position]:.6g}" if fault.startswith("does not sum") else ""
            return f"lane {lane}, position {position}: its law {fault}{detail}."
    return None


def _first(mask: _Mask) -> tuple[int, int]:
    lane, position = np.argwhere(mask)[0]
    return int(lane), int(position)
