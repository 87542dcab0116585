"""The kernels' texts: ``.cu`` files, one op each, and the ``.cuh`` they include.

The text of the hash is the core's, which other engines use too. Kernels that begin with
``variants = KNOWN(variants);`` (``variants.cuh``) can be compiled for one mask alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import parity
from parity.builds.loaded import Sources
from parity.variants import TIERS, variant_mask

PACKAGE = Path(__file__).resolve().parent
KERNELS = PACKAGE / "kernels"
FUNCTION_KERNELS = PACKAGE / "function_kernels"
# A kernel's name and arguments, and whether its mask is a constant where the unit knows it.
_KERNEL = re.compile(
    r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(?P<name>\w+)\s*"
    r"\((?P<arguments>[^()]*)\)\s*\{(?P<known>\s*variants = KNOWN\(variants\);)?"
)
_MACRO = re.compile(r"^MAP\((\w+),", re.MULTILINE)  # writes out a kernel: function_kernels
_NO_CODE = re.compile(r"//[^\n]*|^#define(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_ARGUMENT = re.compile(r"(\w+)\s*(?:,|$)")
INCLUDE = Path(parity.__file__).resolve().parent / "include"
HASH = (INCLUDE / "parity_dump.cuh", INCLUDE / "parity_slice.cuh")
PYTHON = Sources(PACKAGE)
PYTHON.read()  # before the modules that are held against them


def require_loaded_sources() -> None:
    """NotRunError where a module of this package in memory is not of the files read above."""
    PYTHON.require_loaded(__name__.partition(".")[0])


def kernel_sources() -> dict[str, str]:
    """File name to text, in name order."""
    files = sorted([*KERNELS.glob("*.cu"), *KERNELS.glob("*.cuh"), *HASH])
    return {path.name: path.read_text(encoding="utf-8") for path in files}


@dataclass(frozen=True)
class Kernel:
    """``file`` defines it. ``mask``: where its mask stands among its arguments, if a unit that
    knows the mask holds it as a constant; None for every other kernel."""

    file: str
    mask: int | None = None


def kernels_of(sources: Mapping[str, str], ending: str = ".cu") -> dict[str, Kernel]:
    """Every kernel of the files with this ending, by its name. Those of a .cuh are for engines of
    other projects."""
    found: dict[str, Kernel] = {}
    for file in (name for name in sources if name.endswith(ending)):
        code = _NO_CODE.sub("", sources[file])
        found |= {name: Kernel(file) for name in _MACRO.findall(code)}
        for kernel in _KERNEL.finditer(code):
            place = None
            if kernel["known"]:
                place = _ARGUMENT.findall(kernel["arguments"]).index("variants")
            found[kernel["name"]] = Kernel(file, place)
    return found


class Unit(NamedTuple):
    """``.cu`` files that are compiled as one program, for any mask or for one alone."""

    files: tuple[str, ...]
    mask: int | None = None

    def of(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Its texts: the files, and whatever they may include."""
        return {
            name: text
            for name, text in sources.items()
            if name in self.files or not name.endswith(".cu")
        }


def units_of(sources: Mapping[str, str], mask: int | None) -> list[Unit]:
    """What a device loads: each file by itself for any mask, so that a first run waits for the
    slowest alone; for a mask that is known, once more all with kernels that take it as a constant,
    side by side in memory as a step runs them."""
    every = [Unit((name,)) for name in sorted(sources) if name.endswith(".cu")]
    known = {kernel.file for kernel in kernels_of(sources).values() if kernel.mask is not None}
    return every if mask is None or not known else [*every, Unit(tuple(sorted(known)), mask)]


def known_mask(variants: frozenset[str]) -> int | None:
    """The mask that kernels are compiled for once more: a tier's; None for any other set."""
    return variant_mask(variants) if variants in TIERS.values() else None


def source_of(kernel: str) -> str:
    """``parity_cuda/kernels/swiglu.cu``: the file that defines ``kernel``; empty: none does."""
    found = _kernels().get(kernel)
    return f"{PACKAGE.name}/{KERNELS.name}/{found.file}" if found else ""


@cache
def _kernels() -> Mapping[str, Kernel]:
    return kernels_of(kernel_sources(), ".cuh") | kernels_of(kernel_sources())


def sources_digest(sources: Mapping[str, str]) -> str:
    """First 16 hexadecimal digits of the SHA-256 over names and texts."""
    state = hashlib.sha256()
    for name, text in sorted(sources.items()):
        state.update(f"{name}\0{text}\0".encode())
    return state.hexdigest()[:16]


def function_sources() -> dict[str, str]:
    """The kernels over whole arrays alone: elementary functions, and what counts their bits.

    A unit of its own: the engine's kernels hold nothing of the device's library in the exact tier.
    """
    files = [*FUNCTION_KERNELS.glob("*.cu*"), KERNELS / "map_elementary.cu", *KERNELS.glob("*.cuh")]
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(files)}
