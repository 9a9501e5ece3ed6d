"""The transport bound against a linear program, subset enumeration and the rules themselves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from arena.acceptance.bounds import best_acceptance, iid_bound, search_bound, subset_bound, transport_bound
from arena.types import Chain, Floats


def laws(n: int, vocab: int, seed: int, alpha: float = 0.5) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    drafts = rng.dirichlet(np.full(vocab, alpha), n)
    drafts[drafts < 0.02] = 0.0
    return rng.dirichlet(np.full(vocab, alpha)), drafts / drafts.sum(axis=1, keepdims=True)


def transport_program(target_probs: Floats, draft_probs: Floats) -> float:
    """The largest chance of keeping a draft, as the transport problem that defines it.

    Variables: the mass that goes from each tuple of drafts to each output token; marginals
    are the product of the draft laws and the target law; the mass whose output is among
    the drafts is maximised.
    """
    n, vocab = draft_probs.shape
    tuples = list(itertools.product(range(vocab), repeat=n))
    kept = np.array([[token in drafts for token in range(vocab)] for drafts in tuples], dtype=float)
    sources = np.array([np.prod([draft_probs[i, x] for i, x in enumerate(drafts)]) for drafts in tuples])
    rows = np.kron(np.eye(len(tuples)), np.ones(vocab))
    columns = np.kron(np.ones(len(tuples)), np.eye(vocab))
    solution = linprog(
        -kept.ravel(),
        A_eq=np.concatenate([rows, columns]),
        b_eq=np.concatenate([sources, target_probs]),
        method="highs",
    )
    assert solution.success
    return float(-solution.fun)


@given(st.sampled_from([(1, 5), (2, 4), (3, 3)]), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_it_is_the_value_of_the_transport_problem(shape: tuple[int, int], seed: int) -> None:
    target_probs, draft_probs = laws(*shape, seed)
    assert best_acceptance(target_probs, draft_probs) == pytest.approx(
        transport_program(target_probs, draft_probs), abs=1e-9
    )


@given(st.integers(1, 6), st.integers(2, 9), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_closed_forms_agree_with_every_subset(n: int, vocab: int, seed: int) -> None:
    target_probs, draft_probs = laws(n, vocab, seed)
    equal = np.repeat(draft_probs[:1], n, axis=0)
    assert iid_bound(target_probs, equal[0], n) == pytest.approx(subset_bound(target_probs, equal), abs=1e-12)
    certain = np.eye(vocab)[draft_probs.argmax(axis=1)]
    union = target_probs[sorted(set(draft_probs.argmax(axis=1).tolist()))].sum()
    assert best_acceptance(target_probs, certain) == pytest.approx(union, abs=1e-12)
    assert subset_bound(target_probs, certain) == pytest.approx(union, abs=1e-12)


@given(st.integers(2, 6), st.integers(2, 9), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_the_search_is_valid_and_nearly_exact(n: int, vocab: int, seed: int) -> None:
    target_probs, draft_probs = laws(n, vocab, seed)
    exact, found = subset_bound(target_probs, draft_probs), search_bound(target_probs, draft_probs)
    assert exact - 1e-12 <= found <= exact + 0.1


def test_the_search_is_exact_in_nearly_all_cases() -> None:
    excess = []
    for seed in range(300):
        target_probs, draft_probs = laws(2 + seed % 5, 9, seed)
        excess.append(search_bound(target_probs, draft_probs) - subset_bound(target_probs, draft_probs))
    assert np.mean(np.array(excess) < 1e-10) > 0.98


@given(st.integers(2, 6), st.integers(2, 9), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_more_drafters_never_lower_it_and_one_reaches_overlap(n: int, vocab: int, seed: int) -> None:
    target_probs, draft_probs = laws(n, vocab, seed)
    growing = [subset_bound(target_probs, draft_probs[: i + 1]) for i in range(n)]
    assert all(later >= earlier - 1e-12 for earlier, later in itertools.pairwise(growing))
    assert growing[0] == pytest.approx(np.minimum(target_probs, draft_probs[0]).sum(), abs=1e-12)


def test_sparse_supports_in_a_large_vocabulary() -> None:
    law = np.full(5000, 0.5 / 4990)
    law[:10] = 0.05
    supports = [[0, 1, 7], [1, 4990, -1]]
    probs = [[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]]
    chains = [
        Chain(np.array([row[0]], np.int32), np.array([row], np.int32), np.array([q]))
        for row, q in zip(supports, probs, strict=True)
    ]
    dense = np.zeros((2, 5000))
    for row, support, q in zip(dense, supports, probs, strict=True):
        row[[token for token in support if token >= 0]] = [x for x in q if x > 0]
    union = [0, 1, 7, 4990]
    assert transport_bound(law, chains, 0) == pytest.approx(subset_bound(law[union], dense[:, union]))
    assert transport_bound(law, [], 0) == 0.0
