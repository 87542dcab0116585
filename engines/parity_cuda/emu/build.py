"""Build a set of CUDA texts into a shared library, once for every distinct content.

Each ``.cu`` is compiled by itself, several at once, and its object is kept too: where one text has
changed, one is compiled. The cache is content-addressed: the name of a library or an object is a
digest of the texts, the shim, the flags, the compiler and the machine. Nothing in it is ever
changed, so it may be deleted at any time. What is kept is believed only with the seal it was built
with: one cut, altered or swapped is built anew.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import parity.builds.cache
from parity.builds.cache import find_sealed, keep_sealed, seal, write_whole
from parity.errors import InputError, ParityBug
from parity_cuda.emu.compiler import Compiler, find_compiler
from parity_cuda.emu.translate import Translation, Unit, translate
from parity_cuda.sources import PYTHON

Mode = Literal["fast", "asan", "tsan"]

SHIM = Path(__file__).resolve().parent
INCLUDE = "emu"  # where the emulator's headers lie while a unit is compiled
FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-shared",
    # One rounding an operation (contract 1): g++ fuses a*b+c by default, and so does clang.
    "-ffp-contract=off",
    # Said aloud, so that a wrapper's defaults cannot take them away.
    "-fno-fast-math",
    "-fno-unsafe-math-optimizations",
    "-fno-associative-math",
    "-fno-reciprocal-math",
    "-fno-finite-math-only",
    "-fsigned-zeros",
    # sqrtf as one instruction: nothing here reads errno.
    "-fno-math-errno",
    # g++ 12 vectorises a sum of four a turn as one in their order of memory, whatever order is
    # written: a fault that swaps two of them would not be seen.
    "-fno-tree-vectorize",
    # Kernels read bytes as words and words as floats.
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fvisibility=hidden",
    # Kernels are written for another compiler; what it thinks of them is not ours to show.
    "-w",
)
MODES: dict[str, tuple[str, ...]] = {
    # -fwrapv: integers wrap as on the device, whatever the optimiser could conclude.
    # --no-undefined: a function that is nowhere is named now, not when the module is loaded.
    "fast": ("-O2", "-fwrapv", "-Wl,--no-undefined"),
    # -fno-var-tracking: a report names lines, not the values of variables, and to follow these
    # takes g++ as long as all else, and far longer in some units.
    "asan": (
        *("-O1", "-g", "-fno-var-tracking", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"),
        # The last one is no part of `undefined`: a cast out of range saturates on the device only.
        "-fsanitize=address,undefined,float-cast-overflow",
    ),
    "tsan": ("-O1", "-g", "-fno-var-tracking", "-fwrapv", "-fsanitize=thread"),
}
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):.*?\berror: (?P<text>.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class BuiltModule:
    """A shared library of kernels.

    ``digest`` is the SHA-256 of the CUDA texts and their names alone: the same on every machine.
    ``code`` is that of the library's bytes.
    """

    path: Path
    kernels: tuple[str, ...]
    hit: bool
    mode: Mode
    flags: tuple[str, ...]
    compiler: str
    digest: str
    code: str


def build_module(
    sources: Mapping[str, str],
    *,
    mode: Mode = "fast",
    extra_flags: Sequence[str] = (),
    compiler: Compiler | None = None,
    announce: Callable[[], None] = lambda: None,
) -> BuiltModule:
    """Build CUDA texts, given by file name, or find them built.

    Each ``.cu`` becomes a translation unit; ``.cuh`` are found by ``#include "name.cuh"``. ``asan``
    and ``tsan`` modules need ``sanitizer_env``. ``announce`` is called before a build, which takes
    seconds.

    Raises InputError for a text that does not translate or compile, NotRunError without a
    compiler, ParityBug for names that are not plain file names.
    """
    _check_names(sources)
    compiler = compiler or find_compiler()
    flags = (*FLAGS, *MODES[mode], *compiler.machine_flags(), *extra_flags)
    folder, key = cache_folder(), _key(sources, flags, compiler)
    kept = _kept(folder, key)
    if kept is None:
        announce()
    path = kept or _Build(flags, compiler, folder, key).module(translate(sources))
    kernels = tuple(_names(folder, key).read_text().split()[1:])
    code = hashlib.sha256(path.read_bytes()).hexdigest()
    digest = _digest(_parts(sources))
    return BuiltModule(path, kernels, kept is not None, mode, flags, str(compiler), digest, code)


def _names(folder: Path, key: str) -> Path:
    """The names of the kernels: to translate only for them would be most of a hit."""
    return folder / f"{key}.kernels"


def _kept(folder: Path, key: str) -> Path | None:
    """The library that was built under ``key``, where it and its names are what they were."""
    path = find_sealed(folder, key, ".so")
    try:
        sealed, *names = _names(folder, key).read_text().split()
    except (OSError, ValueError):
        return None
    return path if sealed == seal(key, *map(str.encode, names)) else None


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the private folder of built modules: ``emu`` in the user's cache of parity."""
    return parity.builds.cache.cache_folder("emu", env)


def object_folder() -> Path:
    """The private folder of compiled units, beside it."""
    return parity.builds.cache.cache_folder("emu-objects")


def _check_names(sources: Mapping[str, str]) -> None:
    for name in sources:
        if not re.fullmatch(r"[\w.-]+\.cuh?", name):
            raise ParityBug(f"a kernel source is named {name!r}, not like rmsnorm.cu or common.cuh")


def _parts(texts: Mapping[str, str]) -> Iterable[str]:
    for name in sorted(texts):
        yield from (name, texts[name])


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)  # no two lists of parts run together
    return digest.hexdigest()


@cache
def _shim() -> dict[str, str]:
    """The headers of the emulator by name, as this process builds with them to its end."""
    return {file.name: file.read_text() for file in sorted(SHIM.glob("*.h"))}


def _translator() -> str:
    """The text of the translator in memory: ``require_loaded_sources`` sees to that."""
    return PYTHON.files[SHIM / "translate.py"].content.decode()


def _key(sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler) -> str:
    return _digest([*_parts(sources), *_around(flags, compiler)])


def _around(flags: Sequence[str], compiler: Compiler) -> list[str]:
    """What code depends on beside its texts."""
    parts = ["shim", *_parts(_shim()), _translator(), "flags", *flags, "compiler"]
    return [*parts, *compiler.command, compiler.version, platform.machine()]


def _texts(unit: Unit) -> list[str]:
    return [unit.text, *_parts(unit.headers)]


@dataclass(frozen=True)
class _Build:
    """One build that is not in the cache. ``key``: the one of the library, in ``cache``."""

    flags: Sequence[str]
    compiler: Compiler
    cache: Path
    key: str

    def module(self, found: Translation) -> Path:
        """Build in a folder of our own, then rename: another process sees all of it or nothing."""
        with tempfile.TemporaryDirectory(prefix="build-", dir=self.cache) as name:
            folder = Path(name)
            (folder / INCLUDE).mkdir()
            headers = {f"{INCLUDE}/{file}": text for file, text in _shim().items()}
            for unit in found.units.values():
                headers |= unit.headers
            for file, text in headers.items():
                (folder / file).write_text(text)
            made = self._objects(folder, found.files, [*found.units.values(), found.main])
            self._run(folder, [*made, "-o", "unit.so", "-lpthread", "-lm"], found.files)
            sealed = seal(self.key, *map(str.encode, found.kernels))
            write_whole(_names(self.cache, self.key), "\n".join((sealed, *found.kernels)).encode())
            return keep_sealed(self.cache, self.key, ".so", (folder / "unit.so").read_bytes())

    def _objects(self, folder: Path, files: Sequence[str], units: Sequence[Unit]) -> list[str]:
        """The units' objects, in their order; the longest are begun first. Of several errors the
        one of the first unit is told."""
        longest = sorted(range(len(units)), key=lambda at: -sum(map(len, _texts(units[at]))))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            begun = {at: pool.submit(self._object, folder, files, at, units[at]) for at in longest}
            return [begun[at].result() for at in range(len(units))]

    def _object(self, folder: Path, files: Sequence[str], number: int, unit: Unit) -> str:
        """The path of a unit's object, compiled where it is not kept."""
        key = _digest([*_texts(unit), *_around(self.flags, self.compiler)])
        kept = object_folder()
        path = find_sealed(kept, key, ".o")
        if path is None:
            source, made = f"unit{number}.cpp", f"unit{number}.o"
            (folder / source).write_text(unit.text)
            self._run(folder, ["-x", "c++", "-c", source, "-o", made], files)
            path = keep_sealed(kept, key, ".o", (folder / made).read_bytes())
        return str(path)

    def _run(self, folder: Path, words: Sequence[str], files: Sequence[str]) -> None:
        command = [*self.compiler.command, *self.flags, f"-I{INCLUDE}", "-I."]
        # Reports of a sanitizer name ./rmsnorm.cu, not a folder that is gone.
        command += [f"-fdebug-prefix-map={folder}=.", *words]
        env = {**os.environ, "LC_ALL": "C"}
        env.setdefault("ZIG_GLOBAL_CACHE_DIR", str(self.cache / "zig"))
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            log = self.cache / f"{self.key}.log"
            raise _compile_error(done.stdout + done.stderr, files, command, log)


def _compile_error(
    output: str, files: Sequence[str], command: Sequence[str], log: Path
) -> InputError:
    log.write_text(" ".join(command) + "\n" + output)
    advice = f"fix the kernel source; everything the compiler said: {log}"
    error = _ERROR.search(output)
    if error is None:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        named = [line for line in lines if re.search(r"undefined|\berror\b", line)]
        first = next(iter(named or lines), "no output")
        return InputError(f"the kernel sources do not compile: {first}", advice)
    place = f"{error['file']}:{error['line']}"
    if Path(error["file"]).parent == Path(INCLUDE):
        place = _caller(output, files) or place
    return InputError(f"{place}: {error['text']}", advice)


def _caller(output: str, files: Sequence[str]) -> str | None:
    """Return the first place in a kernel text that an error inside the shim comes from."""
    names = "|".join(map(re.escape, files))
    found = re.search(rf"^(?:In file included from )?((?:{names}):\d+)", output, re.MULTILINE)
    return found[1] if found else None
