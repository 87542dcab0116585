"""The attention kernel check: M rows against M single rows, by M and base."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity_cuda.emu_backend import EmuBackend
from tests.probes.attention_rows import (
    FORMS,
    Array,
    Cache,
    Device,
    OnCpu,
    OnDevice,
    cache_of,
    check,
    draw,
    in_one,
    one_by_one,
    quantised,
)

ROWS = (1, 2, 4, 8)
BASES = (0, 1, 5, 17, 31, 32, 33, 255, 256, 257)
LENGTHS = (1, 31, 32, 33, 63, 64, 65, 255, 256, 257)
ROOM = 288  # positions of the cache
TILE_BLOCKS = ((0, 64), (31, 40), (5, 33))  # base, M: whole tiles lie in the future of row 0


@cache
def emulated() -> OnDevice:
    return OnDevice(EmuBackend(EngineSettings()))


@cache
def on_gpu() -> OnDevice:
    from parity_cuda.cupy_backend import CupyBackend

    return OnDevice(CupyBackend(EngineSettings()))


DEVICES = [
    pytest.param(OnCpu, id="cpu"),
    pytest.param(emulated, id="emu"),
    pytest.param(on_gpu, id="cuda", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", DEVICES)
def test_rows_equal_single_rows(device: Callable[[], Device], form: str) -> None:
    table = [check(device(), form, rows, base, ROOM) for rows in ROWS for base in BASES]
    print(f"\n{form:4}   M  base  {'rows against single rows':40}  control")
    print("\n".join(map(str, table)))
    assert not [row for row in table if row.problems]
    controls = [row.control for row in table]
    assert controls.count("differ") == 3 * (len(BASES) - 1)
    assert sum("row 0 sees one key" in control for control in controls) == 3
    assert sum("one row" in control for control in controls) == len(BASES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", DEVICES)
def test_block_wider_than_a_tile(device: Callable[[], Device], form: str) -> None:
    for base, rows in TILE_BLOCKS:
        assert check(device(), form, rows, base, ROOM).problems == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", DEVICES)
def test_unused_rows_may_hold_anything(device: Callable[[], Device], form: str) -> None:
    """B14: NaN and zeros past the length, by length: same bits, none of them NaN."""
    for length in LENGTHS:
        for rows in (1, 4):
            outputs = []
            for fill in (0xFF, 0x00):
                given = draw(rows, length - 1, ROOM, fill=fill)
                outputs.append(in_one(device(), cache_of(device(), form, given), given))
            assert outputs[0].tobytes() == outputs[1].tobytes(), (length, rows)
            assert np.isfinite(outputs[0]).all(), (length, rows)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", DEVICES[1:])
def test_kernels_equal_the_reference(device: Callable[[], Device], form: str) -> None:
    for base in BASES:
        given, sides = draw(4, base, ROOM), (OnCpu(), device())
        ref, dut = (in_one(side, cache_of(side, form, given), given) for side in sides)
        assert ref.tobytes() == dut.tobytes(), base


# --- the check turns red --------------------------------------------------------------------------


class OneKeyMore(OnCpu):
    """Rows m > 0 see a key too many."""

    more = 1

    def attend(self, cache: Cache, q: Array, pos: int) -> Array:
        rows = range(len(q))
        ends = [pos + m + (self.more if m else 0) for m in rows]
        parts = [super(OneKeyMore, self).attend(cache, q[m : m + 1], ends[m]) for m in rows]
        return np.concatenate(parts)


class OneKeyLess(OneKeyMore):
    """Rows m > 0 do not see their own key."""

    more = -1


class BottomLeft(OnCpu):
    """Every row of a block sees the whole block: no mask at all."""

    def attend(self, cache: Cache, q: Array, pos: int) -> Array:
        last = pos + len(q) - 1
        return np.concatenate([super(BottomLeft, self).attend(cache, row[None], last) for row in q])


class TopLeft(OnCpu):
    """Row m sees m + 1 keys: the mask is anchored where the past begins."""

    def attend(self, cache: Cache, q: Array, pos: int) -> Array:
        if len(q) == 1:
            return super().attend(cache, q, pos)
        return super().attend(cache, q, 0)


class RowsLate(OnCpu):
    """Rows m > 0 of a block are written one position further on."""

    def append(self, cache: Cache, at: int, k: Array, v: Array) -> None:
        block = at > 0 and len(k) > 1
        super().append(cache, at, k[:1], v[:1])
        if len(k) > 1:
            super().append(cache, at + 1 + block, k[1:], v[1:])


class FirstScale(OnCpu):
    """All rows of a block are stored with the scale of row 0."""

    def append(self, cache: Cache, at: int, k: Array, v: Array) -> None:
        super().append(cache, at, k, v)
        if len(k) > 1:
            cache["ks"][at : at + len(k)] = cache["ks"][at]


class OneForAll(OnCpu):
    """All rows give what row 0 gives: equal queries are then equal outputs."""

    def attend(self, cache: Cache, q: Array, pos: int) -> Array:
        out = super().attend(cache, q, pos)
        out[1:] = out[0]
        return out


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        (OneKeyMore, "output 1 differs"),
        (OneKeyLess, "output 1 differs"),
        (BottomLeft, "output 0 differs"),
        (TopLeft, "output 0 differs"),
        (RowsLate, "k buffers differ"),
        (RowsLate, "appended k is not its input"),
        (RowsLate, "v written past the block"),
        (FirstScale, "ks buffers differ"),
        (FirstScale, "scale of k is not its input's"),
        (OneForAll, "output 1 differs"),
        (OneForAll, "control did not differ"),
    ],
)
def test_wrong_attention_is_found(device: type[OnCpu], problem: str) -> None:
    for base in (5, 31, 257):
        assert problem in check(device(), "int8", 4, base, ROOM).problems


def test_single_row_oracle_sharing_the_fault_does_not_hide_it() -> None:
    """B23: one that masks single rows wrongly too is found against the reference."""

    class Both(OnCpu):
        def attend(self, cache: Cache, q: Array, pos: int) -> Array:
            return super().attend(cache, q, pos - 1)

    given = draw(4, 5, ROOM)
    wrong, right = (one_by_one(d, cache_of(d, "f32", given), given) for d in (Both(), OnCpu()))
    assert check(Both(), "f32", 4, 5, ROOM).problems == []
    assert wrong.tobytes() != right.tobytes()


def test_quantised_is_the_contract() -> None:
    q, scale = quantised(np.array([[1.0, -2.0, 0.5, 127.0]], np.float32))
    assert (q.tolist(), scale.tolist()) == ([[1, -2, 0, 127]], [1.0])
