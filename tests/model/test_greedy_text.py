"""Greedy multi-drafter text of a real model equals transformers' own greedy text.

At the first difference the two top logits of a plain forward are compared: within
tolerance it is a tie (sums in another order), else a fault.
"""

from __future__ import annotations

from typing import Any

import pytest

from arena import prompts, seeding
from arena.backends.local import LocalBackend
from arena.engines.live import RoundPlan, play
from arena.protocols import WorkerSpec
from arena.types import Sampling

TIE = 1e-3
"""Nats between the two top logits in fp32 below which another order of sums may decide."""

NEW = 200
MODEL = {"model": "smollm2-135m", "dtype": "float32", "device": "cpu"}


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_greedy_tokens_equal_generate(smollm2: tuple[Any, Any]) -> None:
    import torch

    model, _ = smollm2
    seats = "arena.engines.seats"
    field = {
        "copy": ("drafters.copyist:Copyist", {}),
        "count": ("drafters.sprinter:Sprinter", {"order": 3}),
        "cut": ("drafters.steady:Steady", {**MODEL, "drop": (0.1, 0.95)}),
    }
    greedy = Sampling(temperature=0.0)
    backend = LocalBackend()
    backend.start(
        {
            "verifier": WorkerSpec(
                f"{seats}:VerifierSeat",
                {
                    "target": "arena.verifiers.hf:HFVerifier",
                    "options": {**MODEL, "lanes": 2},
                    "score": "speculative",
                    "commit": "recursive",
                    "rule_options": {},
                    "sampling": greedy,
                },
            ),
            "scoreboard": WorkerSpec(f"{seats}:ScoreboardSeat", {}),
            **{
                name: WorkerSpec(f"{seats}:DrafterSeat", {"name": name, "target": target, "options": options})
                for name, (target, options) in field.items()
            },
        },
        timeout=120,
    )
    chosen = [p for p in prompts.load("mixed").prompts if p.category in ("code", "summary")][:2]
    encoded = backend.wait(
        [backend.submit("verifier", "encode", [(p.messages, p.text) for p in chosen])], timeout=60
    )[0]
    plan = RoundPlan(
        number=1,
        key=int(seeding.fold(0, 1)),
        names=tuple(field),
        learners=("count",),
        prompts=tuple((p.id, tuple(ids)) for p, ids in zip(chosen, encoded, strict=True)),
        sampling=greedy,
        draft_length=4,
        max_new_tokens=NEW,
        max_context=2048,
        lanes=2,
        in_flight=1,
        learn_every=8,
        feedback_top=8,
        ranks=None,
        timeout=600,
    )
    played = play(plan, backend, lambda plan, play: None)
    for prompt_id, ids in plan.prompts:
        steps = sorted(
            (c for c in played.commits if c.step.prompt_id == prompt_id), key=lambda c: c.step.start
        )
        text = [token for step in steps for token in step.tokens]
        assert sum(step.n_accepted for step in steps) > 0, "nothing was speculated"
        with torch.no_grad():
            whole = model.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False, pad_token_id=0)
        plain = whole[0, len(ids) :].tolist()
        assert len(text) == len(plain) or text != plain
        first = next((i for i, (a, b) in enumerate(zip(text, plain, strict=False)) if a != b), None)
        if first is None:
            assert text == plain
            continue
        with torch.no_grad():
            logits = model(torch.tensor([ids + plain[:first]])).logits[0, -1].float()
        gap = float(logits.topk(2).values.diff().abs())
        assert gap < TIE, f"a fault, not a tie: token {first} differs, the two top logits are {gap} apart"
