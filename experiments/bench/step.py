"""A verifier step over a tree of 25 nodes, whole, against the bare forward of the same tokens.

Whole is what a pass costs the verifier: merging the chains, the mask, the forward, the laws,
the rules, and dropping the refused nodes. Bare is the model of transformers on as many
tokens over its own cache of the same length, which is what a serving loop cannot go below.
The three are measured in turn, again and again, and medians are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from arena import acceptance, seeding
from arena.engines.judge import Rules, gather, judge
from arena.sampling import normalise, truncate
from arena.types import Chain, LaneStep, Sampling
from arena.verifiers.hf import HFVerifier

Note = Callable[[str], None]
Part = tuple[Callable[[], Any], Callable[[], None]]
"""What is timed, and what is done after it."""
DRAFTERS, K = 6, 4
KEY = 20


def play(
    *,
    model: str = "smollm2-135m",
    contexts: str = "100,1000,4000",
    temperatures: str = "0,1",
    repeats: int = 5,
    lanes: int = 1,
    threads: int = 0,
    dtype: str = "auto",
    note: Note = lambda text: None,
) -> Any:
    """Measures a step over contexts and temperatures.

    Args:
        model: The verifier.
        contexts: Tokens cached before the step, with commas between.
        temperatures: Of the laws, with commas between.
        repeats: Measurements of each; the median counts.
        lanes: Lanes that share the step, of lengths that differ.
        threads: Of torch; its own choice if 0.
        dtype: Of the model.
        note: Told how far it is.
    """
    if threads:
        torch.set_num_threads(threads)
    verifier = HFVerifier(model=model, lanes=lanes, dtype=dtype)
    rules = Rules(acceptance.get("speculative"), acceptance.get("recursive"))
    rows: list[dict[str, Any]] = []
    worst = {"step_over_forward": 0.0, "step_over_one_token": 0.0}
    for length in (int(part) for part in contexts.split(",")):
        lengths = [max(2, length - 7 * lane) for lane in range(lanes)]
        note(f"context {length}: reading it")
        texts = {lane: _tokens(lane, n, verifier.vocabulary.size) for lane, n in enumerate(lengths)}
        verifier.open(texts)
        bare, single = _bare(verifier, lengths)
        for temperature in (float(part) for part in temperatures.split(",")):
            sampling = Sampling(temperature)
            chains = [_chains(verifier, lane, sampling) for lane in range(lanes)]

            def whole(chains: Any = chains, sampling: Sampling = sampling, texts: Any = texts) -> int:
                drafts = {
                    lane: gather(
                        LaneStep(f"p{lane}", 0), K, K + 2, int(texts[lane][-1]), _names(), chains[lane]
                    )
                    for lane in range(lanes)
                }
                laws = verifier.forward({lane: one.tree for lane, one in drafts.items()}, sampling)
                judged = {lane: judge(one, laws[lane], rules, (), KEY) for lane, one in drafts.items()}
                verifier.keep({lane: one.path for lane, one in judged.items()})
                return sum(len(one.tree.tokens) for one in drafts.values())

            def reset() -> None:
                for lane, n in enumerate(lengths):  # noqa: B023 (called at once)
                    verifier.cut(lane, n - 1)

            nodes = whole()
            reset()
            found = _in_turn([(whole, reset), (bare, _nothing), (single, _nothing)], repeats)
            where = f"context {length}, T={temperature:g}"
            rows += [
                {"name": f"{where}: step over {nodes} nodes", "value": found[0], "unit": "ms"},
                {"name": f"{where}: bare forward of 25 tokens a lane", "value": found[1], "unit": "ms"},
                {"name": f"{where}: bare forward of 1 token a lane", "value": found[2], "unit": "ms"},
                {"name": f"{where}: step over forward", "value": found[0] / found[1], "unit": "x"},
                {"name": f"{where}: step over one token", "value": found[0] / found[2], "unit": "x"},
            ]
            worst["step_over_forward"] = max(worst["step_over_forward"], found[0] / found[1])
            worst["step_over_one_token"] = max(worst["step_over_one_token"], found[0] / found[2])
    note("what the machine can do")
    rows += _roofline(verifier.net, lanes * (DRAFTERS * K + 1))
    title = f"step: {model} {verifier.dtype}, {lanes} lanes, {torch.get_num_threads()} threads"
    return {"title": title, "rows": rows, "ratios": worst}


def _roofline(net: Any, nodes: int) -> list[dict[str, Any]]:
    """The least that a pass can take: memory and products at the best that torch does here."""
    dtype, device = net.dtype, net.device
    products = [one.weight for one in net.modules() if isinstance(one, torch.nn.Linear)]
    count, size = sum(one.numel() for one in products), sum(one.nbytes for one in products)
    side = 8192 if device.type == "cuda" else 1024
    many = torch.ones(1 << 27, dtype=torch.float32, device=device)
    square = torch.ones((side, side), dtype=dtype, device=device)
    # The fastest, and not the median: this is a bound.
    read = many.nbytes / (min(_times([(many.sum, _nothing)], 5)[0]) * 1e6)
    work = 2 * side**3 / (min(_times([(lambda: square @ square, _nothing)], 30)[0]) * 1e6)
    return [
        {"name": "weights of its products", "value": size / 1e9, "unit": "GB"},
        {"name": "memory, read", "value": read, "unit": "GB/s"},
        {"name": "arithmetic, a product of squares", "value": work, "unit": "GFLOP/s"},
        {"name": "any pass: least time by memory", "value": size / read / 1e6, "unit": "ms"},
        {
            "name": f"{nodes} nodes: least time by arithmetic",
            "value": 2 * count * nodes / work / 1e6,
            "unit": "ms",
        },
    ]


def _nothing() -> None:
    pass


def _names() -> tuple[str, ...]:
    return tuple(f"d{index}" for index in range(DRAFTERS))


def _tokens(lane: int, n: int, vocab: int) -> list[int]:
    uniforms = seeding.uniform(KEY, "text", lane, np.arange(n))
    found: list[int] = (uniforms * vocab).astype(int).tolist()
    return found


def _chains(verifier: HFVerifier, lane: int, sampling: Sampling) -> list[Chain]:
    """Six chains of four tokens that share nothing but the root, as sparse laws of 64 tokens."""
    vocab, chains = verifier.vocabulary.size, []
    for index in range(DRAFTERS):
        support = np.sort(
            np.argsort(seeding.uniform(KEY, "law", lane, index, np.arange(vocab)))[: 64 * K]
        ).reshape(K, 64)
        weights = seeding.uniform(KEY, "weight", lane, index, np.arange(64 * K)).reshape(K, 64) + 0.01
        place, probs = truncate(weights, 1 if sampling.temperature == 0 else 64)
        ids = np.take_along_axis(support, place.astype(np.int64), axis=1).astype(np.int32)
        chains.append(Chain(ids[:, 0].copy(), ids, normalise(probs)))
    return chains


def _bare(verifier: HFVerifier, lengths: Sequence[int]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The model of transformers over a cache of its own of the longest lane's length."""
    from transformers import DynamicCache

    net, lanes, length = verifier.net, len(lengths), max(lengths) - 1
    cache = DynamicCache(config=net.config)
    texts = torch.tensor([_tokens(lane, length, verifier.vocabulary.size) for lane in range(lanes)])
    with torch.no_grad():
        for first in range(0, length, 512):
            net.base_model(
                input_ids=texts[:, first : first + 512].to(net.device), cache=cache, use_cache=True
            )

    def forward(tokens: int) -> Callable[[], Any]:
        ids = torch.tensor([_tokens(9, tokens, verifier.vocabulary.size)] * lanes, device=net.device)

        def call() -> Any:
            with torch.no_grad():
                logits = net(input_ids=ids, cache=cache, use_cache=True).logits
            cache.crop(-tokens)
            return logits

        return call

    return forward(DRAFTERS * K + 1), forward(1)


def _in_turn(parts: Sequence[Part], repeats: int) -> list[float]:
    """Median times, ms."""
    return [float(np.median(mine)) for mine in _times(parts, repeats)]


def _times(parts: Sequence[Part], repeats: int) -> list[list[float]]:
    """Times, ms; in turn, so that what else the machine does befalls all alike."""
    times: list[list[float]] = [[] for _ in parts]
    for turn in range(repeats + 1):
        for mine, (call, after) in zip(times, parts, strict=True):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            began = time.perf_counter()
            call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn:  # the first allocates
                mine.append(1000.0 * (time.perf_counter() - began))
            after()
    return times
