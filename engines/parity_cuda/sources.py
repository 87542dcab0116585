"""The kernels' texts: ``.cu`` files, one op each, and the ``.cuh`` they include."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from parity.builds.loaded import Sources

PACKAGE = Path(__file__).resolve().parent
KERNELS = PACKAGE / "kernels"
FUNCTION_KERNELS = PACKAGE / "function_kernels"
PYTHON = Sources(PACKAGE)
PYTHON.read()  # before the modules that are held against them


def require_loaded_sources() -> None:
    """NotRunError where a module of this package in memory is not of the files read above."""
    PYTHON.require_loaded(__name__.partition(".")[0])


def kernel_sources() -> dict[str, str]:
    """File name to text, in name order."""
    files = sorted([*KERNELS.glob("*.cu"), *KERNELS.glob("*.cuh")])
    return {path.name: path.read_text(encoding="utf-8") for path in files}


def sources_digest(sources: Mapping[str, str]) -> str:
    """First 16 hexadecimal digits of the SHA-256 over names and texts."""
    state = hashlib.sha256()
    for name, text in sorted(sources.items()):
        state.update(f"{name}\0{text}\0".encode())
    return state.hexdigest()[:16]


def function_sources() -> dict[str, str]:
    """The kernels over whole arrays alone: elementary functions, and what counts their bits.

    A unit of its own: the engine's kernels hold nothing of the device's library in the exact tier.
    """
    files = [*FUNCTION_KERNELS.glob("*.cu*"), KERNELS / "map_elementary.cu", *KERNELS.glob("*.cuh")]
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(files)}
