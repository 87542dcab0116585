"""Writing dump files: the form, the round trip, and never over another file."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.dump import Dump, Entry, TensorType
from parity.dumps.reader import parse_dump, read_dump
from parity.dumps.writer import format_lines, write_dump
from parity.errors import InputError, ParityBug
from parity.keys import Key
from parity.status import ExitStatus

DUMP = Dump(
    {"greedy": "0:7", "zeta": "last", "engine": "cpu", "hash": "fnv1a64", "empty": ""},
    {
        "B.redo": [Entry(Key(0, 0, "q"), 2)],
        "": [
            Entry(Key(0, 0, "q"), 0xABC, TensorType("f32", (4, 32)), (3, 17)),
            Entry(Key(0, None, "logits"), 1, TensorType("f32", ())),
        ],
    },
)
LINES = [
    *("# format parity-dump 1", "# hash fnv1a64", "# engine cpu", "# greedy 0:7", "# zeta last"),
    *("# empty", "t0_l0_q 0000000000000abc f32[4,32] nonfinite=3@17"),
    *("t0_logits 0000000000000001 f32[]", "# segment B.redo", "t0_l0_q 0000000000000002"),
]


def test_the_form_of_a_dump() -> None:
    assert list(format_lines(DUMP, plain=False)) == LINES


def test_plain_writes_two_columns() -> None:
    lines = list(format_lines(DUMP, plain=True))
    assert lines[:6] == LINES[:6]
    assert lines[6:] == [
        *("t0_l0_q 0000000000000abc", "t0_logits 0000000000000001", "# segment B.redo"),
        "t0_l0_q 0000000000000002",
    ]


def test_a_dump_without_a_header_still_names_format_and_hash() -> None:
    assert list(format_lines(Dump(), plain=False)) == LINES[:2]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.dump"
    write_dump(DUMP, path)
    back = read_dump(path)
    assert path.read_bytes() == ("\n".join(LINES) + "\n").encode()
    assert back.segments == DUMP.segments
    assert back.header == {"format": "parity-dump 1", **DUMP.header}
    assert os.listdir(tmp_path) == ["a.dump"]


SIZES = st.lists(st.integers(0, 10**9), max_size=3).map(tuple)
TYPES = st.none() | st.builds(TensorType, st.sampled_from(["f32", "f64", "bf16", "int8"]), SIZES)
ENTRIES = st.lists(
    st.builds(
        Entry,
        st.builds(
            Key,
            st.integers(0, 10**9 - 1),
            st.none() | st.integers(0, 99),
            st.sampled_from(["q", "x.y", "A-1"]),
        ),
        st.integers(0, 2**64 - 1),
        TYPES,
        st.none() | st.tuples(st.integers(1, 10**9), st.integers(0, 10**9)),
    ),
    unique_by=lambda entry: entry.key,
)


@given(st.lists(ENTRIES, max_size=3), st.text(st.characters(min_codepoint=32)).map(str.strip))
@settings(derandomize=True, deadline=None)
def test_any_dump_survives_the_round_trip(segments: list[list[Entry]], value: str) -> None:
    value = value.replace("\x7f", "")
    named = {name: part for name, part in zip(["", "A", "B"], segments, strict=False) if part}
    text = "".join(f"{line}\n" for line in format_lines(Dump({"model": value}, named), False))
    back = parse_dump(text.encode(), "back")
    assert back.segments == named
    assert back.header["model"] == value.rstrip(" ")


def test_an_existing_file_is_not_touched_without_force(tmp_path: Path) -> None:
    path = tmp_path / "a.dump"
    path.write_text("mine")
    with pytest.raises(InputError) as caught:
        write_dump(DUMP, path)
    assert caught.value.exit_status is ExitStatus.USAGE
    assert str(path) in caught.value.message
    assert "--force" in caught.value.next_step
    assert path.read_text() == "mine"
    write_dump(DUMP, path, force=True)
    assert read_dump(path).segments == DUMP.segments
    assert os.listdir(tmp_path) == ["a.dump"]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_of_writers_at_the_same_time_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    for attempt in range(20):
        path = tmp_path / f"{attempt}.dump"
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(partial(race, path, Barrier(4)), ["w0", "w1", "w2", "w3"]))
        winners = [outcome for outcome in outcomes if outcome.startswith("w")]
        assert len(winners) == 1
        assert outcomes.count(f"{path}: exists already") == 3
        assert read_dump(path).header["engine"] == winners[0]
    assert len(os.listdir(tmp_path)) == 20


def race(path: Path, barrier: Barrier, name: str) -> str:
    """Write when all writers are ready; the writer's name, or why it was refused."""
    barrier.wait()
    try:
        write_dump(Dump({"engine": name}), path)
    except InputError as error:
        return error.message
    return name


def no_links(source: object, target: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_dump_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    good = Entry(Key(0, 0, "q"), 1)
    with pytest.raises(ParityBug, match="cannot hold the key"):
        write_dump(Dump({}, {"": [good, Entry(Key.of_name("free name"), 1)]}), tmp_path / "a")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", ["two\nlines", "a\rb", "a\0b", "\x1b[31m"])
def test_a_value_that_breaks_the_line_is_refused(value: str) -> None:
    with pytest.raises(InputError, match="header model: a line break or control character"):
        list(format_lines(Dump({"model": value}), plain=False))


@pytest.mark.parametrize("name", ["segment", "two words", "", "Upper"])
def test_a_name_no_header_may_have_is_refused(name: str) -> None:
    with pytest.raises(ParityBug, match="header name"):
        list(format_lines(Dump({name: "x"}), plain=False))


def test_a_segment_name_with_a_line_break_is_refused() -> None:
    with pytest.raises(InputError, match="header segment"):
        list(format_lines(Dump({}, {"a\nb": []}), plain=False))


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone/a\.dump: cannot write: No such file"):
        write_dump(DUMP, tmp_path / "gone" / "a.dump")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_not_overwritten(tmp_path: Path, force: bool) -> None:
    with pytest.raises(InputError, match=str(tmp_path)):
        write_dump(DUMP, tmp_path, force=force)
    assert tmp_path.is_dir()


def test_force_through_a_link_replaces_the_file_and_keeps_the_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_dump(DUMP, link, force=True)
    assert link.is_symlink()
    assert real.read_text().startswith("# format parity-dump 1\n")


def test_a_device_is_written_into(tmp_path: Path) -> None:
    write_dump(DUMP, Path(os.devnull))
    assert not Path(os.devnull).is_file()


def test_the_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_dump(DUMP, tmp_path / "a.dump")
    (tmp_path / "usual").write_text("")
    assert (tmp_path / "a.dump").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write_dump(DUMP, Path("-"))
    assert capsysbinary.readouterr().out == ("\n".join(LINES) + "\n").encode()
