"""parity: bit-exactness verification of LLM inference engines (see docs/contract.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.api import (
        DivergedError,
        Divergence,
        ProbeResult,
        compare,
        diff,
        isodiff,
        record,
    )

__version__ = "0.1.0"
__all__ = [
    "DivergedError",
    "Divergence",
    "ProbeResult",
    "compare",
    "diff",
    "isodiff",
    "record",
]


def __getattr__(name: str) -> Any:
    """The public functions and results, imported when first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'parity' has no attribute {name!r}")
    from parity import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
