"""What a run's clock values and acceptance say about running one of its drafters alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arena import config
from arena.costs import Row, StepCosts, best_k, break_even, curve, fit_pass, paying_lanes
from arena.errors import RunError
from arena.store import RunDirectory

Pass = tuple[int, float]
"""Nodes in a verifier pass, and its time in ms."""

OUTLIER = 3.0
"""Standard deviations (estimated by the median) beyond which a pass is left out: it took in prompts."""


@dataclass(frozen=True, slots=True)
class DrafterForecast:
    """One drafter alone in front of the verifier.

    Attributes:
        drafter: Its name.
        draft_ms: One drafted token, all lanes together, ms.
        rates: Chance that drafted tokens 1..k are all kept, for k = 1, 2, ...
        rows: Time a token for every K, 0 included.
        best_k: The fastest K; 0 is plain decoding.
        break_even: Alpha below which no K beats plain decoding; None if none does.
        paying_lanes: Speculation pays with fewer lanes than this.
    """

    drafter: str
    draft_ms: float
    rates: tuple[float, ...]
    rows: tuple[Row, ...]
    best_k: int
    break_even: float | None
    paying_lanes: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run says about speed.

    Attributes:
        run: Where it lies.
        lanes: Lanes that are predicted for.
        lanes_played: Lanes that shared a pass in the run.
        fixed: A verifier pass before any node is counted, ms.
        verify: One node, ms.
        passes: The measured passes that the two were fitted to.
        left_out: Passes left out as outliers.
        drafters: By speed at their best K, the fastest first.
    """

    run: str
    lanes: int
    lanes_played: int
    fixed: float
    verify: float
    passes: tuple[Pass, ...]
    left_out: int
    drafters: tuple[DrafterForecast, ...]


def forecast(directory: RunDirectory, lanes: int | None = None) -> Forecast:
    """Fits costs to a run's timing files and rates to its verdicts.

    Args:
        directory: The run.
        lanes: Lanes to predict for; the run's own by default.

    Raises:
        RunError: No round is finished, it has no clock values, or it is not a tournament.
    """
    records = directory.rounds()
    body = config.parse(directory.config_yaml, "config.resolved.yaml")
    if "study" in body:
        raise RunError(f"{str(directory.path)!r} is a study; name one of the tournaments in its folder.")
    timing = [
        row for record in records for row in directory.read_table("timing", record["round"]).to_pylist()
    ]
    verified = [row for row in timing if row.get("stage") == "verify"]
    if not verified:
        raise RunError(
            f"{str(directory.path)!r} holds no clock values of verifier passes: play a round first."
        )
    engine = body.get("engine", {})
    k, held = int(engine.get("draft_length", 4)), max(int(row["lanes"]) for row in verified)
    wanted = lanes or held
    passes = [(int(row["tokens"]), 1000.0 * row["seconds"]) for row in verified]
    fixed, verify, kept = fit_passes(passes)
    found = []
    for name, verdicts in _verdicts(directory, records).items():
        calls = [row for row in timing if row["who"] == name and row["stage"] == "propose"]
        costs = StepCosts(fixed, draft_cost(calls, k), verify, wanted)
        rates = position_rates(*verdicts)
        found.append(
            DrafterForecast(
                drafter=name,
                draft_ms=costs.draft,
                rates=rates,
                rows=tuple(curve(rates, costs, k)),
                best_k=best_k(rates, costs, k),
                break_even=break_even(costs, k),
                paying_lanes=paying_lanes(rates, costs, k),
            )
        )
    found.sort(key=lambda one: (one.rows[one.best_k].ms_per_token, one.drafter))
    return Forecast(
        str(directory.path), wanted, held, fixed, verify, tuple(kept), len(passes) - len(kept), tuple(found)
    )


def fit_passes(passes: Sequence[Pass]) -> tuple[float, float, list[Pass]]:
    """Fits fixed and verify costs, leaving out passes that took in prompts or were held up.

    Returns:
        fixed, verify, and the passes that they were fitted to.
    """
    kept = list(passes)
    for _ in range(4):
        fixed, verify = fit_pass(kept)
        rest = np.array([ms - fixed - verify * nodes for nodes, ms in kept])
        centre = float(np.median(rest))
        spread = 1.4826 * float(np.median(np.abs(rest - centre)))
        inside = np.abs(rest - centre) <= OUTLIER * spread + 1e-9
        if inside.all():
            break
        kept = [one for one, good in zip(kept, inside, strict=True) if good]
    return fixed, verify, kept


def draft_cost(calls: Sequence[Mapping[str, Any]], k: int) -> float:
    """Gives the time of one drafted token, all lanes together, ms: the median call by K."""
    return 1000.0 * float(np.median([row["seconds"] for row in calls])) / k if calls else 0.0


def position_rates(offered: npt.NDArray[np.integer], accepted: npt.NDArray[np.integer]) -> tuple[float, ...]:
    """Gives the chance that the first k draft tokens are all kept, for k = 1, 2, ...

    A product over positions (as Kaplan and Meier's): a lane-step near the end of its
    budget was offered fewer tokens, and says nothing about those that it was not.

    Args:
        offered: int[n], tokens asked for.
        accepted: int[n], tokens kept.
    """
    rates: list[float] = []
    chance = 1.0
    for k in range(1, int(offered.max(initial=0)) + 1):
        asked = (offered >= k) & (accepted >= k - 1)
        chance *= float((accepted[asked] >= k).mean()) if asked.any() else 0.0
        rates.append(chance)
    return tuple(rates)


def _verdicts(
    directory: RunDirectory, records: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]]:
    """Tokens offered and accepted by drafter, over all rounds."""
    parts: dict[str, list[tuple[int, int]]] = {}
    for record in records:
        table = directory.read_table("steps", record["round"])
        columns = (table[name].to_pylist() for name in ("drafter", "n_offered", "n_accepted"))
        for name, offered, accepted in zip(*columns, strict=True):
            parts.setdefault(name, []).append((offered, accepted))
    arrays = {name: np.array(rows, dtype=np.int64) for name, rows in sorted(parts.items())}
    return {name: (rows[:, 0], rows[:, 1]) for name, rows in arrays.items()}
