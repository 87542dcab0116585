"""The platform's C library and shared libraries of the user's: found by name, called by address."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from pathlib import Path

from parity.errors import InputError, NotRunError

# By sys.platform: what the dynamic loader knows the mathematical functions under.
NAMES = {
    "darwin": ("libSystem.dylib",),
    "win32": ("ucrtbase.dll", "msvcrt.dll"),
}
ELSEWHERE = ("libm.so.6", "libm.so", "libc.so")
# What of a processor the common C libraries choose their code by.
FEATURES = ("sse4.1", "fma", "fma4", "avx2", "avx512f")


@functools.cache
def c_library() -> ctypes.CDLL:
    """The C library's mathematical functions. Raises NotRunError where none is found."""
    names = NAMES.get(sys.platform, ELSEWHERE)
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotRunError(
        f"libm: no C library found on this machine (tried {', '.join(names)})",
        "name one: /path/to/libm.so:expf",
    )


def c_library_version() -> str:
    """Name and version, e.g. ``glibc 2.36 (libm.so.6)``."""
    return f"{_version()} ({c_library()._name})"


def _version() -> str:
    try:
        version = ctypes.CDLL(None).gnu_get_libc_version
    except (AttributeError, OSError, TypeError):
        return f"C library of {platform.system()} {platform.release()} {platform.version()}"
    version.restype = ctypes.c_char_p
    return f"glibc {version().decode()}"


def processor() -> str:
    """The features that a C library may choose its code by, and what was asked of glibc."""
    from llvmlite import binding

    host = binding.get_host_cpu_features()
    found = [name for name in FEATURES if host.get(name)]
    tunables = os.environ.get("GLIBC_TUNABLES")
    asked = f"; GLIBC_TUNABLES={tunables}" if tunables else ""
    features = f" with {', '.join(found)}" if found else ""
    return f"{platform.machine()}{features}{asked}"


def address(library: ctypes.CDLL, symbol: str) -> int:
    """Where ``symbol`` is in memory; AttributeError when the library has none."""
    pointer = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    assert pointer is not None
    return pointer


def user_symbol(spec: str) -> tuple[ctypes.CDLL, int]:
    """The library and the address of ``LIBRARY:SYMBOL``; the library must stay referenced.

    A library that is no file is looked for as the dynamic loader does. Raises InputError.
    """
    name, _, symbol = spec.rpartition(":")
    path = Path(name)
    try:
        library = ctypes.CDLL(str(path.resolve()) if path.exists() else name)
    except OSError as error:
        said = str(error).partition("\n")[0]
        raise InputError(
            f"implementation {spec}: {name} cannot be loaded: {said}",
            "name a shared library for this machine, by its path",
        ) from error
    try:
        return library, address(library, symbol)
    except AttributeError as error:
        raise InputError(
            f"implementation {spec}: {name} has no symbol {symbol!r}",
            f"see what it exports: nm -D --defined-only {name}",
        ) from error
