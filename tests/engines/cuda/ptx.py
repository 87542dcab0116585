"""What the real compilers make of the kernels: PTX by nvcc or NVRTC, and what it may not hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path

from parity.errors import NotRunError
from parity_cuda import nvrtc
from tests.engines.kernel_texts import kernels

ARCHITECTURES = ("sm_80", "sm_90", "sm_120")
# Contract 4 writes fma64 in expf, cosf and sinf and fma32 in logf: kernels whose text leads to one
# of these may hold the instruction; no other may. row_block makes a product of 1.3 by one fma32,
# which is rounded once as the product is (q4_row.cuh).
_FMA64 = {"ucrt_expf", "ucrt_cosf", "ucrt_sinf"}
_FMA32 = {"ucrt_logf", "row_block"}
_BOUNDS = r"(?:__launch_bounds__\([^()]*\) )?"
_VARIANTS = re.compile(
    rf'(extern "C" __global__ void {_BOUNDS}\w+\([^)]*\bint) variants([^)]*\) \{{)'
)
# A kernel, or a function that was not inlined: ``.func (.param .b32 result) name(``.
_BLOCK = re.compile(
    r"^(?:\.visible (?=\.entry)|(?:\.\w+ )?(?=\.func))\.(?P<kind>entry|func)\s+"
    r"(?:\([^)]*\)\s*)?(?P<name>\w+)\s*\(",
    re.MULTILINE,
)
# The rules, each a pattern over one instruction's name and what it would break.
_RULES = (
    (re.compile(r"\.ftz\b"), "flushes subnormals"),
    (re.compile(r"\.(?:approx|full)\b"), "is not correctly rounded"),
    # Without a rounding mode the assembler may contract and reorder.
    (re.compile(r"^(?:add|sub|mul|fma|div|sqrt|rcp)\.f(?:32|64)\b"), "names no rounding"),
    (re.compile(r"^(?:mad|fma)\.r[zmp]"), "does not round to nearest"),
)
_INSTRUCTION = re.compile(r"^\s+(?:@!?%\w+ +)?([a-z][a-z0-9_.:]*)\s", re.MULTILINE)

Compile = Callable[[Mapping[str, str], str, Collection[str]], str]


def exact_tier(sources: Mapping[str, str]) -> dict[str, str]:
    """The kernels with ``variants`` fixed to 0: the compiler drops what the variants swap in."""
    pinned = r"\1\2\n  int variants = 0;"
    return {name: _VARIANTS.sub(pinned, text) for name, text in sources.items()}


def by_nvcc(sources: Mapping[str, str], arch: str, flags: Collection[str] = nvrtc.FLAGS) -> str:
    """PTX of all kernels by nvcc; the flags are the engine's own, spelt alike for both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in {**sources, "kernels_unit.cu": nvrtc.unit(sources)}.items():
            (folder / file).write_text(text, encoding="utf-8")
        out = folder / "kernels.ptx"
        command = ["nvcc", "-ptx", f"-arch={arch}", *flags, "kernels_unit.cu", "-o", str(out)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return out.read_text(encoding="utf-8")


def by_nvrtc(sources: Mapping[str, str], arch: str, flags: Collection[str] = nvrtc.FLAGS) -> str:
    """PTX of all kernels by NVRTC, as the engine finds it; needs no driver."""
    binding = nvrtc._binding()
    names = sorted(sources)
    texts = [sources[name].encode() for name in names]
    encoded = [name.encode() for name in names]
    program = binding.createProgram(nvrtc.unit(sources), "kernels_unit.cu", texts, encoded)
    virtual = arch.replace("sm_", "compute_")
    try:
        binding.compileProgram(program, [f"--gpu-architecture={virtual}", *flags])
    except binding.NVRTCError as error:
        raise AssertionError(f"{arch}: {binding.getProgramLog(program)}") from error
    ptx: str = binding.getPTX(program).decode()
    binding.destroyProgram(program)
    return ptx


def missing(compiler: str) -> str:
    """Why a compiler cannot be used here, or an empty string."""
    if compiler == "nvcc":
        return "" if shutil.which("nvcc") else "ptx: nvcc is not installed"
    try:
        nvrtc.nvrtc_version()
    except NotRunError:
        return "ptx: NVRTC is not installed"
    return ""


def written_fmas(sources: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """The kernels whose text calls a function with an fma64, and one with an fma32."""
    found = kernels(sources).values()
    double, single = ({each.name for each in found if each.calls & fma} for fma in (_FMA64, _FMA32))
    return double, single


def _once(by: Compile) -> Compile:
    """``by``, with the kernels compiled once for each architecture and each set of flags: several
    tests look at one text."""
    known = cache(lambda texts, arch, flags: by(dict(texts), arch, flags))

    def compiled(
        sources: Mapping[str, str], arch: str, flags: Collection[str] = nvrtc.FLAGS
    ) -> str:
        return known(tuple(sorted(sources.items())), arch, tuple(sorted(flags)))

    return compiled


COMPILERS: dict[str, Compile] = {"nvcc": _once(by_nvcc), "nvrtc": _once(by_nvrtc)}


def instructions(ptx: str) -> dict[str, list[str]]:
    """Kernel to its instructions' names, in order; then those of the functions that it calls."""
    starts = [*_BLOCK.finditer(ptx)]
    ends = [found.start() for found in starts[1:]] + [len(ptx)]
    texts: dict[str, dict[str, str]] = {"entry": {}, "func": {}}
    for found, end in zip(starts, ends, strict=True):
        body = ptx[found.end() : end].partition("{")[2]
        if body:  # a function is announced before it is written
            texts[found["kind"]][found["name"]] = body
    functions = texts["func"]
    return {
        name: _INSTRUCTION.findall("".join([body, *_called(body, functions)]))
        for name, body in texts["entry"].items()
    }


def _called(body: str, functions: Mapping[str, str]) -> list[str]:
    """The bodies of all functions that ``body`` leads to."""
    found: dict[str, str] = {}
    left = [body]
    while left:
        named = set(re.findall(r"\w+", left.pop())) & functions.keys() - found.keys()
        found |= {name: functions[name] for name in named}
        left += [functions[name] for name in named]
    return [*found.values()]


def inexact(ptx: str) -> dict[str, set[str]]:
    """Kernel to its instructions that break a rule or fuse, for a list of what is allowed."""
    fused = ("fma.rn.f32", "fma.rn.f64")
    return {
        kernel: {name for name in names
                 if name.startswith(fused) or any(rule.search(name) for rule, _ in _RULES)}
        for kernel, names in instructions(ptx).items()
    }  # fmt: skip


def faults(ptx: str, fma64: Collection[str] = (), fma32: Collection[str] = ()) -> list[str]:
    """``kernel: instruction does what`` for every instruction that breaks the contract, once.

    ``fma64``, ``fma32``: the kernels in which one is written.
    """
    found = []
    for kernel, names in instructions(ptx).items():
        for name in dict.fromkeys(names):
            found += [f"{kernel}: {name} {text}" for rule, text in _RULES if rule.search(name)]
            if name.startswith("fma.rn.f32") and kernel not in fma32:
                found.append(f"{kernel}: {name} contracts")
            if name.startswith("fma.rn.f64") and kernel not in fma64:
                found.append(f"{kernel}: {name} contracts")
    return found
