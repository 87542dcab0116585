"""Tensors from .npz, .safetensors and folders of .npy, compared without an engine."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

from parity.comparison.compare import compare_dumps
from parity.comparison.elements import compare_tensors
from parity.dump import TensorType
from parity.dumps.safetensors import read_layout
from parity.dumps.tensor_files import is_tensor_path, read_tensors
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64
from parity.status import Verdict

F32 = np.float32
CODES = {"float16": "F16", "float32": "F32", "float64": "F64", "int8": "I8", "int32": "I32"}
CODES |= {"uint16": "BF16", "uint8": "U8", "bool": "BOOL", "int64": "I64"}
CODES |= {"int16": "I16", "uint64": "U64"}
TENSORS = {
    "t0_l1_x": np.arange(6, dtype=F32).reshape(2, 3),
    "t0_l0_k": np.array([[-1, 2]], np.int8),
    "t0_logits": np.array(1.5, F32),
}


def safetensors(path: Path, tensors: dict[str, np.ndarray], **table: object) -> Path:
    """Write the container by hand; uint16 arrays are stored as BF16."""
    entries: dict[str, object] = {"__metadata__": {"writer": "test"}}
    at = 0
    for name, array in tensors.items():
        offsets = [at, at + array.nbytes]
        fields = {"dtype": CODES[array.dtype.name], "shape": array.shape, "data_offsets": offsets}
        entries[name] = fields
        at += array.nbytes
    text = json.dumps({**entries, **table}).encode()
    data = b"".join(array.tobytes() for array in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def npz(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    np.savez(path, **tensors)
    return path


def folder(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    path.mkdir()
    for name, array in tensors.items():
        np.save(path / f"{name}.npy", array)
    return path


WRITERS = {"a.npz": npz, "a.safetensors": safetensors, "a": folder}


def write(place: Path, tensors: dict[str, np.ndarray], name: str) -> Path:
    place.mkdir(exist_ok=True)
    return WRITERS[name](place / name, tensors)


@pytest.mark.parametrize("name", WRITERS)
def test_each_tensor_is_a_key_with_type_and_digest(tmp_path: Path, name: str) -> None:
    dump, load = read_tensors(write(tmp_path, TENSORS, name))
    found = {entry.key.tag: entry for entry in dump.entries}
    assert found.keys() == TENSORS.keys()
    assert found["t0_l1_x"].type == TensorType("f32", (2, 3))
    assert found["t0_l0_k"].type == TensorType("int8", (1, 2))
    assert found["t0_logits"].type == TensorType("f32", ())
    for tag, array in TENSORS.items():
        assert found[tag].digest == fnv1a64(array.tobytes())
        assert load(tag).array.tobytes() == array.tobytes()
        assert load(tag).array.shape == array.shape
    assert dump.source == str(tmp_path / name)


@pytest.mark.parametrize("ref", WRITERS)
@pytest.mark.parametrize("dut", WRITERS)
def test_any_two_containers_compare(tmp_path: Path, ref: str, dut: str) -> None:
    changed = {**TENSORS, "t0_l1_x": TENSORS["t0_l1_x"].copy()}
    changed["t0_l1_x"][1, 2] = np.nextafter(F32(5), F32(6))
    ref_dump, ref_load = read_tensors(write(tmp_path / "ref", TENSORS, ref))
    same, _ = read_tensors(write(tmp_path / "same", TENSORS, dut))
    dut_dump, dut_load = read_tensors(write(tmp_path / "dut", changed, dut))
    assert compare_dumps(ref_dump, same).verdict is Verdict.SAME
    tree = compare_dumps(ref_dump, dut_dump)
    assert (tree.verdict, tree.first, tree.counts.differ) == (Verdict.DIVERGED, "t0_l1_x", 1)
    sides = ref_load("t0_l1_x"), dut_load("t0_l1_x")
    arrays, dtypes = [side.array for side in sides], (sides[0].dtype, sides[1].dtype)
    found = compare_tensors("t0_l1_x", *arrays, dtypes=dtypes)
    assert [(row.index, row.ulp) for row in found.rows] == [((1, 2), 1)]


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("a.npz", ["z", "block.10.q", "logits", "block.9.q", "t0_l0_x"]),
        ("a.safetensors", ["block.9.q", "block.10.q", "logits", "z", "t0_l0_x"]),
        ("a", ["block.9.q", "block.10.q", "logits", "z", "t0_l0_x"]),
    ],
)
def test_names_without_a_keys_form_compare_in_the_files_order(
    tmp_path: Path, name: str, order: list[str]
) -> None:
    names = ["z", "t0_l0_x", "block.10.q", "logits", "block.9.q"]
    ref, _ = read_tensors(write(tmp_path, {name: np.ones(2, F32) for name in names}, name))
    zero, _ = read_tensors(
        write(tmp_path / "dut", {name: np.zeros(2, F32) for name in names}, name)
    )
    tree = compare_dumps(ref, zero)
    assert [row.key for row in tree.keys] == order
    assert tree.first == order[0]


def test_the_refs_order_decides_when_the_containers_differ(tmp_path: Path) -> None:
    tensors = {"second": np.ones(2, F32), "first": np.ones(2, F32)}
    ref, _ = read_tensors(npz(tmp_path / "a.npz", tensors))
    dut, _ = read_tensors(folder(tmp_path / "b", {n: 2 * a for n, a in tensors.items()}))
    assert compare_dumps(ref, dut).first == "second"
    assert compare_dumps(dut, ref).first == "first"


def test_a_name_on_one_side_only_is_a_missing_key(tmp_path: Path) -> None:
    ref, _ = read_tensors(npz(tmp_path / "a.npz", {"free": F32([1]), "other": F32([1])}))
    dut, _ = read_tensors(npz(tmp_path / "b.npz", {"other": F32([1])}))
    tree = compare_dumps(ref, dut)
    assert (tree.first, tree.counts.missing, tree.counts.same) == ("free", 1, 1)


@pytest.mark.parametrize("name", WRITERS)
def test_no_tensors_are_nothing_compared(tmp_path: Path, name: str) -> None:
    dump, _ = read_tensors(write(tmp_path, {}, name))
    assert compare_dumps(dump, dump).verdict is Verdict.NOT_RUN


def test_bf16_and_f16(tmp_path: Path) -> None:
    tensors = {"a": np.array([0x3F80, 0x7FC0], np.uint16), "b": np.array([1.5], np.float16)}
    dump, load = read_tensors(safetensors(tmp_path / "a.safetensors", tensors))
    assert [str(entry.type) for entry in dump.entries] == ["bf16[2]", "f16[1]"]
    bf16 = load("a")
    assert (bf16.dtype, bf16.array.tolist()) == ("bf16", [0x3F80, 0x7FC0])
    plain, _ = read_tensors(npz(tmp_path / "a.npz", tensors))
    assert compare_dumps(dump, plain).first == "a"  # bf16 against uint16: another dtype


def test_other_byte_orders_have_the_same_digest(tmp_path: Path) -> None:
    ref, _ = read_tensors(npz(tmp_path / "a.npz", TENSORS))
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in TENSORS.items()}
    dut, _ = read_tensors(npz(tmp_path / "b.npz", swapped))
    assert compare_dumps(ref, dut).verdict is Verdict.SAME


def test_fortran_order_is_hashed_in_c_order(tmp_path: Path) -> None:
    ref, _ = read_tensors(npz(tmp_path / "a.npz", TENSORS))
    columns = {name: np.asfortranarray(array) for name, array in TENSORS.items()}
    dut, _ = read_tensors(npz(tmp_path / "b.npz", {**columns, "t0_logits": F32(1.5).reshape(())}))
    assert compare_dumps(ref, dut).verdict is Verdict.SAME


def test_the_hash_can_be_the_other_one(tmp_path: Path) -> None:
    dump, _ = read_tensors(npz(tmp_path / "a.npz", TENSORS), "kestrel-fnv")
    assert dump.hash_name == "kestrel-fnv"
    assert dump.entries[1].digest == fnv1a64(b"\xff\x02", BASES["kestrel-fnv"])


def test_which_paths_hold_tensors(tmp_path: Path) -> None:
    assert is_tensor_path(tmp_path)
    assert is_tensor_path(Path("a.npz"))
    assert is_tensor_path(Path("a.safetensors"))
    assert not is_tensor_path(Path("a.dump"))


# --- refused


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_tensors(path)
    assert caught.value.message.startswith(str(path))
    assert caught.value.next_step
    return caught.value.message


def test_other_and_absent_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert "not a tensor file" in refusal(tmp_path / "a.txt")
    for name in ("gone.npz", "gone.safetensors"):
        assert "No such file" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["a.npz", "a"])
def test_pickles_and_odd_dtypes_are_refused_by_tensor(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "pickle", {"bad": np.array([None, {}], object)}, name)
    message = refusal(path)
    assert "bad" in message
    assert "pickle" in message.removeprefix(str(path))
    for at, array in enumerate((np.ones(2, np.complex64), np.array(["a"]), np.zeros(1, "f4,f4"))):
        assert "bad" in refusal(write(tmp_path / str(at), {"bad": array}, name))


@pytest.mark.parametrize("keep", [0, 3, 40, 135, 140])
def test_a_cut_npy_is_refused(tmp_path: Path, keep: int) -> None:
    path = folder(tmp_path / "a", {"x": np.arange(8, dtype=F32)})
    file = path / "x.npy"
    file.write_bytes(file.read_bytes()[:keep])
    assert "damaged" in refusal(path)


def test_a_shape_too_large_for_the_memory_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", {})
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**15,)}
    with (path / "x.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
    assert "damaged" in refusal(path)


@pytest.mark.parametrize("at", range(0, 128, 5), ids="byte {}".format)
def test_a_damaged_npy_header_is_refused(tmp_path: Path, at: int) -> None:
    """An open bracket in most places makes NumPy raise; byte 60 is the bracket of the shape."""
    path = folder(tmp_path / "a", {"x": np.arange(8, dtype=F32)})
    data = bytearray((path / "x.npy").read_bytes())
    data[at] = ord("(") if at != 60 else ord("[")
    (path / "x.npy").write_bytes(data)
    assert "damaged" in refusal(path)


@pytest.mark.parametrize("place", [0, 70, -30])
def test_a_damaged_npz_is_refused(tmp_path: Path, place: int) -> None:
    path = npz(tmp_path / "a.npz", {"x": np.arange(8, dtype=F32)})
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
    assert "damaged" in refusal(path)


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", {"x": np.ones(2, F32)})
    member = zipfile.ZipFile(path).read("x.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", member)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", member)
    assert refusal(path).endswith("x appears twice")


def test_a_foreign_member_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "x")
    assert "'readme.txt' is not a .npy" in refusal(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["", "two\nlines", "\x1b[31m"])
def test_a_name_that_cannot_be_printed_is_refused(tmp_path: Path, name: str) -> None:
    path = safetensors(tmp_path / "a.safetensors", {name: np.ones(2, F32)})
    assert f"bad tensor name {name!r}" in refusal(path)


FIELDS = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BAD_TABLES = {
    "no dtype": ({**FIELDS, "dtype": None}, "lacks a proper dtype"),
    "unknown dtype": ({**FIELDS, "dtype": "F4"}, "dtype 'F4'"),
    "negative size": ({**FIELDS, "shape": [-2]}, "lacks a proper"),
    "true as a size": ({**FIELDS, "shape": [True, 2]}, "lacks a proper"),
    "shape as a number": ({**FIELDS, "shape": 2}, "lacks a proper"),
    "one offset": ({**FIELDS, "data_offsets": [0]}, "lacks a proper"),
    "reversed offsets": ({**FIELDS, "data_offsets": [8, 0]}, "has -8 bytes, 8 needed"),
    "wrong size": ({**FIELDS, "shape": [3]}, "has 8 bytes, 12 needed"),
    "a hole in front": ({**FIELDS, "data_offsets": [4, 12]}, "expected"),
    "not an object": ([1], "lacks a proper"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_malformed_safetensors_entry_is_refused(tmp_path: Path, name: str) -> None:
    fields, what = BAD_TABLES[name]
    path = safetensors(tmp_path / "a.safetensors", {"x": np.ones(2, F32)}, x=fields)
    assert what in refusal(path)


def raw(path: Path, text: bytes, data: bytes = b"", length: int | None = None) -> Path:
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


TABLE = json.dumps({"x": FIELDS}).encode()
BAD_FILES = {
    "bytes left over": (TABLE, b"\0" * 9, None, "the tensors end at byte"),
    "cut": (TABLE, b"\0" * 7, None, "the tensors end at byte"),
    "length too large": (TABLE, b"\0" * 8, 10**6, "does not fit"),
    "absurd length": (TABLE, b"\0" * 8, 2**63, "does not fit"),
    "not JSON": (b"{", b"", None, "not JSON"),
    "not UTF-8": (b'{"\xff": 1}', b"", None, "not JSON"),
    "a list": (b"[]", b"", None, "not a JSON object"),
    "nested too deep": (b"[" * 100_000, b"", None, "not JSON"),
    "a name twice": (TABLE[:-1] + b', "x": {}}', b"\0" * 8, None, "'x' appears twice"),
    "overlap": (
        json.dumps({"x": FIELDS, "y": FIELDS}).encode(),
        *(b"\0" * 8, None, "'y' begins at byte"),
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_malformed_safetensors_file_is_refused(tmp_path: Path, name: str) -> None:
    text, data, length, what = BAD_FILES[name]
    assert what in refusal(raw(tmp_path / "a.safetensors", text, data, length))


@pytest.mark.parametrize("size", [0, 7])
def test_a_safetensors_file_shorter_than_its_length_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\0" * size)
    assert "does not fit" in refusal(tmp_path / "a.safetensors")


def test_a_dtype_without_a_comparison_is_refused_by_tensor(tmp_path: Path) -> None:
    fields = {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}
    path = safetensors(tmp_path / "a.safetensors", {"x": np.ones(2, F32)}, x=fields)
    assert "x: dtype F8_E4M3 cannot be compared" in refusal(path)
    assert math.prod(read_layout(path)["x"].shape) == 8
