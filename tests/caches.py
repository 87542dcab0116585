"""A cache of a test's own, without compiling all anew: what is compiled is the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.builds.cache import cache_folder


def own_cache(folder: Path, patch: pytest.MonkeyPatch, *shared: str) -> None:
    """Let PARITY_CACHE name a new folder, empty but for the ``shared`` folders of the present one.

    Units of the emulator (``emu-objects``) and compiled functions (``numba``) are named by their
    contents and sealed.
    """
    folder.mkdir()
    for kind in shared:
        (folder / kind).symlink_to(cache_folder(kind))
    patch.setenv("PARITY_CACHE", str(folder))
