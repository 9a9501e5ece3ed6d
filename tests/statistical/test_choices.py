"""The uniforms that drive a run: fair, independent, and pure.

Enumeration proves what a rule does with fair choices; only counting can see that the
choices are fair (CASES 8: uniforms stuck at 0 accept everything). Keys are fixed, so
nothing here is flaky; the false-alarm odds say how surprising a failure would be for
a sound generator with other keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from scipy.stats import chi2, norm

from arena import seeding
from arena.acceptance import KeyedChoices, get, merge
from arena.acceptance.enumeration import NodeLaws, chain_of
from arena.acceptance.grid import table
from arena.protocols import Choices
from arena.types import Floats

FALSE_ALARM = 1e-6
"""Odds that one check fails though all is well; about ten checks are made."""
N = 4000
NAMES = ["copyist", "poet", "steady"]

Make = Callable[[int], Choices]


class Stuck(KeyedChoices):
    """A build whose uniforms are stuck at 0."""

    def _uniform(self, depth: int, drafter: int, purpose: str) -> float:
        return 0.0

    def draw(self, law: Floats, depth: int) -> int:
        return int((law > 0).argmax())


SOUND: Make = partial(KeyedChoices, names=NAMES)
STUCK: Make = partial(Stuck, names=NAMES)


def p_of_mean(values: Sequence[float], expected: float, variance: float) -> float:
    """Two-sided odds of a mean this far off, by the normal approximation."""
    error = (np.mean(values) - expected) / np.sqrt(variance / len(values))
    return float(2 * norm.sf(abs(error)))


def p_of_counts(counts: Floats, law: Floats) -> float:
    """Odds of counts this far from a law, by the G-test."""
    live = counts > 0
    statistic = 2 * (counts[live] * np.log(counts[live] / (counts.sum() * law[live]))).sum()
    return float(chi2.sf(statistic, (law > 0).sum() - 1))


def p_of_text(make: Make) -> float:
    """Runs a speculative step for every key and compares its first tokens with the target's law."""
    target, drafter, rule = table(1, 4), table(2, 4), get("speculative")
    counts = np.zeros(4)
    for key in range(N):
        token = int(np.searchsorted(np.cumsum(drafter(())), seeding.uniform(key, "draft")))
        chain = chain_of(drafter, (), [token])
        laws = NodeLaws(target, (), merge(0, [chain]))
        choices = make(key)
        decision = rule.decide(chain, range(2), laws, choices, 0)
        counts[token if decision.n_accepted else choices.draw(decision.next_law(), 1)] += 1
    return p_of_counts(counts, target(()))


def p_of_acceptance(make: Make) -> float:
    """Compares the accepted length of one draft with its expectation."""
    target, drafter, rule = table(3, 4), table(4, 4), get("speculative")
    chain = chain_of(drafter, (), (1, 2, 0))
    laws = NodeLaws(target, (), merge(0, [chain]))
    found = [rule.decide(chain, range(4), laws, make(key), 1).n_accepted for key in range(N)]
    expected = rule.expected(chain, range(4), laws)
    assert 0.2 < expected < 2.8
    return p_of_mean(found, expected, float(np.var(found)) or 0.25)


def test_the_text_has_the_target_s_law() -> None:
    assert p_of_text(SOUND) > FALSE_ALARM


def test_acceptance_is_as_expected() -> None:
    assert p_of_acceptance(SOUND) > FALSE_ALARM


@pytest.mark.parametrize("check", [p_of_text, p_of_acceptance])
def test_uniforms_stuck_at_zero_are_caught(check: Callable[[Make], float]) -> None:
    assert check(STUCK) < FALSE_ALARM


@pytest.mark.parametrize("prob", [0.03, 0.5, 0.9])
@pytest.mark.parametrize("depth", [1, 17])
def test_accept_says_yes_as_often_as_it_should(prob: float, depth: int) -> None:
    found = [SOUND(key).accept(prob, depth, 2) for key in range(N)]
    assert p_of_mean(found, prob, prob * (1 - prob)) > FALSE_ALARM


def test_certainties_are_certain() -> None:
    for key in range(200):
        choices = SOUND(key)
        assert choices.accept(1.0, 1, 0)
        assert not choices.accept(0.0, 1, 0)
        assert choices.draw(np.array([0.0, 2.0, 0.0]), 1) == 1


def test_draws_follow_the_law() -> None:
    law = np.array([0.5, 0.0, 0.3, 0.2])
    counts = np.bincount([SOUND(key).draw(law * 7, 3) for key in range(N)], minlength=4).astype(float)
    assert counts[1] == 0
    assert p_of_counts(counts, law) > FALSE_ALARM


def test_depths_drafters_and_purposes_are_independent() -> None:
    # Agreement of two fair coins is a fair coin; one shared uniform would always agree.
    for one, other in [((1, 0), (1, 1)), ((1, 0), (2, 0)), ((1, 0), (17, 0)), ((1, 1), (2, 2))]:
        agree = [SOUND(key).accept(0.5, *one) == SOUND(key).accept(0.5, *other) for key in range(N)]
        assert p_of_mean(agree, 0.5, 0.25) > FALSE_ALARM
    agree = [SOUND(key).accept(0.5, 1, 0) == (SOUND(key).draw(np.ones(2), 1) == 0) for key in range(N)]
    assert p_of_mean(agree, 0.5, 0.25) > FALSE_ALARM


def test_every_order_is_as_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for key in range(N):
        order = tuple(SOUND(key).order([0, 1, 2], 1))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert p_of_counts(np.array(list(counts.values()), dtype=float), np.full(6, 1 / 6)) > FALSE_ALARM


def test_they_are_pure_functions_of_their_key() -> None:
    for depth in (1, 5, 16, 40):
        u = float(seeding.uniform(9, depth, seeding.name_word("poet"), "accept"))
        for names, drafter in [(NAMES, 1), (["poet"], 0), (["six", "poet"], 1)]:
            choices = KeyedChoices(9, names)
            assert choices.accept(np.nextafter(u, 1), depth, drafter)
            assert not choices.accept(u, depth, drafter)
    again = KeyedChoices(9, ["poet", "copyist"])
    straight = SOUND(9).order([0, 1], 2) == [0, 1]
    assert (again.order([0, 1], 2) == [1, 0]) == straight
