"""Kernels at every border of their tiles, in every order of threads, whatever the tuning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parity.errors import InputError
from parity.protocol import EngineSettings
from parity.variants import variant_mask
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.many_shapes import MOST_SHARED, ManyShape, Work, compiled_rows
from parity_cuda.ops import MOST_CHAINS, Ops, chain_memory, chains
from parity_cuda.sources import kernel_sources
from parity_cuda.tuning import MOST_TILE, Tuning, keep_tuning, kept_tuning, key, tuning_file
from tests.engines.cuda.op_runner import OpRunner
from tests.engines.cuda.shape_cases import Named, check_shape, q4, small
from tests.engines.cuda.test_ops_emu import SCHEDULES, SHARED, runner
from tests.oracle import check

CASES = list(small())
NAMES = [f"{op} {label}" for op, label, *_ in CASES]
FMA, UNPAIRED, SPLIT_K = (variant_mask([name]) for name in ("fma", "unpaired", "split_k"))
MASKS = (0, SPLIT_K, FMA, UNPAIRED, FMA | UNPAIRED, FMA | UNPAIRED | SPLIT_K)
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
        "q4_matvec", "q4_rows.cuh", "width = min(t.window, t.nb - from);",
        "width = min(t.window, (t.nb - from) / 4 * 4 + (t.nb < 4 ? t.nb : 0));",
    ),
    "the last row of a tile left out": (
        "q4_matvec", "q4_rows.cuh", "row < at.height && chains.at == 0",
        "row < max(1, at.height - 1) && chains.at == 0",
    ),
    "a window's weights too late": (
        "q4_matvec", "q4_rows.cuh", "const int part = at.number % 2 * R * t.groups, buffer",
        "const int part = (at.number + 1) % 2 * R * t.groups, buffer",
    ),
    "a column left out": (
        "f32_matvec", "chain.cuh", "for (int j = fours; j < n; ++j) acc = __fadd_rn",
        "for (int j = fours + (n > 64); j < n; ++j) acc = __fadd_rn",
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
        "made = {t < keys ? p : -0.0f, 1.0f, t", "made = {t < keys ? p : 1.0f, 1.0f, t",
    ),
    "values past the last key": (
        "attention_f32", "attention.cuh", "acc = e < left ? next : acc;", "acc = next;",
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
    "attention_f32": (
        "attention.cuh", "__syncwarp();  // all lanes have read: the next values may come", "",
    ),
    "delta_step": (
        "delta_step.cu", "  }\n  __syncthreads();\n  if (threadIdx.y == 0 && there) {",
        "  }\n  if (threadIdx.y == 0 && there) {",
    ),
    "router_topk": (
        "topk.cuh", "  __syncwarp();\n  const float total", "  const float total",
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", RACES)
def test_red_a_barrier_left_out_shows_in_some_schedule(op: str) -> None:
    seen = set()
    for schedule in SCHEDULES:
        run = planted(op, *RACES[op], schedule).run_for
        for case in (case for case in CASES if case[0] == op):
            try:
                check_shape(case, run)
            except check.OpMismatch:
                seen.add(schedule)
                break
    assert seen, "no schedule shows the race"


def test_a_tuning_is_kept_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    assert kept_tuning("NVIDIA H200") == Tuning()
    assert kept_tuning("NVIDIA H200", 7) == Tuning(processors=7)
    name = key("q4", 512, 64, 2)
    path = keep_tuning("NVIDIA H200", {name: 7})
    assert json.loads(path.read_text())["tiles"] == {name: 7}
    found = kept_tuning("NVIDIA H200")
    assert found.q4(512, 64, 2, 0).tile == 7
    assert found.q4(512, 64, 4, 0) == Tuning().q4(512, 64, 4, 0)
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
    """A thread runs the chains of four rows, one partial sum of them with split_k; and one
    multiprocessor's shared memory."""
    for rows in (1, 3, 100, 512, 2048, 5120, 17408, 248320):
        for nb in (1, 3, 24, 64, 160, 544, 1000):
            for count in (1, 2, 3, 8, 33):
                for mask in (0, SPLIT_K, FMA):
                    shape = Tuning().q4(rows, nb, count, mask)
                    work = Work(rows, nb, compiled_rows(count), mask)
                    assert 1 <= shape.tile <= work.most_tile(shape.threads)
                    shared = work.shared(shape.tile, shape.window, shape.buffers)
                    assert shape.shared == shared <= MOST_SHARED - 1024
                    assert shape.blocks >= 1


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


@pytest.mark.parametrize("threads", [32, 96, 256])
@pytest.mark.parametrize("mask", MASKS)
def test_a_window_and_the_threads_change_no_bit(threads: int, mask: int) -> None:
    """M of 1 to 9 and 33, odd sizes, one block or several, one buffer of sums or two."""
    backend = EmuBackend(EngineSettings(options=SCHEDULES["shuffled 4"]))
    for rows, nb, count, tile, window, buffers in (
        (9, 7, 2, 9, 3, 1), (9, 7, 3, 4, 2, 2), (13, 12, 4, 5, 7, 1), (5, 3, 5, 2, 1, 2),
        (7, 10, 6, 7, 10, 1), (6, 9, 7, 3, 4, 2), (11, 13, 8, 4, 5, 1), (3, 2, 9, 3, 1, 2),
        (2, 2, 33, 1, 2, 1),
    ):  # fmt: skip
        for far in (False, True):
            case = q4(rows, nb, count, far=far)
            work = Work(rows, nb, compiled_rows(count), mask)
            most = min(tile, work.most_tile(threads))
            if most == 0:
                continue
            shared = work.shared(most, window, buffers)
            fixed = OpRunner(backend, "fixed")
            fixed.ops = Ops(backend, Always(ManyShape(2, threads, shared, most, window, buffers)))
            check_shape(case, lambda *a, run=fixed.run_for: run(*a, mask), mask)
