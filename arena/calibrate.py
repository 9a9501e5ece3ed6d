"""Calibration: what drafting and verifying cost here, measured once before round 1.

The numbers go to the manifest and stay there: a run that is resumed prices its
drafters by what was stored, so that no clock value decides anything twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arena.costs import Calibration, fit_pass
from arena.engines.probe import ProbePlan
from arena.errors import ArenaError
from arena.types import Sampling

CONTEXT = 8
"""Tokens in each lane while it is probed."""

SPARE = 24
"""Room left for the tokens that the repeats of a probe keep."""

VERIFIER_SECONDS, DRAFTERS_SECONDS = 0.9, 1.2
"""Time for the verifier, and for all drafters together."""

Call = Callable[[str, str, ProbePlan], Any]
"""Asks a worker for something: worker, method, argument."""


def measure(
    call: Call,
    verifier: str,
    drafters: Sequence[str],
    *,
    key: int,
    sampling: Sampling,
    lanes: int,
    draft_length: int,
    vocab: int,
    max_context: int,
) -> Calibration | None:
    """Probes the workers one after the other, so that none of them waits for another.

    A drafter that cannot be probed has no price; the round will say what is wrong with
    it. Without the verifier's, nothing has.

    Args:
        call: Asks a worker.
        verifier: Its name.
        drafters: Their names.
        key: Makes synthetic tokens.
        sampling: Warping of every law.
        lanes: Lanes that share a pass.
        draft_length: K.
        vocab: Vocabulary size.
        max_context: Longest context, tokens.
    """
    context = min(CONTEXT, max_context - draft_length - SPARE)
    if context < 1:
        return None

    def plan(seconds: float) -> ProbePlan:
        return ProbePlan(key, sampling, lanes, draft_length, vocab, context, seconds)

    passes = _try(call, verifier, plan(VERIFIER_SECONDS))
    if passes is None:
        return None
    fixed, verify = fit_pass(passes)
    draft = {name: _try(call, name, plan(DRAFTERS_SECONDS / len(drafters))) for name in drafters}
    return Calibration(
        lanes=lanes,
        draft_length=draft_length,
        fixed=fixed,
        verify=verify,
        draft={name: ms for name, ms in draft.items() if ms is not None},
    )


def _try(call: Call, worker: str, plan: ProbePlan) -> Any:
    try:
        return call(worker, "probe", plan)
    except (ArenaError, ArithmeticError, ValueError):  # whatever it is, the round meets it again and says so
        return None
