"""Greedy text by a verifier and its cheap drafters, against transformers on the same weights.

Same model, dtype, prompts and lengths for all; each way continues all prompts, one after the
other, in turn with the others. Transformers is taken as it comes: plain greedy, prompt lookup,
and assisted generation with a model of the verifier's own layers without twelve in the middle.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from arena import prompts as prompt_sets
from arena.commands import fields
from arena.commands.generate import CHEAP
from arena.generate import Generator, Text
from arena.model_audit import TOLERANCE, Divergence, classify
from arena.models.load import layer_depths, load_model
from arena.traces.records import first_difference
from arena.types import Sampling
from arena.verifiers.hf import HFVerifier

Note = Callable[[str], None]


def play(
    *,
    model: str = "smollm2-135m",
    prompts: int = 4,
    tokens: int = 256,
    lookup: int = 10,
    assisted: int = 1,
    threads: int = 0,
    dtype: str = "auto",
    note: Note = lambda text: None,
) -> Any:
    """Measures the ways on the same prompts.

    Args:
        model: The verifier.
        prompts: How many.
        tokens: New tokens a prompt, at most.
        lookup: Tokens that transformers' prompt lookup copies.
        assisted: Whether assisted generation is measured as well, 0 or 1.
        threads: Of torch; its own choice if 0.
        dtype: Of the model.
        note: Told how far it is.
    """
    if threads:
        torch.set_num_threads(threads)
    verifier = HFVerifier(model=model, dtype=dtype, lanes=1, prepack=True)
    theirs = load_model(model, dtype=dtype)  # as transformers loads it: weights of its own
    chosen = prompt_sets.load("mixed").prompts[:: max(1, 72 // prompts)][:prompts]
    texts = [verifier.encode(one.messages, one.text) for one in chosen]
    note("pricing passes")
    generator = Generator(verifier, fields.build(CHEAP))
    ours: list[Text] = []

    def mine(text: Sequence[int]) -> list[int]:
        ours.append(generator.generate(text, tokens, Sampling(0.0)))
        return ours[-1].tokens

    ways: dict[str, Callable[[Sequence[int]], list[int]]] = {
        "plain": _theirs(theirs, tokens, {}),
        "prompt lookup": _theirs(theirs, tokens, {"prompt_lookup_num_tokens": lookup}),
    }
    if assisted:
        layers = int(theirs.config.num_hidden_layers)
        small = load_model(model, dtype=dtype, keep_layers=layer_depths(layers, (0.2667, 0.6667)))
        ways["assisted"] = _theirs(theirs, tokens, {"assistant_model": small})
    ways["arena"] = mine
    for way in ways.values():
        way(texts[0][:16])  # warms; not counted
    ours.clear()
    seconds = dict.fromkeys(ways, 0.0)
    said: dict[str, list[list[int]]] = {name: [] for name in ways}
    for index, text in enumerate(texts):
        for name, way in ways.items():
            began = time.perf_counter()
            said[name].append(way(text))
            seconds[name] += time.perf_counter() - began
        note(f"{index + 1} of {len(texts)} prompts")
    note("comparing the texts")
    found = [
        fault
        for index, text in enumerate(texts)
        if (fault := _difference(theirs, index, text, said["plain"][index], said["arena"][index]))
    ]
    return _report(verifier, ours, generator, seconds, said, found)


def _theirs(net: Any, tokens: int, how: dict[str, Any]) -> Callable[[Sequence[int]], list[int]]:
    def call(text: Sequence[int]) -> list[int]:
        ids = torch.tensor([list(text)], device=net.device)
        out = net.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, **how
        )
        found: list[int] = out[0, len(text) :].tolist()
        return found

    return call


def _difference(
    net: Any, index: int, prompt: Sequence[int], plain: Sequence[int], mine: Sequence[int]
) -> Divergence | None:
    """Classifies the first token that differs from plain decoding by plain logits; None where none does."""
    if list(plain) == list(mine):
        return None
    at = first_difference(plain, mine)
    if at is None:
        return Divergence(index, min(len(plain), len(mine)), math.inf, "fault")
    with torch.no_grad():
        ids = torch.tensor([[*prompt, *plain[:at]]], device=net.device)
        logits = net(ids).logits[0, -1].float().log_softmax(-1)
    scores = {token: float(logits[token]) for token in (int(logits.argmax()), plain[at], mine[at])}
    return classify(index, at, scores, mine[at], TOLERANCE[str(net.dtype).removeprefix("torch.")])


def _report(
    verifier: HFVerifier,
    ours: Sequence[Text],
    generator: Generator,
    seconds: dict[str, float],
    said: dict[str, list[list[int]]],
    differences: Sequence[Divergence],
) -> dict[str, Any]:
    speed = {name: sum(map(len, said[name])) / seconds[name] for name in seconds}
    passes = sum(len(text.passes) for text in ours)
    count = sum(len(text.tokens) for text in ours)
    rows: list[dict[str, Any]] = [
        {"name": f"{name}: speed", "value": value, "unit": "tokens/s"} for name, value in speed.items()
    ]
    rows += [
        *(
            {"name": f"a pass over {n} nodes", "value": ms, "unit": "ms"}
            for n, ms in zip(generator.costs.nodes, generator.costs.ms, strict=True)
        ),
        {"name": "arena: tokens a pass", "value": count / passes, "unit": "tokens"},
        {
            "name": "arena: nodes a pass",
            "value": sum(p.nodes for t in ours for p in t.passes) / passes,
            "unit": "nodes",
        },
        *(
            {
                "name": f"texts that part from plain by a {kind}, of {len(ours)}",
                "value": sum(one.verdict == kind for one in differences),
                "unit": "",
            }
            for kind in ("tie", "fault")
        ),
    ]
    best = max(value for name, value in speed.items() if name != "arena")
    ratios = {
        "generate_over_best_transformers": speed["arena"] / best,
        "generate_over_plain": speed["arena"] / speed["plain"],
    }
    title = f"generate: {len(ours)} prompts, greedy, {verifier.dtype}, {torch.get_num_threads()} threads"
    return {"title": title, "rows": rows, "ratios": ratios}
