"""The students: their contract on a tiny model, what they learn, and that nothing else changes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from arena.errors import ConfigError, DrafterFault, RunError
from arena.models.decode import decode
from arena.models.lanes import LaneModel
from arena.models.laws import target_law
from arena.testing import DrafterContract
from arena.types import Feedback, LaneStep
from drafters.four import OverCorrector
from drafters.lessons import Texts, loss_of, pieces
from drafters.mirror import Mirror
from drafters.pupil import Pupil

SMALL: dict[str, Any] = {"dtype": "float32", "device": "cpu", "drop": (0.25, 0.75), "trained": 1}


class OnTheTinyModel(DrafterContract):
    vocab = 97
    tolerance = 1e-4
    draws = 1024
    own: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def on_the_tiny_model(self, speaker: str) -> None:
        type(self).options = {"model": speaker, **SMALL, **self.own}


class TestMirror(OnTheTinyModel):
    target = "drafters.mirror:Mirror"
    own: ClassVar = {"step_size": 0.01, "lesson": 5}


class TestOverCorrector(OnTheTinyModel):
    target = "drafters.four:OverCorrector"
    own: ClassVar = {"lesson": 5}


@pytest.fixture(scope="module")
def said(tiny: Any) -> list[Feedback]:
    """What the tiny model says after 24 prompts, with its laws."""
    rng = np.random.default_rng(3)
    contexts = {f"p{i:02d}": rng.integers(2, 97, 4 + i % 5).tolist() for i in range(24)}
    return decode(LaneModel(tiny, 24), contexts, 48, key=9)


def steps_of(text: Feedback, size: int = 6) -> list[Feedback]:
    """Cuts a text into the lane-steps in which a run tells it."""
    return [
        Feedback(
            LaneStep(text.step.prompt_id, start),
            text.context if start == 0 else (),
            text.tokens[start : start + size],
            text.support[start : start + size],
            text.target_probs[start : start + size],
            text.tail[start : start + size],
        )
        for start in range(0, len(text.tokens), size)
    ]


def overlap(drafter: Pupil, tiny: Any, texts: Sequence[Feedback]) -> float:
    """Mean of the sum of min(target, draft) over the positions of texts."""
    found = []
    for text in texts:
        whole = torch.tensor([[*text.context, *text.tokens][:-1]])
        with torch.no_grad():
            p, q = (
                target_law(model(input_ids=whole).logits[0, len(text.context) - 1 :], 1.0)
                for model in (tiny, drafter.model)
            )
        found.append(float(torch.minimum(p, q).sum(dim=-1).mean()))
    return float(np.mean(found))


def weights(drafter: Pupil) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in drafter._weights.values()]


def test_the_mirror_comes_nearer_with_every_lesson(tiny: Any, speaker: str, said: list[Feedback]) -> None:
    mirror = Mirror(name="six", model=speaker, **{**SMALL, "step_size": 0.01})
    others = [param.clone() for param in mirror.model.parameters() if not param.requires_grad]
    before = overlap(mirror, tiny, said[20:])
    for lesson in range(20):
        mirror.learn(steps_of(said[lesson]))
    assert (mirror.steps, mirror.tokens) == (20, 20 * 48)
    assert overlap(mirror, tiny, said[20:]) > before + 0.05  # on text it never saw
    frozen = [param for param in mirror.model.parameters() if not param.requires_grad]
    assert len(frozen) == len(others)
    assert all(torch.equal(a, b) for a, b in zip(frozen, others, strict=True))


def test_lane_steps_are_joined_and_contexts_kept(said: list[Feedback]) -> None:
    text, texts = said[0], Texts(window=10)
    first, rest = steps_of(text)[:3], steps_of(text)[3:]
    (one,) = texts.examples(first)
    assert one.tokens.tolist() == [*text.context, *text.tokens[:18]]
    assert (one.context, one.offset) == (len(text.context), 0)
    (two,) = texts.examples(rest)
    assert two.tokens.tolist() == [*text.tokens[8:18], *text.tokens[18:]]
    assert (two.context, two.offset) == (10, len(text.context) + 8)
    assert np.array_equal(two.support, text.support[18:])
    assert texts.examples(steps_of(said[1])[2:]) == []  # its context was never told
    assert [len(lesson) for lesson in pieces([one, two, one], 20)] == [2, 1]


def test_the_loss_is_the_divergence_from_the_law_that_was_told(tiny: Any, said: list[Feedback]) -> None:
    """0 for the model that spoke, and, lumping the tail, below the whole divergence for another."""
    examples = Texts(window=96).examples([step for text in said[:3] for step in steps_of(text)])
    assert abs(float(loss_of(tiny, examples).detach())) < 1e-5
    from arena.models.layers import skip_layers

    cut = skip_layers(tiny, (0, 3))
    whole = []
    for text in said[:3]:
        tokens = torch.tensor([[*text.context, *text.tokens][:-1]])
        p, q = (
            torch.log_softmax(m(input_ids=tokens).logits[0, len(text.context) - 1 :], -1) for m in (tiny, cut)
        )
        whole.append((p.exp() * (p - q)).sum(-1))
    lumped, exact = float(loss_of(cut, examples)), float(torch.cat(whole).mean())
    assert 0.9 * exact < lumped <= exact + 1e-5


def test_padding_and_windows_do_not_change_a_lesson(tiny: Any, said: list[Feedback]) -> None:
    examples = Texts(window=96).examples(
        [step for text in said[:4] for step in steps_of(text)[: len(text.tokens)]]
    )
    sizes = [example.size for example in examples]
    alone = sum(float(loss_of(tiny, [each])) * each.size for each in examples) / sum(sizes)
    assert abs(float(loss_of(tiny, examples).detach()) - alone) < 1e-5


@pytest.mark.parametrize("cls", [Mirror, OverCorrector])
def test_resume_is_exact(cls: Any, speaker: str, said: list[Feedback], tmp_path: Path) -> None:
    """Saved in the middle of a text, it goes on to the very same weights."""
    whole = cls(name="x", model=speaker, **SMALL)
    batches = [
        [step for text in said[:4] for step in steps_of(text)[turn : turn + 2]] for turn in range(0, 8, 2)
    ]
    for batch in batches[:2]:
        whole.learn(batch)
    whole.save(tmp_path)
    again = cls(name="x", model=speaker, **SMALL)
    again.load(tmp_path)
    assert (again.steps, again.tokens) == (whole.steps, whole.tokens)
    for batch in batches[2:]:
        whole.learn(batch)
        again.learn(batch)
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(again), strict=True))
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors"}


def test_half_precision_weights_have_fp32_masters(speaker: str, said: list[Feedback], tmp_path: Path) -> None:
    """Steps too small for bf16 add up in the masters; the weights are always their rounding."""
    mirror = Mirror(name="x", model=speaker, **{**SMALL, "dtype": "bfloat16", "step_size": 1e-5})
    start = [master.detach().clone() for master in mirror._masters.values()]
    for text in said[:4]:
        mirror.learn(steps_of(text))
    for old, weight, master in zip(start, mirror._weights.values(), mirror._masters.values(), strict=True):
        assert (weight.dtype, master.dtype) == (torch.bfloat16, torch.float32)
        assert not torch.equal(old, master)
        assert torch.equal(weight.data, master.data.bfloat16())
    mirror.save(tmp_path)
    again = Mirror(name="x", model=speaker, **{**SMALL, "dtype": "bfloat16", "step_size": 1e-5})
    again.load(tmp_path)
    assert all(
        torch.equal(a, b) for a, b in zip(mirror._masters.values(), again._masters.values(), strict=True)
    )


def test_another_students_file_is_refused(speaker: str, said: list[Feedback], tmp_path: Path) -> None:
    mirror = Mirror(name="x", model=speaker, **SMALL)
    mirror.learn(steps_of(said[0]))
    mirror.save(tmp_path / "mirror")
    with pytest.raises(RunError, match="memory of another learner"):
        OverCorrector(name="x", model=speaker, **SMALL).load(tmp_path / "mirror")
    with pytest.raises(RunError, match="another model, cut or `trained`"):
        Mirror(name="x", model=speaker, **{**SMALL, "trained": 2, "drop": (0.25, 0.5)}).load(
            tmp_path / "mirror"
        )
    with pytest.raises(RunError, match="missing or damaged"):
        mirror.load(tmp_path / "nowhere")


def test_a_lesson_that_is_not_finite_is_a_fault(speaker: str, said: list[Feedback]) -> None:
    mirror = Mirror(name="x", model=speaker, **SMALL)
    next(iter(mirror._weights.values())).data.fill_(float("nan"))
    with pytest.raises(DrafterFault, match="its loss is nan at step 1"):
        mirror.learn(steps_of(said[0]))


def test_the_over_corrector_steps_as_far_as_a_straight_line_would_need(
    speaker: str, said: list[Feedback]
) -> None:
    four = OverCorrector(name="x", model=speaker, **SMALL)
    before = weights(four)
    (lesson,) = pieces(Texts(window=96).examples(steps_of(said[0])), 1000)
    loss = four._loss(lesson)
    loss.backward()
    slope = [weight.grad.clone() for weight in four._weights.values()]
    four._step(float(loss.detach()))
    moved = [old - new for old, new in zip(before, weights(four), strict=True)]
    assert (
        abs(sum(float((g * m).sum()) for g, m in zip(slope, moved, strict=True)) - float(loss.detach()))
        < 1e-4
    )


@pytest.mark.parametrize(
    ("cls", "options"),
    [(Mirror, {"trained": 0}), (Mirror, {"step_size": 0.0}), (OverCorrector, {"lesson": 0})],
)
def test_odd_options_are_refused_before_a_model_is_loaded(cls: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'x'"):
        cls(name="x", model="/nowhere", **options)
