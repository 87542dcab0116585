"""The Numba reference engine: plain loops in the order of docs/contract.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity_cpu.engine import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> Any:
    """Import the engine, and with it Numba, on first use."""
    if name == "Engine":
        from parity_cpu.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
