"""Text by a verifier and cheap drafters: whatever is drafted, the text is the verifier's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arena import registry
from arena.allocation import PassCosts
from arena.generate import Generator, Rates, Watched
from arena.types import Chain, Sampling
from arena.verifiers.table import TableVerifier

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)


def field(**options: dict[str, Any]) -> dict[str, Any]:
    known = registry.catalogue()
    return {kind: registry.load_class(known[kind])(name=kind, **options[kind]) for kind in options}


def verifier(eos: int | None = None) -> TableVerifier:
    return TableVerifier(vocab=12, order=2, seed=1, eos=eos)


@pytest.mark.parametrize("k", [None, 1, 4])
def test_greedy_text_is_that_of_plain_decoding(k: int | None) -> None:
    plain = Generator(verifier(), {}, k=1).generate(PROMPT, 60, Sampling(0.0))
    drafters = field(
        copyist={}, sprinter={"order": 3}, table={"vocab": 12, "order": 2, "seed": 1, "mix": 0.3}
    )
    costs = PassCosts((1, 25), (10.0, 12.0))
    text = Generator(verifier(), drafters, k=k, costs=costs).generate(PROMPT, 60, Sampling(0.0))
    assert text.tokens == plain.tokens
    assert len(plain.passes) == len(plain.tokens) == 60
    assert len(text.passes) < 60
    assert text.finish == "length"


def test_it_stops_at_an_end_token() -> None:
    free = Generator(verifier(), field(copyist={}), k=2).generate(PROMPT, 40, Sampling(0.0)).tokens
    end = free[5]
    text = Generator(verifier(end), field(copyist={}), k=2).generate(PROMPT, 40, Sampling(0.0))
    assert text.finish == "stop"
    assert text.tokens == free[: free.index(end) + 1]


def test_sampled_text_has_the_law_of_plain_text() -> None:
    """First two tokens over many seeds, against the exact law: total variation within noise."""
    law = verifier().law
    drafters = field(table={"vocab": 12, "order": 2, "seed": 1, "mix": 0.5}, copyist={})
    generator = Generator(verifier(), drafters, k=2)
    n, first = 1000, np.zeros((12, 12))
    for seed in range(n):
        a, b = generator.generate(PROMPT, 2, Sampling(), seed=seed).tokens
        first[a, b] += 1 / n
    one = law.law(PROMPT, Sampling())
    exact = np.stack([one[a] * law.law((*PROMPT, a), Sampling()) for a in range(12)])
    assert 0.5 * np.abs(first - exact).sum() < 0.5 * np.sqrt(exact / n).sum() * 1.3


def test_what_never_comes_true_is_not_verified_but_still_watched() -> None:
    """A copyist that is always wrong is left out; once it is right again, that is noticed at no cost."""
    costs = PassCosts((1, 2, 25), (10.0, 14.0, 30.0))
    generator = Generator(verifier(), field(copyist={}), costs=costs)
    rates = generator._rates["copyist"]
    rates.offered[:], rates.kept[:] = 50.0, 0.0
    chain = Chain(np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)[:, None], np.ones((4, 1)))
    assert [len(one) for one in generator._cut([chain], Sampling(0.0))] == [0]
    for _ in range(60):
        Watched("copyist", 0, [7, 8]).compare([7, 8], rates)
    assert [len(one) for one in generator._cut([chain], Sampling(0.0))] == [2]


def test_a_sampled_chain_is_never_cut() -> None:
    costs = PassCosts((1, 2), (10.0, 1000.0))
    generator = Generator(verifier(), field(table={"vocab": 12, "order": 2, "seed": 1}), costs=costs)
    chain = Chain(np.zeros(3, dtype=np.int32), np.zeros((3, 1), dtype=np.int32), np.ones((3, 1)))
    assert [len(one) for one in generator._cut([chain], Sampling())] == [3]
    assert [len(one) for one in generator._cut([chain], Sampling(0.0))] == [0]


def test_a_draft_is_compared_with_the_text_until_they_part() -> None:
    rates, watched = Rates(np.zeros(3), np.zeros(3)), Watched("copyist", 2, [5, 6, 7])
    assert watched.compare([1, 2, 5], rates)
    assert watched.compare([1, 2, 5], rates)  # nothing new: nothing is counted twice
    assert not watched.compare([1, 2, 5, 9, 7], rates)
    assert (rates.offered.tolist(), rates.kept.tolist()) == ([1, 1, 0], [1, 0, 0])


def test_rates_by_position_multiply() -> None:
    rates = Rates(np.zeros(3), np.zeros(3))
    for matched in (3, 1, 0, 3):
        Watched("copyist", 0, [1, 1, 1]).compare([1] * matched + [2, 2, 2], rates)
    assert rates.products()[0] == pytest.approx(0.75, abs=0.02)
    assert rates.products()[2] == pytest.approx(0.5, abs=0.03)
