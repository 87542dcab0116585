"""The platform's C library and shared libraries of the user's: found by name, called by address."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

from parity.dtypes import value_text
from parity.errors import InputError, NotRunError
from parity_cpu import symbol_trial

# By sys.platform: what the dynamic loader knows the mathematical functions under.
NAMES = {
    "darwin": ("libSystem.dylib",),
    "win32": ("ucrtbase.dll", "msvcrt.dll"),
}
ELSEWHERE = ("libm.so.6", "libm.so", "libc.so")
# What of a processor the common C libraries choose their code by.
FEATURES = ("sse4.1", "fma", "fma4", "avx2", "avx512f")
TRIAL_S = 20  # seconds a symbol has for a dozen numbers; a library may take long to load


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

    A library that is no file is looked for as the dynamic loader does. Raises InputError, also for
    a symbol that is no function, and for one that ends a process that calls it.
    """
    name, _, symbol = spec.rpartition(":")
    path = Path(name)
    file = str(path.resolve()) if path.exists() else name
    _require_harmless(spec, file)
    try:
        library = ctypes.CDLL(file)
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


def _require_harmless(spec: str, file: str) -> None:
    """InputError where a child process that loads the library and calls the symbol dies."""
    name, _, symbol = spec.rpartition(":")
    command = [sys.executable, "-I", symbol_trial.__file__, file, symbol]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TRIAL_S, check=False
        )
        said, fate = done.stdout, _fate(done.returncode)
    except subprocess.TimeoutExpired as error:
        said, fate = error.stdout or b"", f"gives no result in {TRIAL_S} s"
    last = symbol_trial.last_said(said)
    if last in symbol_trial.HARMLESS:
        return
    if last == symbol_trial.NO_CODE:
        problem = f"{symbol!r} is no function: no code stands there"
    elif last == symbol_trial.LOADING:
        problem = f"{name} {fate} when it is loaded"
    else:
        problem = f"{symbol!r} {fate} at {last} ({value_text(int(last, 16), 'f32')})"
    raise InputError(
        f"implementation {spec}: {problem}",
        "name a C function float f(float) that takes every float32, NaN and infinities too",
    )


def _fate(status: int) -> str:
    """How a child process ended, by its exit status."""
    if status >= 0:
        return "ends the process"
    try:
        return f"dies of {signal.Signals(-status).name}"
    except ValueError:
        return f"dies of signal {-status}"
