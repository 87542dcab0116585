"""The host C++ compiler: which one, its version, its sanitizer runtimes."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from parity.errors import InputError, NotRunError

# What `--version` says of compilers that know thread-local descriptors on x86-64.
_DESCRIPTORS = re.compile(r"Free Software Foundation|clang version (1[89]|[2-9]\d)")
CANDIDATES = ("g++", "c++", "clang++")
_INSTALL = "install g++ or clang++, or run: pip install 'parity-harness[emu]' (brings ziglang)"


@dataclass(frozen=True)
class Compiler:
    """A command that takes g++ options, and the text of its ``--version``."""

    command: tuple[str, ...]
    version: str

    def __str__(self) -> str:
        """Return one line for reports, such as ``g++ (Debian 12.2.0-14) 12.2.0``."""
        first = self.version.splitlines()[0]
        return f"ziglang {first}" if "ziglang" in self.command else first

    def machine_flags(self) -> tuple[str, ...]:
        """Return flags for this machine; none of them changes a bit."""
        if platform.machine() != "x86_64":
            return ()
        # Without -mfma every fma is a call, with the same bits.
        features = tuple(f"-m{name}" for name in ("fma", "avx2") if name in _processor_features())
        # Thread-local variables cost a load, and no limited memory of the process.
        descriptors = ("-mtls-dialect=gnu2",) if _DESCRIPTORS.search(self.version) else ()
        return features + descriptors


def find_compiler(env: Mapping[str, str] = os.environ) -> Compiler:
    """Return the first of PARITY_CXX, g++, c++, clang++ and the wheel ziglang that runs.

    Raises InputError when PARITY_CXX is set and does not run (no other one is taken silently),
    and NotRunError when there is no compiler at all.
    """
    if chosen := env.get("PARITY_CXX", "").strip():
        command = tuple(_words(chosen))
        version = _version(command)
        if version is None:
            message = f"PARITY_CXX names a compiler that does not run: {chosen}"
            raise InputError(message, "set it to a C++ compiler, or unset it")
        return Compiler(command, version)
    for command in _commands(env):
        if (version := _version(command)) is not None:
            return Compiler(command, version)
    raise NotRunError("the emulator needs a C++ compiler and found none", _INSTALL)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote without its partner
        return [command]


def _commands(env: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for name in CANDIDATES:
        if path := shutil.which(name, path=env.get("PATH")):
            yield (path,)
    if importlib.util.find_spec("ziglang"):
        # cc, not c++: the latter builds a C++ library first, which the shim does not need.
        yield (sys.executable, "-m", "ziglang", "cc")


@cache
def _processor_features() -> frozenset[str]:
    try:
        return frozenset(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return frozenset()


@cache
def _version(command: tuple[str, ...]) -> str | None:
    """Return the output of ``--version``, or None where the command does not run."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def sanitizer_env(mode: str, compiler: Compiler | None = None) -> dict[str, str]:
    """Return what a process that loads a module of ``mode`` (asan, tsan) adds to its environment.

    The runtime must be there before Python starts, so such a module runs in a process of its own.
    Exit status of that process after a report: 1 (asan), 66 (tsan). Raises NotRunError where the
    compiler has no such runtime.
    """
    compiler = compiler or find_compiler()
    question = [*compiler.command, f"-print-file-name=lib{mode}.so"]
    answer = subprocess.run(question, capture_output=True, text=True, check=False).stdout.strip()
    if not os.path.isabs(answer):  # g++ echoes a name that it does not know
        raise NotRunError(f"{compiler} has no {mode} runtime", "install g++ with its sanitizers")
    return {
        "LD_PRELOAD": str(Path(answer).resolve()),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0",
        # Without the sleep: TSan waits a second at exit for threads that may still report.
        "TSAN_OPTIONS": "exitcode=66 report_signal_unsafe=0 atexit_sleep_ms=0",
    }
