"""What a model needs, and what this machine has: refused before anything is loaded."""

from __future__ import annotations

import os

from parity.errors import NotRunError
from parity.model.config import DEFAULT_PRESET, ModelConfig, preset
from parity.model.model import weight_bytes


def check_room(engine: str, config: ModelConfig, free: int | None) -> None:
    """NotRunError when the matrices do not fit into ``free`` bytes (None: not known)."""
    needed = weight_bytes(config)
    if free is None or needed < free:
        return
    small = preset(DEFAULT_PRESET)
    raise NotRunError(
        f"{engine}: {config.name} needs {size_text(needed)} of memory, {size_text(free)} are free",
        f"--model {small.name} needs {size_text(weight_bytes(small))}",
    )


def free_bytes() -> int | None:
    """Free memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def size_text(count: int) -> str:
    """``17.2 GB`` or ``1.4 MB``."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
