"""The drafters that run a language model: the contract on a tiny random one, then what each does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from arena.errors import ConfigError, DrafterFault, ModelError
from arena.models import load
from arena.models.laws import target_law
from arena.sampling import normalise
from arena.testing import DrafterContract
from arena.types import Draft, LaneStep, LaneWork, ProposeRequest, Sampling
from drafters import poet
from drafters.hf import LanguageModel, kept_layers
from drafters.poet import Poet
from drafters.steady import Steady

WARM = Sampling()
COLD = Sampling(temperature=0)
TEXT = [3, 14, 15, 9, 26, 53, 58, 9, 79, 32, 38, 46]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """A tiny model gains nothing by threads, and loses much where others want the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def folder(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model in a folder without a tokenizer."""
    path = tmp_path_factory.mktemp("tiny")
    tiny.save_pretrained(path)
    return str(path)


class OnTheTinyModel(DrafterContract):
    vocab = 97
    tolerance = 1e-4
    draws = 1024
    own: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def on_the_tiny_model(self, folder: str) -> None:
        type(self).options = {"model": folder, "dtype": "float32", "device": "cpu", **self.own}


class TestLanguageModel(OnTheTinyModel):
    target = "drafters.hf:LanguageModel"


class TestCutLanguageModel(OnTheTinyModel):
    target = "drafters.hf:LanguageModel"
    own: ClassVar = {"support": 5, "drop": (0.25, 0.75), "stop_below": 0.3}


class TestSteady(OnTheTinyModel):
    target = "drafters.steady:Steady"


class TestPoet(OnTheTinyModel):
    target = "drafters.poet:Poet"
    own: ClassVar = {"nucleus": 0.4, "support": 12}


def ask(drafter: Any, *contexts: Sequence[int], k: int = 4, sampling: Sampling = WARM, key: int = 5) -> Draft:
    works = tuple(
        LaneWork(lane, LaneStep(f"p{lane}", 0), True, tuple(text), k) for lane, text in enumerate(contexts)
    )
    draft: Draft = drafter.propose(ProposeRequest(key, sampling, works))
    return draft


def chain(draft: Draft, row: int = 0) -> list[int]:
    return [int(token) for token in draft.tokens[row, : draft.lengths[row]]]


def dense(draft: Draft, vocab: int, row: int = 0, position: int = 0) -> np.ndarray:
    law = np.zeros(vocab)
    support, probs = draft.support[row, position], normalise(draft.probs[row, position])
    law[support[support >= 0]] = probs[support >= 0]
    return law


def plain_law(model: Any, text: Sequence[int], sampling: Sampling) -> np.ndarray:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(text)])).logits[0, -1:]
    return target_law(logits, sampling.temperature, sampling.top_k, sampling.top_p)[0].double().numpy()


def cpu(folder: str, **options: Any) -> dict[str, Any]:
    return {"name": "x", "model": folder, "dtype": "float32", "device": "cpu", **options}


@pytest.mark.parametrize("sampling", [WARM, COLD, Sampling(0.6, 20, 0.8)])
def test_a_drafter_equal_to_the_verifier_sends_the_verifiers_law(
    tiny: Any, folder: str, sampling: Sampling
) -> None:
    drafter = LanguageModel(**cpu(folder, support=97))
    for text in (TEXT, TEXT[:1], TEXT * 10):
        draft = ask(drafter, text, sampling=sampling)
        for position in range(draft.lengths[0]):
            wanted = plain_law(tiny, [*text, *chain(draft)[:position]], sampling)
            assert np.abs(dense(draft, 97, 0, position) - wanted).max() < 1e-5


@pytest.mark.model
def test_a_drafter_equal_to_the_verifier_keeps_acceptance_one(smollm2: Any) -> None:
    """CASES 9 and 10: over 200 tokens every greedy draft is kept, block after block."""
    model, tokenizer = smollm2
    messages = [{"role": "user", "content": "Tell me about rivers and the sea."}]
    prompt = load.encode(tokenizer, messages=messages)
    drafter = LanguageModel(name="x", dtype="float32", device="cpu")
    drafter._eos = ()  # plain greedy text, whatever it says
    text, new, k = list(prompt), tuple(prompt), 16
    while len(text) < len(prompt) + 200:
        work = LaneWork(0, LaneStep("p", len(text) - len(prompt)), len(text) == len(prompt), new, k)
        draft = chain(drafter.propose(ProposeRequest(1, COLD, (work,))))
        assert len(draft) == k
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([text + draft]), logits_to_keep=k + 1).logits[0]
        best = logits.argmax(dim=-1).tolist()
        assert draft == best[:-1]
        new = (*draft, best[-1])
        text.extend(new)


@pytest.mark.model
def test_the_embedded_models_vocabulary_is_known_without_its_weights(
    smollm2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "load_model", None)
    wanted = load.vocab_fingerprint(smollm2[1])
    for cls in (LanguageModel, Steady, Poet):
        assert cls.vocabulary_fingerprint() == wanted
        assert cls.vocabulary_fingerprint(model="smollm2-135m") == wanted


def test_the_cache_is_kept_in_step(tiny: Any, folder: str) -> None:
    drafter = LanguageModel(**cpu(folder, argmax=True))
    drafter._eos = ()
    text, k = list(TEXT), 4
    wanted = []
    for _ in range(60):
        wanted.append(int(plain_law(tiny, text + wanted, COLD).argmax()))
    widths: list[int] = []
    draft = chain(ask(drafter, text, k=k))
    assert draft == wanted[:k]
    prefill = drafter._cache.prefill  # type: ignore[union-attr]

    def spy(contexts: Any, **options: Any) -> Any:
        widths.extend(len(tokens) for tokens in contexts.values())
        return prefill(contexts, **options)

    drafter._cache.prefill = spy  # type: ignore[union-attr, method-assign]
    done = 0
    for kept in (4, 4, 0, 2, 4, 3, 1, 4, 4, 0):
        new = tuple(wanted[done : done + kept + 1])
        done += len(new)
        widths.clear()
        work = LaneWork(0, LaneStep("p0", done), False, new, k)
        draft = chain(drafter.propose(ProposeRequest(5, WARM, (work,))))
        assert draft == wanted[done : done + k]
        # A whole draft kept: its last token and the bonus are new to the cache; else the correction alone.
        assert widths == [2 if kept == k else 1, 1, 1, 1]
        assert drafter._cache.length(0) == len(TEXT) + done + k - 1  # type: ignore[union-attr]


def test_lanes_may_come_later_and_in_any_number(folder: str) -> None:
    drafter = LanguageModel(**cpu(folder))
    alone = ask(LanguageModel(**cpu(folder)), TEXT)
    ask(drafter, TEXT[:3])
    work = LaneWork(9, LaneStep("p0", 0), True, tuple(TEXT), 4)
    late = drafter.propose(ProposeRequest(5, WARM, (work,)))
    assert chain(late) == chain(alone)
    again = drafter.propose(ProposeRequest(5, WARM, (LaneWork(0, LaneStep("p0", 2), False, (1, 2), 4),)))
    assert chain(again) == chain(ask_at(folder, [*TEXT[:3], 1, 2]))


def ask_at(folder: str, text: list[int]) -> Draft:
    work = LaneWork(0, LaneStep("p0", 2), True, tuple(text), 4)
    return LanguageModel(**cpu(folder)).propose(ProposeRequest(5, WARM, (work,)))


def test_a_draft_ends_after_an_end_token_and_after_an_unlikely_one(folder: str) -> None:
    drafter = LanguageModel(**cpu(folder))
    lanes = [TEXT[:n] for n in range(1, 13)]
    whole = ask(drafter, *lanes, k=6)
    drafter._eos = tuple(
        sorted({chain(whole, row)[row % 3] for row in range(12) if len(chain(whole, row)) > 2})
    )
    ended = ask(drafter, *lanes, k=6)
    for row in range(12):
        tokens = chain(whole, row)
        ends = [place for place, token in enumerate(tokens) if token in drafter._eos]
        assert chain(ended, row) == tokens[: ends[0] + 1 if ends else len(tokens)]
    drafter._eos, drafter.stop_below = (), 0.05
    stopped = ask(drafter, *lanes, k=6)
    short = 0
    for row in range(12):
        tokens = chain(stopped, row)
        probs = [dense(stopped, 97, row, place)[token] for place, token in enumerate(tokens)]
        assert all(prob >= 0.05 for prob in probs[:-1])
        short += len(tokens) < 6
        assert len(tokens) == 6 or probs[-1] < 0.05
    assert short


def test_drafts_end_where_the_context_does(folder: str) -> None:
    drafter = LanguageModel(**cpu(folder))
    make = drafter._new_cache

    def small(lanes: int) -> Any:
        cache = make(lanes)
        cache.max_length = 12
        return cache

    drafter._new_cache = small  # type: ignore[method-assign]
    drafter._eos = ()
    draft = ask(drafter, TEXT[:8], TEXT[:10], TEXT, [*TEXT, 1], [], k=4)
    assert draft.lengths.tolist() == [4, 3, 1, 0, 0]
    scores = drafter.score(TEXT[:10], [1, 2, 3, 4, 5], WARM)
    assert np.isfinite(scores).tolist() == [bool(score > -np.inf) for score in scores]
    assert (scores[3:] == -np.inf).all()


def test_score_is_one_pass_over_long_texts(tiny: Any, folder: str) -> None:
    text = np.random.default_rng(0).integers(0, 97, 170).tolist()
    drafter = LanguageModel(**cpu(folder, support=97))
    scores = drafter.score(text[:20], text[20:], WARM)
    with torch.no_grad():
        wanted = torch.log_softmax(tiny(input_ids=torch.tensor([text])).logits[0].double(), dim=-1)
    wanted = wanted[torch.arange(19, 169), torch.tensor(text[20:])].numpy()
    assert np.abs(scores - wanted).max() < 1e-3
    assert scores.dtype == np.float64
    first = drafter.score([], text[:5], WARM)
    assert first[0] == -np.inf  # without a text it has no law
    assert np.isfinite(first[1:]).all()
    assert drafter.score(text, [], WARM).shape == (0,)


def test_layers_are_left_out_by_fractions_of_the_depth(tiny: Any, folder: str) -> None:
    assert kept_layers(30, (0.4, 0.5334), None) == (*range(12), *range(16, 30))
    assert kept_layers(30, None, 3) == (0, 1, 2)
    assert kept_layers(30, (0.0, 0.5), 2) == (15, 16)
    assert kept_layers(30, None, None) is None
    with pytest.raises(ConfigError, match="max_layers is 0"):
        kept_layers(30, None, 0)
    steady = Steady(**cpu(folder, drop=(0.5, 0.75)))
    assert steady.model.config.num_hidden_layers == 3
    wanted = plain_law(load.skip_layers(tiny, (0, 1, 3)), TEXT, WARM)
    draft = ask(steady, TEXT)
    assert chain(draft)[0] == wanted.argmax()
    assert draft.support.shape[2] == 1
    assert steady.capabilities.can_verify
    assert steady.capabilities.deterministic
    assert not steady.capabilities.learns


@pytest.mark.parametrize("guesses", [(256, 4096), (2, 8), (40,)])
@pytest.mark.parametrize("nucleus", [0.0, 0.3, 0.5, 0.9])
def test_the_poet_excludes_the_nucleus(
    tiny: Any, folder: str, nucleus: float, guesses: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poet, "_GUESSES", guesses)
    drafter = Poet(**cpu(folder, nucleus=nucleus, support=7))
    texts = [TEXT[:n] for n in (1, 4, 12)]
    draft = ask(drafter, *texts)
    for row, text in enumerate(texts):
        for position in range(draft.lengths[row]):
            target = plain_law(tiny, [*text, *chain(draft, row)[:position]], WARM)
            order = np.argsort(-target, kind="stable")
            before = np.cumsum(target[order]) - target[order]
            rest = order[int((before < nucleus - 1e-6).sum()) :][:7]
            sent = dense(draft, 97, row, position)
            assert set(np.flatnonzero(sent)) == set(rest.tolist())
            assert np.abs(sent[rest] - target[rest] / target[rest].sum()).max() < 1e-4


def test_the_poet_is_silent_where_nothing_is_left(folder: str) -> None:
    drafter = Poet(**cpu(folder))
    assert ask(drafter, TEXT, TEXT[:2], sampling=COLD).lengths.tolist() == [0, 0]
    assert ask(drafter, TEXT, sampling=Sampling(top_k=1)).lengths.tolist() == [0]
    assert drafter.score(TEXT, [5], COLD)[0] == -np.inf
    assert not drafter.capabilities.can_verify


def test_a_model_that_gives_nan_is_a_fault(folder: str) -> None:
    drafter = LanguageModel(**cpu(folder))
    drafter.model.lm_head.weight.data[4] = float("nan")
    with pytest.raises(DrafterFault, match=r"'x': its model failed: .*NaN"):
        ask(drafter, TEXT)


def test_padded_vocabularies_are_cut_to_the_tokenizers(tiny: Any, tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(20)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")))
    tiny.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    drafter = LanguageModel(**cpu(str(tmp_path), support=97))
    draft = ask(drafter, TEXT[:3])
    assert draft.support.max() < 20
    assert drafter.capabilities.fingerprint == load.fingerprint(str(tmp_path))
    assert LanguageModel.vocabulary_fingerprint(model=str(tmp_path)) == drafter.capabilities.fingerprint


def test_a_model_without_a_tokenizer_is_known_by_its_size(folder: str) -> None:
    assert LanguageModel.vocabulary_fingerprint(model=folder) == "ids-97"
    with pytest.raises(ModelError, match="nowhere"):
        LanguageModel.vocabulary_fingerprint(model="/nowhere/at/all")


@pytest.mark.parametrize(
    ("cls", "options"),
    [(LanguageModel, {"support": 0}), (LanguageModel, {"stop_below": 2.0}), (Poet, {"nucleus": 1.0})],
)
def test_odd_options_are_refused_before_a_model_is_loaded(cls: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'x'"):
        cls(name="x", model="/nowhere", **options)
