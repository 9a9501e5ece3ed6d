"""One recorded text, and whether its log-probabilities are of the law that was sampled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from arena.sampling import is_greedy
from arena.types import Sampling

Law = Literal["sampled", "raw", "none"]
"""Which law the log-probabilities are of: the one sampled, the unwarped one, or there are none."""


AS_IS = Sampling()
"""Temperature 1, nothing cut off: the sampled law is the raw one."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One text of a verifier, token by token.

    Attributes:
        prompt_id: Hash of the prompt; the 2nd, 3rd, ... text of one prompt end in ``-1``, ``-2``, ...
        prompt: Prompt tokens.
        tokens: Output tokens.
        logprobs: Natural log of each output token's probability; empty where none is known.
        law: The law that ``logprobs`` are of.
        sampling: How the text was sampled.
        warped: What else bent the sampled law (penalties, min-p, a grammar), or empty.
        finish: ``"stop"``, ``"length"``, or empty where the text was cut short.
        end_logged: Whether ``tokens`` hold the token that stopped the text; false too where a
            stop string did, or nothing.
        stopped_by_text: A stop string ended the text: no end token was drawn.
        max_tokens: The budget, tokens; None where it is not known.
        prefilled: The first output token came from the prefill: neither drafted nor a step.
        fingerprint: Of the tokenizer; empty where it is not known.
        source: What wrote it, e.g. ``"vllm"``, ``"run"``, ``"trace"``.
        category: What kind of prompt it was.
        starts: Positions at which the recorded steps began; empty where none were recorded.
        eos: Tokens known to end texts.
    """

    prompt_id: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    law: Law = "none"
    sampling: Sampling = AS_IS
    warped: str = ""
    finish: str = ""
    end_logged: bool = False
    stopped_by_text: bool = False
    max_tokens: int | None = None
    prefilled: bool = False
    fingerprint: str = ""
    source: str = ""
    category: str = ""
    starts: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()

    @property
    def cluster(self) -> str:
        """The prompt that the text belongs to: texts of one prompt are alike."""
        return self.prompt_id.split("-")[0]

    @property
    def first(self) -> int:
        """Position of the first step."""
        return 1 if self.prefilled else 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a log held.

    Attributes:
        traces: The usable texts.
        unusable: One sentence for each line or text that was left out.
        notes: What was assumed.
    """

    traces: tuple[Trace, ...]
    unusable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def law_fault(trace: Trace) -> str | None:
    """Says why a text cannot be replayed with a drafter that samples, or None if it can.

    A greedy text needs no log-probability, and a drafter that sends point masses needs
    none either: its acceptance is whether its token is the text's. For any other,
    a_j = min(1, q / p) needs p under the very law that was sampled.
    """
    if trace.warped:
        return f"its law was bent by {trace.warped}, which a drafter cannot follow"
    if is_greedy(trace.sampling):
        return None
    if trace.law == "none" or len(trace.logprobs) != len(trace.tokens):
        return "it has no log-probabilities: ask the server for logprobs (`logprobs: true`)"
    if trace.law == "raw" and trace.sampling != AS_IS:
        return (
            f"its log-probabilities are of the raw law, but it was sampled at {describe(trace.sampling)}: "
            "start vLLM with `--logprobs-mode processed_logprobs`, or ask llama-server for "
            "`post_sampling_probs: true`, and say `--logprobs processed`"
        )
    return None


def describe(sampling: Sampling) -> str:
    """Words a sampling setting: ``greedy``, ``T=1``, ``T=0.7 top_p=0.9``."""
    if is_greedy(sampling):
        return "greedy"
    parts = [f"T={sampling.temperature:g}"]
    parts += [f"top_k={sampling.top_k}"] if sampling.top_k else []
    parts += [f"top_p={sampling.top_p:g}"] if sampling.top_p < 1 else []
    return " ".join(parts)


def prompt_hash(prompt: Sequence[int]) -> str:
    """Hashes prompt tokens (16 hex digits)."""
    words = " ".join(str(token) for token in prompt)
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Gives the position of the first token that differs; None where one text begins the other."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)


def numbered(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Numbers texts of one prompt and sampling, in the order given, so that ids tell them apart."""
    seen: dict[tuple[str, Sampling], int] = {}
    found = []
    for trace in traces:
        key = trace.prompt_id, trace.sampling
        times = seen[key] = seen.get(key, -1) + 1
        found.append(replace(trace, prompt_id=f"{trace.prompt_id}-{times}") if times else trace)
    return tuple(found)
