"""Kernels at every border of their tiles, in every order of threads, whatever the tuning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parity.errors import InputError
from parity.protocol import EngineSettings
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.ops import Ops
from parity_cuda.sources import kernel_sources
from parity_cuda.tuning import MOST_TILE, Tuning, keep_tuning, kept_tuning, key, tuning_file
from tests.engines.cuda.op_runner import OpRunner
from tests.engines.cuda.shape_cases import Named, check_shape, q4, small
from tests.engines.cuda.test_ops_emu import SCHEDULES, SHARED, runner
from tests.oracle import check

CASES = list(small())
NAMES = [f"{op} {label}" for op, label, *_ in CASES]
TUNED = ("q4_matvec", "f32_matvec", "expert_matvec")


class AnyTile(Tuning):
    """The same tile for every shape."""

    def __init__(self, tile: int) -> None:
        super().__init__()
        object.__setattr__(self, "always", tile)

    def _tile(self, name: str, rows: int, default: int) -> int:
        always: int = self.always  # type: ignore[attr-defined]
        return min(always, rows)


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
        "q4_matvec", "q4_rows.cuh", "if (group * R + r >= at.height) continue;",
        "if (group * R + r + (R > 1) >= at.height + (at.height % R == 0)) continue;",
    ),
    "a window's inputs too late": (
        "q4_matvec", "q4_rows.cuh", "(t.windows > 1 ? at.number % 2 : 0)",
        "(t.windows > 1 ? (at.number + 1) % 2 : 0)",
    ),
    "a column left out": (
        "f32_matvec", "chain.cuh", "for (int j = whole; j < n; ++j) acc = product_sum",
        "for (int j = whole + (n > 64); j < n; ++j) acc = product_sum",
    ),
    "a unit left out": (
        "expert_matvec", "expert_matvec.cu", "if (unit >= units) break;\n      const int dot",
        "if (unit + 1 >= units) break;\n      const int dot",
    ),
    "no maximum of the tiles before": (
        "attention_int8", "attention.cuh", "if (best == best) best = all;", "",
    ),
    "corrections of the next key": (
        "attention_f32", "attention.cuh", "tile.correction[threadIdx.x] = c;",
        "tile.correction[(threadIdx.x + 1) % TILE] = c;",
    ),
    "the key past the last": (
        "attention_f32", "attention.cuh", "float p = -0.0f, c = 1.0f;", "float p = 1.0f, c = 1.0f;",
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
    "expert_matvec": ("expert_matvec.cu", "  }\n  __syncthreads();\n  if (", "  }\n  if ("),
    "attention_int8": (
        "attention.cuh", "values);\n    }\n    __syncthreads();\n  }\n", "values);\n    }\n  }\n",
    ),
    "delta_step": (
        "delta_step.cu", "  }\n  __syncthreads();\n  if (threadIdx.y == 0 && there) {",
        "  }\n  if (threadIdx.y == 0 && there) {",
    ),
    "router_topk": (
        "router_topk.cu", "  __syncwarp();\n  const float total", "  const float total",
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
    name = key("q4", 512, 64, 1)
    path = keep_tuning("NVIDIA H200", {name: 7})
    assert json.loads(path.read_text())["tiles"] == {name: 7}
    found = kept_tuning("NVIDIA H200")
    assert found.q4(512, 64, 1, 0).tile == 7
    assert found.q4(512, 64, 2, 0) == Tuning().q4(512, 64, 2, 0)
    assert kept_tuning("NVIDIA H200", 1) == Tuning({name: 7}, 1)


def test_few_processors_get_few_blocks_of_many_rows() -> None:
    """The emulator is one: a block is paid for thread by thread there."""
    one, many = Tuning(processors=1), Tuning()
    for found in (one.q4(384, 5, 1, 0), one.f32(384, 160, 1), one.expert(96, 5)):
        assert found.tile == MOST_TILE
    assert one.q4(384, 5, 1, 0).blocks == 3
    assert many.q4(384, 5, 1, 0).blocks == 128


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"tiles": 3}', '{"tiles": {"q4 1x1x1": 0}}', '{"tiles": {"q4 1x1x1": true}}',
     '{"tiles": {"q4 1x1x1": 33}}', '{"tiles": {"q4 1x1x1": "8"}}'],
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


def test_tiles_fit_what_the_kernels_can_take() -> None:
    """A chain is one thread's: 256 threads for tile x M chains; and one block's shared memory."""
    for rows in (1, 3, 100, 512, 2048, 5120, 17408, 248320):
        for nb in (1, 3, 24, 64, 160, 544, 1000):
            for count in (1, 2, 3, 8, 33):
                shape = Tuning().q4(rows, nb, count, 4)
                assert 1 <= shape.tile <= MOST_TILE
                assert shape.shared <= 227 * 1024
                assert shape.blocks >= 1


def test_red_a_tile_that_the_memory_is_not_made_for() -> None:
    """The kernel must be told the tile that its memory was sized for: ASan sees another one."""
    shape = Tuning().q4(64, 8, 1, 0)
    assert shape.shared == 4 * (8 * 36 + 2 * shape.tile * 36)
    assert check_shape(q4(64, 8, 1), runner("ascending").run_for) is None
