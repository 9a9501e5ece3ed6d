"""Drafters that answer what no drafter may, or break down; loaded by path in tests."""

from __future__ import annotations

import numpy as np

from arena.protocols import Capabilities
from arena.types import Draft


class Faulty:
    """Drafts token 1 all along until lane-step ``start >= after``, then does ``what``."""

    def __init__(self, *, name: str, what: str = "raise", after: int = 3) -> None:
        self.what, self.after = what, after

    capabilities = Capabilities(deterministic=True)

    def reset(self, contexts):
        pass

    def learn(self, batch):
        pass

    def save(self, folder):
        pass

    def load(self, folder):
        pass

    def propose(self, request):
        lanes, k = len(request.lanes), request.k
        lengths = np.array([work.k for work in request.lanes], dtype=np.int32)
        tokens = np.where(np.arange(k) < lengths[:, None], 1, -1).astype(np.int32)
        probs = (tokens >= 0).astype(np.float32)[..., None]
        support = tokens[..., None].copy()
        if all(work.step.start < self.after for work in request.lanes):
            return Draft(tokens, lengths, support, probs)
        return self.break_down(lanes, tokens, lengths, support, probs)

    def break_down(self, lanes, tokens, lengths, support, probs):
        match self.what:
            case "raise":
                raise RuntimeError("out of ideas")
            case "too large":
                return Draft(
                    np.where(tokens >= 0, 99, -1).astype(np.int32),
                    lengths,
                    np.where(support >= 0, 99, -1),
                    probs,
                )
            case "negative":
                return Draft(np.full_like(tokens, -5), lengths, np.full_like(support, -5), probs)
            case "floats":
                return Draft(tokens.astype(np.float64), lengths, support, probs)
            case "too many":
                wide = np.ones((lanes, 50), dtype=np.int32)
                return Draft(
                    wide, np.full(lanes, 50, np.int32), wide[..., None], np.ones((lanes, 50, 1), np.float32)
                )
            case "nan":
                return Draft(tokens, lengths, support, probs * np.float32(np.nan))
            case "unnormalised":
                return Draft(tokens, lengths, support, probs * np.float32(0.5))
            case "excludes":
                return Draft(tokens, lengths, np.where(support >= 0, 2, -1).astype(np.int32), probs)
            case "lanes":
                return Draft(tokens[:-1], lengths[:-1], support[:-1], probs[:-1])
            case "none":
                return None
        raise AssertionError(self.what)


class Unlearning(Faulty):
    """Raises while it learns."""

    capabilities = Capabilities(deterministic=True, learns=True)

    def propose(self, request):
        self.after = 1 << 30
        return super().propose(request)

    def learn(self, batch):
        raise RuntimeError("cannot learn this")
