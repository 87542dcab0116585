"""Compile the kernels to cubins with NVRTC, without a driver, and keep them in the cache.

CuPy's ``RawModule(code=)`` appends ``-ftz=true`` after the caller's options (cupy issue 9576), so
the cubins are made here and loaded by path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from parity.builds.cache import cache_folder, find_sealed, keep_sealed
from parity.errors import InputError, NotRunError
from parity_cuda.sources import Unit

# Each flag with its reason: the contract has one rounding per operation (docs/contract.md).
FLAGS = (
    "-fmad=false",  # no contraction of a*b+c
    "-ftz=false",  # subnormals are kept
    "-prec-div=true",  # division correctly rounded
    "-prec-sqrt=true",  # square root correctly rounded
    "-std=c++17",
)


def unit(sources: Mapping[str, str]) -> str:
    """One translation unit that includes every ``.cu`` file, in name order."""
    return "".join(f'#include "{name}"\n' for name in sorted(sources) if name.endswith(".cu"))


def nvrtc_version() -> str:
    """Version of the NVRTC that is found, e.g. ``NVRTC 13.0``; NotRunError when there is none."""
    return "NVRTC {}.{}".format(*_binding().getVersion())


def compile_cubin(
    sources: Mapping[str, str], arch: str, flags: tuple[str, ...] = FLAGS
) -> tuple[bytes, str]:
    """Cubin and log for ``arch`` (``sm_90``); InputError names the file that does not compile."""
    nvrtc = _binding()
    names = sorted(sources)
    texts = [sources[name].encode() for name in names]
    program = nvrtc.createProgram(
        unit(sources), "kernels.cu", texts, [name.encode() for name in names]
    )
    try:
        options = (f"--gpu-architecture={arch}", *flags, *_no_compile_cache())
        nvrtc.compileProgram(program, list(options))
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        raise _compile_error(nvrtc.getProgramLog(program), arch) from error
    finally:
        nvrtc.destroyProgram(program)


def _no_compile_cache() -> tuple[str, ...]:
    """Keep NVRTC from its own cache, whose key leaves out -ftz: with a driver present, NVRTC 13.0
    gave a build with -ftz=true the cubin of one without (seen on an H200). Known since 12.9."""
    return ("--no-cache",) if tuple(_binding().getVersion()) >= (12, 9) else ()


def unit_flags(unit: Unit) -> tuple[str, ...]:
    """The flags of a unit: its mask is a constant of ``variants.cuh``."""
    return FLAGS if unit.mask is None else (*FLAGS, f"-DKNOWN_VARIANTS={unit.mask}")


def cached_cubins(sources: Mapping[str, str], arch: str, units: Sequence[Unit]) -> dict[Unit, Path]:
    """Path of each unit's cubin for ``arch``. Those that are not in the cache are compiled at once,
    each in a thread: NVRTC holds neither a lock of its own nor Python's."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda unit: cached_cubin(sources, arch, unit)[0], units)
        return dict(zip(units, found, strict=True))


def cached_cubin(sources: Mapping[str, str], arch: str, unit: Unit) -> tuple[Path, bool]:
    """Path of a unit's cubin, compiled when it is not in the cache; True on a hit.

    The path has the seal of the content in its name, and content that was cut, altered or swapped
    is compiled anew: what is loaded from it is what the unit's sources compile to.
    """
    texts, flags = unit.of(sources), unit_flags(unit)
    digests = [(name, _digest(text)) for name, text in sorted(texts.items())]
    state = repr((digests, arch, flags, nvrtc_version()))
    key = hashlib.sha256(state.encode()).hexdigest()[:32]
    folder = cache_folder("cubin")
    kept = find_sealed(folder, key, ".cubin")
    if kept is not None:
        return kept, True
    cubin, _ = compile_cubin(texts, arch, flags)
    return keep_sealed(folder, key, ".cubin", cubin), False


@cache
def _digest(text: str) -> str:
    """SHA-256 (hex) of a text; most are in every unit."""
    return hashlib.sha256(text.encode()).hexdigest()


def code_digest(paths: Iterable[Path]) -> str:
    """SHA-256 (hex) over the SHA-256 of each cubin, in order."""
    each = (hashlib.sha256(path.read_bytes()).digest() for path in paths)
    return hashlib.sha256(b"".join(each)).hexdigest()


def _compile_error(log: str, arch: str) -> InputError:
    lines = [line.strip() for line in log.splitlines() if "error" in line]
    first = lines[0] if lines else "no message"
    return InputError(f"a kernel does not compile for {arch}: {first}", "mend that kernel")


def _binding() -> Any:
    """CuPy's low-level NVRTC binding (its own compile path needs a driver), else the wheel's."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:
        return _binding_of_the_wheel(error)
    return nvrtc


def _binding_of_the_wheel(no_cupy: Exception) -> Any:
    """NVRTC by itself: enough to compile without CuPy, as a CI without a GPU does."""
    from parity_cuda import nvrtc_wheel

    try:
        return nvrtc_wheel.open_wheel()
    except OSError:
        reason = str(no_cupy).partition("\n")[0] or type(no_cupy).__name__
        raise NotRunError(
            f"cuda: NVRTC is not usable: {reason}",
            "pip install -e '.[cuda13]' (or [cuda12]) in parity's folder; or use --dut emu",
        ) from no_cupy
