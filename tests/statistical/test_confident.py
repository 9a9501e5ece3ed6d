"""The promise of confident retirement, by simulation: at most delta wrong over a whole tournament."""

from __future__ import annotations

import numpy as np
import pytest

from arena.confident import BETS, differences, evidence, log_wealth, separated, threshold

DELTA, TOURNAMENTS, ROUNDS = 0.05, 1000, 160

FIELDS = {
    "two equal": [0.5, 0.5],
    "six equal": [0.5] * 6,
    "spaced": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "close": [0.5, 0.51, 0.52, 0.53, 0.54, 0.55],
    "two best": [0.2, 0.3, 0.4, 0.5, 0.6, 0.6],
}


def tournaments(means: list[float], noise: float, rule: str) -> tuple[float, float]:
    """Plays all tournaments at once; a round is one prompt, so one looks as often as can be.

    Args:
        means: Each drafter's rate.
        noise: Beta counts of a prompt's rate; small is noisy.
        rule: "all", or "next-lowest": the lowest of a round leaves when the evidence of the
            next-lowest against it alone reaches 1/delta.

    Returns:
        The share of tournaments in which one at least as good as all others alive was
        retired, and the mean number retired.
    """
    rng, truth, n = np.random.default_rng([7, len(means)]), np.array(means), len(means)
    alive = np.ones((TOURNAMENTS, n), dtype=bool)
    wealth = np.zeros((len(BETS), TOURNAMENTS, n, n))
    wrong, retired, index = np.zeros(TOURNAMENTS, dtype=bool), 0, np.arange(TOURNAMENTS)
    for _ in range(ROUNDS):
        rates = rng.beta(truth * noise, (1 - truth) * noise, (TOURNAMENTS, 1, n))
        wealth += log_wealth(differences(rates))
        e, score = evidence(wealth), np.where(alive, rates.mean(axis=1), np.inf)
        if rule == "all":
            leaves = separated(e, alive, threshold(n, DELTA))
        else:
            lowest, following = np.argsort(score, axis=1)[:, :2].T
            leaves = np.zeros_like(alive)
            leaves[index, lowest] = (e[index, lowest, following] >= 1 / DELTA) & (alive.sum(axis=1) > 1)
        who, any_left = np.where(leaves, score, np.inf).argmin(axis=1), leaves.any(axis=1)
        best = np.where(alive, truth, -1).max(axis=1)
        wrong |= any_left & (truth[who] >= best)
        retired += int(any_left.sum())
        alive[index[any_left], who[any_left]] = False
    return float(wrong.mean()), retired / TOURNAMENTS


CASES = [("two equal", 0.5), ("six equal", 4.0), ("spaced", 4.0), ("two best", 4.0)]


@pytest.mark.parametrize(("field", "noise"), CASES)
def test_a_best_drafter_is_retired_in_at_most_delta_of_tournaments(field, noise):
    wrong, retired = tournaments(FIELDS[field], noise, "all")
    print(f"{field}, noise {noise}: wrong {wrong:.3f}, retired {retired:.2f}")
    assert wrong <= DELTA


def test_it_separates_what_is_apart():
    _, retired = tournaments(FIELDS["spaced"], 10.0, "all")
    assert retired > 3


def test_asking_the_next_lowest_alone_breaks_the_promise():
    wrong, _ = tournaments(FIELDS["six equal"], 4.0, "next-lowest")
    print(f"next-lowest alone, six equal: wrong {wrong:.3f}")
    assert wrong > 1.5 * DELTA


def test_a_gap_of_a_tenth_needs_about_ninety_prompts():
    """About 92 prompts at a roster of two and rates that spread as prompts do."""
    rng = np.random.default_rng(1)
    rates = rng.beta([[4.5, 5.5]], [[5.5, 4.5]], (200, 300, 2))
    wealth = np.stack([np.log1p(stake * differences(rates)).cumsum(axis=1) for stake in BETS])
    reached = evidence(wealth)[..., 0, 1] >= threshold(6, DELTA)
    assert 50 < np.median(reached.argmax(axis=1)) < 150
