"""What a replayed drafter's steps cost: given, taken from a run's clock values, or measured here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import typer

from arena.costs import StepCosts
from arena.errors import ConfigError
from arena.metrics import ratio
from arena.places import resolve
from arena.protocols import Drafter
from arena.store import RunDirectory
from arena.traces import Trace

TARGET = Annotated[float | None, typer.Option(help="A verifier pass that decodes one token a lane, ms.")]
VERIFY = Annotated[float, typer.Option(help="Part of --target-ms that each node of a lane costs, ms.")]
DRAFT = Annotated[
    float | None,
    typer.Option(help="One drafted token, all lanes together, ms; measured here for each drafter if absent."),
]
COSTS = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="Take passes, and drafters of the same names, from a run's clock."),
]
LANES = Annotated[
    int | None,
    typer.Option(min=1, help="Texts that share a pass; 1, or those of the run that --costs names."),
]


@dataclass(frozen=True, slots=True)
class Prices:
    """What steps cost.

    Attributes:
        of: Drafter to the costs of a step with it alone.
        source: Drafter to where its draft price is from: ``given``, ``run`` or ``measured``.
    """

    of: Mapping[str, StepCosts]
    source: Mapping[str, str]

    def plain(self) -> dict[str, Any]:
        """Plain values, a drafter each; all times in ms."""
        return {name: {**asdict(costs), "source": self.source[name]} for name, costs in self.of.items()}

    def words(self) -> str:
        """One line for people."""
        ((_, one), *_) = self.of.items()
        drafts = [f"{name} {costs.draft:.3g} ({self.source[name]})" for name, costs in self.of.items()]
        return (
            f"ms, {one.lanes} lane{'s' * (one.lanes > 1)}: a pass {one.fixed:.3g} + {one.verify:.3g} a node; "
            f"a drafted token: {', '.join(drafts)}"
        )


@dataclass(frozen=True, slots=True)
class Passes:
    """What is known before any drafter is timed.

    Attributes:
        bare: Costs of a step in which drafting is free.
        known: Drafter to one drafted token of it, ms, by a run's clock.
        draft_ms: One drafted token of any, where it was given.
    """

    bare: StepCosts
    known: Mapping[str, float]
    draft_ms: float | None


def passes(
    *, target_ms: float | None, verify_ms: float, draft_ms: float | None, run: str | None, lanes: int | None
) -> Passes | None:
    """Finds what a pass costs; None where nothing was asked for.

    Raises:
        ConfigError: The options contradict one another, or lack the verifier's pass.
    """
    if target_ms is not None and run is not None:
        raise ConfigError("--target-ms and --costs both say what a pass costs: leave one out.")
    if target_ms is not None:
        return Passes(StepCosts.of_pass(target_ms, 0.0, verify_ms, lanes or 1), {}, draft_ms)
    if run is None:
        if draft_ms is not None or verify_ms or lanes is not None:
            raise ConfigError(
                "costs lack the verifier's pass: add --target-ms MS, or --costs RUN for those of a run."
            )
        return None
    from arena.forecast import forecast

    found = forecast(RunDirectory.open(resolve(run)), lanes)
    # A draft is timed for all lanes at once: of another number of lanes it says nothing.
    told = found.drafters if found.lanes == found.lanes_played else ()
    bare = StepCosts(found.fixed, 0.0, found.verify, found.lanes)
    return Passes(bare, {one.drafter: one.draft_ms for one in told}, draft_ms)


def prices(found: Passes, drafters: Mapping[str, Drafter], traces: Sequence[Trace], k: int) -> Prices:
    """Finds the costs of a step with each drafter, timing along the texts those that are not known."""
    from arena.engines.probe import probe_along

    of, source = {}, {}
    for name, drafter in drafters.items():
        if found.draft_ms is not None:
            draft, source[name] = found.draft_ms, "given"
        elif name in found.known:
            draft, source[name] = found.known[name], "run"
        else:
            draft, source[name] = probe_along(drafter, traces, k, found.bare.lanes), "measured"
        of[name] = replace(found.bare, draft=draft)
    return Prices(of, source)


def price(rows: Sequence[dict[str, Any]], found: Prices) -> dict[str, int]:
    """Adds ``speedup``, ``speedup_low`` and ``speedup_high`` to rows of replay.

    A step takes a pass over what was drafted on average (over what was asked for where the text
    cannot tell: a sampled chain may stop early). The interval is that of the acceptance length:
    costs are taken as they are.

    Returns:
        Drafter and sampling to the fastest draft length; nothing where none beats plain decoding.
    """
    best: dict[str, int] = {}
    most: dict[str, float] = {}
    for row in rows:
        costs = found.of[row["drafter"]]
        asked, drafted = ratio(row["offered"], row["steps"]), ratio(row["drafted"], row["steps"])
        nodes = 1 + (asked if math.isnan(drafted) else drafted)
        step = costs.fixed + asked * costs.draft + costs.lanes * nodes * costs.verify
        worth = costs.step(0) / step
        row["speedup"] = worth * row["acceptance_length"]
        row["speedup_low"], row["speedup_high"] = worth * row["low"], worth * row["high"]
        name = f"{row['drafter']} {row['sampling']}"
        if row["speedup"] > most.get(name, 1.0):
            most[name], best[name] = row["speedup"], row["k"]
    return best
