"""Kernels at every border of their tiles, in every order of threads, whatever the tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError
from parity.protocol import EngineSettings
from parity.variants import variant_mask
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.many_shapes import MOST_SHARED, ManyShape, compiled_rows, shared_bytes
from parity_cuda.ops import MOST_CHAINS, Ops, chain_memory, chains
from parity_cuda.sources import kernel_sources
from parity_cuda.tuning import MOST_TILE, Tuning, keep_tuning, kept_tuning, key, tuning_file
from tests.engines.cuda.op_runner import OpRunner
from tests.engines.cuda.shape_cases import Named, attention, check_shape, q4, small, unseen
from tests.engines.cuda.test_ops_emu import SCHEDULES, SHARED, runner
from tests.engines.cuda.twin_cases import numba_run
from tests.oracle import check

CASES = list(small())
NAMES = [f"{op} {label}" for op, label, *_ in CASES]
FMA, UNPAIRED, SPLIT_K = (variant_mask([name]) for name in ("fma", "unpaired", "split_k"))
ZERO_POINT = variant_mask(["zero_point"])
MASKS = (
    *(0, SPLIT_K, FMA, UNPAIRED, FMA | UNPAIRED, FMA | UNPAIRED | SPLIT_K),
    *(ZERO_POINT, ZERO_POINT | FMA, ZERO_POINT | UNPAIRED | FMA | SPLIT_K),
)
TUNED = ("q4_matvec", "f32_matvec", "expert_matvec")


class Always(Tuning):
    """One shape of many rows."""

    def __init__(self, shape: ManyShape) -> None:
        super().__init__()
        object.__setattr__(self, "shape", shape)

    def q4(self, rows: int, nb: int, count: int, variants: int) -> ManyShape:
        shape: ManyShape = self.shape  # type: ignore[attr-defined]
        return shape


class AnyTile(Tuning):
    """The same tile for every shape."""

    def __init__(self, tile: int) -> None:
        super().__init__()
        object.__setattr__(self, "always", tile)

    def _chosen(self, name: str) -> int:
        always: int = self.always  # type: ignore[attr-defined]
        return always


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_border_has_the_twins_bytes(case: Named) -> None:
    for schedule in SCHEDULES:
        check_shape(case, runner(schedule).run_for)


@pytest.mark.parametrize("tile", [1, 2, 3, 5, 8, 9, 16, 27, 32])
def test_a_tile_changes_no_bit(tile: int) -> None:
    backend = EmuBackend(EngineSettings(options=SCHEDULES["shuffled 3"]))
    tuned = OpRunner(backend, "tuned")
    tuned.ops = Ops(backend, AnyTile(tile))
    cases = [case for case in CASES if case[0] in TUNED]
    assert len(cases) > 30
    for case in cases:
        check_shape(case, tuned.run_for)


def planted(op: str, file: str, old: str, new: str, schedule: str = "shuffled 3") -> OpRunner:
    """An emulated device with the kernels of one op, one text changed."""
    sources = kernel_sources()
    assert sources[file].count(old) == 1, sources[file].count(old)
    sources[file] = sources[file].replace(old, new)
    needed = {name: text for name, text in sources.items() if name in SHARED or op in name}
    return OpRunner(EmuBackend(EngineSettings(options=SCHEDULES[schedule]), needed), "planted")


FAULTS = {
    "two partials swapped": (
        "q4_matvec", "chain.cuh",
        "__fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(acc, v.x), v.y), v.z), v.w)",
        "__fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(acc, v.x), v.z), v.y), v.w)",
    ),
    "a tail block left out": (
        "q4_matvec", "q4_rows.cuh", "at.window * 32 + lane >= t.nb)",
        "at.window * 32 + lane >= t.nb - (t.nb > 4))",
    ),
    "the last row of a unit left out": (
        "q4_matvec", "q4_rows.cuh", "? to - from - lane / M : 0",
        "? to - from - (to - from > 1) - lane / M : 0",
    ),
    "weights of the unit before": (
        "q4_matvec", "q4_rows.cuh", "here = there, there = turn, last", "last",
    ),
    "inputs of the windows before": (
        "q4_matvec", "q4_rows.cuh", "const float* inputs = t.inputs + number % 2",
        "const float* inputs = t.inputs + (number + 1) % 2",
    ),
    "sums read before they are there": (
        "q4_matvec", "q4_rows.cuh", "      __syncwarp();\n      if (FIXED != 0)",
        "      if (FIXED != 0)",
    ),
    "sums of the next unit": (
        "q4_matvec", "q4_rows.cuh", "kept, 0);\n    __syncwarp();  // all lanes have read",
        "kept, 0);  // all lanes have read",
    ),
    "a column left out": (
        "f32_matvec", "chain.cuh", "for (int j = whole; j < n; ++j) acc = __fadd_rn",
        "for (int j = whole + (n > 64); j < n; ++j) acc = __fadd_rn",
    ),
    "a unit left out": (
        "expert_matvec", "expert_matvec.cu", "if (unit >= units) break;\n      put_terms",
        "if (unit + 1 >= units) break;\n      put_terms",
    ),
    "an expert worked on for one row alone": (
        "expert_matvec", "expert_matvec.cu", "return list[0] == own ? found : 0;",
        "return list[0] == own ? 1 : 0;",
    ),
    "no maximum of the tiles before": (
        "attention_int8", "attention.cuh",
        "if ((int)threadIdx.x % 32 == r) best = before;", "",
    ),
    "a maximum that moves little overlooked": (
        "attention_int8", "attention.cuh", "own > before)", "own > before + 0.5f)",
    ),
    "corrections of the next key": (
        "attention_f32", "attention.cuh", "to.correction[key] = made.c;",
        "to.correction[(key + 1) % TILE] = made.c;",
    ),
    "the key past the last": (
        "attention_f32", "attention.cuh",
        "if (t >= keys) made = {-0.0f,", "if (t >= keys) made = {1.0f,",
    ),
    "values past the last key": (
        "attention_f32", "attention.cuh", "acc = e < left ? next : acc;", "acc = next;",
    ),
    "values past the last key of one row": (
        "attention_int8", "attention_tiles.cuh", "(unsigned)keys.step(), t <= last);",
        "(unsigned)keys.step(), true);",
    ),
    "a maximum of the second row overlooked in l": (
        "attention_f32", "attention.cuh", "    moves |= moves >> 8;\n", "",
    ),
    "a maximum of the fifth row overlooked in l": (
        "attention_f32", "attention.cuh",
        "return moved_among(tile + low) | moved_among(tile + high);",
        "return moved_among(tile + low);",
    ),
    "corrections of sixteen keys left out": (
        "attention_int8", "attention.cuh",
        "if (moves >> piece & 1", "if (moves >> max(piece - 1, 0) & 1",
    ),
    "a maximum of 32 keys left out": (
        "attention_f32", "attention.cuh",
        "counts = lane % 16 < chunks", "counts = lane % 16 + 1 < chunks",
    ),
    "values that come again": (
        "attention_f32", "attention.cuh",
        "ask_values<WORDS>(inbox, job, keys, i + TILE",
        "ask_values<WORDS>(inbox, job, keys, 2 * TILE",
    ),
    "a column of S left out": (
        "delta_step", "delta_step.cu", "const bool there = j < value_width;",
        "const bool there = j < value_width - (value_width > 16);",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_red_a_border(fault: str) -> None:
    op, *text = FAULTS[fault]
    run = planted(op, *text).run_for
    found = []
    for case in (case for case in CASES if case[0] == op):
        try:
            check_shape(case, run)
        except check.OpMismatch as error:
            found.append(str(error).startswith(f"{op}[{case[1]}]: "))
    assert found
    assert all(found)


DEVICE_NAN = 0x7FFFFFFF  # contract 1.10


def one_nan(*given: Any) -> check.Outputs:
    """The CPU's ops with a GPU's arithmetic: one NaN, whatever its payload."""
    outputs = numba_run(*given)
    outputs[0].view(np.uint32)[np.isnan(outputs[0])] = DEVICE_NAN
    return outputs


def partly_nan() -> Named:
    """Infinities of both signs meet in one dimension of the second row."""
    op, label, spec, args = unseen((1, 1, 32), 130, 2)
    values = args[2]
    assert isinstance(values, np.ndarray)
    values[-2, :, 0] = -np.inf
    return op, label, spec, args


def test_a_devices_nan_is_told_from_its_other_bytes() -> None:
    case = partly_nan()
    assert np.argwhere(np.isnan(one_nan(case[0], case[3], case[2])[0])).tolist() == [[1, 0, 0]]
    check_shape(case, one_nan, nan=DEVICE_NAN)
    name = f"{case[0]}\\[{case[1]}\\]"
    with pytest.raises(check.OpMismatch, match=f"^{name}: 1 of 64 in array 0$"):
        check_shape(case, one_nan)


# a NaN with another payload or sign, what no kernel has written, a number, the lowest bit alone
@pytest.mark.parametrize("at", [5, 32, 63], ids=["number", "nan", "last"])
@pytest.mark.parametrize("bits", [0x7FFFFFFE, 0xFFC00000, 0xFFFFFFFF, 0x3F800000, None])
def test_red_a_bit_beside_or_in_a_devices_nan(at: int, bits: int | None) -> None:
    case = partly_nan()

    def changed(*given: Any) -> check.Outputs:
        outputs = one_nan(*given)
        words = outputs[0].reshape(-1).view(np.uint32)
        words[at] = words[at] ^ 1 if bits is None else bits
        return outputs

    name = f"{case[0]}\\[{case[1]}\\]"
    with pytest.raises(check.OpMismatch, match=f"^{name}: 1 of 64 in array 0$"):
        check_shape(case, changed, nan=DEVICE_NAN)


RACES = {
    "q4_matvec": (
        "q4_rows.cuh", "    copy_wait<0>();\n    __syncthreads();\n", "    copy_wait<0>();\n",
    ),
    "f32_matvec": (
        "f32_rows.cuh", "    }\n    __syncthreads();\n  }\n", "    }\n  }\n",
    ),
    "expert_matvec": ("expert_matvec.cu", "  }\n  __syncthreads();\n  if (t", "  }\n  if (t"),
    "attention_int8": (
        "attention.cuh", "barrier_sync(full + group, waiting)",
        "barrier_arrive(full + group, waiting)",
    ),
    "attention_int8, its values": (
        "attention.cuh", "__syncwarp();  // all lanes have read: the next values may come", "",
    ),
    "attention_f32": (
        "attention.cuh", "barrier_sync(full + group, waiting)",
        "barrier_arrive(full + group, waiting)",
    ),
    "delta_step": (
        "delta_step.cu", "  }\n  __syncthreads();\n  if (threadIdx.y == 0 && there) {",
        "  }\n  if (threadIdx.y == 0 && there) {",
    ),
    "router_topk": (
        "topk.cuh", "  __syncwarp();\n  const float total", "  const float total",
    ),
}  # fmt: skip


@pytest.mark.parametrize("race", RACES)
def test_red_a_barrier_left_out_shows_in_some_schedule(race: str) -> None:
    seen, op = set(), race.split(",")[0]
    for schedule in SCHEDULES:
        run = planted(op, *RACES[race], schedule).run_for
        for case in (case for case in CASES if case[0] == op):
            try:
                check_shape(case, run)
            except check.OpMismatch:
                seen.add(schedule)
                break
    assert seen, "no schedule shows the race"


ZERO_FAULTS = {
    "of the window before": (
        "q4_rows.cuh", "many_eights<M>(t, inputs);",
        "many_eights<M>(t, t.inputs + (number + 1) % 2 * t.stock * 32 * q4_pitch<M>());",
    ),
    "of the first row for all": ("q4_sums.cuh", "(s[r][m], eights[m])", "(s[r][m], eights[0])"),
    "of three blocks in four": (
        "q4_rows.cuh", "t.eights + place * M,", "t.eights + place / 4 * 4 * M,",
    ),
    "not seen by every thread": (
        "q4_rows.cuh", "inputs);\n      __syncthreads();", "inputs);",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", ZERO_FAULTS)
def test_red_what_zero_point_takes_off(fault: str) -> None:
    """35 rows of 65 blocks, in windows; a race shows where thread 0 is last."""
    mask = ZERO_POINT | FMA | SPLIT_K  # of the fast tier
    case = next(case for case in CASES if case[0] == "q4_matvec" and case[3][2].shape == (2, 2080))
    file, old, new = ZERO_FAULTS[fault]
    run = planted("q4_matvec", file, old, new, "descending").run_for
    with pytest.raises(check.OpMismatch) as found:
        check_shape(case, lambda op, args, specs: run(op, args, specs, mask), mask)
    some = {"of the first row for all": 35, "not seen by every thread": 24}
    differ = some.get(fault, 70)
    assert str(found.value) == f"q4_matvec[35 x 65 blocks, 2 rows]: {differ} of 70 in array 0"


OTHER_FAULTS = {
    "nothing taken off": ("q4_sums.cuh", "variants & ZERO_POINT ? __fsub_rn", "false ? __fsub_rn"),
    "the last block left out": ("q4_rows.cuh", "if (b + i >= width)", "if (b + i + 1 >= width)"),
    "scales of the first row for all": (
        "q4_rows.cuh", "q4_scale(d[r * t.nb])", "q4_scale(d[0 * t.nb])",
    ),
    "nibbles of the other half": (
        "q4_sums.cuh", "{word >> i / 4 * 4 &", "{word >> (7 - i) / 4 * 4 &",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mask", [ZERO_POINT, ZERO_POINT | FMA])
@pytest.mark.parametrize("fault", OTHER_FAULTS)
def test_red_a_mask_of_no_tier(fault: str, mask: int) -> None:
    """Many rows share a short loop then. A unit's first row has the right scales."""
    file, old, new = OTHER_FAULTS[fault]
    run = planted("q4_matvec", file, old, new).run_for
    case = q4(35, 65, 2)
    check_shape(case, lambda *given: runner("shuffled 3").run_for(*given, mask), mask)
    with pytest.raises(check.OpMismatch) as found:
        check_shape(case, lambda *given: run(*given, mask), mask)
    differ = 48 if fault.startswith("scales") else 70  # eleven units
    assert str(found.value) == f"q4_matvec[35 x 65 blocks, 2 rows]: {differ} of 70 in array 0"


def test_a_tuning_is_kept_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    assert kept_tuning("NVIDIA H200") == Tuning()
    assert kept_tuning("NVIDIA H200", 7) == Tuning(processors=7)
    name = key("warp", 4096, 64, 2)
    path = keep_tuning("NVIDIA H200", {name: 7})
    assert json.loads(path.read_text())["tiles"] == {name: 7}
    found = kept_tuning("NVIDIA H200")
    assert found.q4(4096, 64, 2, 0).tile == 7
    assert found.q4(4096, 64, 4, 0) == Tuning().q4(4096, 64, 4, 0)
    assert kept_tuning("NVIDIA H200", 1) == Tuning({name: 7}, 1)


def test_few_processors_get_few_blocks_of_many_rows() -> None:
    """The emulator is one: a block is paid for thread by thread there."""
    one, many = Tuning(processors=1), Tuning()
    for found in (one.f32(384, 160, 1), one.expert(96, 5)):
        assert found.tile == MOST_TILE
    assert one.q4(384, 5, 2, 0).blocks == 1
    assert many.q4(384, 5, 2, 0).blocks > 90


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"tiles": 3}', '{"tiles": {"q4 1x1x1": 0}}', '{"tiles": {"q4 1x1x1": true}}',
     '{"tiles": {"q4 1x1x1": 257}}', '{"tiles": {"q4 1x1x1": "8"}}'],
)  # fmt: skip
def test_red_a_file_that_is_no_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    path = tuning_file("some device")
    path.write_text(text)
    with pytest.raises(InputError, match=r"some-device\.json: not a file of tiles") as raised:
        kept_tuning("some device")
    assert raised.value.next_step.endswith("just tune")


def test_shapes_fit_what_the_kernels_can_take() -> None:
    """A lane runs one chain of a unit of four rows; and one multiprocessor's shared memory."""
    for rows in (1, 3, 100, 512, 2048, 5120, 17408, 248320):
        for nb in (1, 3, 24, 64, 160, 544, 1000):
            for count in (1, 2, 3, 8, 33):
                for mask in (*MASKS, ZERO_POINT | FMA | SPLIT_K):
                    for each in (0, 1, 5, 256):
                        name = key("warp", rows, nb, compiled_rows(count))
                        shape = Tuning({name: each}).q4(rows, nb, count, mask)
                        assert shape.m in (2, 4, 8)
                        assert shape.m >= min(count, 8)
                        assert shape.threads in range(32, 385, 32)
                        sizes = (shape.m, mask, shape.threads // 32, shape.tile, shape.stock)
                        assert shape.shared == shared_bytes(*sizes) <= MOST_SHARED
                        assert min(shape.blocks, shape.tile, shape.stock) >= 1


def test_a_block_of_chains_fits_one_multiprocessor() -> None:
    """Rows of a block and parts of a head, whatever the device and the storage."""
    for rows in range(1, 34):
        for heads, parts in ((1, 1), (32, 4), (24, 8), (96, 8)):
            for processors in (1, 3, 132, 1000):
                deal, every = chains(rows, heads, parts, processors)
                assert 1 <= deal * every <= MOST_CHAINS
                assert deal * -(-rows // deal) >= rows
                for width in (1, 4):
                    assert chain_memory(deal, every, width) <= MOST_SHARED - 1024


@pytest.mark.parametrize("int8", [True, False])
def test_the_last_block_of_dimensions_has_one_chain(int8: bool) -> None:
    """Of three parts two share a block: its makers are where the launch has put them."""
    assert chains(1, 2, 3, 1) == (1, 2)
    check_shape(attention((2, 1, 96), 400, 1, int8), runner("shuffled 3").run_for)


@pytest.mark.parametrize("warps", [1, 3, 8])
@pytest.mark.parametrize("mask", MASKS)
def test_rows_of_a_warp_change_no_bit(warps: int, mask: int) -> None:
    """M of 1 to 9 and 33, odd sizes, one block or several, some of which have no rows; chains of
    some rows kept at once, or of all; inputs of one window brought at once, or of two."""
    backend = EmuBackend(EngineSettings(options=SCHEDULES["shuffled 4"]))
    for rows, nb, count, blocks, tile, stock in (
        (9, 7, 2, 2, 9, 1), (9, 33, 3, 1, 4, 1), (13, 12, 4, 2, 5, 1), (1, 3, 5, 2, 2, 1),
        (7, 65, 6, 3, 7, 2), (6, 9, 7, 2, 3, 2), (23, 40, 8, 1, 3, 1), (3, 2, 9, 2, 3, 1),
        (2, 2, 33, 2, 1, 1),
    ):  # fmt: skip
        for far in (False, True):
            case = q4(rows, nb, count, far=far)
            m = compiled_rows(count, mask)
            shared = shared_bytes(m, mask, warps, tile, stock)
            fixed = OpRunner(backend, "fixed")
            shape = ManyShape(blocks, 32 * warps, shared, m, tile, stock)
            fixed.ops = Ops(backend, Always(shape))
            check_shape(case, lambda *a, run=fixed.run_for: run(*a, mask), mask)
