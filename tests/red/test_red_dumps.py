"""Planted faults that common checks miss, in dumps and in tensor files.

Each must be caught at exactly its key, with its exit status, and shown at its elements. What
stays the same must not raise an alarm.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.comparison.compare import compare_dumps, exit_status
from parity.comparison.elements import compare_tensors, dtype_name
from parity.digests.chain import first_by_bisection
from parity.dump import Dump, Entry, TensorType
from parity.dumps.reader import read_dump
from parity.dumps.tensor_files import read_tensors
from parity.dumps.writer import write_dump
from parity.errors import InputError
from parity.fnv import fnv1a64_array
from parity.keys import Key, KeyOrder
from parity.status import ExitStatus, Level, Verdict

F32 = np.float32
PLANTED = "t2_l1_attn"
FIELDS = ("nrm", "k", "ks", "attn", "x")
CODES = {"float32": "F32", "float64": "F64", "int8": "I8"}
Tensors = dict[str, np.ndarray]


def run_of_three_tokens() -> Tensors:
    """Three positions of two layers and logits, in dataflow order. The planted key is square,
    holds a zero, a NaN and, in rows 2 and 3, values that differ."""
    rng = np.random.default_rng(5)
    tensors: Tensors = {}
    for pos in range(3):
        for layer in range(2):
            for field in FIELDS:
                array = rng.standard_normal((4, 4)).astype(F32)
                small = (array * 50).astype(np.int8)
                tensors[f"t{pos}_l{layer}_{field}"] = small if field == "k" else array
        tensors[f"t{pos}_logits"] = rng.standard_normal(16).astype(F32)
    tensors[PLANTED][0, 1] = 0.0
    tensors[PLANTED][0, 2] = np.nan
    return tensors


def one_ulp(x: np.ndarray) -> np.ndarray:
    x[3, 2] = np.nextafter(x[3, 2], F32(np.inf))
    return x


def negative_zero(x: np.ndarray) -> np.ndarray:
    x[0, 1] = -0.0
    return x


def nan_payload(x: np.ndarray) -> np.ndarray:
    x.view(np.uint32)[0, 2] ^= 1
    return x


def swapped_elements(x: np.ndarray) -> np.ndarray:
    x[1, 1], x[2, 3] = x[2, 3], x[1, 1]
    return x


def stale_row(x: np.ndarray) -> np.ndarray:
    x[3] = x[2]
    return x


# Name: (fault, elements that differ, kinds of difference), None where elements cannot tell.
FAULTS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int, set[str]]] = {
    "1 ULP in one element": (one_ulp, 1, {"value"}),
    "two rows swapped": (lambda x: x[[0, 2, 1, 3]], 8, {"value"}),
    "two elements swapped": (swapped_elements, 2, {"value"}),
    "every sign flipped": (lambda x: -x, 16, {"value", "zero sign", "NaN payload"}),
    "transposed": (lambda x: x.T, 12, {"value", "NaN in ref", "NaN in dut"}),
    "+0 to -0": (negative_zero, 1, {"zero sign"}),
    "NaN payload": (nan_payload, 1, {"NaN payload"}),
    "f32 to f64": (lambda x: x.astype(np.float64), 0, set()),
    "another shape": (lambda x: x.reshape(2, 8), 0, set()),
    "stale row": (stale_row, 4, {"value"}),
}


def planted(name: str) -> Tensors:
    tensors = run_of_three_tokens()
    return {**tensors, PLANTED: FAULTS[name][0](tensors[PLANTED].copy())}


def entry(tag: str, array: np.ndarray) -> Entry:
    kind = TensorType(dtype_name(array.dtype), array.shape)
    return Entry(Key.parse(tag), fnv1a64_array(array), kind)


def dumped(path: Path, tensors: Tensors, plain: bool = False) -> Dump:
    """Through a file, as an engine's dump comes."""
    entries = [entry(tag, array) for tag, array in tensors.items()]
    write_dump(Dump({"engine": "test"}, {"": entries}), path, plain=plain)
    return read_dump(path)


def in_npz(path: Path, tensors: Tensors) -> Dump:
    np.savez(path.with_suffix(".npz"), **tensors)
    return read_tensors(path.with_suffix(".npz"))[0]


def in_folder(path: Path, tensors: Tensors) -> Dump:
    path.mkdir()
    for tag, array in tensors.items():
        np.save(path / f"{tag}.npy", array)
    return read_tensors(path)[0]


def in_safetensors(path: Path, tensors: Tensors) -> Dump:
    table, data = {}, b""
    for tag, array in tensors.items():
        offsets = [len(data), len(data) + array.nbytes]
        kind = CODES[array.dtype.name]
        table[tag] = {"dtype": kind, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(table).encode()
    file = path.with_suffix(".safetensors")
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return read_tensors(file)[0]


CARRIERS = {
    "dump": dumped,
    "npz": in_npz,
    "folder": in_folder,
    "safetensors": in_safetensors,
}
Carrier = Callable[[Path, Tensors], Dump]


@pytest.fixture(params=CARRIERS)
def carry(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, Tensors], Dump]:
    """Bring tensors into a dump the way a user would, under a file name."""
    return lambda name, tensors: CARRIERS[request.param](tmp_path / name, tensors)


def assert_caught_at(ref: Dump, dut: Dump, tag: str) -> None:
    tree = compare_dumps(ref, dut)
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, tag)
    assert exit_status(tree) is ExitStatus.DIVERGED
    counts = tree.counts
    assert (counts.differ + counts.missing + counts.extra, counts.total) == (1, 33)
    key, _ = first_by_bisection(ref, dut)
    assert key == Key.parse(tag)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught_at_its_key(
    carry: Callable[[str, Tensors], Dump], fault: str
) -> None:
    assert_caught_at(carry("ref", run_of_three_tokens()), carry("dut", planted(fault)), PLANTED)


@pytest.mark.parametrize("place", [0, 18, 32])
@pytest.mark.parametrize("lacking", ["ref", "dut"])
def test_a_missing_and_an_extra_key_are_caught_at_their_key(
    carry: Callable[[str, Tensors], Dump], lacking: str, place: int
) -> None:
    whole = run_of_three_tokens()
    tag = list(whole)[place]
    part = {name: array for name, array in whole.items() if name != tag}
    sides = {"ref": (part, whole), "dut": (whole, part)}[lacking]
    assert_caught_at(carry("ref", sides[0]), carry("dut", sides[1]), tag)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_shows_at_its_elements(fault: str) -> None:
    _, differ, kinds = FAULTS[fault]
    ref, dut = run_of_three_tokens()[PLANTED], planted(fault)[PLANTED]
    found = compare_tensors(PLANTED, ref, dut, limit=16)
    assert found.differ == differ == len(found.rows)
    assert {row.kind for row in found.rows} == kinds
    assert bool(found.note) == (found.ref_type != found.dut_type)
    assert found.differ or found.note


def test_one_ulp_is_shown_as_one_ulp() -> None:
    ref, dut = run_of_three_tokens()[PLANTED], planted("1 ULP in one element")[PLANTED]
    found = compare_tensors(PLANTED, ref, dut)
    assert [(row.index, row.ulp) for row in found.rows] == [((3, 2), 1)]
    assert found.groups == [(3, 1)]


def test_a_key_that_appears_twice_is_a_malformed_file(tmp_path: Path) -> None:
    path = tmp_path / "dut"
    dumped(path, run_of_three_tokens())
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[7]]) + "\n")
    with pytest.raises(InputError) as caught:
        read_dump(path)
    assert caught.value.exit_status is ExitStatus.USAGE
    assert caught.value.message == (
        f"{path} line {len(lines) + 1}: key {lines[7].split()[0]} appears twice in its segment"
    )


def test_no_false_alarm_for_the_same_bytes_also_with_a_nan(
    carry: Callable[[str, Tensors], Dump],
) -> None:
    assert np.isnan(run_of_three_tokens()[PLANTED]).any()
    tree = compare_dumps(carry("ref", run_of_three_tokens()), carry("dut", run_of_three_tokens()))
    assert (tree.verdict, tree.level, tree.counts.same) == (Verdict.SAME, Level.BIT, 33)
    assert exit_status(tree) is ExitStatus.SAME
    assert tree.notes == []


def test_another_line_order_is_reported_and_is_no_verdict(tmp_path: Path) -> None:
    tensors = run_of_three_tokens()
    ref = dumped(tmp_path / "ref", tensors)
    dut = dumped(tmp_path / "dut", dict(reversed(tensors.items())))
    tree = compare_dumps(ref, dut)
    assert (tree.verdict, exit_status(tree)) == (Verdict.SAME, ExitStatus.SAME)
    assert tree.notes == ["line order differs: compared by key, in dataflow order"]


def test_what_two_columns_cannot_tell_is_said(tmp_path: Path) -> None:
    """Without the type column, the same bytes in another shape look the same: a note says so."""
    ref = dumped(tmp_path / "ref", run_of_three_tokens())
    dut = dumped(tmp_path / "dut", planted("another shape"), plain=True)
    tree = compare_dumps(ref, dut)
    assert tree.verdict is Verdict.SAME
    assert tree.notes == ["dtype and shape not recorded in dut (33 keys): digest alone compared"]
    caught = dumped(tmp_path / "more", planted("f32 to f64"), plain=True)
    assert compare_dumps(ref, caught).first == PLANTED


def test_of_two_faults_the_earlier_in_dataflow_is_named(
    carry: Callable[[str, Tensors], Dump],
) -> None:
    tensors = planted("1 ULP in one element")
    tensors["t1_l1_x"] = -tensors["t1_l1_x"]
    ref, dut = carry("ref", run_of_three_tokens()), carry("dut", tensors)
    assert compare_dumps(ref, dut).first == "t1_l1_x"
    del tensors["t1_l1_ks"]
    assert compare_dumps(ref, carry("lacking", tensors)).first == "t1_l1_ks"


@pytest.mark.parametrize("tag", [*run_of_three_tokens()])
def test_one_bit_in_any_key_is_caught_at_that_key(tag: str, tmp_path: Path) -> None:
    tensors = run_of_three_tokens()
    ref = dumped(tmp_path / "ref", tensors)
    flat = tensors[tag].reshape(-1).view(np.uint8)
    flat[-1] ^= 1
    assert_caught_at(ref, dumped(tmp_path / "dut", tensors), tag)


def test_the_tensors_stand_in_dataflow_order() -> None:
    keys = [Key.parse(tag) for tag in run_of_three_tokens()]
    assert sorted(keys, key=KeyOrder()) == keys
