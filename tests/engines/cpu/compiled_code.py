"""What the machine code and the types of a compiled function tell: guards of the contract.

Each guard compiles the function afresh for every signature it has run with: a function that came
from the on-disk cache carries neither its machine code nor its types.
"""

import platform
import re
from typing import Any

from llvmlite import binding
from numba import njit, types

# x86: vfmadd132ss, vfnmsub213pd, ...; Arm: fmadd, fmsub, fnmadd, fnmsub, fmla, fmls.
FMA = re.compile(r"\b(?:vfn?m(?:add|sub)\w*|fn?m(?:add|sub)|fml[as])\b")
FAST = re.compile(r"\b(?:fast|contract|reassoc|nnan|ninf|nsz|arcp|afn)\b")
ARITHMETIC = re.compile(r"= (?:f(?:add|sub|mul|div|neg|cmp)|(?:tail )?call)\b")


def fma_instructions(dispatcher: Any) -> list[str]:
    """Every fused multiply-add in the machine code of `dispatcher` and all it calls.

    An op that calls an elementary function holds the fma's written there: see `fast_math_lines`.
    """
    return [
        line.strip()
        for text in _fresh(dispatcher).inspect_asm().values()
        for line in text.splitlines()
        if FMA.search(line.split("#")[0])
    ]


def fast_math_lines(dispatcher: Any) -> list[str]:
    """Every LLVM instruction of `dispatcher` and all it calls that may be contracted or reordered.

    Without one, no compiler pass may fuse or reassociate: only written fma's become fma's.
    """
    return [
        line.strip()
        for text in _fresh(dispatcher).inspect_llvm().values()
        for line in text.splitlines()
        if (found := ARITHMETIC.search(line)) and FAST.search(_flags(line, found.end()))
    ]


def float64_values(dispatcher: Any) -> list[str]:
    """Every value of `dispatcher` (not of what it calls) of type float64, as "name: type".

    Literals count only through what is computed from them: `f32(0.5)` is allowed, `x * 0.5` shows
    its product. Arrays, tuples and complex numbers that hold float64 are reported too.
    """
    fresh = _fresh(dispatcher)
    found = []
    for overload in fresh.overloads.values():
        for name, kind in overload.type_annotation.typemap.items():
            if _holds_float64(kind) and not name.startswith("$const"):
                found.append(f"{name}: {kind}")
        if _holds_float64(overload.signature.return_type):
            found.append(f"return: {overload.signature.return_type}")
    return sorted(set(found))


def host_has_fma() -> bool:
    """Whether this processor fuses in hardware; else `fma_instructions` finds nothing anywhere."""
    on_arm = platform.machine() in ("aarch64", "arm64")
    return on_arm or bool(binding.get_host_cpu_features().get("fma"))


def _fresh(dispatcher: Any) -> Any:
    """`dispatcher` compiled again, uncached, for all signatures that it has been used with."""
    if not dispatcher.overloads:
        raise ValueError(f"{dispatcher.py_func.__name__} has not run: there is no code to look at")
    options = {k: v for k, v in dispatcher.targetoptions.items() if k not in ("nopython", "cache")}
    fresh = njit(**options)(dispatcher.py_func)
    for signature in dispatcher.overloads:
        fresh.compile(signature)
    return fresh


def _flags(line: str, start: int) -> str:
    """The words between an instruction's name and its operand type or callee."""
    return re.split(r"[%@{<\[(]", line[start:], maxsplit=1)[0]


def _holds_float64(kind: types.Type) -> bool:
    if isinstance(kind, types.BaseTuple):
        return any(_holds_float64(member) for member in kind)
    if isinstance(kind, types.Array | types.UniTuple):
        return _holds_float64(kind.dtype)
    return kind in (types.float64, types.complex128)
