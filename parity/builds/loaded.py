"""Whether the modules in memory are what their files say: an editable install changes under a run.

Python reads a source once, and instead of it a ``.pyc`` whose note of date (whole seconds) and size
fits. A digest over files speaks of the code that runs only where neither has parted from it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType

from parity.errors import NotRunError

SAFELY_LATER_NS = 2_000_000_000  # a .pyc written so long after its source's last change is of it
_READ = time.time_ns()
_AGAIN = "start the command again"


@dataclass(frozen=True)
class _File:
    content: bytes
    status: os.stat_result

    def unchanged(self, path: Path) -> bool:
        """Whether the file was left alone since it was read."""
        try:
            return _identity(path.stat()) == _identity(self.status)
        except OSError:
            return False


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@dataclass
class Sources:
    """The Python files of a package, read once: before the modules that are held against them."""

    folder: Path
    _held: set[str] = field(default_factory=set)

    @cached_property
    def files(self) -> dict[Path, _File]:
        """Every file by path, in order."""
        paths = sorted(self.folder.rglob("*.py"))
        status = {path: path.stat() for path in paths}  # before the content: a change shows
        return {path: _File(path.read_bytes(), status[path]) for path in paths}

    def read(self) -> None:
        """Read the files now."""
        assert self.files is not None

    def digest(self, *more: str) -> str:
        """sha256 (hex) over ``more``, and path and content of every file."""
        digest = hashlib.sha256("".join(f"{text}\n" for text in more).encode())
        for path, file in self.files.items():
            name = path.relative_to(self.folder).as_posix()
            digest.update(f"{name} {len(file.content)}\n".encode() + file.content)
        return digest.hexdigest()

    def require_loaded(self, package: str) -> None:
        """NotRunError for a module of ``package`` in memory that is not of these files.

        A module is asked once: what becomes of its file after that changes nothing in memory.
        """
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == package and name not in self._held:
                self._require(name, module)
                self._held.add(name)

    def _require(self, name: str, module: ModuleType) -> None:
        path = Path(module.__file__ or "")
        if path.suffix != ".py":
            return
        file = self.files.get(path) or self.files.get(path.resolve())
        if file is None or not file.unchanged(path):
            raise NotRunError(f"{name} was changed on disk while this process was loading", _AGAIN)
        if stale_bytecode(path, file.content):
            raise NotRunError(
                f"{name} was loaded from a .pyc of another source with the same date and size",
                f"delete {path.parent / '__pycache__'}, then {_AGAIN}",
            )


def stale_bytecode(path: Path, content: bytes) -> bool:
    """Whether Python takes other code for the source ``path`` than is in it."""
    kept = Path(importlib.util.cache_from_source(str(path)))
    try:
        with kept.open("rb") as file:
            head, written = file.read(16), os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return False
    status, flags = path.stat(), int.from_bytes(head[4:8], "little")
    if flags == 0:
        if written > status.st_ctime_ns + SAFELY_LATER_NS or not _noted(head, status):
            return False
    elif flags & 2:  # Python checks the source's hash itself
        return False
    code = marshal.loads(kept.read_bytes()[16:])
    return bool(code != compile(content, str(path), "exec", dont_inherit=True))


def _noted(data: bytes, status: os.stat_result) -> bool:
    """Whether Python believes a .pyc: date in whole seconds and size, 32 bits each."""
    mtime, size = (int.from_bytes(data[at : at + 4], "little") for at in (8, 12))
    return mtime == int(status.st_mtime) % 2**32 and size == status.st_size % 2**32


def changed_since_start(paths: Iterable[Path]) -> bool:
    """Whether one of the files was touched after this process began."""
    return any(path.stat().st_ctime_ns >= _started() for path in paths)


@cache
def _started() -> int:
    """When this process began, ns since 1970; where the system does not tell, when this module was
    first read: what changed between is not noticed there."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _READ
    return time.time_ns() - int(age * 1e9)
