"""The kernels' texts: ``.cu`` files, one op each, and the ``.cuh`` they include."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"


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
