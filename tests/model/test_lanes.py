"""Lanes: tree logits equal a plain forward, whatever shares the batch and whatever came before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from arena.errors import LawError, ModelError
from arena.models.lanes import LaneModel
from arena.models.laws import target_law
from arena.models.trees import tree_shape
from arena.sampling import warp
from arena.types import Sampling

# Two children of the committed text, the first with two children of its own, one of them with a child.
PARENTS = np.array([-1, -1, 0, 0, 2, 1, 4])


def plain(model: Any, tokens: np.ndarray) -> torch.Tensor:
    """Logits after the last of ``tokens``, by a plain forward."""
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(np.asarray(tokens, dtype=np.int64))[None]).logits[0, -1]


def branch(tree: np.ndarray, parents: np.ndarray, node: int) -> list[int]:
    """Tokens from the root of a tree down to ``node``."""
    path: list[int] = []
    while node >= 0:
        path.insert(0, int(tree[node]))
        node = int(parents[node])
    return path


def texts(rng: np.random.Generator, sizes: list[int], vocab: int = 97) -> dict[int, np.ndarray]:
    return {lane: rng.integers(0, vocab, size) for lane, size in enumerate(sizes)}


def check_tree(
    model: Any, lane_model: LaneModel, contexts: dict[int, np.ndarray], tolerance: float = 2e-4
) -> None:
    """One tree on every lane of ``contexts``; every node equals a plain forward of its branch."""
    rng = np.random.default_rng(5)
    lanes = list(contexts)
    trees = rng.integers(0, lane_model.vocab, (len(lanes), len(PARENTS)))
    counts = np.array([len(PARENTS) - (b % 3) for b in range(len(lanes))])
    parents = np.tile(PARENTS, (len(lanes), 1))
    logits = lane_model.forward(lanes, trees, parents, counts)
    assert logits.dtype == torch.float32
    assert bool(torch.isfinite(logits).all())
    for b, lane in enumerate(lanes):
        for node in range(counts[b]):
            want = plain(model, np.concatenate([contexts[lane], branch(trees[b], PARENTS, node)]))
            torch.testing.assert_close(logits[b, node], want[: lane_model.vocab], atol=tolerance, rtol=0)


def test_tree_shape() -> None:
    depths, sees = tree_shape(PARENTS[None], np.array([6]))
    assert depths[0, :6].tolist() == [0, 0, 1, 1, 2, 1]
    assert np.flatnonzero(sees[0, 4]).tolist() == [0, 2, 4]
    assert np.flatnonzero(sees[0, 6]).tolist() == [6], "padding sees itself alone"
    with pytest.raises(ModelError, match="before its children"):
        tree_shape(np.array([[0, -1]]), np.array([2]))


def test_tree_logits_equal_plain_forward(tiny: Any) -> None:
    contexts = texts(np.random.default_rng(1), [3, 40, 1, 17])
    lane_model = LaneModel(tiny, 4)
    lane_model.prefill(contexts)
    assert [lane_model.length(lane) for lane in range(4)] == [3, 40, 1, 17]
    check_tree(tiny, lane_model, contexts)


def test_empty_lane_and_selected_logits(tiny: Any) -> None:
    lane_model = LaneModel(tiny, 2, vocab=90)
    lane_model.prefill({1: [5, 6, 7]})
    full = lane_model.forward([0, 1], [[1, 2, 3], [4, 5, 6]], [[-1, 0, 1], [-1, 0, 0]], [3, 3])
    assert full.shape == (2, 3, 90)
    torch.testing.assert_close(full[0, 2], plain(tiny, np.array([1, 2, 3]))[:90], atol=2e-4, rtol=0)
    some = lane_model.forward(
        [0, 1], [[1, 2, 3], [4, 5, 6]], [[-1, 0, 1], [-1, 0, 0]], [3, 3], logits_for=[[2, 0], [1, 1]]
    )
    assert some.shape == (2, 2, 90)
    torch.testing.assert_close(some[0], full[0, [2, 0]], atol=1e-5, rtol=0)
    torch.testing.assert_close(some[1], full[1, [1, 1]], atol=1e-5, rtol=0)


@pytest.mark.parametrize("lanes", [[2], [1, 2], [3, 0], [0, 2, 3], [3, 2, 1, 0]])
def test_subset_of_lanes(tiny: Any, lanes: list[int]) -> None:
    contexts = texts(np.random.default_rng(2), [9, 30, 2, 12])
    lane_model = LaneModel(tiny, 4)
    lane_model.prefill(contexts)
    check_tree(tiny, lane_model, {lane: contexts[lane] for lane in lanes})


def test_a_lane_does_not_depend_on_the_others(tiny: Any) -> None:
    contexts = texts(np.random.default_rng(3), [9, 300, 2])
    alone, beside = LaneModel(tiny, 1), LaneModel(tiny, 3)
    alone.prefill({0: contexts[0]})
    beside.prefill(contexts)
    tree, parents = np.arange(7)[None], PARENTS[None]
    one = alone.forward([0], tree, parents, [7])
    all_three = beside.forward([0, 1, 2], np.tile(tree, (3, 1)), np.tile(parents, (3, 1)), [7, 3, 1])
    torch.testing.assert_close(all_three[0], one[0], atol=1e-5, rtol=0)


def test_keep_truncate_clear_then_continue(tiny: Any) -> None:
    rng = np.random.default_rng(4)
    contexts = texts(rng, [6, 20, 11])
    lane_model = LaneModel(tiny, 3)
    lane_model.prefill(contexts)
    tokens = rng.integers(0, 97, (3, 7))
    lane_model.forward([0, 1, 2], tokens, np.tile(PARENTS, (3, 1)), [7, 7, 7])
    paths = [[1, 5], [0, 2, 4, 6], []]
    lane_model.keep([0, 1, 2], paths)
    for lane, path in enumerate(paths):
        contexts[lane] = np.concatenate([contexts[lane], tokens[lane, np.array(path, dtype=int)]])
    assert lane_model.lengths.tolist() == [8, 24, 11]
    check_tree(tiny, lane_model, contexts)
    lane_model.truncate(1, 5)
    lane_model.clear([2])
    contexts[1], contexts[2] = contexts[1][:5], np.array([], dtype=np.int64)
    check_tree(tiny, lane_model, contexts)
    lane_model.keep([0], [[0]])
    contexts[0] = np.concatenate([contexts[0], np.random.default_rng(5).integers(0, 97, (3, 7))[0, :1]])
    again = texts(rng, [4, 4, 4])
    lane_model.prefill(again)
    check_tree(tiny, lane_model, {lane: np.concatenate([contexts[lane], again[lane]]) for lane in range(3)})


def test_prefill_chunks_growth_and_logits(tiny: Any) -> None:
    contexts = texts(np.random.default_rng(6), [600, 33, 70, 1])
    lane_model = LaneModel(tiny, 4)
    logits = lane_model.prefill(contexts, chunk=32, want_logits=True)
    assert logits is not None
    assert logits.shape == (4, 97)
    for lane, context in contexts.items():
        torch.testing.assert_close(logits[lane], plain(tiny, context), atol=2e-4, rtol=0)
    check_tree(tiny, lane_model, contexts)
    assert lane_model.prefill({0: []}) is None
    with pytest.raises(ModelError, match="no token"):
        lane_model.prefill({0: []}, want_logits=True)


def test_growth_keeps_open_trees_of_other_lanes(tiny: Any) -> None:
    lane_model = LaneModel(tiny, 2)
    lane_model.prefill({0: np.arange(90), 1: np.arange(250) % 97})
    lane_model.forward([0], [[1, 2]], [[-1, -1]], [2])
    lane_model.forward([1], [np.arange(20)], [np.arange(20) - 1], [20])  # grows the cache
    lane_model.keep([0], [[1]])
    check_tree(tiny, lane_model, {0: np.append(np.arange(90), 2)})
    lane_model.forward([0], [[1, 2]], [[-1, -1]], [2])
    lane_model.prefill({0: [5]})
    with pytest.raises(ModelError, match="no open tree"):
        lane_model.keep([0], [[1]])


def test_refusals(tiny: Any) -> None:
    lane_model = LaneModel(tiny, 2, max_length=4)
    lane_model.prefill({0: [1, 2, 3]})
    with pytest.raises(ModelError, match="lane 0 would hold 5 tokens; the limit is 4"):
        lane_model.forward([0], [[1, 2]], [[-1, 0]], [2])
    lane_model.forward([0], [[1, 2]], [[-1, -1]], [2])  # siblings share a position: this fits
    with pytest.raises(ModelError, match="does not follow"):
        lane_model.keep([0], [[0, 1]])
    with pytest.raises(ModelError, match="no open tree"):
        lane_model.keep([1], [[0]])
    with pytest.raises(ModelError, match="token id"):
        lane_model.forward([1], [[97]], [[-1]], [1])
    with pytest.raises(ModelError, match="distinct"):
        lane_model.forward([1, 1], [[1], [1]], [[-1], [-1]], [1, 1])
    with pytest.raises(ModelError, match="cannot be cut"):
        lane_model.truncate(0, 9)


SETTINGS = [
    (0.0, 0, 1.0),
    (1.0, 0, 1.0),
    (0.7, 5, 1.0),
    (1.0, 0, 0.9),
    (1.3, 40, 0.6),
    (1.0, 0, 1e-9),
    (2.0, 3, 0.99),
]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), SETTINGS)
@pytest.mark.parametrize("kind", ["random", "ties", "flat"])
def test_law_equals_numpy(temperature: float, top_k: int, top_p: float, kind: str) -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(3, 2, 3000)).astype(np.float32) * 3
    if kind == "ties":
        logits = np.round(logits)
        logits[0, 0, 5:9] = -np.inf
    if kind == "flat":  # a nucleus larger than the first guesses; equal masses make the edge exact in both
        logits[...] = 0.5
        top_p = top_p if top_p == 1 else 0.70001
    law = target_law(torch.from_numpy(logits), temperature, top_k, top_p)
    want = warp(logits, Sampling(temperature=temperature, top_k=top_k, top_p=top_p))
    assert law.dtype == torch.float32
    np.testing.assert_array_equal(law.numpy() > 0, want.astype(np.float32) > 0)
    np.testing.assert_allclose(law.numpy(), want, atol=2e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_broken_rows_are_named(bad: float | None) -> None:
    logits = torch.zeros(3, 10)
    if bad is None:
        logits[1] = float("-inf")
    else:
        logits[1, 4] = bad
    with pytest.raises(LawError, match="row 1"):
        target_law(logits, 1.0)


@pytest.mark.model
def test_smollm2_tree_equals_plain_forward(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    contexts = {
        0: np.array(tokenizer("The lighthouse keeper counted the ships and")["input_ids"]),
        1: np.array(tokenizer("def fib(n):")["input_ids"]),
    }
    lane_model = LaneModel(model, 2)
    lane_model.prefill(contexts)
    check_tree(model, lane_model, contexts, tolerance=1e-3)


@pytest.mark.model
def test_smollm2_greedy_equals_generate(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    context = np.array(tokenizer("The three laws of thermodynamics are as follows:")["input_ids"])
    lane_model = LaneModel(model, 2)
    logits = lane_model.prefill({1: context}, want_logits=True)
    assert logits is not None
    mine = [int(logits[0].argmax())]
    for _ in range(59):
        logits = lane_model.forward([1], [[mine[-1]]], [[-1]], [1])
        lane_model.keep([1], [[0]])
        mine.append(int(logits[0, 0].argmax()))
    # The minimum keeps generate from stopping early, which it does by suppressing the end token.
    with torch.no_grad():
        theirs = model.generate(
            torch.from_numpy(context)[None], max_new_tokens=60, min_new_tokens=60, do_sample=False
        )
    want = theirs[0, len(context) :].tolist()
    assert 2 not in mine, "this prompt should run on, so that nothing is suppressed"
    assert mine == want
