"""The n-gram table: its law by the textbook's formula, what it counts, and what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.errors import ConfigError, RunError
from arena.sampling import warp
from arena.types import Sampling
from drafters.sprinter import Sprinter

from .asking import WARM, ask, chain, law, told


def witten_bell(texts: Sequence[Sequence[int]], context: Sequence[int], order: int) -> dict[int, float]:
    """The textbook's formula by plain counting."""
    words = [word for text in texts for word in text]
    law = {word: words.count(word) / len(words) for word in set(words)}
    for size in range(1, order):
        end = list(context[-size:])
        after = [
            text[i + size]
            for text in texts
            for i in range(len(text) - size)
            if len(end) == size and list(text[i : i + size]) == end
        ]
        if not after:
            break
        types = len(set(after))
        law = {w: (after.count(w) + types * law[w]) / (len(after) + types) for w in law}
    return law


def test_the_sprinters_law_is_witten_bells() -> None:
    rng = np.random.default_rng(3)
    for order in (1, 2, 4):
        texts = [rng.integers(0, 6, 40).tolist() for _ in range(3)]
        drafter = Sprinter(name="s", order=order)
        drafter.learn([told(text, prompt=f"p{i}") for i, text in enumerate(texts)])
        for context in ([], [2], [0, 1], texts[0][:3], [5, 5, 5, 5]):
            wanted = witten_bell(texts, context, order)
            sent = law(ask(drafter, context))
            assert sent == pytest.approx(wanted, abs=1e-6)
            assert sum(wanted.values()) == pytest.approx(1)


def test_the_sprinter_finds_the_likeliest_of_many() -> None:
    rng = np.random.default_rng(4)
    text = rng.zipf(1.3, 3000).clip(max=800).tolist()
    drafter = Sprinter(name="s", order=3, support=10)
    drafter.learn([told(text)])
    wanted = witten_bell([text], text[100:102], 3)
    top = sorted(wanted, key=lambda word: (-wanted[word], word))[:10]
    mass = sum(wanted[word] for word in top)
    assert law(ask(drafter, text[100:102])) == pytest.approx({w: wanted[w] / mass for w in top}, abs=1e-6)


def test_the_sprinter_is_warped_like_the_verifier() -> None:
    drafter = Sprinter(name="s", order=1)
    drafter.learn([told([0] * 5 + [1] * 3 + [2] * 2)])
    sampling = Sampling(temperature=0.5, top_k=2)
    wanted = warp(np.log([0.5, 0.3, 0.2]), sampling)
    assert law(ask(drafter, [7], sampling=sampling)) == pytest.approx({0: wanted[0], 1: wanted[1]}, abs=1e-6)
    draft = ask(drafter, [7], sampling=Sampling(temperature=0))
    assert (chain(draft), draft.support.shape[2]) == ([0, 0, 0, 0], 1)


def test_the_sprinter_always_drafts_the_full_length() -> None:
    untaught = Sprinter(name="s")
    draft = ask(untaught, [3, 3, 8, 8, 8, 2], [5])
    assert draft.lengths.tolist() == [4, 4]
    assert law(draft) == pytest.approx({3: 2 / 6, 8: 3 / 6, 2: 1 / 6})  # its own text, before any count
    assert chain(draft, 1) == [5, 5, 5, 5]
    assert chain(ask(untaught, [])) == []  # nothing at all was seen
    untaught.learn([told([6, 7])])
    assert ask(untaught, [], [1]).lengths.tolist() == [4, 4]


def test_the_sprinter_counts_commits_only_each_after_its_own_past() -> None:
    drafter = Sprinter(name="s", order=3)
    drafter.learn([told([3, 4], context=[9, 1, 2])])
    drafter.learn([told([5], start=2), told([6], context=[9, 1], prompt="b")])
    together = Sprinter(name="s", order=3)
    together.learn([told([3, 4, 5], context=[9, 1, 2]), told([6], context=[9, 1], prompt="b")])
    for context in ([1, 2], [3, 4], [9, 1], [2], []):
        assert law(ask(drafter, context)) == law(ask(together, context))
    assert 9 not in law(ask(drafter, []))  # prompts are context
    after = law(ask(drafter, [3, 4]))
    assert max(after, key=after.__getitem__) == 5


def test_the_sprinter_may_be_told_not_to_learn(tmp_path: Path) -> None:
    np.save(tmp_path / "corpus.npy", np.array([1, 2, 1, 2, 1]))
    frozen = Sprinter(name="s", learns=False, corpus=str(tmp_path / "corpus.npy"))
    before = law(ask(frozen, [1]))
    frozen.learn([told([5] * 50)])
    assert law(ask(frozen, [1])) == before
    assert not frozen.capabilities.learns
    assert before[2] > before[1]


def test_the_sprinters_corpus_may_be_lines_of_ids(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("1 2 3\n\n3 1\n")
    taught = Sprinter(name="s", corpus=str(tmp_path / "corpus.txt"))
    assert law(ask(taught, [9, 3])) == pytest.approx(witten_bell([[1, 2, 3], [3, 1]], [9, 3], 2), abs=1e-6)


@pytest.mark.parametrize("content", ["1 two 3", "1.5", "-4", None])
def test_the_sprinter_refuses_other_corpora(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"corpus\.txt"):
        Sprinter(name="s", corpus=str(path))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ConfigError, match=r"objects\.npy"):
        Sprinter(name="s", corpus=str(tmp_path / "objects.npy"))


def test_the_sprinters_save_is_the_same_to_the_byte_and_loads_only_its_own(tmp_path: Path) -> None:
    drafter = Sprinter(name="s", order=3)
    drafter.learn([told([3, 4, 3], context=[9, 1, 2]), told([5, 6], prompt="é")])
    for name in ("one", "two"):
        drafter.save(tmp_path / name)
    again = Sprinter(name="s", order=3)
    again.load(tmp_path / "one")
    again.save(tmp_path / "three")
    files = [(tmp_path / name / "sprinter.npz").read_bytes() for name in ("one", "two", "three")]
    assert files[0] == files[1] == files[2]
    with pytest.raises(RunError, match="order 3; expected order 4"):
        Sprinter(name="s", order=4).load(tmp_path / "one")
    with pytest.raises(RunError, match="missing or damaged"):
        Sprinter(name="s").load(tmp_path / "nowhere")
    (tmp_path / "one" / "sprinter.npz").write_bytes(files[0][:200])
    with pytest.raises(RunError, match="missing or damaged"):
        again.load(tmp_path / "one")


def test_the_sprinter_scores_text_as_it_would_draft_it() -> None:
    drafter = Sprinter(name="s", order=3)
    text = np.random.default_rng(0).integers(0, 9, 60).tolist()
    drafter.learn([told(text)])
    scores = drafter.score(text[:5], text[5:20], WARM)
    for j, score in enumerate(scores):
        assert score == pytest.approx(np.log(law(ask(drafter, text[: 5 + j]))[text[5 + j]]), abs=1e-12)
    assert drafter.score([1], [77], WARM)[0] == -np.inf
    assert drafter.score([1], [], WARM).shape == (0,)


@pytest.mark.parametrize("options", [{"order": 0}, {"support": 0}])
def test_the_sprinter_refuses_odd_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'s'"):
        Sprinter(name="s", **options)
