"""Draft Arena: a tournament for speculative decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arena.frames import load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    # Late, so that `import arena` loads no pandas and no pyarrow.
    if name == "load":
        from arena.frames import load

        return load
    raise AttributeError(f"module 'arena' has no attribute {name!r}")
