"""A stored round counted again from its tables: what must agree, and does not.

Everything here is pure: rows and records go in, sentences about contradictions come
out. Nothing that a rule decided is believed where it can be decided again: a verdict
follows from the stored probabilities and the keyed uniforms of its lane-step, a
retirement from the counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arena import acceptance, seeding
from arena.acceptance.choices import KeyedChoices
from arena.acceptance.ending import effective_length
from arena.acceptance.rule import TokenRule
from arena.metrics import InvariantError, standing
from arena.records import tally_of, text_of
from arena.scoreboard import RoundTally, Scoreboard
from arena.types import Chain, Commit, Floats, Ints, LaneStep, Verdict

SLACK = 1e-9
"""Rounding allowed in sums that are made again in another order."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a round was played by, as far as its run's files say.

    Attributes:
        key: Folded from seed, generation and round.
        score: Name of the score rule.
        draft_length: K.
        max_new_tokens: Budget of a prompt, tokens.
        eos: Tokens that end a text; None where the files do not say.
        prompts: Ids of the round's prompts, as the keyed permutation deals them; None likewise.
        lengths: Tokens of each prompt; None likewise.
        max_context: Longest context of the verifier; None likewise.
    """

    key: int
    score: str
    draft_length: int
    max_new_tokens: int
    eos: tuple[int, ...] | None
    prompts: tuple[str, ...] | None
    lengths: Mapping[str, int] | None
    max_context: int | None


def verdicts_of(rows: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Reads the verdicts of a steps table back."""
    return [
        Verdict(
            LaneStep(row["prompt_id"], row["start"]),
            row["drafter"],
            row["n_offered"],
            row["n_drafted"],
            row["n_accepted"],
            row["n_matched"],
            row["expected_accepted"],
            tuple(row["tokens"]),
            tuple(row["target_prob"]),
            tuple(row["draft_prob"]),
        )
        for row in rows
    ]


def commits_of(rows: Sequence[Mapping[str, Any]]) -> list[Commit]:
    """Reads the commits of a commits table back."""
    return [
        Commit(
            LaneStep(row["prompt_id"], row["start"]),
            tuple(row["tokens"]),
            tuple(row["logprobs"]),
            row["n_accepted"],
            row["finish"],
        )
        for row in rows
    ]


def texts(commits: Sequence[Commit], played: Played) -> Iterator[str]:
    """Checks that the commits of each prompt are one text: they follow, end, and keep the budget."""
    keys = [(c.step.prompt_id, c.step.start) for c in commits]
    if keys != sorted(set(keys)):
        yield "lane-steps are not sorted, or one is there twice"
    ends: set[int] = set()
    for prompt, group in itertools.groupby(commits, key=lambda c: c.step.prompt_id):
        steps, at = list(group), 0
        for commit in steps:
            where = f"prompt {prompt}, start {commit.step.start}"
            if commit.step.start != at:
                yield f"{where}: expected start {at}, where the commit before it ended"
            at = commit.step.start + len(commit.tokens)
            yield from _commit(where, commit, played, last=commit is steps[-1])
        if at > played.max_new_tokens:
            yield f"prompt {prompt}: {at} tokens committed; the budget is {played.max_new_tokens}"
        elif steps[-1].finish == "length" and at < played.max_new_tokens:
            # Only a full context ends a text early, and that is one number for all prompts.
            ends.add(at + (played.lengths or {}).get(prompt, 0))
    if played.lengths is not None and len(ends) > 1:
        yield f"texts end before their budget at different context lengths: {sorted(ends)}"
    dealt = {prompt for prompt, _ in keys}
    if played.prompts is not None and commits and dealt != set(played.prompts):
        odd = sorted(dealt ^ set(played.prompts))
        yield f"the prompts are not those that the seed deals to this round; they differ in {odd[:4]}"


def _commit(where: str, commit: Commit, played: Played, *, last: bool) -> Iterator[str]:
    n, ended = len(commit.tokens), bool(commit.finish)
    if n == 0 or len(commit.logprobs) != n:
        yield f"{where}: {n} tokens and {len(commit.logprobs)} log-probabilities; expected as many, from 1"
    if ended != last:
        yield f"{where}: finish is {commit.finish!r}; expected one at the prompt's last commit alone"
    if not (n - 1 <= commit.n_accepted <= n and (commit.n_accepted < n or ended)) or commit.n_accepted < 0:
        yield f"{where}: {commit.n_accepted} of {n} tokens drafted; expected all but one, or all at an end"
    if not all(value <= SLACK for value in commit.logprobs):
        yield f"{where}: a log-probability above 0, or none"
    if played.eos is not None:
        found = [token in played.eos for token in commit.tokens]
        if any(found[:-1]) or (bool(found) and found[-1]) != (commit.finish == "stop"):
            yield f"{where}: an end token that does not end the text, or the other way round"


class _Stored:
    """The target's probabilities of the drafted tokens: all that a steps table keeps of its laws."""

    def __init__(self, target_probs: Sequence[float]) -> None:
        self._probs = target_probs

    def probs(self, node: int, tokens: Ints) -> Floats:
        return np.array([self._probs[node]])

    def law(self, node: int) -> Floats:
        raise NotImplementedError

    def top(self, node: int, m: int) -> tuple[Sequence[int], Sequence[float], float]:
        raise NotImplementedError


def verdicts(found: Sequence[Verdict], commits: Sequence[Commit], played: Played) -> Iterator[str]:
    """Checks each verdict against its own probabilities, its lane-step's commit and its keyed uniforms."""
    keys = [(v.step.prompt_id, v.step.start, v.drafter) for v in found]
    if keys != sorted(set(keys)):
        yield "rows are not sorted, or a verdict is there twice"
    committed = {c.step: c.tokens for c in commits}
    offers = _offers(commits, played)
    for step, group in itertools.groupby(found, key=lambda v: v.step):
        rows = list(group)
        names = [row.drafter for row in rows]
        choices = KeyedChoices(int(seeding.fold(played.key, step.prompt_id, step.start)), names)
        for d, verdict in enumerate(rows):
            where = f"prompt {step.prompt_id}, start {step.start}, drafter {verdict.drafter}"
            if step not in committed:
                yield f"{where}: no commit at this lane-step"
                continue
            for fault in _verdict(verdict, committed[step], offers.get(step), played, choices, d):
                yield f"{where}: {fault}"


def _offers(commits: Sequence[Commit], played: Played) -> dict[LaneStep, int]:
    """K_eff of the lane-steps whose budget is known; the others are absent."""
    ends = {c.step.prompt_id: c for c in commits}  # the last of each prompt, since they are sorted
    budgets = {}
    for prompt, commit in ends.items():
        if commit.finish == "length":
            budgets[prompt] = commit.step.start + len(commit.tokens)
        elif played.max_context is not None and played.lengths is not None:
            budgets[prompt] = min(played.max_new_tokens, played.max_context - played.lengths.get(prompt, 0))
    return {
        c.step: effective_length(played.draft_length, budgets[c.step.prompt_id] - c.step.start)
        for c in commits
        if c.step.prompt_id in budgets
    }


def _verdict(
    verdict: Verdict,
    tokens: Sequence[int],
    k: int | None,
    played: Played,
    choices: KeyedChoices,
    d: int,
) -> Iterator[str]:
    n, probs = len(verdict.tokens), (*verdict.target_probs, *verdict.draft_probs)
    if not len(verdict.target_probs) == len(verdict.draft_probs) == n:
        yield f"{n} tokens, {len(verdict.target_probs)} and {len(verdict.draft_probs)} probabilities"
        return
    if not all(-SLACK <= prob <= 1 + SLACK for prob in probs):
        yield "a probability outside [0, 1]"
    accepted = verdict.n_accepted
    most = played.draft_length if k is None else k
    if not 0 <= accepted <= verdict.n_drafted <= min(n, verdict.n_offered) or verdict.n_offered > most:
        yield (
            f"offered {verdict.n_offered}, drafted {verdict.n_drafted}, accepted {accepted} of {n} tokens; "
            f"expected accepted <= drafted <= offered <= {most}"
        )
        return
    ended = accepted > 0 and played.eos is not None and verdict.tokens[accepted - 1] in played.eos
    asked = verdict.n_offered if k is None else k
    if played.eos is not None and (verdict.n_offered, verdict.n_drafted) != (
        (accepted, accepted) if ended else (asked, n)
    ):
        yield f"offered {verdict.n_offered}, drafted {verdict.n_drafted}; {n} were, of {asked} asked"
    pairs = zip(verdict.tokens, tokens, strict=False)
    matched = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    if matched != verdict.n_matched:
        yield f"{verdict.n_matched} tokens matched; its tokens and the commit's agree in {matched}"
    yield from _decided(verdict, played, choices, d)


def _decided(verdict: Verdict, played: Played, choices: KeyedChoices, d: int) -> Iterator[str]:
    """Decides again where the score rule asks for no more than the stored probabilities."""
    rule = acceptance.get(played.score)
    if not isinstance(rule, TokenRule):  # others weigh the whole law, which no table keeps
        return
    tokens = np.array(verdict.tokens, dtype=np.int32)
    chain = Chain(tokens, tokens[:, None], np.array(verdict.draft_probs, dtype=np.float64)[:, None])
    nodes, laws = list(range(len(tokens) + 1)), _Stored((*verdict.target_probs, 0.0))
    try:
        accepted = rule.decide(chain, nodes, laws, choices, d).n_accepted
        expected = rule.expected(chain, nodes, laws)
    except NotImplementedError:  # as above
        return
    if accepted != verdict.n_accepted:
        yield f"{verdict.n_accepted} tokens accepted; its probabilities and the seed give {accepted}"
    if abs(expected - verdict.expected_accepted) > SLACK * (1 + abs(expected)):
        yield f"{verdict.expected_accepted} expected; its probabilities give {expected}"


def tally(found: Sequence[Verdict]) -> RoundTally:
    """Counts verdicts from nothing, by the scoreboard's own code.

    Raises:
        InvariantError: A verdict is impossible, or differs from itself.
    """
    board = Scoreboard()
    board.begin(1)
    board.fold(found)
    return board.tally(1)


def sums(record: Mapping[str, Any], found: Sequence[Verdict], commits: Sequence[Commit]) -> Iterator[str]:
    """Makes the record's sums again from the tables."""
    try:
        again = tally(found)
        for name, parts in again.per_prompt.items():
            standing(name, parts)  # rates in range, intervals around them
    except InvariantError as error:
        yield str(error)
        return
    was = tally_of(record)
    if was.per_drafter != again.per_drafter:
        names = {*was.per_drafter, *again.per_drafter}
        odd = [name for name in names if was.per_drafter.get(name) != again.per_drafter.get(name)]
        yield f"the counts of {sorted(odd)} are not the sums of the steps table"
    if was.per_prompt != again.per_prompt:
        yield "the counts by prompt are not the sums of the steps table"
    scored = {name: counts.lane_steps for name, counts in again.per_drafter.items()}
    replayed = record["field"].get("replayed", False)
    if replayed and sorted(scored) != record["alive"]:
        yield f"drafters were scored in {scored}; alive: {record['alive']}"
    elif not replayed and commits and scored != dict.fromkeys(record["alive"], len(commits)):
        yield f"{len(commits)} lane-steps, and drafters were scored in {scored}; alive: {record['alive']}"
    total = sum(len(commit.tokens) for commit in commits)
    if (record["lane_steps"], record["committed"]) != (len(commits), total):
        yield (
            f"{record['committed']} tokens in {record['lane_steps']} lane-steps; "
            f"the commits hold {total} in {len(commits)}"
        )
    if record["text"] != text_of(commits):
        yield "the measures of the text are not those of the commits"
    yield from _field(record, found)


def _field(record: Mapping[str, Any], found: Sequence[Verdict]) -> Iterator[str]:
    field, steps, n = record["field"], record["lane_steps"], len(record["alive"])
    if field["names"] != record["alive"] or len(field["similarity"]) != n * (n - 1) // 2:
        yield f"the field's pairs are not those of {record['alive']}"
    slack = SLACK * (1 + steps)
    values = [*field["similarity"], *field["distance"], field["coverage"]]
    if not all(-slack <= value <= steps + slack for value in values):
        yield "a sum over the field outside [0, lane-steps]"
    covered = []
    for _, group in itertools.groupby(found, key=lambda v: v.step):
        first = {row.tokens[0]: row.target_probs[0] for row in group if row.tokens}
        covered.append(min(1.0, math.fsum(first.values())))
    if found and abs(math.fsum(covered) - field["coverage"]) > slack:
        yield f"coverage {field['coverage']}; the steps table gives {math.fsum(covered)}"
    reached, bound = field["reached"], field["bound"]
    if reached is not None and bound is not None and not -slack <= reached <= bound * (1 + 1e-6) + slack:
        yield f"the commit rule reached {reached} of a bound of {bound}"
