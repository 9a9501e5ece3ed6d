"""Rules for several draws from one drafter; for the audit's comparison only.

A drafter of a race sends one chain, so none of these can run in one. They take
chains that all carry the same laws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from arena.acceptance.outcome import Outcome
from arena.acceptance.residual import Residual
from arena.acceptance.rule import TreeRule, ratio
from arena.protocols import Choices, TargetLaws
from arena.sampling import MASS_EPSILON
from arena.types import Chain, DraftTree, Floats

_NAN = float("nan")


@dataclass(frozen=True)
class WithoutReplacement(TreeRule):
    """Recursive rejection of siblings drawn without replacement, in draw order.

    Jeon et al. 2024 (RSD, arXiv 2402.14160); Sequoia (arXiv 2402.12374), algorithm 2. The
    i-th sibling was drawn from q without the siblings before it, renormalised; that law
    is what its token is tested against and what is subtracted. No token is proposed twice.
    """

    name = "without_replacement"
    lossless = True
    needs_draft_law = True
    in_run = False
    bounded = False
    source = "Jeon et al. 2024, arXiv 2402.14160, recursive rejection without replacement"

    def commit(
        self,
        tree: DraftTree,
        chains: Sequence[Chain],
        laws: TargetLaws,
        choices: Choices,
        ranks: Sequence[int] | None = None,
    ) -> Outcome:
        """``chains`` in the order in which they were drawn."""
        path: list[int] = []
        node, depth, alive = 0, 0, list(range(len(chains)))
        while True:
            residual = Residual(laws.law(node))
            alive = [drafter for drafter in alive if len(chains[drafter]) > depth]
            kept, earlier = -1, set[int]()
            for drafter in alive:
                chain, token = chains[drafter], int(chains[drafter].tokens[depth])
                fresh = np.where(np.isin(chain.support[depth], list(earlier)), 0.0, chain.draft_probs[depth])
                fresh = fresh / fresh.sum()
                earlier.add(token)
                draft_prob = float(fresh[chain.support[depth] == token].sum())
                if choices.accept(ratio(residual.prob(token), draft_prob), depth + 1, drafter):
                    kept = int(tree.nodes[drafter, depth])
                    break
                residual.subtract(chain.support[depth], fresh)
            if kept < 0:
                return Outcome(tuple(path), choices.draw(residual.law(), depth + 1), _NAN, _NAN)
            path.append(kept)
            alive = [drafter for drafter in alive if tree.nodes[drafter, depth] == kept]
            node, depth = kept, depth + 1


@dataclass(frozen=True)
class KSeq(TreeRule):
    """K-SEQ: i.i.d. siblings, each kept with min(1, p / (rho q)).

    SpecTr (Sun et al. 2023, arXiv 2310.15141), k-SEQ selection. With n siblings at a node,
    beta = sum min(q, p / rho) and rho the smallest in [1, n] with
    1 - (1 - beta)^n <= rho beta; none kept: draw from
    norm(p - min(q, p / rho) (1 - (1 - beta)^n) / beta).
    """

    name = "kseq"
    lossless = True
    needs_draft_law = True
    in_run = False
    bounded = True
    source = "Sun et al. 2023, arXiv 2310.15141, k-SEQ selection"

    def commit(
        self,
        tree: DraftTree,
        chains: Sequence[Chain],
        laws: TargetLaws,
        choices: Choices,
        ranks: Sequence[int] | None = None,
    ) -> Outcome:
        """Walks down from the root; the chains that share the kept token go on."""
        path: list[int] = []
        node, depth, alive = 0, 0, list(range(len(chains)))
        while True:
            law = laws.law(node)
            alive = [drafter for drafter in alive if len(chains[drafter]) > depth]
            kept, rest = -1, law
            if alive:
                draft_law = _dense(chains[alive[0]], depth, len(law))
                rho = smallest_rho(law, draft_law, len(alive))
                each = np.minimum(draft_law, law / rho)
                beta = float(each.sum())
                some = 1.0 - (1.0 - beta) ** len(alive)
                if beta > 0:
                    rest = np.maximum(law - each * (some / beta), 0.0)
                    rest = rest if rest.sum() > MASS_EPSILON else law
            for drafter in alive:
                token = int(chains[drafter].tokens[depth])
                if choices.accept(
                    ratio(float(law[token]), rho * float(draft_law[token])), depth + 1, drafter
                ):
                    kept = int(tree.nodes[drafter, depth])
                    break
            if kept < 0:
                return Outcome(tuple(path), choices.draw(rest, depth + 1), _NAN, _NAN)
            path.append(kept)
            alive = [drafter for drafter in alive if tree.nodes[drafter, depth] == kept]
            node, depth = kept, depth + 1


def smallest_rho(law: Floats, draft_law: Floats, n: int) -> float:
    """Gives the smallest rho in [1, n] with 1 - (1 - beta)^n <= rho beta, by bisection.

    Args:
        law: p, float64[V].
        draft_law: q, float64[V].
        n: Siblings.
    """
    return _smallest_rho(law.tobytes(), draft_law.tobytes(), n)


@lru_cache(maxsize=4096)
def _smallest_rho(law_bytes: bytes, draft_law_bytes: bytes, n: int) -> float:
    # The audit asks for the same few laws thousands of times.
    law, draft_law = np.frombuffer(law_bytes), np.frombuffer(draft_law_bytes)

    def feasible(rho: float) -> bool:
        beta = float(np.minimum(draft_law, law / rho).sum())
        return bool(1.0 - (1.0 - beta) ** n <= rho * beta + 1e-15)

    if feasible(1.0):
        return 1.0
    low, high = 1.0, float(n)
    while (middle := 0.5 * (low + high)) not in (low, high):
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high


def _dense(chain: Chain, depth: int, vocab: int) -> Floats:
    law = np.zeros(vocab)
    live = chain.draft_probs[depth] > 0
    law[chain.support[depth][live]] = chain.draft_probs[depth][live]
    return law
