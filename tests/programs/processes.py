"""Whether a process that a test left is dead."""

from __future__ import annotations

import time
from pathlib import Path

PATIENCE = 60.0  # seconds


def gone(pid: int) -> bool:
    """Whether the process ends. Not reaped is dead too: an orphan is its new parent's to reap."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False
