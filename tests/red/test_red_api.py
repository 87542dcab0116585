"""Faults planted in recordings, in the tap and in the public functions: each must be seen, at its
key, with its exit status; and a guard that is taken away must be missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.divergence import DivergedError
from parity.dtypes import flat_pieces
from parity.dumps.recording import Recorder, record
from parity.dumps.tensor_files import Tensor, read_tensors
from parity.errors import InputError, NotRunError
from parity.fnv import fnv1a64_array
from parity.tree import Tree
from tests.cli_runner import run_cli
from tests.core.test_tensor_files import npz, safetensors

F32 = np.float32
PLACES = [(pos, layer, field) for pos in range(3) for layer in range(2) for field in ("attn", "x")]
AT, TAG = (1, 1, "attn"), "t1_l1_attn"


def values(place: tuple[int, int, str]) -> np.ndarray:
    """f32[4, 8] of that place, with a zero in it."""
    made = np.random.default_rng([*place[:2], len(place[2])]).standard_normal((4, 8), F32)
    made[2, 3] = 0
    return made


def recorded(path: Path, fault: Callable[[np.ndarray], Any] = lambda array: array) -> Path:
    """A dump with tensors beside it; ``fault`` changes the array of one place."""
    with record(path, engine="mine", tensors=path.with_suffix(".npz")) as tap:
        for place in PLACES:
            tap(*place, fault(values(place)) if place == AT else values(place))
    return path


def one_ulp(array: np.ndarray) -> np.ndarray:
    array[3, 7] = np.nextafter(array[3, 7], F32(np.inf))
    return array


def put(index: tuple[int, int], value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def changed(array: np.ndarray) -> np.ndarray:
        array[index] = value
        return array

    return changed


FAULTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "1 ULP in one element": one_ulp,
    "two rows swapped": lambda array: array[[1, 0, 2, 3]],
    "every sign flipped": lambda array: -array,
    "transposed, same shape": lambda array: array.T.reshape(4, 8),
    "+0 to -0": put((2, 3), -0.0),
    "a stale copy of the neighbour": lambda array: array[[0, 0, 2, 3]],
    "f32 to f64, same values": lambda array: array.astype(np.float64),
    "same bytes, another shape": lambda array: array.reshape(8, 4),
    "same bytes, as integers": lambda array: array.view(np.int32),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_recording_is_found_at_its_key(tmp_path: Path, fault: str) -> None:
    ref = recorded(tmp_path / "ref.txt")
    dut = recorded(tmp_path / "dut.txt", FAULTS[fault])
    for one, other in ((ref, dut), (ref.with_suffix(".npz"), dut.with_suffix(".npz"))):
        found = parity.compare(one, other)
        assert (found.verdict, found.first, int(found.exit_status)) == ("diverged", TAG, 1)
        assert found.counts.differ == 1
        with pytest.raises(DivergedError, match=f"DIVERGED  first at {TAG}"):
            found.raise_for_status()
        assert run_cli("compare", str(one), str(other), "-q").status == 1
    assert found.elements is not None
    assert parity.compare(ref, ref.with_suffix(".npz")).same


def test_a_nan_of_another_payload_is_found_in_tensors(tmp_path: Path) -> None:
    sides = []
    for name, bits in (("ref", 0x7FC00000), ("dut", 0x7FC00001)):
        nan = np.array([bits], np.uint32).view(F32)[0]
        sides.append(recorded(tmp_path / f"{name}.txt", put((0, 0), nan)).with_suffix(".npz"))
    found = parity.compare(*sides)
    assert (found.first, int(found.exit_status)) == (TAG, 1)
    assert found.elements is not None
    assert [row.kind for row in found.elements.rows] == ["NaN payload"]


@pytest.mark.parametrize(("left_out", "state"), [("dut", "missing"), ("ref", "extra")])
def test_a_tap_that_one_side_lacks_is_red(left_out: str, state: str) -> None:
    taps = {}
    for role in ("ref", "dut"):
        with record(None, engine=role) as tap:
            for place in PLACES:
                if (role, place) != (left_out, AT):
                    tap(*place, values(place))
        taps[role] = tap
    found = parity.compare(taps["ref"], taps["dut"])
    assert (found.verdict, found.first, int(found.exit_status)) == ("diverged", TAG, 1)
    frame = found.to_frame()
    assert frame[frame.key == TAG].state.tolist() == [state]


def view_against_copy() -> parity.Divergence:
    """A recording of a transposed view against the same values in C order."""
    view = values(AT).T
    with record(None, engine="mine") as tap:
        tap(*AT, view)
    return parity.compare({TAG: np.ascontiguousarray(view)}, tap)


def test_a_tap_that_hashes_the_memory_of_a_view_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    assert view_against_copy().same

    def of_memory(array: np.ndarray, basis: int) -> int:
        return fnv1a64_array(np.frombuffer(array.tobytes("A"), np.uint8), basis)

    monkeypatch.setattr("parity.fnv.fnv1a64_array", of_memory)
    found = view_against_copy()
    assert (found.verdict, found.first, int(found.exit_status)) == ("diverged", TAG, 1)


def left_as_it_was(array: np.ndarray) -> bool:
    before = array.copy()
    with record(None, engine="mine") as tap:
        tap(*AT, array)
    return np.array_equal(array.view(np.uint32), before.view(np.uint32))


def test_a_tap_that_writes_to_the_array_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert left_as_it_was(values(AT))

    def flushed(array: np.ndarray, dtype: str | None = None) -> Tensor:
        array[np.abs(array) < 0.1] = 0
        return Tensor(array, "f32")

    monkeypatch.setattr("parity.dumps.host_arrays.host_tensor", flushed)
    assert not left_as_it_was(values(AT))


def test_a_comparison_that_cannot_fail_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of a green result changes one digit, and must find exactly that key."""
    monkeypatch.setattr("parity.runs.control.compare_dumps", lambda ref, dut, **_: _blind(ref, dut))
    found = parity.compare({TAG: values(AT)}, {TAG: values(AT)})
    assert (found.verdict, found.same, int(found.exit_status)) == ("not_run", False, 3)
    assert found.reason.startswith("the control did not fire")
    with pytest.raises(NotRunError, match="the control did not fire"):
        found.raise_for_status()


def _blind(ref: Any, dut: Any) -> Tree:
    from parity.comparison.compare import compare_dumps

    return compare_dumps(ref, ref)


def test_a_diff_of_an_engine_with_a_fault_names_its_key() -> None:
    spec = "tests.cli.engines_for_tests:Moved@key=t4_l1_attn"
    found = parity.diff("cpu", spec, tokens=[1, 2, 3], n=2)
    assert (found.verdict, found.first, int(found.exit_status)) == ("diverged", "t4_l1_attn", 1)
    assert found.tree.births is not None
    assert [birth.key for birth in found.tree.births.found] == ["t4_l1_attn"]


def test_an_isodiff_of_an_engine_that_depends_on_m_is_red() -> None:
    engine = "tests.red.row_faults:OnCpu@fault=split_by_rows"
    assert parity.isodiff(engine, 4, pos=33).same
    found = parity.isodiff(engine, (4, 5), pos=33)
    assert (found.verdict, found.first, int(found.exit_status)) == ("diverged", "t33_l0_kraw", 1)
    with pytest.raises(DivergedError):
        found.raise_for_status()


# --- guards that are taken away


def swallowing(tap: Recorder) -> None:
    """A program that goes on after a refused tap."""
    tap(*AT, values(AT))
    try:
        tap(0, 0, "x", [1.0])
    except InputError:
        return


def test_two_programs_that_swallow_the_same_refusal_are_not_the_same(tmp_path: Path) -> None:
    taps = []
    for name in ("ref", "dut"):
        tap = record(tmp_path / name, engine=name)
        with pytest.raises(InputError, match="a tap was refused, and the program went on"), tap:
            swallowing(tap)
        taps.append(tap)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="a partial dump: a tap was refused"):
        parity.compare(*taps)
    for tap in taps:  # without the mark, a false green
        tap._unfinished = ""
    assert parity.compare(*taps).same


def lossy(array: np.ndarray) -> Iterator[np.ndarray]:
    """All pieces but the last."""
    pieces = list(flat_pieces(array))
    yield from pieces[:-1] if len(pieces) > 1 else pieces


@pytest.mark.parametrize("where", ["dumps.tensor_files", "comparison.elements"])
def test_a_piece_that_is_lost_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    array = np.random.default_rng(3).standard_normal((512, 256), F32)
    changed = array.copy()
    changed[-1, -1] = 7
    monkeypatch.setattr("parity.dtypes.PIECE", 1 << 12)
    monkeypatch.setattr("parity.dumps.tensor_files.LARGE", 1 << 16)
    ref, dut = npz(tmp_path / "a.npz", {"x": array}), npz(tmp_path / "b.npz", {"x": changed})
    found = parity.compare(ref, dut)
    assert found.elements is not None
    assert [row.index for row in found.elements.rows] == [(511, 255)]
    monkeypatch.setattr(f"parity.{where}.flat_pieces", lossy)
    found = parity.compare(ref, dut)
    if where == "dumps.tensor_files":
        assert found.same  # digests of the first pieces alone: a false green
        assert parity.compare({"x": array}, ref).first == "x"  # the whole array's digest says so
    else:
        assert found.elements is not None
        assert (found.first, found.elements.differ) == ("x", 0)


def test_without_its_guard_a_bomb_would_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity.dumps.tensor_files.LARGE", 1 << 16)
    bomb = tmp_path / "a.npz"
    np.savez_compressed(bomb, x=np.zeros(1 << 20, F32))
    with pytest.raises(InputError, match="it looks like a zip bomb"):
        read_tensors(bomb)
    monkeypatch.setattr("parity.dumps.tensor_files._refuse_bombs", lambda path, members: None)
    assert str(read_tensors(bomb)[0].entries[0].type) == "f32[1048576]"


def test_without_the_dtypes_name_bf16_would_pass_as_integers(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x3F81], np.uint16)
    found = parity.compare(
        safetensors(tmp_path / "a.safetensors", {"x": bits}), npz(tmp_path / "b.npz", {"x": bits})
    )
    assert (found.verdict, found.first, int(found.exit_status)) == ("diverged", "x", 1)
    assert found.elements is not None
    assert found.elements.note.startswith("dtypes differ: ref bf16[2], dut uint16[2]")
