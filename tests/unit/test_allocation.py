"""Which drafted tokens get a node: the best of all ways to cut the chains, found by trying them all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from arena.allocation import PassCosts, best_cuts, best_length


def rate(
    cuts: tuple[int, ...], chains: list[list[int]], chances: list[list[float]], costs: PassCosts
) -> float:
    """Tokens a millisecond of the tree of the chains so cut; a node is worth its best chain's chance."""
    nodes: dict[tuple[int, ...], float] = {}
    for cut, chain in zip(cuts, chains, strict=True):
        for end in range(1, cut + 1):
            nodes[tuple(chain[:end])] = max(
                c[end - 1] for x, c in zip(chains, chances, strict=True) if x[:end] == chain[:end]
            )
    return (1.0 + sum(nodes.values())) / costs.at(1 + len(nodes))


@pytest.mark.parametrize("seed", range(40))
def test_the_cuts_are_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chains = [rng.integers(0, 2, size=rng.integers(0, 5)).tolist() for _ in range(3)]
    chances = [np.cumprod(rng.random(4)).tolist() for _ in chains]
    times = np.cumsum([10.0, *rng.choice([0.0, 0.5, 4.0], size=11)])
    costs = PassCosts(tuple(range(1, 13)), tuple(times.tolist()))
    found = rate(tuple(best_cuts(chains, chances, costs)), chains, chances, costs)
    ways = product(*(range(len(chain) + 1) for chain in chains))
    assert found == pytest.approx(max(rate(way, chains, chances, costs) for way in ways))


def test_nodes_are_bought_together_where_a_pass_steps_up() -> None:
    """Two nodes cost what nine do: one token never pays alone, eight do."""
    costs = PassCosts((1, 2, 9, 10), (10.0, 18.0, 18.0, 30.0))
    likely = [0.9**k for k in range(1, 13)]
    assert best_length([0.5], costs, 0.0) == 0
    assert best_length(likely, costs, 0.0) == 8
    assert best_cuts([list(range(12))], [likely], costs) == [8]


def test_drafting_time_shortens_a_chain() -> None:
    costs, likely = PassCosts((1, 9), (10.0, 11.0)), [0.8**k for k in range(1, 9)]
    assert best_length(likely, costs, 0.0) > best_length(likely, costs, 3.0) > best_length(likely, costs, 9.0)


def test_a_pass_never_costs_less_than_a_smaller_one() -> None:
    costs = PassCosts.of({9: 15.0, 1: 10.0, 3: 16.0})
    assert (costs.nodes, costs.ms) == ((1, 3, 9), (10.0, 16.0, 16.0))
    assert costs.at(2) == pytest.approx(13.0)
    assert costs.at(18) == pytest.approx(32.0)
