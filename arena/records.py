"""The record of a round: one line of ``rounds.jsonl``, built purely from what was played.

Every sum is ``math.fsum`` over values sorted by (prompt_id, start), so that lanes and
backends cannot change a bit of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from arena.acceptance.contribution import UNIT, shapley_of, total
from arena.costs import Calibration
from arena.diversity import Array, distinct_n, entropy, matrix, vendi
from arena.metrics import Counts, Standing, best_first, goodput, ratio, require, standing
from arena.retirement import Retirement
from arena.scoreboard import RoundTally
from arena.types import Commit, FieldStep, in_order

_FIELDS = ("lane_steps", "offered", "drafted", "accepted", "matched", "expected")


def round_record(
    *,
    round: int,
    generation: int,
    alive: Iterable[str],
    retired: Retirement | None,
    withdrawn: Iterable[tuple[str, str]],
    walkover: bool,
    tally: RoundTally,
    commits: Iterable[Commit],
    field: Iterable[FieldStep],
    verifier: str,
    contribution: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Builds the record of a round.

    Args:
        round: From 1.
        generation: From 0.
        alive: Who played the round to its end, the one who is retired included.
        retired: What the retirement rule said.
        withdrawn: (drafter, reason) of each that crashed or was unusable since the
            round before; they are not in ``alive``.
        walkover: Whether the last one was left alone by withdrawals.
        tally: Of the scoreboard.
        commits: Of the whole round, in any order.
        field: Of the whole round, in any order; pairs are of sorted ``alive``. Empty where the
            round was replayed from text, which says nothing of what a field proposed.
        verifier: Its id.
        contribution: :func:`contribution_of` the field, where it was priced.

    Returns:
        Plain JSON values; NaN is null.

    Raises:
        InvariantError: If the parts contradict one another.
    """
    names, texts, steps = sorted(alive), in_order(commits), in_order(field)
    _check(f"round {round}", names, texts, steps, tally, retired)
    return {
        **({"contribution": contribution} if contribution else {}),
        "round": round,
        "generation": generation,
        "alive": names,
        "retired": retired and retired.plain(),
        "withdrawn": [{"drafter": name, "reason": reason} for name, reason in sorted(withdrawn)],
        "walkover": walkover,
        **counts_of(tally),
        "lane_steps": len(texts),
        "committed": sum(len(commit.tokens) for commit in texts),
        "field": _field(names, steps) | ({"replayed": True} if texts and not steps else {}),
        "text": text_of(texts),
        "verifier": verifier,
    }


def _check(
    where: str,
    names: list[str],
    texts: list[Commit],
    steps: list[FieldStep],
    tally: RoundTally,
    retired: Retirement | None,
) -> None:
    require(retired is None or retired.drafter in names, f"{where}: {retired} is not alive")
    require(len({commit.step for commit in texts}) == len(texts), f"{where}: a lane-step came twice")
    for prompt, group in itertools.groupby(texts, key=lambda commit: commit.step.prompt_id):
        at = 0  # committed = the sum of the commits: each starts where the one before it ended
        for commit in group:
            require(commit.step.start == at, f"{where}, prompt {prompt}: {commit.step} where {at} was next")
            at += len(commit.tokens)
    scored = {name: counts.lane_steps for name, counts in tally.per_drafter.items()}
    if texts and not steps:  # replayed: each drafter walked the texts by blocks of its own
        require(sorted(scored) == names, f"{where}: scored {sorted(scored)}; alive: {names}")
        return
    require(
        [commit.step for commit in texts] == [step.step for step in steps],
        f"{where}: {len(texts)} commits and {len(steps)} field steps are not of the same lane-steps",
    )
    require(
        scored == dict.fromkeys(names if texts else (), len(texts)),
        f"{where}: of {len(texts)} lane-steps, drafters were scored in {scored}; alive: {names}",
    )


def contribution_of(field: Iterable[FieldStep], names: Sequence[str]) -> dict[str, Any] | None:
    """Sums up what every sub-roster was worth over a round; None where nothing was priced.

    Args:
        field: Lane-steps of the round, in any order.
        names: Its drafters, sorted.

    Returns:
        ``unit`` (tokens); ``worths``, the 2^n sums of v(S) in that unit, bit d of S being
        ``names[d]``: they price every sub-roster; and by drafter the sums of ``shapley``
        (from ``worths``, exact), ``leave_one_out`` and ``coverage_share`` values, tokens.
    """
    steps = in_order(step for step in field if step.worths)
    if not steps:
        return None
    worths, full = total([step.worths for step in steps]), (1 << len(names)) - 1
    shares = [math.fsum(step.contributions[d][2] for step in steps) for d in range(len(names))]
    lost = [UNIT * (worths[full] - worths[full ^ 1 << d]) for d in range(len(names))]
    values = [UNIT * value for value in shapley_of(worths)]
    parts = {"shapley": values, "leave_one_out": lost, "coverage_share": shares}
    by_name = {key: dict(zip(names, numbers, strict=True)) for key, numbers in parts.items()}
    return {"unit": UNIT, "worths": worths, **by_name}


def counts_of(tally: RoundTally) -> dict[str, Any]:
    """Gives the record's ``counts`` and ``prompts``; :func:`tally_of` reads them back."""
    return {
        "counts": {
            name: dict(zip(_FIELDS, _numbers(counts), strict=True))
            for name, counts in tally.per_drafter.items()
        },
        "prompts": {
            name: {prompt: _numbers(counts) for prompt, counts in parts.items()}
            for name, parts in tally.per_prompt.items()
        },
    }


def tally_of(record: Mapping[str, Any]) -> RoundTally:
    """Reads the tally back from a record, equal to the one that it was built from."""
    return RoundTally(
        per_drafter={name: Counts(**counts) for name, counts in record["counts"].items()},
        per_prompt={
            name: {prompt: Counts(*numbers) for prompt, numbers in parts.items()}
            for name, parts in record["prompts"].items()
        },
    )


def standings_of(record: Mapping[str, Any], prices: Mapping[str, float] | None = None) -> list[Standing]:
    """Gives the table of standings of a round, best first.

    Args:
        record: Of the round.
        prices: Goodput by drafter, where costs are known; see :func:`goodput_of`.
    """
    tally = tally_of(record)
    prices = prices or {}
    return [
        standing(name, tally.per_prompt.get(name, {}), goodput=prices.get(name, math.nan))
        for name in best_first(record["alive"], tally.per_drafter)
    ]


def goodput_of(record: Mapping[str, Any], costs: Mapping[str, Any] | None) -> dict[str, float]:
    """Gives each priced drafter's goodput in a round, tokens a lane gains a millisecond.

    Args:
        record: Of the round.
        costs: The manifest's ``costs``, or None.
    """
    priced, tally = Calibration.of(costs), tally_of(record)
    if priced is None:
        return {}
    steps = priced.step_ms()
    return {name: goodput(c, steps[name]) for name, c in tally.per_drafter.items() if name in steps}


def kernel_of(record: Mapping[str, Any]) -> Array:
    """Gives the matrix of mean similarities (1 - JSD, base 2) of a round, in order of name; nan unplayed."""
    steps = _field_steps(record)
    return matrix(len(record["alive"]), [ratio(value, steps) for value in record["field"]["similarity"]])


def summary(record: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens a round for a table: who left, and the field's means over its lane-steps.

    Returns:
        ``round, generation, alive, n_alive, retired, reason, withdrawn, walkover, lane_steps,
        committed`` as recorded; ``tokens_per_step`` (committed a lane-step), ``mean_distance``
        (mean pairwise √JSD, base 2), ``vendi`` (effective number of drafters), ``union_coverage``
        (target mass of the depth-1 proposals), ``share_of_bound``, ``distinct_1..3``,
        ``entropy`` (nats), ``verifier``. What is not known is nan.
    """
    field, steps, retired = record["field"], _field_steps(record), record["retired"] or {}
    n = len(field["names"])
    return {
        **{key: record[key] for key in ("round", "generation", "alive")},
        "n_alive": len(record["alive"]),
        "retired": retired.get("drafter"),
        "reason": retired.get("reason"),
        "withdrawn": [one["drafter"] for one in record["withdrawn"]],
        **{key: record[key] for key in ("walkover", "lane_steps", "committed")},
        "tokens_per_step": ratio(record["committed"], record["lane_steps"]),
        "mean_distance": ratio(math.fsum(field["distance"]), steps * n * (n - 1) / 2),
        "vendi": vendi(kernel_of(record)) if steps else math.nan,
        "union_coverage": ratio(field["coverage"], steps),
        "share_of_bound": math.nan
        if None in (field["reached"], field["bound"])
        else ratio(field["reached"], field["bound"]),
        **{key: math.nan if value is None else value for key, value in record["text"].items()},
        "verifier": record["verifier"],
    }


def tokens_saved(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Gives the tokens that ``confident`` retirement did without, or None where another rule retired.

    Against a schedule of fixed length, the cap's rounds for every retirement: rounds that were not
    played, at the tokens that a round of that retirement committed on average.
    """
    saved, since, told = 0.0, [], False
    for record in records:
        since.append(record["committed"])
        if retired := record["retired"]:
            told = told or "rounds_saved" in retired["numbers"]
            saved += retired["numbers"].get("rounds_saved", 0.0) * ratio(sum(since), len(since))
            since = []
    return saved if told else None


def _field_steps(record: Mapping[str, Any]) -> int:
    """Lane-steps over which the field was summed up: none where the round was replayed."""
    return 0 if record["field"].get("replayed") else int(record["lane_steps"])


def _numbers(counts: Counts) -> list[float]:
    return [getattr(counts, name) for name in _FIELDS]


def _field(names: list[str], steps: list[FieldStep]) -> dict[str, Any]:
    pairs = list(itertools.combinations(names, 2))
    require(
        all(len(step.similarity) == len(pairs) for step in steps),
        f"expected one similarity a pair of {len(names)} drafters",
    )
    similar: list[Sequence[float]] = list(zip(*(step.similarity for step in steps), strict=True))
    similar = similar or [()] * len(pairs)
    return {
        "names": names,
        "similarity": [math.fsum(values) for values in similar],
        "distance": [math.fsum(math.sqrt(max(0.0, 1.0 - value)) for value in values) for values in similar],
        "coverage": math.fsum(step.coverage for step in steps),
        "reached": _known(math.fsum(step.reached for step in steps)),
        "bound": _known(math.fsum(step.bound for step in steps)),
    }


def text_of(commits: Sequence[Commit]) -> dict[str, Any]:
    """Measures the texts of a round: distinct-1 to distinct-3, and the entropy of tokens, nats.

    Args:
        commits: Sorted by (prompt_id, start).
    """
    texts = [
        [token for commit in group for token in commit.tokens]
        for _, group in itertools.groupby(commits, key=lambda commit: commit.step.prompt_id)
    ]
    measures = {f"distinct_{n}": _known(distinct_n(texts, n)) for n in (1, 2, 3)}
    return {**measures, "entropy": _known(entropy(itertools.chain.from_iterable(texts)))}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
