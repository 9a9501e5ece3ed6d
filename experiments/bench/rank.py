"""Ranking six drafters of SmolLM2: what one interval costs by three ways.

(a) one by one with transformers' assisted generation, where it can; (b) the live engine,
one pass for all; (c) replay of one trace, its decoding included. Each gives acceptance
lengths with intervals over prompts; a half-width shrinks with the root of the prompts, so
cost times half-width squared compares the ways at equal half-width.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from arena import prompts as prompt_sets
from arena import registry, seeding
from arena.backends.local import LocalBackend
from arena.engines import compare
from arena.engines.live import SCOREBOARD, VERIFIER, RoundPlan
from arena.engines.live import play as play_round
from arena.metrics import interval
from arena.protocols import WorkerSpec
from arena.traces import Trace
from arena.types import Commit, Sampling

MODEL = "smollm2-135m"
DEPTHS: Mapping[str, tuple[float, float]] = {
    "skip 2": (0.4667, 0.5334),
    "skip 4": (0.4, 0.5334),
    "skip 8": (0.3334, 0.6),
    "skip 12": (0.2667, 0.6667),
}
FIELD: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{name: ("hf", {"model": MODEL, "drop": drop}) for name, drop in DEPTHS.items()},
    "n-gram": ("sprinter", {"order": 3, "learns": False}),
    "lookup": ("copyist", {"prefer": "earliest"}),
}
Note = Callable[[str], None]


def play(
    *, prompts: int = 8, tokens: int = 32, k: int = 4, seed: int = 1, note: Note = lambda text: None
) -> Any:
    """Measures the three ways on the same prompts.

    Args:
        prompts: How many.
        tokens: New tokens a prompt.
        k: Draft length.
        seed: Of the sampling.
        note: Told how far it is.
    """
    backend = LocalBackend()
    known = registry.catalogue()
    specs = {
        name: WorkerSpec(
            "arena.engines.seats:DrafterSeat", {"name": name, "target": known[kind], "options": dict(options)}
        )
        for name, (kind, options) in FIELD.items()
    }
    specs[SCOREBOARD] = WorkerSpec("arena.engines.seats:ScoreboardSeat", {})
    specs[VERIFIER] = WorkerSpec(
        "arena.engines.seats:VerifierSeat",
        {
            "target": registry.VERIFIERS["hf"],
            "options": {"model": MODEL, "lanes": prompts},
            "score": "speculative",
            "commit": "recursive",
            "rule_options": {},
            "sampling": Sampling(),
        },
    )
    note("loading the models (not counted)")
    backend.start(specs, timeout=600)
    chosen = prompt_sets.load("mixed").prompts
    encoded = backend.wait(
        [backend.submit(VERIFIER, "encode", [(one.messages, one.text) for one in chosen])], timeout=60
    )[0]
    # The shortest prompts of the set: on a CPU, reading long ones would be all that is measured.
    found = [(one.id, tuple(ids)) for one, ids in zip(chosen, encoded, strict=True)]
    texts = sorted(found, key=_size)[:prompts]

    def round_of(names: Sequence[str], key: int) -> tuple[Any, float]:
        plan = RoundPlan(
            number=1,
            key=key,
            names=tuple(sorted(names)),
            learners=(),
            prompts=tuple(texts),
            sampling=Sampling(),
            draft_length=k,
            max_new_tokens=tokens,
            max_context=2048,
            lanes=prompts,
            in_flight=1,
            learn_every=1,
            feedback_top=0,
            ranks=None,
            timeout=600.0,
        )
        began = time.perf_counter()
        return play_round(plan, backend, lambda plan, played: None), time.perf_counter() - began

    key = int(seeding.fold(seed, "bench"))
    round_of((), key)  # warms caches; not counted
    ways = {
        "replay": _replay(backend, texts, round_of, k, tokens, key, note),
        "live": _live(round_of, key, note),
        "assisted": _assisted(texts, tokens, k, seed, note),
    }
    return _report(ways, prompts, tokens, k)


def _size(text: tuple[str, tuple[int, ...]]) -> tuple[int, str]:
    return len(text[1]), text[0]


def _replay(
    backend: LocalBackend, texts: Sequence[Any], round_of: Any, k: int, tokens: int, key: int, note: Note
) -> dict[str, Any]:
    note("replay: decoding the trace")
    played, seconds = round_of((), key)
    began = time.perf_counter()
    prompts, groups = dict(texts), {}
    for commit in sorted(played.commits, key=lambda one: one.step.start):
        groups.setdefault(commit.step.prompt_id, []).append(commit)
    traces = [_trace(name, prompts[name], parts, tokens) for name, parts in groups.items()]
    note("replay: scoring six drafters")
    drafters = {name: backend._workers[name].drafter for name in FIELD}
    rows = compare.rows(compare.score(traces, drafters, [k]))
    lengths = {row["drafter"]: (row["acceptance_length"], (row["high"] - row["low"]) / 2) for row in rows}
    return {"seconds": seconds + time.perf_counter() - began, "passes": played.passes, "lengths": lengths}


def _trace(name: str, prompt: tuple[int, ...], parts: Sequence[Commit], tokens: int) -> Trace:
    return Trace(
        name, prompt, tuple(token for one in parts for token in one.tokens),
        tuple(value for one in parts for value in one.logprobs), "sampled", finish=parts[-1].finish,
        end_logged=parts[-1].finish == "stop", max_tokens=tokens, eos=(2,),
    )  # fmt: skip


def _live(round_of: Any, key: int, note: Note) -> dict[str, Any]:
    note("live: one roster of six")
    played, seconds = round_of(tuple(FIELD), key)
    lengths = {}
    for name in FIELD:
        counts: dict[str, list[int]] = {}
        for verdict in played.verdicts:
            if verdict.drafter == name:
                entry = counts.setdefault(verdict.step.prompt_id, [0, 0])
                entry[0] += verdict.n_accepted
                entry[1] += 1
        lengths[name] = _length(list(counts.values()))
    return {"seconds": seconds, "passes": played.passes, "lengths": lengths}


def _assisted(texts: Sequence[Any], tokens: int, k: int, seed: int, note: Note) -> dict[str, Any]:
    """Transformers' own: one drafter and one prompt at a time; it has no n-gram table."""
    import torch

    from arena.models.load import layer_depths, load_model

    target = load_model(MODEL)
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    hook = target.register_forward_hook(count)
    torch.manual_seed(seed)
    layers = int(target.config.num_hidden_layers)
    lengths, total, seconds = {}, 0, 0.0
    for name in [*DEPTHS, "lookup"]:
        how: dict[str, Any] = {"prompt_lookup_num_tokens": k}
        if name in DEPTHS:
            small = load_model(MODEL, keep_layers=layer_depths(layers, DEPTHS[name]))
            small.generation_config.num_assistant_tokens = k
            small.generation_config.num_assistant_tokens_schedule = "constant"
            small.generation_config.assistant_confidence_threshold = 0.0
            how = {"assistant_model": small}
        note(f"assisted generation: {name}")
        counts = []
        began = time.perf_counter()
        for _, prompt in texts:
            passes = 0
            ids = torch.tensor([prompt])
            out = target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                max_new_tokens=tokens,
                **how,
            )
            total += passes
            # A pass gives one token of its own; what is beyond that was accepted.
            counts.append([out.shape[1] - len(prompt) - passes, passes])
        seconds += time.perf_counter() - began
        lengths[name] = _length(counts)
    hook.remove()
    return {"seconds": seconds, "passes": total, "lengths": lengths}


def _length(counts: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Acceptance length and the half-width of its interval over prompts."""
    accepted, steps = (np.array(column, dtype=float) for column in zip(*counts, strict=True))
    low, high = interval(accepted, steps, lowest=-math.inf, highest=math.inf)
    return 1 + accepted.sum() / steps.sum(), (high - low) / 2


def _report(found: Mapping[str, Mapping[str, Any]], prompts: int, tokens: int, k: int) -> dict[str, Any]:
    shared = list(found["assisted"]["lengths"])
    rows, price = [], {}
    for way, what in found.items():
        rows += [
            {"name": f"{way}: wall time", "value": what["seconds"], "unit": "s"},
            {"name": f"{way}: verifier passes", "value": what["passes"], "unit": "passes"},
        ]
        for name, (length, half) in what["lengths"].items():
            rows.append({"name": f"{way}: {name}", "value": length, "unit": "tokens/step"})
            rows.append({"name": f"{way}: {name}, half-width", "value": half, "unit": "tokens/step"})
        square = float(np.mean([what["lengths"][name][1] ** 2 for name in shared]))
        price[way] = what["seconds"] * square
        rows.append(
            {"name": f"{way}: root mean square half-width", "value": math.sqrt(square), "unit": "tokens/step"}
        )
    return {
        "title": f"six drafters of {MODEL}: {prompts} shortest prompts, {tokens} tokens, K={k}, T=1",
        "rows": rows,
        "ratios": {
            "replay_over_assisted": price["assisted"] / price["replay"],
            "live_over_assisted": price["assisted"] / price["live"],
            "replay_over_assisted_time": found["assisted"]["seconds"] / found["replay"]["seconds"],
            "live_over_assisted_time": found["assisted"]["seconds"] / found["live"]["seconds"],
        },
        "notes": [
            "replay_over_assisted and live_over_assisted are at equal half-width, over the five drafters "
            "that assisted generation has; its time is of those five, the others' of all six. "
            "Loading is counted nowhere."
        ],
    }
