"""Dumps that parity_dump.h writes: the bytes of parity's own writer, whole or not there."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parity
from parity.dtypes import FLOATS, dtype_bits
from parity.dumps.reader import read_dump
from parity.fnv import fnv1a64_array, hex16
from parity.keys import Key
from tests.c_header import INCLUDE, SANITIZED, build
from tests.cli_runner import run_cli

WRITER = Path(__file__).parent / "c" / "write_tensors.c"
BEFORE = Path(__file__).parents[1] / "fixtures" / "writer_before_header.c"
DTYPES = (*FLOATS, "int8", "int32", "uint8", "int64", "bool")
STORED = {"f32": "float32", "f16": "float16", "f64": "float64", "bf16": "uint16"}


class Tapped(NamedTuple):
    """One tap. ``data``: the elements' bytes, little-endian."""

    pos: int
    layer: int | None
    field: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def array(self) -> np.ndarray:
        """What parity's recorder is given; bf16 is carried in uint16."""
        kind = np.dtype(STORED.get(self.dtype, self.dtype))
        return np.frombuffer(self.data, kind).reshape(self.shape)

    @property
    def told(self) -> bytes:
        """What the C program is given."""
        layer = -1 if self.layer is None else self.layer
        words = (self.pos, layer, self.field, self.dtype, len(self.shape), *self.shape)
        return " ".join(map(str, words)).encode() + b"\n" + self.data


def patterns(dtype: str, count: int) -> st.SearchStrategy[bytes]:
    """Bytes of ``count`` elements: any bits, and often NaN, infinities and zeros."""
    width = dtype_bits(dtype) // 8
    if dtype == "bool":
        return st.binary(min_size=count, max_size=count).map(lambda b: bytes(x & 1 for x in b))
    special = [bytes(width), b"\xff" * width, bytes(width - 1) + b"\x80"]
    if dtype in FLOATS:
        special.append(FLOATS[dtype].infinity.to_bytes(width, "little"))
    one = st.one_of(st.binary(min_size=width, max_size=width), st.sampled_from(special))
    return st.lists(one, min_size=count, max_size=count).map(b"".join)


@st.composite
def taps(draw: st.DrawFn) -> list[Tapped]:
    """Taps with keys that differ."""
    keys = st.tuples(
        st.integers(0, 10**9 - 1) | st.integers(0, 3),
        st.none() | st.integers(0, 999_999),
        st.from_regex(r"[A-Za-z][A-Za-z0-9_.\-]{0,20}", fullmatch=True),
    ).filter(lambda key: Key.of_name(Key(*key).tag) == key)
    made = []
    for key in draw(st.lists(keys, min_size=1, max_size=4, unique=True)):
        dtype = draw(st.sampled_from(DTYPES))
        shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
        made.append(
            Tapped(*key, dtype, shape, draw(patterns(dtype, int(np.prod(shape, dtype=int)))))
        )
    return made


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that taps what it is given, under ASan and UBSan."""
    return build(WRITER, tmp_path_factory.mktemp("c") / "writer", *SANITIZED)


def run(
    writer: Path, path: Path, taps: list[Tapped], **told: str
) -> subprocess.CompletedProcess[bytes]:
    """The program's end; it writes ``path``. ``told``: PARITY_HASH, PARITY_FIELDS."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PARITY_")}
    env = {**clean, "PARITY_DUMP": str(path), **{f"PARITY_{n.upper()}": v for n, v in told.items()}}
    given = b"".join(tap.told for tap in taps)
    return subprocess.run([writer], input=given, env=env, capture_output=True, check=False)


def records(path: Path) -> list[str]:
    """The lines of a dump that are no header."""
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(taps(), st.sampled_from(["fnv1a64", "kestrel-fnv"]))
def test_lines_are_those_of_paritys_own_writer(
    tmp_path_factory: pytest.TempPathFactory, writer: Path, taps: list[Tapped], hash_name: str
) -> None:
    folder = tmp_path_factory.mktemp("pair")
    done = run(writer, folder / "c.dump", taps, hash=hash_name)
    assert (done.returncode, done.stderr) == (0, b"")
    with parity.record(folder / "python.dump", engine="python", hash=hash_name) as tap:
        for one in taps:
            tap(one.pos, one.layer, one.field, one.array, dtype=one.dtype)
    assert sorted(records(folder / "c.dump")) == sorted(records(folder / "python.dump"))
    assert read_dump(folder / "c.dump").hash_name == hash_name
    assert sorted(os.listdir(folder)) == ["c.dump", "python.dump"]  # no temporary file is left


ONE = Tapped(3, 7, "attn", "f32", (2, 3), np.arange(6, dtype=np.float32).tobytes())


def test_fields_that_were_not_asked_for_are_left_out_unless_they_are_its_own(
    writer: Path, tmp_path: Path
) -> None:
    taps = [ONE._replace(field=name) for name in ("attn", "x", "k", "ks", "mine", "final_normed")]
    run(writer, tmp_path / "d", taps, fields="nrm,ks,attn")
    assert [line.split()[0] for line in records(tmp_path / "d")] == [
        "t3_l7_attn",
        "t3_l7_ks",
        "t3_l7_mine",
    ]


def test_an_existing_file_stays(writer: Path, tmp_path: Path) -> None:
    (tmp_path / "d").write_text("mine")
    done = run(writer, tmp_path / "d", [ONE])
    assert (done.returncode, done.stderr.decode()) == (
        1,
        f"parity: {tmp_path / 'd'}: exists already\n",
    )
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"d": "mine"}


@pytest.mark.parametrize(
    ("where", "told", "taps", "said"),
    [
        ("no/folder", {}, [ONE], "cannot write: No such file or directory"),
        ("d", {"hash": "md5"}, [ONE], "PARITY_HASH: unknown hash"),
        ("d", {}, [ONE, ONE._replace(dtype="f33", data=b"")], "parity_tap: unknown dtype"),
    ],
)
def test_what_fails_leaves_no_dump_and_says_so(
    writer: Path, tmp_path: Path, where: str, told: dict[str, str], taps: list[Tapped], said: str
) -> None:
    done = run(writer, tmp_path / where, taps, **told)
    assert done.returncode == 1
    assert done.stderr.decode().endswith(f": {said}\n")
    assert list(tmp_path.iterdir()) == []


def test_without_a_name_it_says_so(writer: Path, tmp_path: Path) -> None:
    done = subprocess.run([writer], input=ONE.told, env={}, capture_output=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, b"parity: PARITY_DUMP: no file is named\n")
    assert list(tmp_path.iterdir()) == []


def full_disk() -> None:
    """In the child: no file may grow past 4 KiB, and that is an error, not a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize("keys", [60, 500])
def test_a_full_disk_is_an_error_and_leaves_nothing(
    writer: Path, tmp_path: Path, keys: int
) -> None:
    """60 keys are little more than 4 KiB, so that closing the file is what fails."""
    given = b"".join(ONE._replace(pos=pos, field="a" * 60).told for pos in range(keys))
    words = {"env": {"PARITY_DUMP": str(tmp_path / "d")}, "capture_output": True}
    done = subprocess.run([writer], input=given, preexec_fn=full_disk, **words)  # type: ignore[call-overload]
    assert done.returncode == 1
    assert done.stderr.decode() == f"parity: {tmp_path / 'd'}: cannot write: File too large\n"
    assert list(tmp_path.iterdir()) == []


HEADERS = """
#include "parity_dump.h"
int main(int count, char **words) {
    const size_t shape[1] = {0};
    parity_dump dump;
    parity_open(&dump, NULL);
    for (int i = 1; i + 1 < count; i += 2) parity_header(&dump, words[i], words[i + 1]);
    parity_tap(&dump, 1, -1, "x", "f32", 1, shape, NULL);
    return parity_close(&dump);
}
"""


def test_header_lines_and_segments(tmp_path: Path) -> None:
    (tmp_path / "h.c").write_text(HEADERS)
    program, path = build(tmp_path / "h.c", tmp_path / "h"), tmp_path / "d"
    words = ["engine", "my engine", "device", "", "segment", "B.redo"]
    subprocess.run([program, *words], env={"PARITY_DUMP": str(path)}, check=True)
    shown = ["format parity-dump 1", "hash fnv1a64", "engine my engine", "device", "segment B.redo"]
    lines = path.read_text().splitlines()
    assert lines == [*(f"# {line}" for line in shown), "t1_x cbf29ce484222325 f32[0]"]
    assert list(read_dump(path).segments) == ["B.redo"]


@pytest.mark.parametrize("value", ["two\nlines", "two\rlines"])
def test_a_header_value_of_two_lines_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "h.c").write_text(HEADERS)
    program, path = build(tmp_path / "h.c", tmp_path / "h"), tmp_path / "d"
    words = [program, "engine", value]
    done = subprocess.run(words, env={"PARITY_DUMP": str(path)}, capture_output=True, text=True)
    assert (done.returncode, path.exists()) == (1, False)
    assert done.stderr == f"parity: {path}: a header value has a line break\n"


BIG = """
#include "parity_dump.h"
int main(void) {
    const unsigned char swapped[8] = {0x3f, 0x80, 0, 0, 0x7f, 0x80, 0, 0};
    const size_t shape[1] = {2};
    parity_dump dump;
    parity_open(&dump, NULL);
    parity_tap(&dump, 0, -1, "x", "f32", 1, shape, swapped);
    return parity_close(&dump);
}
"""


@pytest.mark.parametrize("big", [1, 0])
def test_a_big_endian_machine_hashes_little_endian_bytes(tmp_path: Path, big: int) -> None:
    """1.0 and infinity as such a machine holds them; with the swap switched off, other values."""
    text = (INCLUDE / "parity_dump.h").read_text()
    swap = "*(const unsigned char *)&one ? 0"
    assert text.count(swap) == 1
    (tmp_path / "parity_dump.h").write_text(text.replace(swap, "!one ? 0") if big else text)
    (tmp_path / "big.c").write_text(BIG)  # it finds the header beside it first
    program = build(tmp_path / "big.c", tmp_path / "big")
    subprocess.run([program], env={"PARITY_DUMP": str(tmp_path / "d")}, check=True)
    array = np.array([1.0, np.inf], ">f4" if big else "<f4")
    line = f"t0_x {hex16(fnv1a64_array(array))} f32[2] nonfinite=1@1"
    assert (records(tmp_path / "d") == [line]) == bool(big)


MAIN = """
#include <stdlib.h>
int main(void) {
    float x[6] = {0, 1, 2, 3, 4, 5};
    FILE *dump = fopen(getenv("PARITY_DUMP"), "w");
    fprintf(dump, "# format parity-dump 1\\n");
    tap(dump, 3, 7, "attn", x, 2, 3);
    return fclose(dump);
}
"""


def test_a_program_with_the_writer_before_the_header_still_diffs(
    writer: Path, tmp_path: Path
) -> None:
    """The snippet that docs/dump-format.md showed until there was a header, as it stood there."""
    (tmp_path / "before.c").write_text(BEFORE.read_text() + MAIN)
    program = build(tmp_path / "before.c", tmp_path / "before", base=("-std=c99",))
    run(writer, tmp_path / "now.dump", [ONE])
    run(writer, tmp_path / "other.dump", [ONE._replace(data=ONE.data[::-1])])
    dut = ("--dut", f"exec:{program}", "--tokens", "1,2,3")
    same = run_cli("diff", "--ref", str(tmp_path / "now.dump"), *dut)
    assert (same.status, "1 of 1 keys equal" in same.stdout) == (0, True), same.stderr
    red = run_cli("diff", "--ref", str(tmp_path / "other.dump"), *dut)
    assert (red.status, "first at t3_l7_attn" in red.stdout) == (1, True), red.stderr
