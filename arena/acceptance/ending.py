"""Where a text stops: end tokens and the budget, for drafts and for commits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from arena.types import Chain, Finish


def effective_length(k: int, remaining: int) -> int:
    """Gives K_eff: drafts are capped at what can still be used beside the next token.

    Args:
        k: Draft length asked for.
        remaining: Budget left in the lane, tokens, at least 1.
    """
    return max(0, min(k, remaining - 1))


def truncate_at_end(chain: Chain, eos: Collection[int]) -> Chain:
    """Cuts a chain after its first end token: nothing follows the end of a text."""
    for k, token in enumerate(chain.tokens.tolist()):
        if token in eos:
            return chain.cut(k + 1)
    return chain


def settle(
    path_tokens: Sequence[int], next_token: int, eos: Collection[int], remaining: int
) -> tuple[tuple[int, ...], int, Finish]:
    """Turns an outcome into a commit that respects end tokens and the budget.

    Args:
        path_tokens: Accepted draft tokens.
        next_token: The correction or bonus token after them.
        eos: End tokens.
        remaining: Budget left in the lane, tokens, at least 1.

    Returns:
        The tokens to commit (none after an end token, exactly the budget at most),
        how many of them were drafted, and the finish.
    """
    tokens = (*path_tokens, next_token)[:remaining]
    for k, token in enumerate(tokens):
        if token in eos:
            return tokens[: k + 1], min(k + 1, len(path_tokens)), "stop"
    return tokens, min(len(tokens), len(path_tokens)), "length" if len(tokens) == remaining else ""


def offered(k_eff: int, accepted: Sequence[int], eos: Collection[int]) -> int:
    """Gives how many tokens a drafter was really asked for.

    An accepted end token at depth j leaves nothing to draft after it: offered =
    drafted = accepted = j. A refused one changes nothing.

    Args:
        k_eff: Draft length asked for.
        accepted: The tokens of its chain that the score rule kept.
        eos: End tokens.
    """
    for k, token in enumerate(accepted):
        if token in eos:
            return k + 1
    return k_eff
