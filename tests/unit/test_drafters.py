"""What each drafter without a network does, beyond the contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from arena import registry
from arena.errors import ConfigError, DrafterFault
from arena.models.table import TableLaw
from arena.protocols import Capabilities
from arena.types import Draft, LaneStep, LaneWork, ProposeRequest, Sampling
from drafters import CATALOGUE
from drafters.base import LaneDrafter, uniforms
from drafters.copyist import Copyist
from drafters.table import Table

from .asking import WARM, ask, chain, law


def test_the_catalogue_loads_no_torch() -> None:
    code = (
        "import sys, drafters, drafters.base, drafters.copyist, drafters.sprinter, drafters.table, "
        "drafters.hf, drafters.poet, drafters.steady, arena.testing, arena.validation\n"
        "print([m for m in ('torch', 'transformers', 'ray', 'pytest') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_kind_has_annotated_keyword_options_and_says_its_mechanism(kind: str) -> None:
    cls = registry.load_class(CATALOGUE[kind])
    options = registry.parameters(cls)
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in options.values())
    assert registry.check_options(cls, {}, kind) == {}
    for option in options:
        assert f"{option}:" in (cls.__doc__ or ""), f"{kind}: {option} is not explained"


# The texts that a drafter keeps.


class Echo(LaneDrafter):
    """Repeats its context's last token; keeps what it was told."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(deterministic=True)

    def _draft(self, request: ProposeRequest) -> Draft:
        from drafters.base import point_draft

        return point_draft([self.context(work.lane)[-1:] for work in request.lanes], request.k)


def work(
    start: int, tokens: Sequence[int], *, fresh: bool = False, prompt: str = "a", lane: int = 3
) -> LaneWork:
    return LaneWork(lane, LaneStep(prompt, start), fresh, tuple(tokens), 2)


def follow(drafter: LaneDrafter, *works: LaneWork) -> None:
    for each in works:
        drafter.propose(ProposeRequest(1, WARM, (each,)))


def test_texts_grow_by_what_is_committed() -> None:
    drafter = Echo(name="echo")
    follow(drafter, work(0, range(300), fresh=True), work(2, (7, 8)), work(2, (7, 8)), work(502, range(500)))
    assert drafter.context(3).tolist() == [*range(300), 7, 8, *range(500)]
    follow(drafter, work(0, (1, 2), fresh=True, prompt="b"), work(1, (3,), prompt="b"))
    assert drafter.context(3).tolist() == [1, 2, 3]


def test_reset_starts_over_in_the_middle() -> None:
    drafter = Echo(name="echo")
    follow(drafter, work(0, (1, 2), fresh=True))
    drafter.reset({3: [1, 2, 3, 4]})
    follow(drafter, work(2, ()), work(3, (5,)))
    assert drafter.context(3).tolist() == [1, 2, 3, 4, 5]


def test_missing_tokens_are_a_fault() -> None:
    with pytest.raises(DrafterFault, match="lane 3 was never opened"):
        follow(Echo(name="echo"), work(0, (1,)))
    for odd in (work(3, (5,)), work(1, ()), work(1, (5,), prompt="b")):
        with pytest.raises(DrafterFault, match=r"lane 3 jumped from .* with . new tokens"):
            follow(Echo(name="echo"), work(0, (1,), fresh=True), odd)


def test_uniforms_are_keyed_by_everything_but_the_place() -> None:
    works = tuple(
        LaneWork(i, LaneStep(p, s), False, (), 2) for i, (p, s) in enumerate([("a", 0), ("a", 1), ("b", 0)])
    )
    request = ProposeRequest(2**64 - 1, WARM, works)
    base = uniforms(request, 1, "one")
    assert ((base >= 0) & (base < 1)).all()
    others = [
        uniforms(request, 2, "one"),
        uniforms(request, 1, "two"),
        uniforms(ProposeRequest(3, WARM, works), 1, "one"),
    ]
    assert np.unique(np.concatenate([base, *others])).size == 12
    assert uniforms(request, 1, "one", np.array([2, 0])).tolist() == [base[2], base[0]]
    together = uniforms(request, np.array([1, 2]), "one")
    assert together.tolist() == np.stack([base, others[0]], axis=1).tolist()
    turned = ProposeRequest(2**64 - 1, WARM, works[::-1])
    assert uniforms(turned, 1, "one").tolist() == base[::-1].tolist()


# The copyist.


@pytest.mark.parametrize(
    ("options", "text", "copied"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 1, 2, 3], [4, 5, 6, 7]),  # the longest suffix, three tokens
        ({}, [9, 2, 3, 4, 9, 8, 3, 5, 6, 7, 0, 2, 3], [4, 9, 8, 3]),  # two tokens beat one that is later
        ({}, [1, 5, 1, 6, 7, 8, 9, 1], [6, 7, 8, 9]),  # the latest of two
        ({"prefer": "earliest"}, [1, 5, 1, 6, 7, 8, 9, 1], [5, 1, 6, 7]),
        ({}, [1, 2, 1], [2, 1]),  # at most up to the text's end
        ({}, [4, 4, 4, 4], [4]),
        ({"prefer": "earliest"}, [4, 4, 4, 4, 4], [4, 4]),
        ({"min_ngram": 2}, [1, 5, 6, 7, 1], []),  # one token is too short a match
        ({"max_ngram": 1}, [2, 3, 4, 9, 3, 5, 6, 7, 8, 2, 3], [5, 6, 7, 8]),
        ({}, [1, 2, 3], []),  # no match
        ({"max_ngram": 9, "min_ngram": 9}, [1, 1, 1], []),  # shorter than the n-gram (CASES 20)
        ({}, [1], []),
        ({}, [], []),
        ({"max_ngram": 9}, [1, 2, 1, 2], [1, 2]),
    ],
)
def test_the_copyist_copies(options: dict[str, Any], text: list[int], copied: list[int]) -> None:
    draft = ask(Copyist(name="one", **options), text)
    assert chain(draft) == copied
    assert draft.probs[0, : len(copied), 0].tolist() == [1.0] * len(copied)


@pytest.mark.parametrize("prefer", ["latest", "earliest"])
def test_the_copyist_agrees_with_a_plain_search(prefer: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        text = rng.integers(0, 4, rng.integers(0, 30)).tolist()
        wanted: list[int] = []
        for size in range(min(3, len(text) - 1), 0, -1):
            starts = [i for i in range(len(text) - size) if text[i : i + size] == text[-size:]]
            if starts:
                start = (starts[-1] if prefer == "latest" else starts[0]) + size
                wanted = text[start : start + 4]
                break
        assert chain(ask(Copyist(name="one", prefer=prefer), text)) == wanted


def test_the_copyist_is_quick_on_long_texts() -> None:
    text = np.random.default_rng(0).integers(0, 50000, 20000).tolist()
    drafter = Copyist(name="one", max_ngram=5)
    drafter.reset({0: text})
    request = ProposeRequest(1, WARM, (LaneWork(0, LaneStep("a", 0), False, (), 4),))
    import time

    start = time.perf_counter()
    for _ in range(20):
        drafter.propose(request)
    assert (time.perf_counter() - start) / 20 < 0.02  # 0.2 ms on two slow cores


@pytest.mark.parametrize("options", [{"min_ngram": 0}, {"min_ngram": 4}, {"prefer": "longest"}])
def test_the_copyist_refuses_odd_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'one'"):
        Copyist(name="one", **options)


# The table.


def test_the_table_sends_its_law_warped() -> None:
    sampling = Sampling(temperature=0.8, top_k=6)
    draft = ask(Table(name="t", vocab=12, order=3, seed=4), [3, 1, 5, 2], sampling=sampling)
    text = [3, 1, 5, 2, *chain(draft)]
    for position in range(4):
        wanted = TableLaw(12, 3, 4).law(text[: 4 + position], sampling)
        for token, prob in law(draft, 0, position).items():
            assert prob == pytest.approx(wanted[token], abs=1e-6)


def test_the_table_mixes_two_laws() -> None:
    draft = ask(Table(name="t", vocab=12, order=2, seed=4, mix=0.25, other_seed=9, other_order=1), [3, 1])
    one, two = TableLaw(12, 2, 4).law([3, 1], WARM), TableLaw(12, 1, 9).law([3, 1], WARM)
    sent = law(draft)
    assert [sent[token] for token in range(12)] == pytest.approx(0.75 * one + 0.25 * two, abs=1e-6)


def test_the_table_is_cut_to_its_support_and_may_take_the_likeliest() -> None:
    wanted = TableLaw(12, 2).law([3, 1], WARM)
    draft = ask(Table(name="t", vocab=12, support=3), [3, 1])
    assert set(law(draft)) == set(np.argsort(-wanted)[:3].tolist())
    draft = ask(Table(name="t", vocab=12, argmax=True), [3, 1])
    assert law(draft) == {int(wanted.argmax()): 1.0}
    assert draft.support.shape == (1, 4, 1)


def test_the_table_starts_before_the_text() -> None:
    draft = ask(Table(name="t", vocab=12, order=3), [])
    wanted = TableLaw(12, 3).law([], WARM)
    assert max(law(draft), key=law(draft).__getitem__) == int(wanted.argmax())


def test_the_tables_vocabulary_is_known_before_it_is_built() -> None:
    assert Table.vocabulary_fingerprint() == Table(name="t").capabilities.fingerprint == "table-16"
    assert Table.vocabulary_fingerprint(vocab=9, mix=0.1) == TableLaw(9).vocabulary.fingerprint
    assert Copyist.vocabulary_fingerprint(max_ngram=3) is None


@pytest.mark.parametrize(
    "options", [{"mix": 1.5}, {"mix": float("nan")}, {"order": -1}, {"vocab": 0}, {"support": 0}]
)
def test_the_table_refuses_odd_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'t'"):
        Table(name="t", **options)


def test_options_come_from_a_yaml_as_they_are() -> None:
    steady, hf = (registry.load_class(CATALOGUE[kind]) for kind in ("steady", "hf"))
    assert registry.check_options(steady, {"drop": [0.4, 0.5]}, "five") == {"drop": (0.4, 0.5)}
    assert registry.check_options(hf, {"drop": None, "support": 8}, "six") == {"drop": None, "support": 8}
    with pytest.raises(ConfigError, match="prefer"):
        registry.check_options(Copyist, {"prefer": "longest"}, "one")
