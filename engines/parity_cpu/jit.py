"""jit and its kind: how every function of this package is compiled, and where the code is kept.

Numba's on-disk cache watches one file: after a change in a helper of *another* file it goes on
serving the caller with the old helper inside. Here the cache folder is named by a digest over all
sources of the package and the compiler's version, and an entry in it by a digest over what is in
memory (code_cache.py), so that stale code is never even looked at.
"""

import functools
import os
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from parity.builds.cache import cache_root
from parity.builds.loaded import Sources

F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = Path(__file__).resolve().parent
COMPILERS = ("numba", "llvmlite")
_sources = Sources(PACKAGE)

# Contract: one rounding per operation (no fastmath), IEEE division (x/0 is inf, no exception).
# A way in from C is made for nothing, one from Python for what Python calls: each takes as long to
# compile as a small function.
OPTIONS = {"fastmath": False, "error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
PART = {"no_cpython_wrapper": True}


def jit(fn: F) -> F:
    """Compile `fn` for one thread by the contract's rules. Raises TypeError as `jit_parallel`."""
    return _compiled(fn)


def jit_part(fn: F) -> F:
    """``jit`` for what compiled code alone calls; a call from Python raises TypeError."""
    return _closed(_compiled(fn, **PART))


def jit_inside(fn: F) -> F:
    """``jit_part``, always made part of its callers: for what runs once a block of weights."""
    return _closed(_compiled(fn, **PART, forceinline=True))


def jit_parallel(fn: F) -> F:
    """Compile `fn` with `prange` over independent rows (never over a reduced axis).

    Raises TypeError for a closure over a compiled function: Numba keys such a closure by a random
    id, so the cache would miss, and grow, in every process. Close over a number or name instead.
    """
    return _compiled(fn, parallel=True)


def cache_is_warm() -> bool:
    """Whether compiled code of exactly these sources is on disk; if not, a first run must wait.

    Looks at files only and imports no compiler, so that a message can precede the wait.
    """
    try:
        return any(cache_folder().glob("*.nbc"))
    except OSError:
        return False


def cache_folder() -> Path:
    """The folder of this package's compiled code; nothing is created.

    Raises FileNotFoundError when no variable names a folder and no home folder is known.
    """
    try:
        return cache_root() / "numba" / source_digest()[:16]
    except RuntimeError as error:
        raise FileNotFoundError("no home folder is known") from error


@functools.cache
def source_digest() -> str:
    """sha256 (hex) over every source file of the package, by path, and the compiler's version.

    Of the files as they were when this was first asked, which is before the ops are imported.
    """
    return _sources.digest(*(f"{name} {metadata.version(name)}" for name in COMPILERS))


def require_loaded_sources() -> None:
    """NotRunError where what is in memory is not what ``source_digest`` tells of."""
    source_digest()
    _sources.require_loaded(__name__.partition(".")[0])


def _compiled(fn: F, **options: Any) -> F:
    from numba import njit

    from parity_cpu.code_cache import CodeCache

    _refuse_compiled_closure(fn)
    merged: dict[str, Any] = {**OPTIONS, "parallel": False, **options}
    compiled: Any = njit(**merged)(fn)
    CodeCache(compiled, _own_folder())
    return compiled


def _closed(compiled: Any) -> Any:
    """``compiled``, which has no way in from Python: Numba would jump to address 0."""

    def refuse(*args: Any, **kws: Any) -> None:
        name = compiled.py_func.__qualname__
        raise TypeError(f"{name} is for compiled code alone; give it @jit to call it from Python")

    compiled._insert = lambda *args, **kws: None  # so that every call comes by the next line
    compiled._compile_for_args = refuse
    return compiled


def _refuse_compiled_closure(fn: Callable[..., Any]) -> None:
    from numba.core.dispatcher import Dispatcher

    for cell in fn.__closure__ or ():
        if isinstance(cell.cell_contents, Dispatcher):
            inner = cell.cell_contents.py_func.__name__
            raise TypeError(
                f"{fn.__qualname__} closes over the compiled function {inner}: its code would "
                "never be found in the cache; close over a number or a name and branch on it"
            )


def _own_folder() -> Path | None:
    """Create the cache folder for this user alone; None, with one warning, where that cannot be."""
    try:
        folder = cache_folder()
        folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in (folder.parent, folder):
            _make_private(part)
    except OSError as error:
        warnings.warn(
            f"compiled code is not kept, so every run compiles anew ({error}); "
            "set PARITY_CACHE to a folder of your own",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return folder


def _make_private(folder: Path) -> None:
    """What lies here is unpickled and run, so nobody else may write it. Raises PermissionError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not writable")
