"""The workers of an audit of a model, in this process: the seats of a run, and a round to play."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arena import acceptance
from arena.acceptance.tree import merge
from arena.backends.local import LocalBackend
from arena.engines.judge import Rules
from arena.engines.live import SCOREBOARD, VERIFIER, RoundPlan, play
from arena.engines.seats import VerifierSeat
from arena.protocols import WorkerSpec
from arena.types import Floats, Sampling, Vocabulary

SHOWN = 16
"""Likeliest tokens whose log-probabilities plain decoding keeps."""


class AuditSeat(VerifierSeat):
    """The verifier's seat of a run, which can also be asked for plain decoding."""

    def play_by(self, commit: str, sampling: Sampling) -> None:
        """Changes the rules and the warping of what follows."""
        score = acceptance.get("speculative")
        assert isinstance(score, acceptance.ChainRule)
        self.rules, self.sampling = Rules(score, acceptance.get(commit)), sampling

    def dtype(self) -> str:
        """The model's number format."""
        return str(getattr(self.verifier, "dtype", "float64"))

    def next_laws(self, contexts: Sequence[Sequence[int]], sampling: Sampling) -> list[Floats]:
        """The model's own law after each of a few contexts, by one plain forward."""
        self.verifier.open(dict(enumerate(contexts)))
        laws = self.verifier.forward(
            {lane: merge(context[-1], ()) for lane, context in enumerate(contexts)}, sampling
        )
        return [np.array(laws[lane].law(0)) for lane in range(len(contexts))]

    def decode(self, contexts: Sequence[Sequence[int]], n: int) -> list[list[dict[int, float]]]:
        """Decodes greedily, a token a pass: per prompt and position the likeliest tokens' log-probs."""
        lanes = dict(enumerate(contexts))
        self.verifier.open(lanes)
        last = {lane: context[-1] for lane, context in lanes.items()}
        found: list[list[dict[int, float]]] = [[] for _ in contexts]
        eos = self.verifier.vocabulary.eos
        for _ in range(n):
            if not last:
                break
            laws = self.verifier.forward(
                {lane: merge(token, ()) for lane, token in last.items()}, Sampling(temperature=0.0)
            )
            for lane in list(last):
                tokens, mass, _tail = laws[lane].top(0, SHOWN)
                best = int(laws[lane].law(0).argmax())
                scores = {int(t): math.log(m) for t, m in zip(tokens, mass, strict=True) if m > 0}
                found[lane].append({best: scores[best], **scores})  # the token taken comes first
                last[lane] = best
                if best in eos:
                    del last[lane]
            self.verifier.keep(dict.fromkeys(last, ()))
        return found


class Bench:
    """The workers of the audit, in this process."""

    def __init__(self, target: str, options: Mapping[str, Any], lanes: int) -> None:
        self.lanes = lanes
        self.backend = LocalBackend()
        seat = {
            "target": target, "options": dict(options), "score": "speculative", "commit": "recursive",
            "rule_options": {}, "sampling": Sampling(),
        }  # fmt: skip
        specs = {
            VERIFIER: WorkerSpec(f"{__name__}:AuditSeat", seat),
            SCOREBOARD: WorkerSpec("arena.engines.seats:ScoreboardSeat", {}),
        }
        self.vocabulary: Vocabulary = self.backend.start(specs, timeout=600.0)[VERIFIER]

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the verifier's seat."""
        return self.backend.submit(VERIFIER, method, *arguments).result()

    def seat(self, drafters: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
        """Builds drafters; new ones take the seats of old ones."""
        seat = "arena.engines.seats:DrafterSeat"
        specs = {
            name: WorkerSpec(
                seat, {"name": name, "target": f"arena.engines.scripted:{cls}", "options": options}
            )
            for name, (cls, options) in drafters.items()
        }
        self.backend.start(specs, timeout=600.0)

    def play(
        self, names: Sequence[str], prompts: Mapping[str, Sequence[int]], sampling: Sampling, k: int, n: int
    ) -> tuple[dict[str, list[int]], float]:
        """Plays one round; gives the texts, and the tokens a lane-step."""
        plan = RoundPlan(
            number=1, key=1, names=tuple(sorted(names)), learners=(),
            prompts=tuple((name, tuple(tokens)) for name, tokens in prompts.items()),
            sampling=sampling, draft_length=k, max_new_tokens=n, max_context=int(self.ask("max_context")),
            lanes=self.lanes, in_flight=1, learn_every=1, feedback_top=0, ranks=None, timeout=600.0,
        )  # fmt: skip
        played = play(plan, self.backend, lambda *_: None)
        texts: dict[str, list[int]] = {name: [] for name in prompts}
        for commit in sorted(played.commits, key=lambda c: c.step.start):
            texts[commit.step.prompt_id].extend(commit.tokens)
        return texts, sum(len(c.tokens) for c in played.commits) / len(played.commits)
