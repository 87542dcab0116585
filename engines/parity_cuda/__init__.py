"""The device engine: CUDA kernels through CuPy (``cuda``) or on the CPU (``emu``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity_cuda.engine import CudaEngine, EmuEngine

__all__ = ["CudaEngine", "EmuEngine"]


def __getattr__(name: str) -> Any:
    """Import the engines on first use; CuPy comes later still, when a device is opened."""
    if name in __all__:
        from parity_cuda import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
