"""The mirror: it grinds itself into the verifier's shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import RunError
from drafters.hf import DEFAULT_MODEL
from drafters.pupil import Pupil

if TYPE_CHECKING:
    import torch


class Mirror(Pupil):
    """Number six, "I": a layer-skip student distilled online from the verifier's feedback.

    A sub-model of the verifier without its middle layers; the layers beside the cut
    learn to close the gap by KL to the verifier's law at every committed position
    (its most probable tokens, and the mass of the rest in one lump). AdamW without
    weight decay, gradients clipped to norm 1: small, averaged steps. Sources: Zhang et
    al. 2309.08168 (the sub-model); Zhou et al. 2310.08461, DistillSpec, and Liu et al.
    2310.07177, online speculative decoding (the distillation).

    Args:
        name: Seat in the roster.
        model: The model whose layers are skipped; the verifier's own is meant.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; what is trained has fp32 masters.
        device: ``auto`` or a torch device.
        support: Most tokens of a law that is sent.
        drop: Layers between these two fractions of the depth are left out.
        trained: Layers that are trained on each side of the cut.
        step_size: AdamW's learning rate.
        window: Tokens of context that a lesson sees before a committed position.
        lesson: Committed positions that go into one step, at least.
        trust_remote_code: Whether code that comes with the model may run.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str = DEFAULT_MODEL,
        dtype: str = "auto",
        device: str = "auto",
        support: int = 64,
        drop: tuple[float, float] = (0.4, 0.5334),
        trained: int = 3,
        step_size: float = 3e-4,
        window: int = 96,
        lesson: int = 48,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__(
            name=name,
            model=model,
            dtype=dtype,
            device=device,
            support=support,
            drop=drop,
            trained=trained,
            step_size=step_size,
            window=window,
            lesson=lesson,
            trust_remote_code=trust_remote_code,
        )
        import torch

        # One tensor at a time: the fused kinds round differently on other machines.
        self._optimiser = torch.optim.AdamW(
            list(self._masters.values()), lr=step_size, betas=(0.9, 0.95), weight_decay=0.0, foreach=False
        )

    def _step(self, loss: float) -> None:
        import torch

        torch.nn.utils.clip_grad_norm_(list(self._masters.values()), 1.0, foreach=False)
        self._optimiser.step()

    def _memory(self) -> dict[str, torch.Tensor]:
        return {
            f"{key}.{name}": tensor
            for name, master in self._masters.items()
            for key, tensor in self._optimiser.state.get(master, {}).items()
        }

    def _recall(self, memory: dict[str, torch.Tensor], path: Path) -> None:
        wanted = {f"{key}.{name}" for name in self._masters for key in ("step", "exp_avg", "exp_avg_sq")}
        if memory and set(memory) != wanted:
            raise RunError(f"{path} holds the memory of another learner; expected AdamW's.")
        self._optimiser.state.clear()
        for name, master in self._masters.items() if memory else ():
            device = master.device
            self._optimiser.state[master] = {
                "step": memory[f"step.{name}"],
                "exp_avg": memory[f"exp_avg.{name}"].to(device),
                "exp_avg_sq": memory[f"exp_avg_sq.{name}"].to(device),
            }
