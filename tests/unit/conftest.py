"""A made-up run for the tests of results: no engine, no model, the same every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.records import round_record
from arena.retirement import LowestHitRate, Standings
from arena.scoreboard import RoundTally, Scoreboard
from arena.store import RunDirectory
from arena.types import Commit, FieldStep, LaneStep, Verdict

SKILL = {"one": 0.45, "two": 0.12, "three": 0.55, "four": 0.3, "five": 0.62, "six": 0.66}


@dataclass
class MadeRound:
    number: int
    alive: tuple[str, ...]
    verdicts: list[Verdict] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    steps: list[FieldStep] = field(default_factory=list)

    def tally(self) -> RoundTally:
        board = Scoreboard()
        board.begin(self.number)
        board.fold(self.verdicts)
        return board.tally(self.number)

    def record(self, withdrawn: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        tally = self.tally()
        return round_record(
            round=self.number,
            generation=0,
            alive=self.alive,
            retired=LowestHitRate().retire(Standings(self.number, self.alive, tally)),
            withdrawn=withdrawn,
            walkover=False,
            tally=tally,
            commits=self.commits,
            field=self.steps,
            verifier="table:test",
        )


def make_round(number: int, alive: Sequence[str], seed: int = 0, prompts: int = 6, k: int = 4) -> MadeRound:
    rng = np.random.default_rng([seed, number])
    made = MadeRound(number, tuple(sorted(alive)))
    pairs = len(alive) * (len(alive) - 1) // 2
    for prompt in range(prompts):
        start = 0
        while start < 24:
            step = LaneStep(f"p{number}{prompt:02d}", start)
            length = int(rng.integers(1, k + 2))
            tokens = tuple(int(token) for token in rng.integers(0, 40, length))
            finish = "length" if start + length >= 24 else ""
            made.commits.append(
                Commit(step, tokens, tuple(float(-x) for x in rng.random(length)), length - 1, finish)
            )
            for name in made.alive:
                skill = SKILL.get(name, 0.5)
                drafted = int(rng.integers(0, k + 1)) if name == "one" else k
                accepted = min(drafted, int(rng.geometric(1 - skill)) - 1)
                probs = tuple(float(x) for x in rng.random(drafted))
                made.verdicts.append(
                    Verdict(
                        step,
                        name,
                        k,
                        drafted,
                        accepted,
                        min(accepted, length),
                        skill * drafted,
                        tuple(range(drafted)),
                        probs,
                        tuple(1.0 for _ in probs),
                    )
                )
            similar = tuple(float(x) for x in rng.random(pairs) * 0.6)
            made.steps.append(
                FieldStep(step, similar, float(0.1 * len(alive) + 0.3 * rng.random()), 0.5, 0.6)
            )
            start += length
    return made


def play(
    path: Path, seed: int = 0, names: Sequence[str] = tuple(SKILL), status: str = "complete"
) -> RunDirectory:
    """Plays a whole made-up tournament into a run directory."""
    run = RunDirectory.create(
        path,
        f"seed: {seed}\n",
        {"experiment": "made", "seed": seed, "created": f"2025-01-01T00:00:{seed:02d}Z"},
    )
    alive, number = sorted(names), 0
    while len(alive) > 1:
        number += 1
        made = make_round(number, alive, seed)
        record = made.record()
        run.append_round(
            record, made.verdicts, made.commits, [{"who": "loop", "stage": "rest", "seconds": 0.1}]
        )
        alive.remove(record["retired"]["drafter"])
    run.write_champion({"champion": alive[0]})
    run.update_manifest(status=status)
    return run


@pytest.fixture
def made_round() -> Callable[..., MadeRound]:
    return make_round


@pytest.fixture
def played() -> Callable[..., RunDirectory]:
    return play


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """One finished run, shared; do not change it."""
    return play(tmp_path_factory.mktemp("finished") / "run")
