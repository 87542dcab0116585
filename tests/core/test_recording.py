"""parity.record: what a tap writes, what it refuses, and that it writes a whole file or none."""

# ruff: noqa: PT012, SIM117  (what raises is the block of a recording, as a whole)

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import parity
from parity.dump import MAIN, Dump
from parity.dumps.reader import read_dump
from parity.dumps.recording import Recorder, record
from parity.dumps.tensor_files import read_tensors
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64
from parity.keys import Key

F32 = np.float32
ONES = np.ones((2, 3), F32)


def here() -> int:
    """Line of the call."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def recorded(path: Path, **options: Any) -> Dump:
    """A short recording, as it is read back."""
    with record(path, engine="mine", **options) as tap:
        tap(0, 0, "attn", ONES)
        tap(0, None, "logits", np.arange(16, dtype=F32))
    return read_dump(path)


def refused(call: Any, *words: Any, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        call(*words, **options)
    assert caught.value.next_step
    assert "\n" not in caught.value.message
    return caught.value


def test_a_recording_is_a_dump_with_header_keys_types_and_digests(tmp_path: Path) -> None:
    path = tmp_path / "gpu.txt"
    with record(
        path, engine="mine", version="1.2", model="mine 7b", tokens=[5, 6], header={"device": "X"}
    ) as tap:
        tap(0, 0, "attn", ONES)
        tap(0, None, "logits", np.arange(16, dtype=F32))
        tap.choose(0, 15)
        tap.describe(driver="9", prefill="2 own")
    assert path.read_text() == (
        "# format parity-dump 1\n# hash fnv1a64\n# engine mine\n# version 1.2\n# model mine 7b\n"
        "# tokens 5,6\n# prefill 2 own\n# device X\n# driver 9\n# greedy 0:15\n"
        f"t0_l0_attn {fnv1a64(ONES.tobytes()):016x} f32[2,3]\n"
        "t0_logits 13fdf84d829c1708 f32[16]\n"
    )
    assert read_dump(path).segments == tap.dump.segments


def test_it_is_reached_as_parity_record() -> None:
    assert parity.record is record


@pytest.mark.parametrize("name", BASES)
def test_the_hash_is_the_one_asked_for(tmp_path: Path, name: str) -> None:
    dump = recorded(tmp_path / "a.txt", hash=name)
    assert dump.hash_name == name
    assert dump.entries[0].digest == fnv1a64(ONES.tobytes(), BASES[name])


def test_nan_and_infinities_are_marked_unless_they_belong_there(tmp_path: Path) -> None:
    values = np.array([1, np.inf, np.nan, 2, -np.inf], F32)
    for marks, wanted in ((True, (3, 1)), (False, None)):
        with record(None, engine="mine", mark_nonfinite=marks) as tap:
            tap(0, 0, "scores", values)
            tap(0, 0, "ids", np.array([1, 2]))
        assert [entry.nonfinite for entry in tap.dump.entries] == [wanted, None]


def test_a_position_visited_again_is_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with record(path, engine="mine") as tap:
        again = tap.segment("again")
        tap(0, 0, "attn", ONES)
        again(0, 0, "attn", 2 * ONES)
        tap(1, 0, "attn", ONES)
    dump = read_dump(path)
    found = {name: [str(e.key) for e in part] for name, part in dump.segments.items()}
    assert found == {MAIN: ["t0_l0_attn", "t1_l0_attn"], "again": ["t0_l0_attn"]}


def test_keys_that_no_schema_knows_are_kept_in_order() -> None:
    with record(None, engine="mine") as tap:
        for name in ("mine", "attn", "other.2"):
            tap(np.int64(3), np.uint8(1), name, ONES)
    assert [entry.key for entry in tap.dump.entries] == [
        Key(3, 1, name) for name in ("mine", "attn", "other.2")
    ]


# --- whole or not at all


def test_nothing_is_there_before_the_block_ends(tmp_path: Path) -> None:
    path, raw = tmp_path / "a.txt", tmp_path / "a.npz"
    with record(path, engine="mine", tensors=raw) as tap:
        tap(0, 0, "attn", ONES)
        assert not path.exists()
        assert not raw.exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz", "a.txt"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(1)])
def test_an_exception_leaves_no_file(tmp_path: Path, suffix: str, error: BaseException) -> None:
    with (
        pytest.raises(type(error)),
        record(tmp_path / "a.txt", engine="mine", tensors=tmp_path / f"a{suffix}") as tap,
    ):
        tap(0, 0, "attn", ONES)
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_partial_recording_is_marked_and_refused_as_a_side(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    whole = tmp_path / "whole.txt"
    recorded(whole)
    with pytest.raises(ValueError, match="x"), record(path, engine="mine", keep_partial=True) as t:
        t(0, 0, "attn", ONES)
        raise ValueError("x")
    assert "# partial ValueError after t0_l0_attn\n" in path.read_text()
    message = refused(parity.compare, whole, path).message
    assert message == f"{path}: a partial dump: ValueError after t0_l0_attn"
    found = parity.compare(whole, path, partial=True)
    assert (found.verdict, int(found.exit_status), found.counts.same) == ("not_run", 3, 1)


def test_a_partial_recording_never_takes_the_place_of_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    recorded(path)
    before = path.read_bytes()
    with (
        pytest.raises(ValueError, match="x") as caught,
        record(path, engine="mine", keep_partial=True, force=True) as tap,
    ):
        tap(0, 0, "attn", ONES)
        raise ValueError("x")
    assert path.read_bytes() == before
    assert "exists already" in caught.value.__notes__[0]


def test_a_recording_in_memory_that_did_not_end_well_is_partial() -> None:
    with pytest.raises(ValueError, match="x"), record(None, engine="mine") as tap:
        tap(0, 0, "attn", ONES)
        assert tap.dump.header["partial"] == "the recording goes on"
        raise ValueError("x")
    assert tap.dump.header["partial"] == "ValueError after t0_l0_attn"
    assert "a partial dump" in refused(parity.compare, tap, tap).message


def test_a_file_that_exists_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("mine")
    assert refused(record, path, engine="mine").message == f"{path}: exists already"
    assert refused(record, tmp_path / "b.txt", engine="mine", tensors=path).message.startswith(
        str(path)
    )
    assert path.read_text() == "mine"
    assert recorded(path, force=True).size == 2


@pytest.mark.parametrize("name", ["run.npz", "run.safetensors"])
def test_a_dump_does_not_take_the_name_of_a_tensor_file(tmp_path: Path, name: str) -> None:
    error = refused(record, tmp_path / name, engine="mine")
    assert error.message.endswith(f"{name}: a dump is text, and its name is that of a tensor file")
    assert "tensors=" in error.next_step


def test_of_two_recordings_of_one_name_the_second_is_refused(tmp_path: Path) -> None:
    path, raw = tmp_path / "a.txt", tmp_path / "a.npz"
    with pytest.raises(InputError, match="exists already"), record(path, engine="b", tensors=raw):
        recorded(path)
    assert read_dump(path).header["engine"] == "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]  # no tensors without the dump


@pytest.mark.parametrize("name", ["-", "", "gone/a.txt", "."])
def test_a_name_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(record, name, engine="mine")
    assert list(tmp_path.iterdir()) == []


# --- refused taps


def test_a_key_recorded_twice_names_both_places(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(InputError) as caught, record(path, engine="mine") as tap:
        tap(0, 0, "attn", ONES)
        first = here() - 1
        tap(0, 0, "attn", ONES)
    me = Path(__file__).name
    assert caught.value.message == (
        f"t0_l0_attn was recorded already at {me}:{first}, and again at {me}:{first + 2}"
    )
    assert not path.exists()


KEYS = {
    "negative position": ((-1, 0, "attn"), "position -1"),
    "position of ten digits": ((10**9, 0, "attn"), "'t1000000000_l0_attn' is not a key"),
    "float position": ((1.0, 0, "attn"), "position 1.0"),
    "true as a position": ((True, 0, "attn"), "position True"),
    "text as a position": (("1", 0, "attn"), "position '1'"),
    "negative layer": ((0, -1, "attn"), "layer -1"),
    "layer of seven digits": ((0, 10**6, "attn"), "is not a key"),
    "text as a layer": ((0, "0", "attn"), "layer '0'"),
    "no field": ((0, 0, ""), "'t0_l0_' is not a key"),
    "field with a blank": ((0, 0, "a b"), "'t0_l0_a b' is not a key"),
    "field with a line end": ((0, 0, "a\n"), "is not a key"),
    "field like a layer": ((0, None, "l7_x"), "'t0_l7_x' is not a key"),
    "field that is no text": ((0, 0, 3), "field 3: not a text"),
    "digits first": ((0, 0, "3x"), "is not a key"),
}


@pytest.mark.parametrize("case", KEYS)
def test_what_has_no_keys_form_is_refused_at_the_call(case: str) -> None:
    words, said = KEYS[case]
    with pytest.raises(InputError) as caught, record(None, engine="mine") as tap:
        tap(*words, ONES)
    assert said in caught.value.message
    assert "\n" not in caught.value.message.replace("\\n", "")
    assert tap.dump.size == 0


def test_a_refused_tap_that_the_program_swallows_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(InputError, match="a tap was refused") as caught:
        with record(path, engine="mine", keep_partial=True) as tap:
            tap(0, 0, "attn", ONES)
            with pytest.raises(InputError):
                tap(0, 1, "attn", [1.0])
    assert caught.value.message.endswith("t0_l1_attn: list is no array")
    assert not path.exists()
    assert "partial" in tap.dump.header


def test_a_tap_outside_of_its_block_is_refused() -> None:
    tap = record(None, engine="mine")
    assert "has not begun" in refused(tap, 0, 0, "attn", ONES).message
    with record(None, engine="mine") as tap:
        tap(0, 0, "attn", ONES)
    assert "has ended" in refused(tap, 0, 1, "attn", ONES).message
    assert "has ended" in refused(tap.__enter__).message


HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "capital": ({"Device": "x"}, "header name 'Device'"),
    "own name": ({"hash": "x"}, "header name 'hash'"),
    "partial": ({"partial": "x"}, "header name 'partial'"),
    "line end": ({"device": "a\nb"}, "header device"),
    "blank at the end": ({"device": "a "}, "header device"),
    "negative token": ({"tokens": [1, -2]}, "tokens -2"),
    "text in tokens": ({"tokens": ["a"]}, "tokens 'a'"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_that_no_dump_can_hold_is_refused(case: str) -> None:
    facts, said = HEADERS[case]
    assert refused(record, None, engine="mine", header=facts).message.startswith(said)


@pytest.mark.parametrize("name", ["", " a", "a\nb"])
def test_a_segments_name_is_one_line(name: str) -> None:
    with record(None, engine="mine") as tap:
        assert "not a name" in refused(tap.segment, name).message


def test_options_that_cannot_be_are_refused(tmp_path: Path) -> None:
    raw = tmp_path / "a.npz"
    assert "no such hash" in refused(record, None, engine="m", hash="md5").message
    assert "nothing is kept" in refused(record, None, engine="m", keep=["attn"]).message
    assert "a text, not" in refused(record, None, engine="m", tensors=raw, keep="attn").message
    with pytest.raises(InputError, match="not a tensor file"):
        record(None, engine="m", tensors=tmp_path / "a.bin").__enter__()
    assert "position -1" in refused(record(None, engine="m").choose, -1, 3).message
    assert "past" in refused(record(None, engine="m").choose, 10**9, 3).message


# --- raw tensors


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_raw_tensors_have_the_digests_of_the_dump(tmp_path: Path, suffix: str) -> None:
    values = {
        "f32": np.arange(6, dtype=F32).reshape(2, 3).T,
        "f16": np.array(1.5, np.float16),
        "f64": np.array([1.5, np.nan], ">f8"),
        "int8": np.array([-1, 2], np.int8),
        "uint64": np.array([2**64 - 1], np.uint64),
        "bool": np.array([True, False]),
        "empty": np.empty((0, 4), F32),
    }
    path = tmp_path / f"raw{suffix}"
    with record(tmp_path / "a.txt", engine="mine", tensors=path) as tap:
        for name, array in values.items():
            tap(0, 0, name, array)
        tap.segment("again")(0, 0, "f16", np.array(2.5, np.float16))
    dump, load = read_tensors(path)
    found = {str(entry.key): (entry.digest, entry.type) for entry in dump.entries}
    again = found.pop("again/t0_l0_f16")
    main = tap.dump.segments[MAIN]
    assert found == {str(entry.key): (entry.digest, entry.type) for entry in main}
    assert again[0] == tap.dump.segments["again"][0].digest
    for name, array in values.items():
        assert np.array_equal(load(f"t0_l0_{name}").array, array, equal_nan=name == "f64")


def test_chosen_tensors_alone_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "raw.npz"
    with record(None, engine="mine", tensors=path, keep=["t0_l1_x", "logits"]) as tap:
        for layer in range(3):
            tap(0, layer, "x", ONES)
        tap(0, None, "logits", ONES)
    assert [str(entry.key) for entry in read_tensors(path)[0].entries] == ["t0_l1_x", "t0_logits"]


def test_a_name_to_keep_that_never_came_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no key and no field atn was recorded") as said:
        with record(None, engine="mine", tensors=tmp_path / "raw.npz", keep=["atn"]) as tap:
            tap(0, 0, "attn", ONES)
    assert Path(said[0].filename).name == Path(__file__).name


def test_bf16_needs_a_container_that_has_it(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x7FC0], np.uint16)
    with record(None, engine="mine", tensors=tmp_path / "raw.safetensors") as tap:
        tap(0, 0, "attn", bits, dtype="bf16")
    dump, load = read_tensors(tmp_path / "raw.safetensors")
    assert str(dump.entries[0].type) == "bf16[2]"
    assert load("t0_l0_attn").array.tolist() == bits.tolist()
    with pytest.raises(InputError, match=r"is bf16, which a \.npz cannot hold") as caught:
        with record(None, engine="mine", tensors=tmp_path / "raw.npz") as tap:
            tap(0, 0, "attn", bits, dtype="bf16")
    assert caught.value.next_step == "name a .safetensors file instead"
    assert not (tmp_path / "raw.npz").exists()


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    full = OSError(28, "No space left on device")
    with (
        pytest.raises(InputError, match="cannot write: No space left"),
        mock.patch("numpy.lib.format.write_array", side_effect=full),
        record(tmp_path / "a.txt", engine="mine", tensors=tmp_path / "a.npz") as tap,
    ):
        tap(0, 0, "attn", ONES)
    assert list(tmp_path.iterdir()) == []


# --- threads


def test_threads_share_a_tap(tmp_path: Path) -> None:
    path, threads, each = tmp_path / "a.txt", 8, 40
    barrier = threading.Barrier(threads)

    def work(tap: Recorder, layer: int) -> None:
        barrier.wait()
        for pos in range(each):
            tap(pos, layer, "attn", np.full(64, pos * threads + layer, F32))

    with record(path, engine="mine", tensors=tmp_path / "a.npz") as tap:
        workers = [threading.Thread(target=work, args=(tap, layer)) for layer in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    dump = read_dump(path)
    assert dump.size == threads * each
    for entry in dump.entries:
        assert entry.key.layer is not None
        value = np.full(64, entry.key.pos * threads + entry.key.layer, F32)
        assert entry.digest == fnv1a64(value.tobytes())
    assert parity.compare(path, tmp_path / "a.npz").same


def test_one_key_from_many_threads_is_taken_once(tmp_path: Path) -> None:
    barrier, outcomes = threading.Barrier(8), []

    def work(tap: Recorder) -> None:
        barrier.wait()
        try:
            tap(0, 0, "attn", ONES)
            outcomes.append("taken")
        except InputError as error:
            outcomes.append(error.message.split(" at ")[0])

    with pytest.raises(InputError, match="a tap was refused"):
        with record(tmp_path / "a.txt", engine="mine") as tap:
            workers = [threading.Thread(target=work, args=(tap,)) for _ in range(8)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    assert sorted(outcomes) == ["t0_l0_attn was recorded already"] * 7 + ["taken"]
    assert tap.dump.size == 1
