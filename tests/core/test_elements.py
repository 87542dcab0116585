"""Element-level detail: which elements differ, of what kind, by how many ULP."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparison.elements import KINDS, compare_tensors
from parity.dtypes import FLOATS, INTEGERS, bit_patterns, dtype_name, tensor_bytes, value_text
from parity.errors import InputError
from parity.tree import ElementRow, Elements

F32 = np.float32
MAX = float(np.finfo(F32).max)
TINY = 1.4e-45
NAN, INF = float("nan"), float("inf")


def of(ref: object, dut: object, dtype: type | str = F32, **options: object) -> Elements:
    return compare_tensors("t0_l0_x", np.array(ref, dtype), np.array(dut, dtype), **options)


@pytest.mark.parametrize(
    ("ref", "dut", "ulp", "kind"),
    [
        (1.0, float(np.nextafter(F32(1), F32(2))), 1, "value"),
        (-TINY, TINY, 2, "value"),
        (0.0, TINY, 1, "value"),
        (-0.0, TINY, 1, "value"),
        (-2.0, 2.0, 2147483648, "value"),
        (-MAX, MAX, 4278190078, "value"),
        (MAX, INF, 1, "infinity"),
        (-INF, INF, 4278190080, "infinity"),
        (-0.0, 0.0, None, "zero sign"),
    ],
)
def test_distances(ref: float, dut: float, ulp: int | None, kind: str) -> None:
    """Symmetric, positive when the dut is larger, and never wrapped."""
    for swap in (False, True):
        found = of([dut, 9.0], [ref, 9.0]) if swap else of([ref, 9.0], [dut, 9.0])
        assert (found.total, found.differ, found.max_ulp) == (2, 1, ulp)
        signed = -ulp if swap and ulp is not None else ulp
        assert [(row.index, row.ulp, row.kind) for row in found.rows] == [((0,), signed, kind)]


@pytest.mark.parametrize("other", [1.0, INF, -INF, 0.0])
def test_a_nan_against_a_number_has_no_distance(other: float) -> None:
    in_dut, in_ref = of([other], [NAN]), of([NAN], [other])
    assert (in_dut.rows[0].kind, in_ref.rows[0].kind) == ("NaN in dut", "NaN in ref")
    assert in_dut.rows[0].ulp is in_ref.rows[0].ulp is in_dut.max_ulp is None
    assert in_dut.histogram == [("NaN in dut", 1)]
    assert (in_dut.rows[0].dut_value, in_dut.rows[0].ref_value) == ("NaN", f"{other:+.8e}")


def test_two_nans_of_different_payload_differ_and_the_same_ones_do_not() -> None:
    bits = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000], np.uint32)
    same, other = bits.view(F32), bits[::-1].copy().view(F32)
    assert compare_tensors("t0_l0_x", same, same.copy()).differ == 0
    found = compare_tensors("t0_l0_x", same, other)
    assert [row.kind for row in found.rows] == ["NaN payload"] * 2
    assert found.max_ulp is None


def test_special_values_among_others_all_count() -> None:
    ref = np.arange(8, dtype=F32)
    dut = ref.copy()
    ref[3], dut[3] = 5, NAN
    ref[5], dut[5] = INF, -INF
    ref[6], dut[6] = 1, np.nextafter(F32(1), F32(2))
    found = compare_tensors("t0_l0_x", ref.reshape(2, 4), dut.reshape(2, 4))
    assert (found.differ, found.total, found.max_ulp) == (3, 8, 4278190080)
    assert [row.index for row in found.rows] == [(0, 3), (1, 1), (1, 2)]
    assert found.histogram == [("1", 1), ("NaN in dut", 1), ("infinity", 1)]
    assert found.groups == [(0, 1), (1, 2)]


def test_a_row_shows_bits_and_values_of_both_sides() -> None:
    ref = np.array([0x3E0E01E1, 0xBBE6FC31], np.uint32).view(F32)
    dut = np.array([0x3E0E01E2, 0xBBE6FC30], np.uint32).view(F32)
    assert compare_tensors("t33_l7_attn", ref, dut).rows == [
        ElementRow(
            *((0,), "3e0e01e1", "3e0e01e2", "+1.38679042e-01", "+1.38679057e-01", 1, "value")
        ),
        ElementRow(
            *((1,), "bbe6fc31", "bbe6fc30", "-7.04910653e-03", "-7.04910606e-03", 1, "value")
        ),
    ]


def test_the_rows_keep_the_first_of_each_special_kind() -> None:
    ref = np.ones(1000, F32)
    dut = np.nextafter(ref, F32(2))
    dut[700], dut[900], dut[901] = NAN, INF, INF
    found = compare_tensors("t0_l0_x", ref, dut, limit=4)
    assert [row.index[0] for row in found.rows] == [0, 1, 700, 900]
    assert found.histogram == [("1", 997), ("NaN in dut", 1), ("infinity", 2)]
    assert compare_tensors("t0_l0_x", ref, dut, limit=0).rows == []


@pytest.mark.parametrize(
    ("distance", "label"),
    [
        *((1, "1"), (2, "2"), (3, "3 to 4"), (4, "3 to 4"), (5, "5 to 16"), (16, "5 to 16")),
        *((17, "17 to 256"), (256, "17 to 256"), (257, "over 256"), (10**9, "over 256")),
    ],
)
def test_bins(distance: int, label: str) -> None:
    ref = np.array([0x20000000], np.uint32)
    found = compare_tensors("t0_l0_x", ref.view(F32), (ref + np.uint32(distance)).view(F32))
    assert found.histogram == [(label, 1)]
    assert found.max_ulp == distance


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_every_dtype_has_its_width_and_one_step(name: str) -> None:
    carrier = {"f16": "<f2", "bf16": "<u2", "f32": "<f4", "f64": "<f8"}.get(name, name)
    width = np.dtype(carrier).itemsize
    ref = np.array([1, 2], f"<u{width}").view(carrier)
    dut = np.array([1, 3], f"<u{width}").view(carrier)
    found = compare_tensors("t0_l0_x", ref, dut, dtypes=(name, name))
    assert (found.ref_type, found.unit) == (f"{name}[2]", "ULP" if name in FLOATS else "step")
    row = found.rows[0]
    assert (row.ref_hex, row.dut_hex) == (f"{2:0{2 * width}x}", f"{3:0{2 * width}x}")
    assert (row.index, row.ulp) == ((1,), 1)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "steps"),
    [
        (np.int8, -128, 127, 255),
        (np.int32, -(2**31), 2**31 - 1, 2**32 - 1),
        (np.int64, -(2**63), 2**63 - 1, 2**64 - 1),
        (np.uint8, 0, 255, 255),
    ],
)
def test_integers_are_steps_apart_without_a_wrap(
    dtype: type, low: int, high: int, steps: int
) -> None:
    found = of([low], [high], dtype)
    assert (found.unit, found.max_ulp, found.rows[0].ulp) == ("step", steps, steps)
    assert (found.rows[0].ref_value, found.rows[0].dut_value) == (str(low), str(high))
    assert of([high], [low], dtype).rows[0].ulp == -steps


def test_f64_distances_do_not_wrap() -> None:
    top = float(np.finfo(np.float64).max)
    found = of([-top], [top], np.float64)
    assert found.max_ulp == found.rows[0].ulp == 2 * (0x7FF0000000000000 - 1)
    assert found.rows[0].ref_value == "-1.7976931348623157e+308"


def test_bf16_is_carried_in_uint16() -> None:
    ref, dut = np.array([0x3F80, 0x7FC0], np.uint16), np.array([0x3F81, 0xFF80], np.uint16)
    found = compare_tensors("t0_l0_x", ref, dut, dtypes=("bf16", "bf16"))
    assert [(row.ref_value, row.dut_value, row.ulp, row.kind) for row in found.rows] == [
        ("+1.00000000e+00", "+1.00781250e+00", 1, "value"),
        ("NaN", "-inf", None, "NaN in ref"),
    ]


def test_other_dtypes_are_named_and_not_compared() -> None:
    ref = np.ones((2, 3), F32)
    found = compare_tensors("t0_l0_x", ref, ref.astype(np.float64))
    assert (found.total, found.differ, found.rows, found.histogram) == (0, 0, [], [])
    assert found.note == "dtypes differ: ref f32[2,3], dut f64[2,3]; elements are not compared"


def test_other_sizes_are_named_and_not_compared() -> None:
    found = compare_tensors("t0_l0_x", np.ones((), F32), np.ones(2, F32))
    assert (found.total, found.differ) == (0, 0)
    assert found.note == "shapes differ: ref f32[], dut f32[2]; elements are not compared"


def test_other_shapes_of_one_size_are_compared_flat() -> None:
    ref = np.arange(6, dtype=F32).reshape(2, 3)
    dut = ref.reshape(3, 2).copy()
    found = compare_tensors("t0_l0_x", ref, dut)
    assert (found.total, found.differ) == (6, 0)
    assert found.note.endswith("elements are compared flat, in C order")
    dut[2, 0] = 9
    assert compare_tensors("t0_l0_x", ref, dut).rows[0].index == (1, 1)


def test_views_and_byte_order_do_not_matter_bits_do() -> None:
    ref = np.arange(16, dtype=F32).reshape(4, 4)
    assert compare_tensors("t0_l0_x", ref, ref.astype(">f4")).differ == 0
    assert compare_tensors("t0_l0_x", ref.T, np.ascontiguousarray(ref.T)).differ == 0
    assert compare_tensors("t0_l0_x", ref, ref.T).differ == 12


def test_a_scalar_and_an_empty_tensor() -> None:
    found = of(1, 2)
    assert (found.total, found.differ, found.rows[0].index, found.groups) == (1, 1, (), [])
    assert of([], []).total == 0


PATTERNS = st.integers(0, 2**32 - 1) | st.sampled_from(
    [0, 1 << 31, 1, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF]
)


@given(st.lists(st.tuples(PATTERNS, PATTERNS), max_size=30))
@settings(derandomize=True, max_examples=300)
def test_any_bits_add_up_and_no_difference_is_lost(pairs: list[tuple[int, int]]) -> None:
    bits = np.array(pairs, np.uint32).reshape(-1, 2)
    ref, dut = (bits[:, side].copy().view(F32) for side in (0, 1))
    found = compare_tensors("t0_l0_x", ref, dut, limit=100)
    unequal = [at for at, (one, other) in enumerate(pairs) if one != other]
    assert [row.index[0] for row in found.rows] == unequal
    assert sum(count for _, count in found.histogram) == found.differ == len(unequal)
    for row in found.rows:
        one, other = pairs[row.index[0]]
        assert (row.ref_hex, row.dut_hex) == (f"{one:08x}", f"{other:08x}")
        expected = (
            None if "NaN" in row.kind or row.kind == "zero sign" else image(other) - image(one)
        )
        assert row.ulp == expected
        assert row.kind in KINDS
    distances = [abs(row.ulp) for row in found.rows if row.ulp is not None]
    assert found.max_ulp == (max(distances) if distances else None)


def image(bits: int) -> int:
    """An f32 pattern as a signed integer in the order of the values."""
    return -(bits & 0x7FFFFFFF) if bits >> 31 else bits


@given(st.integers(0, 2**32 - 1))
@settings(derandomize=True)
def test_nine_digits_tell_an_f32_apart(bits: int) -> None:
    value = np.array([bits], np.uint32).view(F32)[0]
    text = value_text(bits, "f32")
    assert text == "NaN" if np.isnan(value) else F32(text).tobytes() == value.tobytes()


def test_names_of_dtypes() -> None:
    names = {
        **{np.float16: "f16", np.float32: "f32", np.float64: "f64", np.bool_: "bool"},
        **{np.int8: "int8", np.int32: "int32", np.uint16: "uint16"},
    }
    for kind, name in names.items():
        assert dtype_name(np.dtype(kind)) == name
        assert dtype_name(np.dtype(kind).newbyteorder(">")) == name


@pytest.mark.parametrize("dtype", ["complex64", "S4", "O", "M8[s]", "m8[s]", "f4,f4"])
def test_a_dtype_without_a_name_is_refused(dtype: str) -> None:
    with pytest.raises(InputError, match="cannot be compared"):
        dtype_name(np.dtype(dtype))


def test_bytes_are_little_endian_in_c_order() -> None:
    ref = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert tensor_bytes(ref.T.astype(">i4")) == np.array([0, 3, 1, 4, 2, 5], "<i4").tobytes()
    assert bit_patterns(np.array(-1, np.int8)).tolist() == [255]
