"""``parity compare`` on files of tensors, without an engine: every difference, down to the bit."""

from __future__ import annotations

import json
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import parity
from parity.comparison.elements import compare_tensors
from parity.comparison.files import compare_files
from parity.dumps.reader import read_dump
from parity.dumps.tensor_files import read_tensors
from parity.errors import InputError
from parity.keys import Key
from parity.protocol import Plan, Step
from parity.runs.engine_diff import Ask
from parity.tree import Tree
from parity_cpu.engine import Engine
from tests.cli_runner import Result, run_cli
from tests.core.test_tensor_files import WRITERS, folder, npz, safetensors

F32 = np.float32


def compared(tmp_path: Path, ref: Path, dut: Path, *words: str) -> tuple[int, Tree]:
    path = tmp_path / "run.json"
    result = run_cli("compare", str(ref), str(dut), *words, "--json", str(path))
    return result.status, Tree.from_json(path.read_text())


def refused(ref: Path, dut: Path) -> str:
    """What ``parity compare`` says of files that it refuses: one line, and a next step."""
    result: Result = run_cli("compare", str(ref), str(dut))
    assert (result.status, result.stdout) == (2, "")
    said, step = result.stderr.splitlines()
    assert said.startswith("parity: ")
    assert step.startswith("  next: ")
    return said


# --- what an element is, in every dtype

NUMPY = {"f16": "f2", "f32": "f4", "f64": "f8", "bool": "?"}
# dtype, bits of ref and dut, values as printed, ULP or steps, kind
ELEMENTS: list[tuple[str, int, int, str, str, int | None, str]] = [
    ("f32", 0x3F800000, 0x3F800001, "+1.00000000e+00", "+1.00000012e+00", 1, "value"),
    ("f32", 0x80000001, 0x00000001, "-1.40129846e-45", "+1.40129846e-45", 2, "value"),
    ("f32", 0x00000000, 0x80000000, "+0.00000000e+00", "-0.00000000e+00", None, "zero sign"),
    ("f32", 0x7FC00000, 0x7FC00001, "NaN", "NaN", None, "NaN payload"),
    ("f32", 0x7FC00000, 0xFFC00000, "NaN", "NaN", None, "NaN payload"),
    ("f32", 0x7FC00000, 0x3F800000, "NaN", "+1.00000000e+00", None, "NaN in ref"),
    ("f32", 0x3F800000, 0x7FC00000, "+1.00000000e+00", "NaN", None, "NaN in dut"),
    ("f32", 0x7F7FFFFF, 0x7F800000, "+3.40282347e+38", "+inf", 1, "infinity"),
    ("f16", 0x3C00, 0x3BFF, "+1.00000000e+00", "+9.99511719e-01", -1, "value"),
    ("f16", 0x7C01, 0x7E00, "NaN", "NaN", None, "NaN payload"),
    ("bf16", 0x3F80, 0x3F82, "+1.00000000e+00", "+1.01562500e+00", 2, "value"),
    ("bf16", 0x0000, 0x8000, "+0.00000000e+00", "-0.00000000e+00", None, "zero sign"),
    ("bf16", 0x7FC0, 0x3F80, "NaN", "+1.00000000e+00", None, "NaN in ref"),
    (
        *("f64", 0x3FF0000000000000, 0x3FF0000000000001),
        *("+1.0000000000000000e+00", "+1.0000000000000002e+00", 1, "value"),
    ),
    (
        *("f64", 0xFFEFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF),
        *("-1.7976931348623157e+308", "+1.7976931348623157e+308"),
        *(2 * 0x7FEFFFFFFFFFFFFF, "value"),
    ),
    ("int8", 0x80, 0x7F, "-128", "127", 255, "value"),
    ("int16", 0x0001, 0xFFFF, "1", "-1", -2, "value"),
    ("int32", 0x00000005, 0x00000007, "5", "7", 2, "value"),
    ("int64", 1 << 63, (1 << 63) - 1, str(-(1 << 63)), str((1 << 63) - 1), (1 << 64) - 1, "value"),
    ("uint8", 0x00, 0xFF, "0", "255", 255, "value"),
    ("uint64", (1 << 64) - 1, 0, str((1 << 64) - 1), "0", -((1 << 64) - 1), "value"),
    ("bool", 0x00, 0x01, "false", "true", 1, "value"),
]


def of_bits(name: str, bits: int) -> np.ndarray:
    """[2, 2] elements of dtype ``name``, the last with these bits; bf16 in uint16."""
    dtype = np.dtype(NUMPY.get(name, "u2" if name == "bf16" else name))
    array = np.zeros((2, 2), dtype)
    array.view(f"u{dtype.itemsize}")[1, 1] = bits
    return array


SHOWN = [
    pytest.param(case, container, id=f"{case[0]} {case[1]:x} {case[2]:x} in {container}")
    for case in ELEMENTS
    for container in WRITERS
    if case[0] != "bf16" or container == "a.safetensors"  # a .npy has no bf16
]


@pytest.mark.parametrize(("case", "container"), SHOWN)
def test_an_element_is_shown_to_the_bit(tmp_path: Path, case: Any, container: str) -> None:
    name, ref, dut, ref_value, dut_value, ulp, kind = case
    files = []
    for role, bits in (("ref", ref), ("dut", dut)):
        (tmp_path / role).mkdir()
        files.append(WRITERS[container](tmp_path / role / container, {"x": of_bits(name, bits)}))
    status, tree = compared(tmp_path, *files)
    assert (status, tree.first) == (1, "x")
    assert tree.elements is not None
    assert (tree.elements.ref_type, tree.elements.differ) == (f"{name}[2,2]", 1)
    (row,) = tree.elements.rows
    digits = {"bool": 2}.get(name, of_bits(name, 0).itemsize * 2)
    assert (row.index, row.ref_hex, row.dut_hex) == (
        (1, 1),
        f"{ref:0{digits}x}",
        f"{dut:0{digits}x}",
    )
    assert (row.ref_value, row.dut_value, row.ulp, row.kind) == (ref_value, dut_value, ulp, kind)
    assert compared(tmp_path, files[0], files[0])[0] == 0


# --- what differs

A, B = np.arange(1, 7, dtype=F32).reshape(2, 3), np.array([3, 4], np.int8)
PAIRS: dict[str, tuple[dict[str, np.ndarray], str, str]] = {
    "one bit": ({"a": A, "b": B ^ 1}, "b", "differs"),
    "rows swapped": ({"a": A[::-1], "b": B}, "a", "differs"),
    "transposed bytes, same shape": ({"a": A.T.reshape(2, 3), "b": B}, "a", "differs"),
    "wider": ({"a": A.astype(np.float64), "b": B}, "a", "differs"),
    "same bytes as integers": ({"a": A.view(np.int32), "b": B}, "a", "differs"),
    "same bytes in another shape": ({"a": A.reshape(3, 2), "b": B}, "a", "differs"),
    "shorter": ({"a": A, "b": B[:1]}, "b", "differs"),
    "missing": ({"a": A}, "b", "missing"),
    "extra": ({"a": A, "b": B, "c": B}, "c", "extra"),
    "renamed": ({"a": A, "c": B}, "c", "extra"),
}


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("ref", WRITERS)
@pytest.mark.parametrize("dut", WRITERS)
def test_every_difference_is_red_at_its_name(tmp_path: Path, case: str, ref: str, dut: str) -> None:
    values, first, state = PAIRS[case]
    values = {name: np.ascontiguousarray(array) for name, array in values.items()}
    for role in ("ref", "dut"):
        (tmp_path / role).mkdir()
    files = (
        WRITERS[ref](tmp_path / "ref" / ref, {"a": A, "b": B}),
        WRITERS[dut](tmp_path / "dut" / dut, values),
    )
    status, tree = compared(tmp_path, *files)
    assert (status, tree.verdict, tree.first) == (1, "diverged", first)
    assert next(row.state for row in tree.keys if row.key == first) == state
    assert (tree.elements is not None) == (state == "differs")


class Kept(Engine):
    """The cpu engine; it keeps the tensors of the keys of a dump."""

    wanted: ClassVar[frozenset[Key]] = frozenset()
    kept: ClassVar[dict[str, np.ndarray]] = {}

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is None or plan.inject is not None:  # the control's value is not the run's
            return super().step(token, plan)
        step = super().step(token, replace(plan, tensors=self.wanted))
        self.kept.update({key.tag: array for key, array in step.tensors.items()})
        return step


@pytest.mark.parametrize("plain", [False, True])
def test_tensors_against_a_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    words = ["--tokens", "1,2", "--n", "1", *(["--plain"] if plain else [])]
    dumps = [tmp_path / f"{name}.dump" for name in ("fnv1a64", "kestrel-fnv")]
    for dump in dumps:
        made = run_cli("dump", *words, "--hash", dump.stem, "-o", str(dump))
        assert made.status == 0, made.stderr
    wanted = [entry.key for entry in read_dump(dumps[0]).entries]
    monkeypatch.setattr(Kept, "wanted", frozenset(wanted))
    kept = parity.diff("cpu", Kept, tokens=[1, 2], n=1)
    assert kept.same
    values = dict(Kept.kept)
    assert values.keys() == {key.tag for key in wanted}
    path = npz(tmp_path / "a.npz", values)
    for dump in dumps:
        assert compared(tmp_path, dump, path)[0] == 0
        assert compared(tmp_path, path, dump)[0] == 0
    values["t2_l1_attn"] = np.nextafter(values["t2_l1_attn"], F32(99))
    status, tree = compared(tmp_path, dumps[1], npz(tmp_path / "b.npz", values))
    assert (status, tree.first, tree.elements) == (1, "t2_l1_attn", None)


def test_another_order_of_the_refs_npz_decides_which_comes_first(tmp_path: Path) -> None:
    ref, dut = (
        npz(tmp_path / "a.npz", {"b": B, "a": A}),
        npz(tmp_path / "b.npz", {"a": -A, "b": -B}),
    )
    assert compared(tmp_path, ref, dut)[1].first == "b"
    assert compared(tmp_path, dut, ref)[1].first == "a"


# --- large tensors stay on the disk


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large from 64 KiB on, in pieces of 4,096 elements."""
    monkeypatch.setattr("parity.dumps.tensor_files.LARGE", 1 << 16)
    monkeypatch.setattr("parity.dtypes.PIECE", 1 << 12)


def compressed(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    np.savez_compressed(path, **tensors)
    return path


LARGE_WRITERS: dict[str, Callable[[Path, dict[str, np.ndarray]], Path]] = {
    **WRITERS,
    "compressed.npz": compressed,
}


def large(seed: int = 1) -> np.ndarray:
    """8 MiB of f32, [2048, 1024]."""
    return np.random.default_rng(seed).standard_normal((2048, 1024), F32)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", LARGE_WRITERS)
def test_large_tensors_are_compared_in_pieces(tmp_path: Path, name: str) -> None:
    ref, dut = large(), large()
    dut[1999, 7] = np.nan
    dut[3, 5] = np.nextafter(dut[3, 5], F32(99))
    files = []
    for role, array in (("ref", ref), ("dut", dut)):
        (tmp_path / role).mkdir()
        files.append(LARGE_WRITERS[name](tmp_path / role / name, {"x": array}))
    del ref, dut
    tracemalloc.start()
    tree = compare_files(*files, Ask())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20, f"{peak:,} bytes in memory at once"
    assert tree.elements is not None
    assert [(row.index, row.kind, row.ulp) for row in tree.elements.rows] == [
        ((3, 5), "value", 1),
        ((1999, 7), "NaN in dut", None),
    ]
    assert tree.elements.groups == [(3, 1), (1999, 1)]


def test_pieces_change_nothing_of_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Column order, a reversed view and every kind of difference, in pieces of 7 and at once."""
    random = np.random.default_rng(5)
    bits = random.integers(0, 1 << 32, (40, 9), np.uint32)
    other = bits.copy()
    other[random.random(bits.shape) < 0.6] ^= np.uint32(1)
    other[::3] = random.integers(0, 1 << 32, other[::3].shape, np.uint32)
    other[5, :4], bits[5, :4] = 0x80000000, 0
    other[6, :2], bits[6, :2] = 0x7FC00001, 0x7FC00000
    sides = (np.asfortranarray(bits).view(F32), other.view(F32))
    for limit in (1, 3, 12, 1000):
        whole = compare_tensors("x", *sides, limit=limit)
        for piece in (1, 7, 64):
            monkeypatch.setattr("parity.dtypes.PIECE", piece)
            assert compare_tensors("x", *sides, limit=limit) == whole
        monkeypatch.setattr("parity.dtypes.PIECE", 1 << 21)


@pytest.mark.usefixtures("small_pieces")
def test_a_large_array_in_column_order_has_the_same_digest(tmp_path: Path) -> None:
    array = large()
    for name in ("a.npz", "a"):
        one = WRITERS[name](tmp_path / f"c{name}", {"x": array})
        other = WRITERS[name](tmp_path / f"f{name}", {"x": np.asfortranarray(array)})
        tracemalloc.start()
        found = read_tensors(other)[0]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20, f"{peak:,} bytes in memory at once"
        assert found.entries == read_tensors(one)[0].entries


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("at", [200, 100_000, -200])
def test_a_large_member_with_a_changed_byte_is_refused(tmp_path: Path, at: int) -> None:
    path = npz(tmp_path / "a.npz", {"x": large()[:64]})
    good = npz(tmp_path / "good.npz", {"x": large()[:64]})
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert "damaged" in refused(path, good)


# --- refused


class Evil:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self._path, "ran")


def test_no_code_in_a_file_is_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    evil = np.array([Evil(trace)], object)
    good = npz(tmp_path / "good.npz", {"x": A})
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "x.npy").write_bytes(pickle.dumps(Evil(trace)))
    for path in (
        npz(tmp_path / "a.npz", {"x": evil}),
        folder(tmp_path / "a", {"x": evil}),
        tmp_path / "raw",
    ):
        assert "pickle" in refused(path, good) or "magic" in refused(path, good)
        assert "pickle" in refused(good, path) or "magic" in refused(good, path)
    assert not trace.exists()


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    good = npz(tmp_path / "good.npz", {"x": A})
    bomb = compressed(tmp_path / "bomb.npz", {"x": np.zeros(1 << 25, np.uint32)})
    assert bomb.stat().st_size < 1 << 18
    assert "x.npy grows" in refused(good, bomb)
    assert "it looks like a zip bomb" in refused(bomb, good)


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    good = npz(tmp_path / "good.npz", {"x": A})
    path = npz(tmp_path / "a.npz", {"x": np.arange(500)})
    with zipfile.ZipFile(path, "a") as archive:
        member = archive.getinfo("x.npy")
        other = zipfile.ZipInfo("y.npy")
        for name in ("header_offset", "CRC", "compress_size", "file_size", "create_version"):
            setattr(other, name, getattr(member, name))
        archive.filelist.append(other)
        archive._didModify = True  # type: ignore[attr-defined]
    assert "members overlap: a zip bomb" in refused(path, good)


def test_bytes_after_the_array_are_refused(tmp_path: Path) -> None:
    """Two arrays saved into one file: NumPy reads the first and says nothing."""
    path = folder(tmp_path / "a", {"x": A})
    good = folder(tmp_path / "good", {"x": A})
    with (path / "x.npy").open("ab") as stream:
        np.save(stream, B)
    assert "bytes after its header, 24 needed" in refused(path, good)
    assert np.array_equal(np.load(path / "x.npy"), A)


def test_a_folder_holds_nothing_but_npy(tmp_path: Path) -> None:
    good = folder(tmp_path / "good", {"x": A})
    for name in ("y.npz", "notes.txt"):
        path = folder(tmp_path / f"with {name}", {"x": A})
        (path / name).write_bytes(b"")
        assert f"'{name}' is not a .npy" in refused(good, path)
    inner = folder(tmp_path / "outer", {"x": A})
    folder(inner / "layer.0", {"y": A})
    assert "'layer.0' is not a .npy" in refused(good, inner)
    (inner / "layer.0").rename(inner / "y.npy")
    assert "Is a directory" in refused(good, inner)
    hidden = folder(tmp_path / "hidden", {"x": A})
    (hidden / ".DS_Store").write_bytes(b"")
    assert compared(tmp_path, good, hidden)[0] == 0


def with_flag(path: Path, at: int, value: int) -> Path:
    """Change a 16-bit field of the only member, in both of its headers."""
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, at, value)
    struct.pack_into("<H", data, data.index(b"PK\x01\x02") + at + 2, value)
    path.write_bytes(data)
    return path


def test_members_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    good = npz(tmp_path / "good.npz", {"x": A})
    encrypted = with_flag(npz(tmp_path / "e.npz", {"x": A}), 6, 1)
    assert "x: damaged or not plain data" in refused(good, encrypted)
    method = with_flag(npz(tmp_path / "m.npz", {"x": A}), 8, 99)
    assert "x: damaged or not plain data" in refused(good, method)


def outcome(ref: Path, dut: Path) -> str:
    try:
        return str(compare_files(ref, dut, Ask()).verdict)
    except InputError:
        return "refused"


def test_no_changed_byte_of_an_npz_goes_unnoticed_or_crashes(tmp_path: Path) -> None:
    """Each byte has a checksum over it, or is a date, a version, an attribute or the like."""
    ref = npz(tmp_path / "a.npz", {"x": A})
    data, path, same = ref.read_bytes(), tmp_path / "b.npz", []
    values = {read_tensors(ref)[1]("x").array.tobytes()}
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :])
        found = outcome(ref, path)
        assert found in ("refused", "same"), f"byte {at}: {found}"
        if found == "same":
            same.append(at)
            values.add(read_tensors(path)[1]("x").array.tobytes())
    assert len(values) == 1
    assert not any(data.index(b"\x93NUMPY") <= at < data.index(b"PK\x01\x02") for at in same)


@pytest.mark.parametrize("container", ["a", "a.safetensors"])
def test_a_changed_byte_of_a_file_without_checksum_never_crashes(
    tmp_path: Path, container: str
) -> None:
    ref = WRITERS[container](tmp_path / container, {"x": A})
    file = ref / "x.npy" if ref.is_dir() else ref
    (tmp_path / "b").mkdir()
    path = tmp_path / "b" / "x.npy" if ref.is_dir() else tmp_path / "b" / file.name
    data = file.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :])
        found = outcome(ref, path.parent if ref.is_dir() else path)
        values_begin = len(data) - A.nbytes
        assert found in (
            ("diverged",) if at >= values_begin else ("refused", "diverged", "same", "not_run")
        )


def test_a_name_twice_and_a_cut_file_are_refused_by_the_command(tmp_path: Path) -> None:
    good = npz(tmp_path / "good.npz", {"x": A})
    twice = tmp_path / "twice.npz"
    member = zipfile.ZipFile(good).read("x.npy")
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("x.npy", member)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", member)
    assert "x appears twice" in refused(good, twice)
    data = good.read_bytes()
    for keep in (0, 3, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.npz").write_bytes(data[:keep])
        assert "damaged" in refused(good, tmp_path / "cut.npz")
    table = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(len(table).to_bytes(8, "little") + table + b"\0\0")
    assert "the tensors end at byte" in refused(good, cut)


def test_an_empty_array_is_the_same_as_itself(tmp_path: Path) -> None:
    tensors = {"x": np.empty((0, 3), F32), "y": np.empty((3, 0), np.float16)}
    for name in WRITERS:
        for role in ("ref", "dut"):
            (tmp_path / name[-3:] / role).mkdir(parents=True, exist_ok=True)
        ref, dut = (WRITERS[name](tmp_path / name[-3:] / r / name, tensors) for r in ("ref", "dut"))
        status, tree = compared(tmp_path, ref, dut)
        assert (status, tree.counts.same) == (0, 2)


def test_safetensors_with_8_bit_floats_are_refused_by_name(tmp_path: Path) -> None:
    fields = {"dtype": "F8_E5M2", "shape": [8], "data_offsets": [0, 8]}
    path = safetensors(tmp_path / "a.safetensors", {"x": np.ones(2, F32)}, x=fields)
    assert "x: dtype F8_E5M2 cannot be compared" in refused(path, path)
