"""Number four: it loses its footing in endless corrections."""

from __future__ import annotations

from drafters.hf import DEFAULT_MODEL
from drafters.pupil import Pupil


class OverCorrector(Pupil):
    """The mirror's lessons, each answered in full: plain gradient steps of Polyak's length.

    The same student, cut, loss and lessons as the mirror; only the step differs. It has
    no momentum, no second moments, no clipping, no memory at all beyond its weights. The
    step is Polyak's for a best loss of 0, loss / |gradient|²: as far as would cancel the
    whole of the last correction if the loss were a straight line (B. T. Polyak,
    Introduction to Optimization, 1987, section 5.3; for stochastic gradients Loizou et
    al. 2002.10542). That is right where every lesson can be learnt perfectly. A student
    of fewer layers cannot: the loss has a floor that the step does not know of, so the
    step is always a little, and near the floor far, too long. ``step_size`` multiplies
    it; at 1 nothing is tuned.

    Args:
        name: Seat in the roster.
        model: The model whose layers are skipped; the verifier's own is meant.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; what is trained has fp32 masters.
        device: ``auto`` or a torch device.
        support: Most tokens of a law that is sent.
        drop: Layers between these two fractions of the depth are left out.
        trained: Layers that are trained on each side of the cut.
        step_size: Multiple of Polyak's step.
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
        step_size: float = 1.0,
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

    def _step(self, loss: float) -> None:
        slope = [(master, master.grad) for master in self._masters.values() if master.grad is not None]
        square = sum(float(gradient.double().square().sum()) for _, gradient in slope)
        if square > 0:
            for master, gradient in slope:
                master.data.add_(gradient, alpha=-self.step_size * loss / square)
