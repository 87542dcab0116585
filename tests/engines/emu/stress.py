"""One built module of all kernels, and the checks that run a case on it: orders and poison."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from parity_cuda.emu import EmuModule, KernelFault, Schedule
from parity_cuda.emu_backend import EmuBackend
from tests.engines.cuda.op_runner import GARBAGE, WroteOutside
from tests.engines.emu.stress_cases import KERNELS, Arrays, Case
from tests.engines.kernel_texts import all_sources, written_out

Pairs = set[tuple[str, int]]  # a kernel and a mask that it is given, 0 for one that takes none

ASCENDING = Schedule("ascending", poison=GARBAGE)
ORDERS = {
    "descending": Schedule("descending", poison=GARBAGE),
    "shuffled 3": Schedule("shuffled", seed=3, poison=GARBAGE),
    "shuffled 4 on 2 threads": Schedule("shuffled", seed=4, threads=2, poison=GARBAGE),
}
# 0xff is a NaN, which max and min drop; these are a large positive and a large negative number.
POISONS = (0x55, 0xD5)

# The device's library has stand-ins under names of their own (emu_refuse.h).
_LIBRARY = re.compile(r"\b(?:__)?(expf|cosf|sinf|logf|rsqrtf)\(")


@cache
def stress_sources() -> Mapping[str, str]:
    """Every kernel text, as the emulator takes it: function_kernels/library.cu with stand-ins."""
    sources = all_sources()
    library = _LIBRARY.sub(r"emu_standin_\1(", written_out(sources["library.cu"]))
    library = re.sub(r"^#define MAP(?:[^\n]*\\\n)*[^\n]*", "", library, flags=re.MULTILINE)
    library = library.replace("__fdividef(", "__fdiv_rn(")
    return MappingProxyType({**sources, "library.cu": library})


class StressBackend(EmuBackend):
    """An emulated device on a module built before. New memory is filled with the poison byte.

    ``launched``: the kernels that ran, each with its mask. ``processors``: two, so that a small
    projection is more than one block, and a block more than one weight row.
    """

    graph = False
    fuse = True
    processors = 2

    def __init__(self, module: EmuModule, schedule: Schedule) -> None:
        self.counts: Counter[str] = Counter()
        self.launched: Pairs = set()
        self._module, self._schedule = module, schedule

    def info(self) -> Mapping[str, str]:
        """A device of its own, for which no tiles are kept."""
        return {"device": "CPU (emulated CUDA, stressed)"}

    def empty(self, shape: Any, dtype: type) -> np.ndarray:
        """Host memory full of poison."""
        array = super().empty(shape, dtype)
        array.view(np.uint8)[...] = self._schedule.poison
        return array

    def launch(self, kernel: str, grid: Any, block: Any, args: Any, shared: int = 0,
               *, overlap: bool = False) -> None:  # fmt: skip
        """Run it, and note its mask."""
        names = KERNELS[kernel].parameters
        mask = int(args[names.index("variants")]) if "variants" in names else 0
        self.launched.add((kernel, mask))
        super().launch(kernel, grid, block, args, shared)


def run(module: EmuModule, case: Case, schedule: Schedule) -> tuple[Arrays, StressBackend]:
    """What a case gives under a schedule, and the backend that it ran on."""
    backend = StressBackend(module, schedule)
    with np.errstate(all="ignore"):
        return case.run(backend, schedule.poison), backend


def reports(module: EmuModule, case: Case) -> Iterator[str]:
    """``check: case: what`` for each check of this process that a case does not pass.

    fault: the kernel broke a rule of the device. bounds: it wrote past the end of an output.
    order: another order of threads and blocks gave other bits. poison: another filling of shared
    memory, scratch memory and outputs did.
    """
    try:
        wanted = run(module, case, ASCENDING)[0]
        for name, schedule in ORDERS.items():
            if bits(run(module, case, schedule)[0]) != bits(wanted):
                yield f"order: {case}: {name} gave other bits than ascending"
        for poison in POISONS:
            if bits(run(module, case, replace(ASCENDING, poison=poison))[0]) != bits(wanted):
                yield f"poison: {case}: {poison:#x} gave other bits than {GARBAGE:#x}"
    except WroteOutside as error:
        yield f"bounds: {case}: {error}"
    except KernelFault as error:
        yield f"fault: {case}: {error}"


def bits(arrays: Arrays) -> list[bytes]:
    """The bytes of each array."""
    return [array.tobytes() for array in arrays]


def digest(arrays: Arrays) -> str:
    """SHA-256 of the bytes, with all NaNs alike: which payload survives is the compiler's choice
    (contract 1.10)."""
    state = hashlib.sha256()
    for array in arrays:
        one = array.copy()
        if one.dtype.kind == "f":
            one[np.isnan(one)] = np.nan
        state.update(f"{one.dtype}{one.shape}".encode() + one.tobytes())
    return state.hexdigest()


def digests(module: EmuModule, cases: list[Case]) -> list[str]:
    """The digest of each case, run in ascending order."""
    return [digest(run(module, case, ASCENDING)[0]) for case in cases]
