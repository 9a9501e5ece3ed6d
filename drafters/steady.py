"""The steady one: a frozen sub-model that always proposes the likeliest token."""

from __future__ import annotations

from drafters.hf import DEFAULT_MODEL, LanguageModel


class Steady(LanguageModel):
    """The most conventional transitions, never adapting: a layer-skip sub-model's argmax.

    Layers in the middle of the depth are left out, nothing is trained, and the most
    probable token is proposed as a point mass. Source: layer-skip self-speculation,
    Zhang et al. 2309.08168 (Draft & Verify).

    Args:
        name: Seat in the roster.
        model: The model whose layers are skipped; the verifier's own is meant.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        device: ``auto`` or a torch device.
        drop: Layers between these two fractions of the depth are left out; by default
            12 to 15 of 30, which keeps an overlap of 0.57 on SmolLM2-135M.
        trust_remote_code: Whether code that comes with the model may run.
    """

    def __init__(
        self,
        *,
        name: str,
        model: str = DEFAULT_MODEL,
        dtype: str = "auto",
        device: str = "auto",
        drop: tuple[float, float] = (0.4, 0.5334),
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__(
            name=name,
            model=model,
            dtype=dtype,
            device=device,
            drop=drop,
            argmax=True,
            trust_remote_code=trust_remote_code,
        )
