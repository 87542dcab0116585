"""The kernels' texts: ``.cu`` files, one op each, and the ``.cuh`` they include.

The text of the hash is the core's, which other engines use too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import parity
from parity.builds.loaded import Sources

PACKAGE = Path(__file__).resolve().parent
KERNELS = PACKAGE / "kernels"
FUNCTION_KERNELS = PACKAGE / "function_kernels"
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(")
INCLUDE = Path(parity.__file__).resolve().parent / "include"
HASH = (INCLUDE / "parity_dump.cuh", INCLUDE / "parity_slice.cuh")
PYTHON = Sources(PACKAGE)
PYTHON.read()  # before the modules that are held against them


def require_loaded_sources() -> None:
    """NotRunError where a module of this package in memory is not of the files read above."""
    PYTHON.require_loaded(__name__.partition(".")[0])


def kernel_sources() -> dict[str, str]:
    """File name to text, in name order."""
    files = sorted([*KERNELS.glob("*.cu"), *KERNELS.glob("*.cuh"), *HASH])
    return {path.name: path.read_text(encoding="utf-8") for path in files}


def source_of(kernel: str) -> str:
    """``parity_cuda/kernels/swiglu.cu``: the file that defines ``kernel``; empty: none does."""
    return _files().get(kernel, "")


@cache
def _files() -> Mapping[str, str]:
    """Kernel to file, from the package on."""
    return {
        kernel: f"{PACKAGE.name}/{KERNELS.name}/{name}"
        for name, text in kernel_sources().items()
        for kernel in _KERNEL.findall(text)
    }


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
