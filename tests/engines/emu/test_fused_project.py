"""fused_project has the bytes of the ops that it stands for, in every order of threads, whatever
the share of a block."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from parity.errors import ParityBug
from parity.protocol import EngineSettings
from parity_cuda import row_shapes
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.row_shapes import MOST_SHARED, q4_row_shape
from parity_cuda.sources import kernel_sources
from parity_cuda.tuning import Tuning
from tests.engines.cuda.test_ops_emu import SCHEDULES, SHARED, runner
from tests.engines.emu import project_cases
from tests.engines.emu.project_cases import (
    SHAPES,
    SPECIAL,
    Shape,
    by_launch,
    by_ops,
    data,
    differing,
)

MASKS = list(project_cases.masks())
Change = tuple[str, str, str]


def backend(schedule: str) -> EmuBackend:
    """The one that other tests have built as well."""
    device = runner(schedule).backend
    assert isinstance(device, EmuBackend)
    return device


def planted(schedule: str, *changes: Change) -> EmuBackend:
    """The kernel of the exact tier alone, with texts changed."""
    sources = kernel_sources()
    for file, old, new in changes:
        assert sources[file].count(old) == 1, (file, old, sources[file].count(old))
        sources[file] = sources[file].replace(old, new)
    needed = {name: text for name, text in sources.items() if name in {*SHARED, "fused_project.cu"}}
    return EmuBackend(EngineSettings(options=SCHEDULES[schedule]), needed)


def compared(
    device: EmuBackend, shape: Shape, mask: int, special: str = "", tuning: Tuning | None = None
) -> list[str]:
    given = data(shape, special)
    ref = by_ops(backend("ascending"), shape, given, mask)
    return differing(ref, by_launch(device, shape, given, mask, tuning))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_launch_has_the_bytes_of_the_ops(shape: Shape, schedule: str) -> None:
    for mask in MASKS if shape.cols < 1000 else MASKS[:6]:
        assert compared(backend(schedule), shape, mask) == [], hex(mask)


@pytest.mark.parametrize("special", SPECIAL)
def test_values_that_are_not_finite_or_far_apart(special: str) -> None:
    """With the norm they meet the norm, without it the products."""
    for cols, norm in ((96, False), (96, True), (1056, False)):
        for mask in MASKS:
            shape = Shape(cols, (20, 20), norm=norm, end="act")
            assert compared(backend("shuffled 3"), shape, mask, special) == [], hex(mask)


@pytest.mark.parametrize("processors", [1, 2, 3, 7, 132])
def test_a_share_changes_no_bit(processors: int) -> None:
    for shape in SHAPES:
        for mask in (0, MASKS[-1]):
            tuning = Tuning(processors=processors)
            assert compared(backend("shuffled 4"), shape, mask, tuning=tuning) == []


@pytest.mark.parametrize("tile", [1, 2, 3, 7, 70])
def test_a_tile_changes_no_bit(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of sums, one or two at once, and f32 tiles; sides of one warp, of two, of three."""
    monkeypatch.setattr(row_shapes, "MOST_TILE", 2 * tile)
    monkeypatch.setattr(row_shapes, "ALONE_TILE", 2 * tile)
    monkeypatch.setattr(row_shapes, "F32_TILE", min(tile, 32))
    seen = set()
    monkeypatch.setattr(row_shapes, "FEW_MOST", 0)
    for across, warps in ((1, 3), (2, 4), (3, 3)):
        monkeypatch.setattr(row_shapes, "_across", lambda *_, across=across: across)
        monkeypatch.setattr(row_shapes, "WARPS", warps)
        for shape in SHAPES:
            tuning = Tuning(processors=2)
            assert compared(backend("descending"), shape, 0, tuning=tuning) == []
            if shape.q4:
                found = _shape_of(shape, tuning)
                sides = found.threads // 32 // found.across
                seen.add((sides, found.across, found.kept // found.tile))
    assert {across for _, across, _ in seen} == {1, 2, 3}
    assert {sides for sides, *_ in seen} >= {1, 2, 3}
    assert {tiles for *_, tiles in seen} == ({1} if tile == 70 else {1, 2})


def _shape_of(shape: Shape, tuning: Tuning) -> row_shapes.RowShape:
    given = {"norm": shape.norm, "pairs": shape.end == "act"}
    return tuning.project(shape.q4, shape.f32, shape.cols, 0, **given)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_few_rows_have_the_bytes_of_the_ops(schedule: str) -> None:
    """fused_project_few, a block with one warp or with all of them."""
    device, seen = backend(schedule), set()
    for processors, shape in product((2, 3, 132), SHAPES):
        found = _shape_of(shape, Tuning(processors=processors))
        if not found.few:
            assert shape.f32 or shape.cols > 16_000
            continue
        seen.add(found.across)
        for mask in MASKS if shape.cols < 200 else MASKS[:3]:
            device.counts.clear()
            assert compared(device, shape, mask, tuning=Tuning(processors=processors)) == []
            assert "fused_project_few" in device.counts
            assert "fused_project" not in device.counts
    assert {1, row_shapes.FEW_WARPS} <= seen


def test_rows_too_long_for_a_launch_go_op_by_op() -> None:
    device = backend("ascending")
    for shape in (Shape(32 * 40_000, (1,), norm=False), Shape(60_001, (), (2,), end="total")):
        given = data(shape)
        device.counts.clear()
        assert differing(by_ops(device, shape, given, 0), by_launch(device, shape, given, 0)) == []
        assert not [name for name in device.counts if name.startswith("fused")]


def test_shapes_fit_a_multiprocessor() -> None:
    for rows in (1, 3, 100, 512, 5120, 17_408, 248_320):
        for nb in (1, 3, 24, 64, 160, 544, 1000):
            for mask in (0, MASKS[-1]):
                for pairs in (False, True):
                    shape = q4_row_shape(rows, nb, mask, 132, pairs)
                    assert shape.shared <= MOST_SHARED
                    assert shape.threads <= 32 * row_shapes.WARPS
                    assert shape.threads % (32 * shape.across) == 0
                    assert 1 <= shape.tile <= row_shapes.MOST_TILE
                    assert shape.kept in (shape.tile, 2 * shape.tile)
                    assert not (pairs and shape.tile % 2)
                    own = rows / shape.blocks / (shape.threads / 32 / shape.across)
                    assert shape.across == 1 or shape.kept > shape.tile or own <= shape.tile


@pytest.mark.parametrize(
    ("q4", "f32", "end"),
    [
        ((3, 3, 3, 3), (), ""),
        ((), (1,) * 5, ""),
        ((3, 4), (), "act"),
        ((3, 3), (), "total"),
    ],
)
def test_red_a_launch_that_there_is_not(
    q4: tuple[int, ...], f32: tuple[int, ...], end: str
) -> None:
    shape = Shape(32, q4, f32, norm=False, end=end)
    with pytest.raises(ParityBug, match=rf"^project: {len(q4) + len(f32)} matrices"):
        by_launch(backend("ascending"), shape, data(shape), 0)


# --- planted faults -------------------------------------------------------------------------------

NORMAL = Shape(96, (20, 20), end="act")
FLOATS = Shape(64, (9,), (3, 4))
TOTAL = Shape(160, (40,), norm=False, end="total")
# Each shows in what it is about alone, so that one build holds them all.
FAULTS: dict[str, tuple[Change, Shape, str, list[str]]] = {
    "small inputs are scaled": (
        ("row_input.cuh", "size >= 0x14800000u", "size >= 0x00800000u"),
        Shape(96, (20,), norm=False), "all tiny", ["out0"],
    ),
    "gate and up exchanged": (
        ("q4_row.cuh", "__shfl_down_sync(0xffffffffu, acc, 16)", "acc"), NORMAL, "", ["act"],
    ),
    "the sum without its base": (
        ("q4_row.cuh", "__fadd_rn(base, acc)", "__fadd_rn(0.0f, acc)"),
        TOTAL, "", ["total"],
    ),
    "the first f32 weight for all": (
        ("route.cuh", "copy_4(target, source)", "copy_4(target, from + (long long)row * cols)"),
        Shape(51, (), (2,), norm=False), "", ["out0"],
    ),
    "the normed row of another block": (
        ("project.cuh", "if (blockIdx.x == 0) p.norm.out[j] = v;",
         "if (blockIdx.x == 0) p.norm.out[j] = p.x[j];"), FLOATS, "", ["normed"],
    ),
}  # fmt: skip


@cache
def faulty() -> EmuBackend:
    return planted("shuffled 3", *(change for change, *_ in FAULTS.values()))


@pytest.mark.parametrize("fault", FAULTS)
def test_red_a_planted_fault_shows_where_it_is(fault: str) -> None:
    _, shape, special, wanted = FAULTS[fault]
    assert compared(faulty(), shape, 0, special) == wanted


def test_red_a_barrier_left_out_shows_in_some_schedule() -> None:
    end = "    row_side_sync(work.side, p.across);\n    // The others go on"
    shape = Shape(1056, (37,), end="total")
    change = ("q4_row.cuh", end, "    // The others go on")
    seen = [name for name in SCHEDULES if compared(planted(name, change), shape, 0)]
    assert seen, "no schedule shows the race"
