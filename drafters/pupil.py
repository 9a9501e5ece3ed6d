"""A layer-skip student of the verifier that learns online; how it steps is its subclass's."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.errors import ConfigError, DrafterFault, RunError
from arena.protocols import Capabilities
from arena.types import Feedback
from drafters.hf import LanguageModel
from drafters.lessons import Texts, loss_of, pieces

if TYPE_CHECKING:
    import torch

_FILE = "pupil.safetensors"


class Pupil(LanguageModel):
    """Base of the students: what is trained, when, and how it is saved.

    Only layers around the cut are trained, on the verifier's law at committed
    positions. A position is learnt from after it was drafted for, never before: the
    loop hands out feedback after verification. After a lesson the key-value cache is
    dropped, since it holds what the old weights made; it is rebuilt at the next draft.

    Args:
        name: Seat in the roster.
        model: The model whose layers are skipped; the verifier's own is meant.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; what is trained has fp32 masters.
        device: ``auto`` or a torch device.
        support: Most tokens of a law that is sent.
        drop: Layers between these two fractions of the depth are left out.
        trained: Layers that are trained on each side of the cut.
        step_size: What it multiplies is its subclass's.
        window: Tokens of context that a lesson sees before a committed position.
        lesson: Committed positions that go into one step, at least.
        trust_remote_code: Whether code that comes with the model may run.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str,
        dtype: str,
        device: str,
        support: int,
        drop: tuple[float, float],
        trained: int,
        step_size: float,
        window: int,
        lesson: int,
        trust_remote_code: bool,
    ) -> None:
        if not step_size > 0:
            raise ConfigError(f"drafter {name!r}: step_size is {step_size}; expected more than 0.")
        for what, number in (("trained", trained), ("window", window), ("lesson", lesson)):
            if number < 1:
                raise ConfigError(f"drafter {name!r}: {what} is {number}; expected at least 1.")
        super().__init__(
            name=name,
            model=model,
            dtype=dtype,
            device=device,
            support=support,
            drop=drop,
            trust_remote_code=trust_remote_code,
        )
        self.step_size = step_size
        self.lesson = lesson
        self.steps = 0
        self.tokens = 0
        self._texts = Texts(window)
        self._weights, self._masters = self._around_the_cut(drop, trained)

    @property
    def capabilities(self) -> Capabilities:
        """A scored law that changes, of a model that can verify."""
        return Capabilities(
            deterministic=False,
            learns=True,
            can_score=True,
            can_verify=True,
            fingerprint=self._fingerprint,
        )

    def learn(self, batch: Sequence[Feedback]) -> None:
        """Takes one step for every ``lesson`` committed positions, in the order given.

        Raises:
            DrafterFault: The loss is NaN or infinite.
        """
        examples = self._texts.examples(batch)
        for lesson in pieces(examples, self.lesson):
            loss = self._loss(lesson)
            value = float(loss.detach())
            if not math.isfinite(value):
                raise DrafterFault(self.name, f"its loss is {value} at step {self.steps + 1}.")
            loss.backward()  # type: ignore[no-untyped-call]
            for weight, master in zip(self._weights.values(), self._masters.values(), strict=True):
                if master is not weight:
                    master.grad = None if weight.grad is None else weight.grad.float()
                    weight.grad = None
            self._step(value)
            for weight, master in zip(self._weights.values(), self._masters.values(), strict=True):
                if master is not weight:
                    weight.data.copy_(master.data)
                master.grad = None
            self.steps += 1
            self.tokens += sum(example.size for example in lesson)
        if examples:
            self._cached.clear()

    def save(self, folder: Path) -> None:
        """Writes the trained weights, the optimiser's memory and the ends of the texts."""
        from safetensors.torch import save_file

        ends, index = self._texts.save()
        tensors = {f"weight.{name}": master.data for name, master in self._masters.items()}
        tensors |= {f"memory.{name}": tensor for name, tensor in self._memory().items()}
        tensors["ends"] = _tensor(ends)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        folder.mkdir(parents=True, exist_ok=True)
        # One entry: the order of several is left to chance, and equal runs give equal files.
        facts = json.dumps({"steps": self.steps, "tokens": self.tokens, "texts": index})
        save_file(tensors, folder / _FILE, metadata={"facts": facts})

    def load(self, folder: Path) -> None:
        """Reads what ``save`` wrote.

        Raises:
            RunError: The file is missing, damaged, or of another model or other settings.
        """
        from safetensors import SafetensorError, safe_open

        path = folder / _FILE
        try:
            with safe_open(str(path), framework="pt") as file:
                facts = json.loads((file.metadata() or {})["facts"])
                names = list(file.keys())
                tensors: dict[str, torch.Tensor] = {name: file.get_tensor(name) for name in names}
            steps, tokens, index = int(facts["steps"]), int(facts["tokens"]), facts["texts"]
            ends = tensors.pop("ends").numpy()
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise RunError(f"{path} is missing or damaged ({error}); expected a saved student.") from error
        saved = {name[7:]: tensor for name, tensor in tensors.items() if name.startswith("weight.")}
        memory = {name[7:]: tensor for name, tensor in tensors.items() if name.startswith("memory.")}
        if {name: tensor.shape for name, tensor in saved.items()} != {
            name: master.shape for name, master in self._masters.items()
        }:
            raise RunError(f"{path} holds a student of another model, cut or `trained`; expected the same.")
        self._recall(memory, path)
        for name, master in self._masters.items():
            master.data.copy_(saved[name])
            self._weights[name].data.copy_(master.data)
        self._texts.load(ends, index)
        self.steps, self.tokens = steps, tokens
        self._cached.clear()

    @abstractmethod
    def _step(self, loss: float) -> None:
        """Changes the masters, whose gradients are set; ``loss`` is the lesson's."""

    def _memory(self) -> dict[str, torch.Tensor]:
        """What the optimiser remembers between steps; nothing by default."""
        return {}

    def _recall(self, memory: dict[str, torch.Tensor], path: Path) -> None:
        """Takes back what ``_memory`` gave.

        Raises:
            RunError: It is another optimiser's.
        """
        if memory:
            raise RunError(f"{path} holds the memory of another learner; this one has none.")

    def _loss(self, lesson: Sequence[Any]) -> torch.Tensor:
        import torch

        with torch.enable_grad():
            return loss_of(self.model, lesson)

    def _around_the_cut(
        self, drop: tuple[float, float], trained: int
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Marks the trained weights; gives them and their fp32 masters (themselves where they are fp32)."""
        import torch

        from arena.models.layers import layers_of
        from arena.models.load import layer_depths, load_config

        total = int(load_config(self._source, trust_remote_code=self._trust).num_hidden_layers)
        first = int(drop[0] * total + 0.5)
        cut = sum(1 for layer in layer_depths(total, drop) if layer < first)
        layers = layers_of(self.model)
        weights, masters = {}, {}
        for index in range(max(0, cut - trained), min(len(layers), cut + trained)):
            for name, weight in layers[index].named_parameters():
                # A copy of its own: files may be mapped, and other models may share the tensor.
                weight.data = weight.data.clone()
                weight.requires_grad_(True)
                place = f"{index}.{name}"
                weights[place] = weight
                fp32 = weight.dtype == torch.float32
                masters[place] = weight if fp32 else weight.detach().float().requires_grad_(True)
        return weights, masters


def _tensor(array: Any) -> torch.Tensor:
    import torch

    return torch.from_numpy(array)
