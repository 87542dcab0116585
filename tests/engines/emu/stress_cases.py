"""Launches for every kernel there is: small odd shapes, one to three rows, every mask it reads.

An op's inputs are the oracle's and the twins' cases, one of each shape. Kernels that are no op's
run through the code that launches them in the product. What a case gives is all that its kernels
wrote, as arrays on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np

from parity.elementary.tally import EVERY_FLOAT, Tally
from parity.protocol import ELEMENTARY
from parity_cuda import functions, tally
from parity_cuda.backend import Backend
from parity_cuda.digests import TILE, WARP_BYTES, digest_once
from parity_cuda.own_functions import own_values
from parity_cuda.selftest import run_selftest
from parity_cuda.state import append_rows
from parity_cuda.tuning import Tuning
from tests.engines.cuda import twin_cases
from tests.engines.cuda.op_runner import OpRunner
from tests.engines.cuda.shape_cases import attention
from tests.engines.emu import delta_cases, heads_cases, moe_cases, project_cases
from tests.engines.kernel_texts import Kernel, all_sources, kernels
from tests.oracle import check, inputs
from tests.oracle.values import generator

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = tuple[Array, ...]

LARGEST = 3_000  # elements of all inputs of one case: a sanitizer runs it in milliseconds
MANY_KEYS = 520  # five tiles of an attention: its makers come round
MANY_ROWS = 33  # one more than a launch of q4_matvec_rows and f32_matvec_rows takes
ROWS = (1, 2, 3)
WITHOUT_ROWS = frozenset({"conv_step", "decay_rates", "delta_step"})  # one row a launch
OPS = (*inputs.OPS, *twin_cases.TABLES)
KERNELS: dict[str, Kernel] = kernels(all_sources())
MAPS = (functions.DeviceReplica, functions.DeviceExpViaDouble, functions.DeviceLibrary,
        functions.DeviceIntrinsics)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Something to run on a backend whose memory starts as ``garbage`` bytes. ``group``: the op, or
    what the kernels are for; ``rows``: M, 0 where there is none."""

    group: str
    label: str
    rows: int
    run: Callable[[Backend, int], Arrays]

    def __str__(self) -> str:
        """``rmsnorm [random, 13 wide]``."""
        return f"{self.group} [{self.label}]"


@cache
def all_cases() -> dict[str, list[Case]]:
    """Every case by its group, the same in every process."""
    groups = {op: list(_op_cases(op)) for op in OPS}
    others = (_maps, _own_maps, _exp64, _tallies, _digests, _appends, _moves, _selftests, _heads,
              _deltas, _moe, _projects)  # fmt: skip
    for case in (case for make in others for case in make()):
        groups.setdefault(case.group, []).append(case)
    return groups


# --- ops ------------------------------------------------------------------------------------------

Inputs = tuple[str, tuple[check.Spec, ...], check.Args]


def _op_cases(op: str) -> Iterator[Case]:
    file = KERNELS[op].file  # with a kernel of its own for some variants
    masks = {mask for kernel in KERNELS.values() if kernel.file == file for mask in kernel.masks()}
    for mask in sorted(masks):
        for label, specs, args in _shapes(op, exact=mask == 0):
            rows = 0 if op in WITHOUT_ROWS else specs[0][0][0]
            yield Case(op, f"{label} | {mask:#x}", rows, _op_run(op, specs, args, mask))


def _op_run(op: str, specs: tuple[check.Spec, ...], args: check.Args, mask: int) -> Any:
    def run(backend: Backend, garbage: int) -> Arrays:
        given = tuple(each.copy() if isinstance(each, np.ndarray) else each for each in args)
        outputs = OpRunner(backend, "stress", garbage).run_for(op, given, specs, mask)
        return (*outputs, *(each for each in given if isinstance(each, np.ndarray)))

    return run


def _table(op: str, exact: bool) -> Iterator[Inputs]:
    if op in twin_cases.TABLES:
        yield from twin_cases.cases_of(op)
        return
    # With the exact tier the experts' probabilities are NaN: nothing may read them.
    for label, args in (inputs.cases if exact else inputs.variant_cases)(op):
        yield label, check.output_specs(op, args), args


@cache
def _shapes(op: str, exact: bool) -> list[Inputs]:
    """One case of each shape that is small enough, and what is missing of one to three rows."""
    found = {tuple(map(np.shape, args)): (label, specs, args)
             for label, specs, args in _table(op, exact) if _size(args) <= LARGEST}  # fmt: skip
    chosen = list(found.values())
    counts = {specs[0][0][0] for _, specs, _ in chosen}
    for rows in ROWS if op not in WITHOUT_ROWS else ():
        if rows not in counts:
            chosen.append(_cut(next(each for each in chosen if each[1][0][0][0] > rows), rows))
    if op in ("q4_matvec", "f32_matvec"):
        label, _, (*weights, x) = max(chosen, key=lambda each: each[1][0][0][1])
        args = (*weights, np.resize(x, (MANY_ROWS, x.shape[1])))
        chosen.append((f"{label}, {MANY_ROWS} times", check.output_specs(op, args), args))
    if op in ("attention_int8", "attention_f32"):
        chosen.append(attention((1, 1, 3), MANY_KEYS, 2, op == "attention_int8")[1:])
    return chosen


def _size(args: check.Args) -> int:
    return sum(np.size(each) for each in args)


def _cut(case: Inputs, rows: int) -> Inputs:
    """The first rows alone: of the outputs, and of each input that has as many as they have."""
    label, specs, args = case
    have = specs[0][0][0]
    cut = tuple(a[:rows].copy() if np.ndim(a) > 1 and len(a) == have else a for a in args)
    kept = tuple(((rows, *shape[1:]), dtype) for shape, dtype in specs)
    return f"{label}, {rows} rows of {have}", kept, cut


# --- functions over arrays ------------------------------------------------------------------------

COUNTS = (1, 2, 3, 255, 300)  # around a block of 256


def _floats(label: str, count: int) -> Array:
    """Any bit patterns but NaNs, and values that a function does more with than saturate."""
    rng = generator(label)
    bits = rng.integers(0, EVERY_FLOAT, count, dtype=np.uint32).view(np.float32)
    tame = (8 * rng.standard_normal(count)).astype(np.float32)
    return np.where(np.isnan(bits) | (rng.random(count) < 0.7), tame, bits)


def _maps() -> Iterator[Case]:
    for implementation in MAPS:
        for name in implementation.functions:
            group = f"{implementation.kernels}_{name}"
            for count in COUNTS:
                x = _floats(f"{group} {count}", count)
                yield Case(group, f"{count} values", 0, _map_run(implementation, name, x))


def _map_run(implementation: Any, name: str, x: Array) -> Any:
    return lambda backend, _: (implementation(backend).evaluate(name, x),)


def _own_maps() -> Iterator[Case]:
    for name in sorted(set(ELEMENTARY) - {"logf"}):  # logf: map_logf
        for mask in KERNELS[f"map_own_{name}"].masks():
            for count in COUNTS:
                x = _floats(f"own {name} {count}", count)
                label = f"{count} values | {mask:#x}"
                yield Case(f"map_own_{name}", label, 0, _own_run(name, x, mask))


def _own_run(name: str, x: Array, mask: int) -> Any:
    return lambda backend, _: (own_values(backend, name, x, mask),)


def _exp64() -> Iterator[Case]:
    for count in COUNTS:
        x = _floats(f"exp64 {count}", count).astype(np.float64)
        yield Case("map_exp64", f"{count} values", 0, lambda backend, _, x=x: (
            functions.DeviceExpViaDouble(backend).exp64(x),))  # fmt: skip


# --- tallies --------------------------------------------------------------------------------------

# First bit pattern and count: every class of value, blocks of 256, a launch without a tail.
RANGES = ((0, 1), (0x7F7FFF00, 515), (0x007FFF80, 256), (0xFFFFFF00, 256), (0x3F000000, 900))
# In blocks of 32, too: TSan sees a race between two blocks of up to 111 threads (emu_block.h).
BLOCKS = (tally.BLOCK, 32)


class Planted:
    """A function whose results are its input's bits, changed in some places by ``flip``."""

    def __init__(self, backend: Backend, flip: int) -> None:
        self.backend, self.flip = backend, flip

    def evaluate_into(self, function: str, out: Any, x: Any) -> None:
        """Bits of x with some bits turned over where a hash of them says so."""
        bits = self.backend.download(x).view(np.uint32)
        mixed = bits * np.uint32(0x9E3779B1)
        turned = np.where(mixed >> 30 == 0, bits ^ (mixed & np.uint32(self.flip)), bits)
        self.backend.write(out, turned.view(np.float32))


def _tallies() -> Iterator[Case]:
    for start, count in RANGES:
        for bounded, block in product((False, True), BLOCKS):
            name = f"{count} pairs from {start:#x} by {block}{', bounded' if bounded else ''}"
            yield Case("tally", name, 0, _tally_run(start, count, bounded, block))


def _tally_run(start: int, count: int, bounded: bool, block: int) -> Any:
    def run(backend: Backend, _: int) -> Arrays:
        sides = Planted(backend, 0), Planted(backend, 0xFF80_000F)
        pairs = tally.DevicePairs("expf", *sides, bounded)  # type: ignore[arg-type]
        with patch.object(tally, "BLOCK", block):
            pairs.add_range(start, count)
        total = Tally()
        pairs.move_to(total)
        return (total.words,)

    return run


# --- the engine's own -----------------------------------------------------------------------------


def _digests() -> Iterator[Case]:
    for lengths in ((1,), (8, 4, 260), tuple(range(1, 36)), (TILE, 3 * TILE + 5, WARP_BYTES + 1)):
        label = f"{len(lengths)} buffers up to {max(lengths)} bytes"
        yield Case("digest", label, 0, _digest_run(lengths))


def _digest_run(lengths: tuple[int, ...]) -> Any:
    def run(backend: Backend, _: int) -> Arrays:
        rng = generator(f"digest {lengths}")
        held = [backend.upload(rng.integers(0, 256, length, np.uint8)) for length in lengths]
        floats = [length % 4 == 0 for length in lengths]
        found = digest_once(backend, held, floats, 0xCBF29CE484222325)
        found["first"][found["nonfinite"] == 0] = 0
        return tuple(found[name] for name in ("hash", "nonfinite", "first"))

    return run


def _appends() -> Iterator[Case]:
    for rows, pos in ((1, 0), (1, 3), (2, 4), (3, 2)):
        yield Case("append_rows", f"{rows} rows at {pos}", rows, _append_run(rows, pos))


def _append_run(rows: int, pos: int) -> Any:
    def run(backend: Backend, _: int) -> Arrays:
        rng = generator(f"append {rows} {pos}")
        cache, given = (
            backend.upload(rng.standard_normal((count, 2, 33)).astype(np.float32))
            for count in (6, rows)
        )
        append_rows(backend, cache, given, backend.upload(np.array([pos], np.int32)))
        return (backend.download(cache), backend.download(given))

    return run


def _moves() -> Iterator[Case]:
    for dtype in (np.float32, np.int32, np.int8):
        for index in (0, 4):
            label = f"element {index} of five {np.dtype(dtype)}"
            yield Case("move_element", label, 0, _move_run(dtype, index))


def _move_run(dtype: type, index: int) -> Any:
    def run(backend: Backend, _: int) -> Arrays:
        buffer = backend.upload(np.array([3, -1, 0, 7, -5], dtype))
        kind = np.int32(buffer.dtype.itemsize), np.int32(dtype is np.float32)
        backend.launch("move_element", (1,), 1, [buffer, np.int64(index), *kind])
        return (backend.download(buffer),)

    return run


def _selftests() -> Iterator[Case]:
    def run(backend: Backend, _: int) -> Arrays:
        return (np.array(run_selftest(backend, 0), np.uint32),)

    yield Case("selftest", "as at the start", 0, run)


# --- fused launches -------------------------------------------------------------------------------


def _heads() -> Iterator[Case]:
    for kernel in heads_cases.FORMS:
        for label, fused, _ in heads_cases.cases(kernel, KERNELS[kernel].masks()):
            yield Case(kernel, label, 0, fused)


def _deltas() -> Iterator[Case]:
    for mask, shape in product(delta_cases.masks(), delta_cases.SMALL):
        label = f"{shape} | {mask:#x}"
        yield Case("fused_delta", label, shape.rows, _delta_run(shape, mask))


def _delta_run(shape: delta_cases.Shape, mask: int) -> Any:
    def run(backend: Backend, garbage: int) -> Arrays:
        given = delta_cases.data(shape)
        return tuple(delta_cases.by_launches(backend, shape, given, mask, garbage).values())

    return run


# One that is shared, one whose experts are made anew, one of one rank.
MOE = (
    moe_cases.Shape(3, 2, 32, 64, shared=True),
    moe_cases.Shape(5, 3, 32, 32, "near"),
    moe_cases.Shape(4, 1, 64, 32),
)


def _moe() -> Iterator[Case]:
    masks = [KERNELS[f"fused_{launch}"].masks() for launch in ("route", "experts", "down")]
    for at in range(max(map(len, masks))):
        each = moe_cases.Masks(*(few[at % len(few)] for few in masks))
        shape = replace(MOE[at % len(MOE)], guess=not each.route & moe_cases.ROUTER_TREE)
        yield Case("fused_experts", f"{shape} | {each}", 0, _moe_run(shape, each))


def _moe_run(shape: moe_cases.Shape, masks: moe_cases.Masks) -> Any:
    def run(backend: Backend, garbage: int) -> Arrays:
        found, _ = moe_cases.by_launches(backend, shape, moe_cases.data(shape), masks, garbage)
        return tuple(found.values())

    return run


PROJECTED = tuple(shape for shape in project_cases.SHAPES if shape.cols < 700)
FEW = project_cases.Shape(96, (5, 5), end="act")  # of all that a launch does, a little


def _projects() -> Iterator[Case]:
    for at, mask in enumerate(KERNELS["fused_project"].masks()):
        shape = PROJECTED[at % len(PROJECTED)]
        # fused_project_few: Q4_0 alone on two processors
        some = ((shape, 2 if shape.f32 else 1), (FEW, 2))
        for shape, processors in some if mask else product(PROJECTED, (1, 2)):
            name = f"{shape} | {mask:#x} | {processors}"
            run = _project_run(shape, mask, Tuning(processors=processors))
            yield Case("fused_project", name, 0, run)


def _project_run(shape: project_cases.Shape, mask: int, tuning: Tuning) -> Any:
    def run(backend: Backend, _: int) -> Arrays:
        given = project_cases.data(shape)
        return tuple(project_cases.by_launch(backend, shape, given, mask, tuning).values())

    return run
