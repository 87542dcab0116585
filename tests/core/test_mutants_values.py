"""What mutation testing found unseen in elements, states, greedy headers and margins."""

from __future__ import annotations

import numpy as np
import pytest

from parity.comparison.elements import compare_tensors
from parity.comparison.states import compare_states, differing_rows, unlike_form
from parity.dump import Dump
from parity.dumps.greedy import match_greedy, parse_greedy
from parity.errors import InputError
from parity.explain.margin import measure
from parity.tree import StatePart

State = dict[str, np.ndarray]
F32 = np.float32


# --- elements -------------------------------------------------------------------------------------


def test_twelve_rows_unless_told_otherwise() -> None:
    ref = np.zeros(20, F32)
    found = compare_tensors("t0_x", ref, ref + F32(1))
    assert [row.index for row in found.rows] == [(at,) for at in range(12)]


def test_detail_says_whose_tensors_it_compares() -> None:
    found = compare_tensors("t0_l1_x", np.zeros((2, 3), F32), np.zeros((3, 2), F32))
    assert (found.key, found.ref_type, found.dut_type) == ("t0_l1_x", "f32[2,3]", "f32[3,2]")
    same = compare_tensors("t0_l1_x", np.zeros(2, F32), np.zeros(2, F32))
    assert same.note == ""


@pytest.mark.parametrize(("dtypes", "unit"), [((F32, np.int32), "ULP"), ((np.int32, F32), "step")])
def test_unit_of_two_dtypes_is_the_ref_s(dtypes: tuple[type, type], unit: str) -> None:
    found = compare_tensors("t0_x", *(np.ones(2, dtype) for dtype in dtypes))
    assert (found.unit, found.total, found.differ) == (unit, 0, 0)


@pytest.mark.parametrize("piece", [1, 2, 7, 12])
@pytest.mark.parametrize("dtype", [F32, np.int16])
def test_pieces_of_a_tensor_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch, piece: int, dtype: type
) -> None:
    """Large tensors are compared in pieces: counts add up and indices go on."""
    ref = np.arange(1, 25, dtype=dtype).reshape(4, 6)
    dut = ref.copy()
    dut.reshape(-1)[[1, 2, 8, 13, 14, 15, 23]] += np.array([1, 40, 2, 3, 1, 300, 1], dtype)
    if dtype is F32:
        dut[1, 0] = np.nan
    whole = compare_tensors("t0_x", ref, dut, limit=6)
    monkeypatch.setattr("parity.dtypes.PIECE", piece)
    assert compare_tensors("t0_x", ref, dut, limit=6) == whole
    assert (whole.total, whole.differ) == (24, 7 + (dtype is F32))
    assert whole.groups == [(0, 2), (1, 1 + (dtype is F32)), (2, 3), (3, 1)]
    assert sum(count for _, count in whole.histogram) == whole.differ
    assert [row.index for row in whole.rows][:2] == [(0, 1), (0, 2)]


# --- states ---------------------------------------------------------------------------------------


def whole_state() -> State:
    """Two layers that keep rows, one that keeps none by position, and the length."""
    return {
        "lengths": np.array([3], np.int32),
        "l0_k": np.arange(6, dtype=np.int8).reshape(3, 2),
        "l1_s": np.arange(4, dtype=F32).reshape(2, 2),
        "l2_k": np.arange(6, dtype=np.int8).reshape(3, 2),
    }


def changed(**rows: int) -> State:
    """A copy in which one row of each part named is changed."""
    made = whole_state()
    for name, row in rows.items():
        made[name][row] += 1
    return made


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ({"l0_k": 1, "l2_k": 0}, "l2_k row 0 (position 0)"),
        ({"l1_s": 1, "l2_k": 0}, "l1_s row 1"),
        ({"l1_s": 1, "l0_k": 0}, "l0_k row 0 (position 0)"),
        ({"l1_s": 1, "l0_k": 1}, "l1_s row 1"),
        ({"l1_s": 0, "lengths": 0}, "lengths"),
    ],
)
def test_first_part_is_the_one_written_first(rows: dict[str, int], first: str) -> None:
    found = compare_states("end", whole_state(), changed(**rows))
    assert (found.when, found.first) == ("end", first)


@pytest.mark.parametrize(
    ("ref", "dut", "part"),
    [
        (np.zeros((3, 2)), None, StatePart("l0_k", 3, 3, 0, "missing in dut")),
        (None, np.zeros((2, 2)), StatePart("l0_k", 2, 2, 0, "missing in ref")),
        (np.zeros((0, 2)), None, StatePart("l0_k", 0, 1, 0, "missing in dut")),
        (
            np.zeros((0, 2)),
            np.zeros((0, 3)),
            StatePart("l0_k", 0, 1, 0, "ref float64[0, 2], dut float64[0, 3]"),
        ),
        (
            np.zeros((3, 2)),
            np.zeros((3, 1)),
            StatePart("l0_k", 3, 3, 0, "ref float64[3, 2], dut float64[3, 1]"),
        ),
        (np.zeros((3, 2)), np.zeros((2, 2)), StatePart("l0_k", 3, 1, 2, "ref 3 rows, dut 2")),
        (np.zeros((3, 2)), np.zeros((3, 2)), StatePart("l0_k", 3, 0, None, "")),
    ],
)
def test_each_part_says_what_became_of_it(
    ref: np.ndarray | None, dut: np.ndarray | None, part: StatePart
) -> None:
    sides = ({} if side is None else {"l0_k": side} for side in (ref, dut))
    assert compare_states("start", *sides).parts == [part]


def test_differing_rows_of_the_parts_that_can_be_compared() -> None:
    ref, dut = whole_state(), changed(l0_k=2, l2_k=0)
    dut["l2_k"] = np.concatenate([dut["l2_k"], dut["l2_k"][:1]])
    dut["l1_s"] = dut["l1_s"].astype(np.float64) + 1
    ref["only_ref"] = dut["only_dut"] = np.zeros(1)
    assert differing_rows(ref, dut) == {"l0_k": [2], "l2_k": [0, 3]}
    assert differing_rows(ref, whole_state()) == {}


@pytest.mark.parametrize(
    ("name", "dut", "text"),
    [
        ("l0_k", np.zeros((3, 2), np.int8), ""),
        ("l0_k", np.zeros((2, 2), np.int8), "l0_k: ref int8[3, 2], dut int8[2, 2]"),
        ("l2_k", np.zeros((3, 2), F32), "l2_k: ref int8[3, 2], dut float32[3, 2]"),
        ("l1_s", None, "l1_s: ref float32[2, 2], dut none"),
        ("l3_k", np.zeros(4, F32), "l3_k: ref none, dut float32[4]"),
    ],
)
def test_unlike_form_names_the_first_part(name: str, dut: np.ndarray | None, text: str) -> None:
    side = {**whole_state(), name: dut}
    assert unlike_form(whole_state(), {k: v for k, v in side.items() if v is not None}) == text


# --- greedy headers and margins -------------------------------------------------------------------


def test_malformed_greedy_header_says_whose_and_how_to_write_it() -> None:
    with pytest.raises(InputError) as raised:
        parse_greedy("1;2", "here")
    assert raised.value.next_step == "write it as # greedy 32:611,33:88"
    good, bad = Dump({"greedy": "1:2"}, {}, "one"), Dump({"greedy": "x"}, {}, "other")
    for sides in ((good, bad), (bad, good)):
        with pytest.raises(InputError, match=r"^other: header greedy: 'x' is"):
            match_greedy(*sides)


def test_margin_that_cannot_be_measured_keeps_its_place() -> None:
    margin = measure(7, (1, 2), np.zeros(4, F32), np.zeros(5, F32))
    assert (margin.pos, margin.ref_id, margin.dut_id) == (7, 1, 2)


def test_smallest_unit_is_the_smallest_float() -> None:
    """Between subnormal logits one ULP is 2^-149, whatever their exponent."""
    ref = np.array([4, 3, 2], np.uint32).view(F32)
    dut = np.array([3, 4, 3], np.uint32).view(F32)
    margin = measure(0, (0, 1), ref, dut)
    assert margin.text.endswith("explained, other logits moved by up to 1 ULP of that size")
