"""What a whole field did in each round of a run: joint measures, from what the run stored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from arena.acceptance.contribution import worth_of
from arena.costs import Calibration
from arena.metrics import ratio
from arena.records import summary
from arena.store import RunDirectory

MEASURES = (
    "acceptance_length",
    "priced_length",
    "tokens_per_s",
    "tokens_per_s_serial",
    "union_coverage",
    "vendi",
    "mean_distance",
    "worth_kept",
    "best_kept",
)


def rounds_of(directory: RunDirectory) -> list[dict[str, Any]]:
    """Measures the rounds of a run that priced its sub-rosters.

    Returns:
        A row a round: ``round``; ``alive``, who played it; ``left``, who was retired after
        it; ``worths``; ``acceptance_length``, 1 + drafted tokens kept a lane-step by the
        tree of all; ``priced_length``, the same in expectation, 1 + v(N) a lane-step;
        ``tokens_per_s``, what a lane gains with drafters side by side (the slowest
        counts), and ``tokens_per_s_serial`` with one after the other; ``union_coverage``,
        ``vendi`` and ``mean_distance`` of the depth-1 laws. Then, where one is left, a row
        for it alone: priced on the last round's contexts, not played.
    """
    costs, rows = Calibration.of(directory.manifest.get("costs")), []
    records = directory.rounds()
    for record in records:
        number, steps, names = record["round"], record["lane_steps"], record["alive"]
        kept = directory.read_table("commits", number)["n_accepted"].to_pylist()
        drafts = directory.read_table("steps", number).select(["prompt_id", "start", "tokens"]).to_pylist()
        flat, worths = summary(record), record["contribution"]["worths"]
        length = 1.0 + ratio(sum(kept), steps)
        nodes = ratio(sum(tree_sizes(drafts)), steps)
        rows.append(
            {
                "round": number,
                "alive": names,
                "left": flat["retired"],
                "worths": worths,
                "acceptance_length": length,
                "priced_length": 1.0 + record["contribution"]["unit"] * worths[-1] / steps,
                **speeds(length, names, nodes, costs),
                **{key: flat[key] for key in ("union_coverage", "vendi", "mean_distance")},
            }
        )
    last = rows[-1] if rows else None
    if last and last["left"] and len(last["alive"]) == 2:
        rows.append(_alone(records[-1], last, costs))
    return rows


def _alone(record: Mapping[str, Any], last: Mapping[str, Any], costs: Calibration | None) -> dict[str, Any]:
    champion = [name for name in last["alive"] if name != last["left"]]
    worth = worth_of(last["worths"], last["alive"], champion) * record["contribution"]["unit"]
    length = 1.0 + worth / record["lane_steps"]
    k = costs.draft_length if costs else 0
    return {
        "round": last["round"] + 1,
        "alive": champion,
        "left": None,
        "worths": [],
        "acceptance_length": length,
        "priced_length": length,
        **speeds(length, champion, k + 1.0, costs),
        "union_coverage": math.nan,
        "vendi": 1.0,
        "mean_distance": math.nan,
    }


def speeds(length: float, names: Sequence[str], nodes: float, costs: Calibration | None) -> dict[str, float]:
    """Tokens a lane gains a second, with the drafters side by side and one after the other.

    Args:
        length: Tokens a lane gains a pass.
        names: Who drafts.
        nodes: Tree nodes a lane, the root included.
        costs: Prices; nan without them, or without one of a drafter.
    """
    if costs is None or any(name not in costs.draft for name in names):
        return {"tokens_per_s": math.nan, "tokens_per_s_serial": math.nan}
    drafts = [costs.draft_length * costs.draft[name] for name in names]
    verify = costs.fixed + costs.lanes * nodes * costs.verify
    return {
        "tokens_per_s": 1000.0 * length / (verify + max(drafts)),
        "tokens_per_s_serial": 1000.0 * length / (verify + math.fsum(drafts)),
    }


def tree_sizes(drafts: Iterable[Mapping[str, Any]]) -> list[int]:
    """Nodes of each lane-step's tree, the root included: distinct prefixes of its drafts.

    Args:
        drafts: ``prompt_id``, ``start`` and ``tokens`` of each draft, sorted by the first two.
    """
    sizes = []
    for _, group in itertools.groupby(drafts, key=lambda row: (row["prompt_id"], row["start"])):
        prefixes = {tuple(row["tokens"][:k]) for row in group for k in range(len(row["tokens"]) + 1)}
        sizes.append(len(prefixes | {()}))
    return sizes
