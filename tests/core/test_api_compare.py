"""parity.compare: paths, mappings, dumps and recordings, in any pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.dumps.reader import read_dump
from parity.dumps.recording import Recorder, record
from parity.dumps.writer import write_dump
from parity.errors import InputError
from tests.cli_runner import run_cli
from tests.core.test_tensor_files import folder, npz, safetensors

F32 = np.float32
VALUES = {
    "t0_l0_attn": np.arange(6, dtype=F32).reshape(2, 3),
    "t0_l0_x": np.array([-1, 2], np.int8),
    "t0_logits": np.array([0.5, -0.0, 2.5], F32),
}
SIDES = (
    "npz",
    "safetensors",
    "folder",
    "mapping",
    "dump",
    "dump file",
    "recording",
    "with tensors",
)
HOLD_VALUES = {"npz", "safetensors", "folder", "mapping", "with tensors"}


def recorded(
    values: dict[str, np.ndarray], tensors: Path | None = None, **options: Any
) -> Recorder:
    with record(None, engine="mine", tensors=tensors, **options) as tap:
        for tag, array in values.items():
            parts = tag.split("_")
            layer = int(parts[1][1:]) if len(parts) == 3 else None
            tap(int(parts[0][1:]), layer, parts[-1], array)
    return tap


def side(kind: str, place: Path, values: dict[str, np.ndarray]) -> Any:
    """``values`` as a side of that kind."""
    place.mkdir()
    if kind == "dump file":
        write_dump(recorded(values).dump, place / "a.dump")
        return place / "a.dump"
    made = {
        "npz": lambda: npz(place / "a.npz", values),
        "safetensors": lambda: str(safetensors(place / "a.safetensors", values)),
        "folder": lambda: folder(place / "a", values),
        "mapping": lambda: values,
        "dump": lambda: recorded(values).dump,
        "recording": lambda: recorded(values),
        "with tensors": lambda: recorded(values, place / "raw.npz"),
    }
    return made[kind]()


def changed(tag: str) -> dict[str, np.ndarray]:
    """VALUES with the last element of one of them moved by the smallest step."""
    array = VALUES[tag].copy()
    last = array.reshape(-1)[-1:]
    last[:] = last + 1 if array.dtype == np.int8 else np.nextafter(last, F32(99))
    return {**VALUES, tag: array}


@pytest.mark.parametrize("ref", SIDES)
@pytest.mark.parametrize("dut", SIDES)
def test_any_two_sides_compare(tmp_path: Path, ref: str, dut: str) -> None:
    one = side(ref, tmp_path / "ref", VALUES)
    same = parity.compare(one, side(dut, tmp_path / "same", VALUES))
    assert (same.verdict, same.counts.same, same.exit_status) == ("same", 3, 0)
    assert same.tree.control is not None
    assert same.tree.control.fired
    found = parity.compare(one, side(dut, tmp_path / "dut", changed("t0_l0_x")))
    assert (found.verdict, found.first, found.counts.differ) == ("diverged", "t0_l0_x", 1)
    assert found.exit_status == 1
    if {ref, dut} <= HOLD_VALUES:
        assert found.elements is not None
        (row,) = found.elements.rows
        assert (row.index, row.ref_hex, row.dut_hex) == ((1,), "02", "03")
        assert (row.ref_value, row.dut_value, row.ulp, row.kind) == ("2", "3", 1, "value")
    else:
        assert found.elements is None


def test_the_path_form_is_the_command(tmp_path: Path) -> None:
    ref, dut = npz(tmp_path / "a.npz", VALUES), npz(tmp_path / "b.npz", changed("t0_logits"))
    found = parity.compare(ref, dut)
    result = run_cli("compare", str(ref), str(dut), "--json", str(tmp_path / "run.json"))
    command = parity.Divergence.from_json((tmp_path / "run.json").read_text())
    assert (int(found.exit_status), found.first) == (result.status, command.first)
    assert found.elements == command.elements
    assert found.tree.keys == command.tree.keys
    assert found.tree.reproduce == f"parity compare {ref} {dut}"


def test_missing_and_extra_names_are_red() -> None:
    less = {tag: array for tag, array in VALUES.items() if tag != "t0_l0_x"}
    for sides, state in (((VALUES, less), "missing"), ((less, VALUES), "extra")):
        found = parity.compare(*sides)
        assert (found.verdict, found.first, found.exit_status) == ("diverged", "t0_l0_x", 1)
        frame = found.to_frame()
        assert frame[frame.key == "t0_l0_x"].state.tolist() == [state]


@pytest.mark.parametrize(
    ("dut", "note"),
    [
        (VALUES["t0_logits"].astype(np.float64), "dtypes differ: ref f32[3], dut f64[3]"),
        (VALUES["t0_logits"].view(np.int32), "dtypes differ: ref f32[3], dut int32[3]"),
        (VALUES["t0_logits"][:2], "shapes differ: ref f32[3], dut f32[2]"),
        (VALUES["t0_logits"][None], "shapes differ: ref f32[3], dut f32[1,3]"),
    ],
    ids=["wider", "same bytes as integers", "shorter", "same bytes in another shape"],
)
def test_another_type_is_red_and_said(dut: np.ndarray, note: str) -> None:
    found = parity.compare(VALUES, {**VALUES, "t0_logits": dut})
    assert (found.verdict, found.first) == ("diverged", "t0_logits")
    assert found.elements is not None
    assert found.elements.note.startswith(note)


def test_nothing_in_common_is_not_the_same() -> None:
    for ref, dut in (({}, {}), (VALUES, {}), ({"a": VALUES["t0_logits"]}, VALUES)):
        found = parity.compare(ref, dut)
        assert (found.same, found.verdict, found.exit_status) == (False, "not_run", 3)


def test_the_elements_listed_are_as_many_as_asked_for() -> None:
    ref = np.arange(1, 41, dtype=F32).reshape(4, 10)
    for limit, listed in ((1, 1), (12, 12), (100, 40), (0, 0)):
        found = parity.compare({"x": ref}, {"x": -ref}, elements=limit)
        assert found.elements is not None
        assert (found.elements.differ, len(found.elements.rows)) == (40, listed)
        assert len(found.elements_frame()) == listed
        assert found.elements.groups == [(row, 10) for row in range(4)]


def test_tensors_are_hashed_as_the_other_side_was(tmp_path: Path) -> None:
    kestrel = recorded(VALUES, hash="kestrel-fnv")
    write_dump(kestrel.dump, tmp_path / "a.dump")
    path = npz(tmp_path / "a.npz", VALUES)
    for one in (kestrel, tmp_path / "a.dump"):
        for other in (VALUES, path):
            assert parity.compare(one, other).same
            assert parity.compare(other, one).same
    with pytest.raises(InputError, match="hashes differ"):
        parity.compare(kestrel, recorded(VALUES))


def test_segments_of_recordings_compare_with_their_own_elements(tmp_path: Path) -> None:
    taps = []
    for at, value in enumerate((F32(1), np.nextafter(F32(1), F32(2)))):
        with record(None, engine="mine", tensors=tmp_path / f"{at}.npz") as tap:
            tap(0, 0, "x", np.array([7], F32))
            tap.segment("again")(0, 0, "x", np.array([3, value], F32))
        taps.append(tap)
    found = parity.compare(*taps)
    assert (found.verdict, found.first) == ("diverged", "t0_l0_x")
    assert found.elements is not None
    assert [row.index for row in found.elements.rows] == [(1,)]
    assert "the first divergence is in segment again" in found.notes


def test_values_that_were_not_kept_are_said(tmp_path: Path) -> None:
    keep = {"keep": ["logits"]}
    ref = recorded(VALUES, tmp_path / "a.npz", **keep)
    dut = recorded(changed("t0_l0_x"), tmp_path / "b.npz", **keep)
    found = parity.compare(ref, dut)
    assert (found.first, found.elements) == ("t0_l0_x", None)
    assert "no elements: the values of t0_l0_x were not kept on both sides" in found.notes


def test_other_names_go_by_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("qkv = q + k\n")
    q, k = np.arange(4, dtype=F32), np.arange(2, dtype=F32)
    fused = np.concatenate([q, k])
    assert parity.compare({"q": q, "k": k}, {"qkv": fused}, alias=rules).same
    fused[4] = 9
    found = parity.compare({"q": q, "k": k}, {"qkv": fused}, alias=rules)
    assert (found.verdict, found.first) == ("diverged", "k")
    assert found.elements is not None
    assert [row.index for row in found.elements.rows] == [(0,)]


def test_values_that_are_not_finite_do_not_end_a_comparison_of_tensors(tmp_path: Path) -> None:
    ref = {"t0_l0_scores": np.array([np.nan, -np.inf], F32), "t0_l0_x": np.ones(2, F32)}
    dut = {**ref, "t0_l0_x": np.zeros(2, F32)}
    assert parity.compare(ref, ref).same
    assert parity.compare(ref, dut).first == "t0_l0_x"
    assert parity.compare(recorded(ref, mark_nonfinite=False), dut).first == "t0_l0_x"
    marked = parity.compare(recorded(ref), recorded(ref))
    assert (marked.verdict, marked.exit_status) == ("not_run", 3)


def test_a_recordings_file_compares_as_the_recording_does(tmp_path: Path) -> None:
    with record(tmp_path / "a.txt", engine="mine") as tap:
        tap(0, None, "logits", VALUES["t0_logits"])
    assert parity.compare(tap, tmp_path / "a.txt").same
    assert parity.compare(read_dump(tmp_path / "a.txt"), tap).same


REFUSED: dict[str, tuple[Any, str]] = {
    "a list": ([1.0], "dut: list cannot be compared"),
    "an array": (np.ones(2, F32), "dut: ndarray cannot be compared"),
    "nothing": (None, "dut: NoneType cannot be compared"),
    "lists inside": ({"x": [1.0]}, "dut x: list is no array"),
    "objects inside": ({"x": np.array([{}], object)}, "dut x: dtype object cannot be compared"),
    "a number as a name": ({3: np.ones(2, F32)}, "dut: bad tensor name 3"),
    "an empty name": ({"": np.ones(2, F32)}, "dut: bad tensor name ''"),
    "a line end in a name": ({"a\nb": np.ones(2, F32)}, "dut: bad tensor name 'a\\nb'"),
    "gone": (Path("gone.npz"), "gone.npz: No such file or directory"),
    "gone dump": ("gone.dump", "gone.dump: No such file or directory"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_compared_is_refused(case: str) -> None:
    dut, said = REFUSED[case]
    with pytest.raises(InputError) as caught:
        parity.compare({"x": np.ones(2, F32)}, dut)
    assert caught.value.message == said
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("name", "advice"),
    [("a.npy", "put it into a folder"), ("a.pt", "save the tensors as a .safetensors")],
)
def test_a_tensor_file_of_another_kind_is_no_damaged_dump(
    tmp_path: Path, name: str, advice: str
) -> None:
    path = tmp_path / name
    with path.open("wb") as stream:
        np.save(stream, np.ones(2, F32))
    result = run_cli("compare", str(path), str(path))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: {path}: a {path.suffix} is no dump, no .npz, ")
    assert f"  next: {advice}" in result.stderr


def test_a_bad_level_is_refused() -> None:
    with pytest.raises(InputError, match="level 'bits': no such level"):
        parity.compare(VALUES, VALUES, level="bits")  # type: ignore[arg-type]
