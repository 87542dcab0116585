"""The faults themselves: what each does at the place where it sits (``planted.Fault``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from parity.keys import Key
from parity.protocol import Step
from parity_cpu.calls import Calls
from parity_cuda.emu import EmuModule, build_module
from parity_cuda.sources import kernel_sources
from tests.study.planted import Fault, Run_

Change = Callable[[np.ndarray], None]
Args = tuple[Any, ...]
Patch = Callable[[Calls, Run_, Args], None]
SIGN = np.uint32(0x80000000)
LARGEST = 0x7F7FFFFF
SMALLEST_NORMAL = np.float32(1.1754943508222875e-38)


# --- changes of a value ---------------------------------------------------------------------------


def ulp(index: int) -> Change:
    """One element one ULP larger in magnitude, an integer one step towards zero (0: to 1)."""

    def change(array: np.ndarray) -> None:
        flat = array.reshape(-1)
        if array.dtype == np.float32:
            bits = flat.view(np.uint32)
            up = int(bits[index]) & ~int(SIGN) != LARGEST
            bits[index] = int(bits[index]) + (1 if up else -1)
        elif array.dtype == np.uint16:  # an f16 scale by its bits
            flat[index] = int(flat[index]) + 1
        else:
            flat[index] = int(flat[index]) - 1 if flat[index] > 0 else int(flat[index]) + 1

    return change


def nibble(index: int, high: bool) -> Change:
    """One 4-bit weight one step nearer to the middle of its range."""

    def change(array: np.ndarray) -> None:
        flat, shift = array.reshape(-1), 4 if high else 0
        value = (int(flat[index]) >> shift) & 15
        flat[index] = int(flat[index]) + ((1 if value < 8 else -1) << shift)

    return change


def swap(first: int, second: int) -> Change:
    """Two rows change places."""

    def change(array: np.ndarray) -> None:
        array[[first, second]] = array[[second, first]]

    return change


def flip(index: int, mask: int) -> Change:
    """Other bits in one float."""

    def change(array: np.ndarray) -> None:
        array.reshape(-1).view(np.uint32)[index] ^= np.uint32(mask)

    return change


def flush(array: np.ndarray) -> None:
    """Every subnormal float32 becomes a zero of its sign."""
    if array.dtype == np.float32:
        small = np.abs(array) < SMALLEST_NORMAL
        array[small] = np.copysign(np.float32(0.0), array[small])


# --- where they sit -------------------------------------------------------------------------------


class Weights(Fault):
    """Tensors changed after the load."""

    def __init__(self, changes: dict[str, Change]) -> None:
        super().__init__()
        self.changes = changes

    def load(self, tensors: dict[str, np.ndarray]) -> None:
        for name, change in self.changes.items():
            change(tensors[name])


class Value(Fault):
    """The value behind one key, changed before it is hashed and used."""

    def __init__(self, key: Key, change: Change) -> None:
        super().__init__()
        self.key, self.change = key, change

    def value(self, key: Key, buffer: np.ndarray) -> None:
        if key == self.key:
            self.change(buffer)


class Rows(Fault):
    """Rows of the KV cache edited between two steps: ``edit`` of ``parts`` before ``at``."""

    def __init__(self, at: int, layer: int, parts: Sequence[str], edit: Change) -> None:
        super().__init__()
        self.at, self.layer, self.parts, self.edit = at, layer, parts, edit

    def before(self, state: Any) -> None:
        if self.pos <= self.at < self.pos + self.rows:
            for part in self.parts:
                self.edit(state.layers[self.layer][part])


class OpCall(Fault):
    """Call ``number`` of op ``name`` in the single step at ``at``; in a forward of M rows instead
    with ``of_rows``."""

    def __init__(
        self, at: int, name: str, number: int, patch: Patch, of_rows: bool = False
    ) -> None:
        super().__init__()
        self.at, self.name, self.number, self.patch = at, name, number, patch
        self.of_rows = of_rows

    def op(self, call: Calls, name: str, run: Run_, args: Args) -> None:
        here = self.rows > 1 if self.of_rows else self.rows == 1 and self.pos == self.at
        if self.nth(name) == self.number and here and name == self.name:
            self.patch(call, run, args)
        else:
            run(*args)


class Shifted(Fault):
    """The whole step at ``at`` computes one position further on or back; the row that it would have
    to write holds zeros, as a new cache does."""

    def __init__(self, at: int, by: int) -> None:
        super().__init__()
        self.at, self.by = at, by

    def place(self) -> int:
        return self.pos + self.by if self.pos == self.at and self.rows == 1 else self.pos

    def before(self, state: Any) -> None:
        if self.place() != self.pos:
            for layer in state.layers:
                for part in ("k", "ks", "v", "vs"):
                    if part in layer:
                        layer[part][self.pos] = 0


class Sampler(Fault):
    """Among equal logits the last one is chosen."""

    def steps(self, steps: list[Step]) -> list[Step]:
        return [replace(step, logits=step.logits.view(_LastOfEqual)) for step in steps]


class _LastOfEqual(np.ndarray):
    def argmax(self, *args: Any, **named: Any) -> Any:
        plain = np.asarray(self)
        return len(plain) - 1 - plain[::-1].argmax()


class Left(Fault):
    """A rollback that leaves parts of the state as the draft left them.

    ``parts``: (layer, part, element or None for all of it). ``length``: keep the length too.
    ``clear``: K of a layer whose newest row is cleared, or None.
    """

    def __init__(
        self,
        parts: Sequence[tuple[int, str, int | None]] = (),
        length: bool = False,
        clear: int | None = None,
    ) -> None:
        super().__init__()
        self.parts, self.length, self.clear, self.mark = parts, length, clear, 0

    def rollback(self, state: Any, length: int, back: Callable[[], None]) -> int | None:
        kept = [state.layers[layer][part].copy() for layer, part, _ in self.parts]
        back()
        for (layer, part, index), array in zip(self.parts, kept, strict=True):
            at = slice(None) if index is None else slice(index, index + 1)
            state.layers[layer][part].reshape(-1)[at] = array.reshape(-1)[at]
        if self.clear is not None:
            layer = state.layers[self.clear]
            layer["k"][max(0, self.mark - 1)] = 0
        return length if self.length else None

    def begin(self, pos: int, rows: int) -> None:
        super().begin(pos, rows)
        if rows > 1:
            self.mark = pos  # a draft begins where the mark was set


class Log(Fault):
    """No fault: notes (position, op, number of the call, whether its output holds a subnormal)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, str, int, bool]] = []

    def op(self, call: Calls, name: str, run: Run_, args: Args) -> None:
        run(*args)
        self.calls.append((self.pos, name, self.nth(name), _subnormal(args[0])))


def _subnormal(array: np.ndarray) -> bool:
    if array.dtype != np.float32:
        return False
    return bool(((array != 0) & (np.abs(array) < SMALLEST_NORMAL)).any())


# --- launches of another build --------------------------------------------------------------------


class Launch(Fault):
    """One launch of ``emu``, in the single step at ``at``, comes from another build."""

    def __init__(self, at: int, kernel: str, number: int, build: Callable[[], EmuModule]) -> None:
        super().__init__()
        self.at, self.kernel, self.number, self.build = at, kernel, number, build

    def other(self, kernel: str) -> bool:
        """Whether this launch is the one."""
        here = self.rows == 1 and self.pos == self.at and kernel == self.kernel
        return self.nth(kernel) == self.number and here


@lru_cache(maxsize=1)
def contracted() -> EmuModule:
    """The kernels as the compiler makes them when it may contract a * b + c."""
    return EmuModule(build_module(kernel_sources(), extra_flags=("-ffp-contract=fast",)))


FLUSHING = """
__device__ __forceinline__ float flushed(float v) {
  return fabsf(v) < 1.1754943508222875e-38f ? copysignf(0.0f, v) : v;
}
__device__ __forceinline__ float flushing_add(float a, float b) {
  return flushed(__fadd_rn(flushed(a), flushed(b)));
}
__device__ __forceinline__ float flushing_sub(float a, float b) {
  return flushed(__fsub_rn(flushed(a), flushed(b)));
}
__device__ __forceinline__ float flushing_mul(float a, float b) {
  return flushed(__fmul_rn(flushed(a), flushed(b)));
}
__device__ __forceinline__ float flushing_div(float a, float b) {
  return flushed(__fdiv_rn(flushed(a), flushed(b)));
}
__device__ __forceinline__ float flushing_fma(float a, float b, float c) {
  return flushed(__fmaf_rn(flushed(a), flushed(b), flushed(c)));
}
#define __fadd_rn flushing_add
#define __fsub_rn flushing_sub
#define __fmul_rn flushing_mul
#define __fdiv_rn flushing_div
#define __fmaf_rn flushing_fma
"""


@lru_cache(maxsize=1)
def flushing() -> EmuModule:
    """The kernels with -ftz=true: every operation reads and gives zeros for subnormals."""
    sources = kernel_sources()
    head = '#include "elementary.cuh"\n'
    assert head in sources["variants.cuh"], "variants.cuh no longer holds the text to patch"
    sources["variants.cuh"] = sources["variants.cuh"].replace(head, head + FLUSHING)
    return EmuModule(build_module(sources))
