"""assert_bits_equal: names, dtypes, shapes and bytes decide, and what differs can be read."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity import bits_equal
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.dumps.writer import write_dump
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64_array
from parity.inject import move_element
from parity.keys import Key
from parity.testing import assert_bits_equal

ONE = np.arange(12, dtype=np.float32).reshape(3, 4) - np.float32(3)


def moved(array: np.ndarray, *indices: int) -> np.ndarray:
    """A copy with elements one ULP off."""
    changed = array.copy()
    for index in indices:
        move_element(changed, index)
    return changed


def said(ref: Any, dut: Any, **options: Any) -> list[str]:
    """The lines of the failure."""
    with pytest.raises(AssertionError) as raised:
        assert_bits_equal(ref, dut, **options)
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    "array",
    [
        ONE,
        ONE.T,
        ONE[::2, ::-1],
        ONE.astype(">f4"),
        np.float32(1.5),
        np.zeros(0, np.float16),
        np.array([True, False]),
        np.array([np.nan, -0.0, np.inf]),
        np.arange(3, dtype=np.int64),
    ],
    ids=["plain", "turned", "strided", "big-endian", "scalar", "empty", "bool", "special", "int64"],
)
def test_an_array_equals_its_copy(array: Any) -> None:
    assert_bits_equal(array, np.array(array))
    assert_bits_equal({"a": array}, {"a": np.ascontiguousarray(array).reshape(array.shape)})


def test_red_one_ulp_is_shown_with_index_hex_and_distance() -> None:
    assert said(ONE, moved(ONE, 6)) == [
        "array is not bit-equal: 1 of 12 elements differ, at most 1 ULP",
        "  ref f32[3,4]",
        "  dut f32[3,4]",
        "  index   ref hex   ref value        dut hex   dut value        ULP",
        "  [1, 2]  40400000  +3.00000000e+00  40400001  +3.00000024e+00  +1",
    ]


def test_red_zero_sign_and_nan_are_differences_and_named() -> None:
    other = ONE.copy()
    other[0, 3], other[2, 1] = -0.0, np.nan
    lines = said(ONE, other)
    assert lines[0] == "array is not bit-equal: 2 of 12 elements differ"
    assert lines[4:] == [
        "  [0, 3]  00000000  +0.00000000e+00  80000000  -0.00000000e+00  zero sign",
        "  [2, 1]  40c00000  +6.00000000e+00  7fc00000  NaN              NaN in dut",
    ]


def test_red_another_nan_of_the_same_dtype() -> None:
    quiet, other = (
        np.array([bits], np.uint32).view(np.float32) for bits in (2143289344, 2143289345)
    )
    assert said(quiet, other)[-1].endswith("NaN payload")
    assert_bits_equal(quiet, quiet.copy())


def test_red_equal_values_of_another_dtype_or_shape() -> None:
    assert said(ONE, ONE.astype(np.float64)) == [
        "array is not bit-equal: dtypes differ",
        "  ref f32[3,4]",
        "  dut f64[3,4]",
    ]
    assert said(ONE, ONE.reshape(4, 3)) == [
        "array is not bit-equal: shapes differ, 0 of 12 elements differ",
        "  ref f32[3,4]",
        "  dut f32[4,3]",
    ]
    assert said(ONE, ONE[:2])[0] == "array is not bit-equal: shapes differ"
    assert said(np.int32([1]), np.uint32([1]))[0] == "array is not bit-equal: dtypes differ"


def test_red_integers_count_steps_and_the_rest_is_counted() -> None:
    codes = np.arange(20, dtype=np.int8)
    lines = said(codes, codes + np.int8(2))
    assert lines[0] == "array is not bit-equal: 20 of 20 elements differ, at most 2 steps"
    assert lines[3].endswith("step")
    assert lines[4] == "  [0]    00       0          02       2          +2"
    assert lines[-1] == "  and 12 more"


def test_red_a_mapping_names_the_first_and_the_others() -> None:
    ref = {"q": ONE, "k": ONE, "v": ONE, "o": ONE}
    dut = {"q": ONE, "k": moved(ONE, 0), "v": moved(ONE, 1), "extra": ONE}
    lines = said(ref, dut)
    assert lines[0] == "k is not bit-equal: 1 of 12 elements differ, at most 1 ULP"
    assert lines[-4:] == [
        "1 of 5 are equal; beside k:",
        "  v: differs",
        "  extra: not in the ref",
        "  o: missing in the dut",
    ]
    assert said({"q": ONE}, {}) == ["not compared: nothing compared: no keys in dut"]
    assert (
        said({"q": ONE, "k": ONE}, {"q": ONE})[0] == "k is not bit-equal: it is missing in the dut"
    )


def test_keys_are_told_in_dataflow_order() -> None:
    ref = {"t0_logits": ONE, "t0_l1_attn": ONE, "t0_l0_x": ONE}
    dut = {name: moved(array, 0) for name, array in ref.items()}
    assert said(ref, dut)[0].startswith("t0_l0_x is not bit-equal")


def test_names_call_arrays_and_choose_among_named_ones() -> None:
    assert said(ONE, moved(ONE, 0), names=["attn"])[0].startswith("attn is not")
    assert said([ONE, ONE], (ONE, moved(ONE, 0)), names=["q", "k"])[0].startswith("k is not")
    assert said([ONE, ONE], [ONE, moved(ONE, 0)])[0].startswith("1 is not")
    pair = {"q": ONE, "k": ONE}, {"q": ONE, "k": moved(ONE, 0)}
    assert_bits_equal(*pair, names=["q"])
    assert said(*pair, names=["q", "k"])[0].startswith("k is not")
    assert said({"q": ONE}, {"k": ONE}, names=["q"])[0].startswith("not compared")
    with pytest.raises(InputError, match="no array 'qq' on either side"):
        assert_bits_equal(*pair, names=["q", "qq"])


@pytest.mark.parametrize("empty", [{}, []], ids=["mapping", "sequence"])
def test_red_nothing_compared_is_no_pass(empty: Any) -> None:
    assert said(empty, empty) == ["not compared: nothing compared: no keys in ref and dut"]
    assert said({"q": ONE}, {}, names=["q"])[0].startswith("not compared")


def test_files_and_arrays_meet(tmp_path: Path) -> None:
    path = tmp_path / "ref.npz"
    np.savez(path, q=ONE, k=ONE)
    assert_bits_equal(path, {"q": ONE, "k": ONE})
    assert_bits_equal(str(path), path)
    assert said(path, {"q": ONE, "k": moved(ONE, 6)})[4] == (
        "  [1, 2]  40400000  +3.00000000e+00  40400001  +3.00000024e+00  +1"
    )
    assert_bits_equal(path, {"q": ONE}, names=["q"])


@pytest.mark.parametrize("hash_name", ["fnv1a64", "kestrel-fnv"])
def test_a_dump_holds_digests_of_its_own_hash(tmp_path: Path, hash_name: str) -> None:
    path = tmp_path / "ref.dump"
    digest = fnv1a64_array(ONE, BASES[hash_name])
    entry = Entry(Key(0, 1, "attn"), digest, TensorType("f32", ONE.shape))
    write_dump(Dump({"hash": hash_name}, {MAIN: [entry]}), path)
    assert_bits_equal(path, {"t0_l1_attn": ONE})
    other = moved(ONE, 6)
    lines = said(path, {"t0_l1_attn": other})
    assert lines == [
        "t0_l1_attn is not bit-equal",
        f"  ref {digest:016x} f32[3,4]",
        f"  dut {fnv1a64_array(other, BASES[hash_name]):016x} f32[3,4]",
    ]


def test_red_equal_digests_of_other_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted collision: every array has one digest, and the bytes decide."""
    monkeypatch.setattr(bits_equal, "fnv1a64_array", lambda array, basis: 7)
    assert_bits_equal(ONE, ONE.copy())
    assert said(ONE, moved(ONE, 6)) == [
        "array is not bit-equal: other bytes with the digest 0000000000000007"
    ]


class Interface:
    """What has the array interface and nothing else, as other libraries do."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__
        self._kept = array


def test_arrays_of_other_libraries() -> None:
    assert_bits_equal(Interface(ONE), ONE)
    assert said(ONE, Interface(moved(ONE, 6)))[0].startswith("array is not bit-equal: 1 of 12")


@pytest.mark.parametrize(
    ("ref", "options", "problem"),
    [
        ([1.0, 2.0], {}, "ref 0: float is no array"),
        (ONE.astype(object), {}, "ref array: dtype object cannot be compared"),
        ({1: ONE}, {}, "ref: bad name 1"),
        (ONE, {"names": "attn"}, "names 'attn': a text, not names"),
        (ONE, {"names": ["a", "b"]}, "ref: 1 arrays and the names a, b"),
        ([ONE, ONE], {"names": ["a", "a"]}, "ref: 2 arrays and the names a, a"),
        ("missing.dump", {}, "missing.dump: No such file"),
    ],
    ids=["numbers", "objects", "number as name", "text", "too many", "twice", "no file"],
)
def test_what_cannot_be_compared_is_refused(ref: Any, options: Any, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        assert_bits_equal(ref, ref, **options)
    assert raised.value.message.startswith(problem)
    assert raised.value.next_step


def test_the_docstring_is_true() -> None:
    assert doctest.testmod(bits_equal).attempted > 2
    assert doctest.testmod(bits_equal).failed == 0
