"""Read a dump file (docs/dump-format.md): whole, or refused with its line number.

Blocks of the file go through ``parity.dumps.scan``, which reads plain records by the thousand. What
it leaves (headers, remarks, ``nonfinite``, trailing blanks, and every malformed line) is read by
itself, in its place, by the exact grammar. So the first line at fault in the file is the one
that is blamed, however it was read.
"""

from __future__ import annotations

import io
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from parity.dump import (
    CONTROL,
    FORMAT,
    HEADER_NAME,
    HEADER_NAMES,
    MAIN,
    PARTIAL,
    Dump,
    Entry,
    TensorType,
    parse_nonfinite,
)
from parity.dumps.faults import AGAIN, explain
from parity.dumps.scan import PAD, Block, Scanner
from parity.dumps.table import Builder, Kinds, Places, Table
from parity.errors import InputError
from parity.keys import Key

_RECORD = re.compile(
    r"(t(?:0|[1-9][0-9]{0,8})_[!-~]+) ([0-9a-f]{16})(?: ([a-z][a-z0-9_]*\[[0-9,]*\]))?"
    r"(?: nonfinite=([0-9]{1,18}@[0-9]{1,18}))?"
)
_BLOCK = 1 << 22  # bytes: some 100,000 lines
_CHUNK = 1 << 17  # rows looked at at once
_MARK = b"\xef\xbb\xbf"


def read_dump(path: Path, *, partial: bool = False) -> Dump:
    """Read the dump file ``path`` (``-`` is standard input); its segments are tables.

    ``partial``: a last line that is cut is left out, and the header ``partial`` says so. Raises
    InputError, naming file and line, for anything else that is not a whole dump.
    """
    source = str(path)
    if source == "-":
        return _read(sys.stdin.buffer, "standard input", partial)
    try:
        with path.open("rb") as stream:
            return _read(stream, source, partial)
    except OSError as error:
        raise InputError(f"{source}: {error.strerror}", "give a dump file that exists") from error


def parse_dump(data: bytes, source: str, *, partial: bool = False) -> Dump:
    """Read a dump from the bytes of a file; ``source`` names it in messages."""
    return _read(io.BytesIO(data), source, partial)


def _read(stream: IO[bytes], source: str, partial: bool) -> Dump:
    reader = _Reader(source, partial)
    for data, size in _blocks(stream, source):
        reader.feed(data, size)
    return reader.finish()


def _blocks(stream: IO[bytes], source: str) -> Iterator[tuple[np.ndarray, int]]:
    """(buffer, how many bytes of it are whole lines), without the mark at the file's begin.

    Only the last block may lack the end of its last line. The buffer is used again.
    """
    data = np.zeros(_BLOCK + PAD, np.uint8)
    filled = 0
    more = _begin(stream.read(_BLOCK), source)
    while more:
        data[filled : filled + len(more)] = np.frombuffer(more, np.uint8)
        filled += len(more)
        whole = data[:filled].tobytes().rfind(b"\n") + 1
        if whole:
            yield data, whole
            data[: filled - whole] = data[whole:filled].copy()
            filled -= whole
        elif filled == len(data) - PAD:  # a line longer than the buffer
            data = np.concatenate([data, np.zeros_like(data)])
        more = stream.read(len(data) - PAD - filled)
    if filled:
        yield data, filled


def _begin(data: bytes, source: str) -> bytes:
    """The file's begin without its mark; refuses UTF-16."""
    if _is_utf16(data[:64]):
        raise InputError(
            f"{source}: encoding is UTF-16, not UTF-8",
            "write the file as UTF-8 (PowerShell: | Out-File -Encoding utf8)",
        )
    return data.removeprefix(_MARK)


def _is_utf16(begin: bytes) -> bool:
    """A UTF-16 mark, or ASCII text in which every other byte is zero."""
    even, odd = begin[::2], begin[1::2]
    halved = bool(odd) and any(even) != any(odd)
    return halved or begin.startswith((b"\xff\xfe", b"\xfe\xff"))


class _Reader:
    """State of reading one file, block by block."""

    def __init__(self, source: str, partial: bool) -> None:
        self._header: dict[str, str] = {}
        self._segments: dict[str, Table] = {}
        self._source = source
        self._partial = partial
        self._places, self._kinds = Places(), Kinds()
        self._scanner = Scanner(self._places, self._kinds)
        self._line = 0  # lines read so far
        self._cut = False  # the line just read has no line end, so that it may be torn
        self._segment = MAIN
        self._records = Builder(self._places, self._kinds)  # of the segment
        self._runs: list[tuple[int, int]] = []  # row and line where records begin or go on

    def feed(self, data: np.ndarray, size: int) -> None:
        """Read ``size`` bytes of ``data``; only the last line of the file may lack its end."""
        if (data[:size] == ord("\r")).any():
            text = data[:size].tobytes().replace(b"\r\n", b"\n")
            data, size = np.frombuffer(text + bytes(PAD), np.uint8), len(text)
        whole = size
        if data[size - 1] != ord("\n"):
            whole = data[:size].tobytes().rfind(b"\n") + 1
        if whole:
            self._read_block(data, self._scanner.scan(data, whole))
        if whole < size:
            self._cut = True
            self._read_line(data[whole:size].tobytes())

    def finish(self) -> Dump:
        """The dump, after the last block."""
        self._end_segment()
        return Dump(self._header, self._segments, self._source)

    def _read_block(self, data: np.ndarray, block: Block) -> None:
        begin = 0
        for at in np.flatnonzero(~block.ok).tolist():
            self._add_block(block, begin, at)
            self._read_line(data[block.start[at] : block.end[at]].tobytes())
            begin = at + 1
        self._add_block(block, begin, len(block.ok))

    def _add_block(self, block: Block, begin: int, end: int) -> None:
        """Take over lines ``begin`` to ``end`` of a block, all of which are records."""
        if begin < end:
            self._begin_run(self._line + 1)
            columns = (block.pos, block.place, block.digest, block.kind)
            self._records.add_block(*(column[begin:end] for column in columns))
            self._line += end - begin

    def _begin_run(self, line: int) -> None:
        """The next row stands on ``line``."""
        row = self._records.rows
        if not self._runs or line - self._runs[-1][1] != row - self._runs[-1][0]:
            self._runs.append((row, line))

    def _read_line(self, raw: bytes) -> None:
        """Read one line by the exact grammar."""
        self._line += 1
        if b"\0" in raw:
            self._refuse("NUL bytes: the file was damaged while it was written", AGAIN)
        try:
            line = raw.decode().rstrip(" \t\r")
        except UnicodeDecodeError:
            self._refuse("encoding is not UTF-8", "write the file as UTF-8")
        if line.startswith("#"):
            self._read_header(line)
        elif line:
            self._read_record(line)

    def _read_record(self, line: str) -> None:
        entry = _entry(line, self._cut)
        if entry is not None and not self._lost_its_type(entry):
            self._begin_run(self._line)
            self._records.add([entry])
        elif not self._left_out():
            self._refuse(*explain(line, self._line, self._cut, set()))

    def _lost_its_type(self, entry: Entry) -> bool:
        """Whether this line is cut before the column that the records above it have."""
        return self._cut and entry.type is None and len(self._kinds.types) > 1

    def _left_out(self) -> bool:
        """Whether this line is cut and need not be whole; then the header says so."""
        if self._cut and self._partial:
            self._header.setdefault(PARTIAL, f"cut inside line {self._line}")
            return True
        return False

    def _read_header(self, line: str) -> None:
        """``# segment NAME``, ``# name value``; any other ``#`` line is a comment."""
        name, _, value = line.removeprefix("#").removeprefix(" ").partition(" ")
        if not line.startswith("# ") or HEADER_NAME.fullmatch(name) is None:
            return
        known = name in HEADER_NAMES or name == "segment"
        if self._cut and known:
            if not self._left_out():
                self._refuse("truncated: the file ends inside this header line", AGAIN)
        elif known and CONTROL.search(value):
            self._refuse(f"a control character in header {name}: {value!r}", AGAIN)
        elif name == "segment":
            self._begin_segment(value)
        elif name == "format" and value != FORMAT:
            self._refuse(
                f"format {value!r}; this parity reads {FORMAT!r}",
                "read it with the parity that wrote it, or write the dump again",
            )
        elif known and self._header.get(name, value) != value:
            self._refuse(f"header {name} a second time, with another value", AGAIN)
        elif name == "format" and (self._segments or self._records.rows):
            self._refuse("a second dump begins inside this one", AGAIN)
        else:
            self._header.setdefault(name, value)

    def _begin_segment(self, name: str) -> None:
        if not name:
            self._refuse("segment without a name", "write it as # segment NAME")
        if name in self._segments or name == self._segment:
            self._refuse(f"segment {name} begins twice", AGAIN)
        self._end_segment()
        self._segment, self._runs = name, []
        self._records = Builder(self._places, self._kinds)

    def _end_segment(self) -> None:
        """Keep the segment's records; an unnamed segment without any is none."""
        table = self._records.table()
        self._require_once(table)
        if len(table) or self._segment != MAIN:
            self._segments[self._segment] = table

    def _require_once(self, table: Table) -> None:
        """Refuse the first line whose key stood before in its segment."""
        row = _repeated_row(table)
        if row is None:
            return
        first, line = self._runs[bisect_right(self._runs, (row, sys.maxsize)) - 1]
        number = line + row - first
        entry = table[row]
        text = f"{entry.key} {entry.value_text()}"
        cut = self._cut and number == self._line
        what, next_step = explain(text, number, cut, {entry.key.tag})
        raise InputError(f"{self._source} line {number}: {what}", next_step)

    def _refuse(self, what: str, next_step: str) -> NoReturn:
        """Blame the line just read, unless a line before it repeats a key."""
        self._require_once(self._records.table())
        raise InputError(f"{self._source} line {self._line}: {what}", next_step)


def _entry(line: str, cut: bool) -> Entry | None:
    """The record on a line, None where it is none. With ``cut`` its last column may be torn."""
    found = _RECORD.fullmatch(line)
    if found is None or (cut and found[4]):
        return None
    tag, digest, kind, nonfinite = found.groups()
    try:
        return Entry(
            Key.parse(tag),
            int(digest, 16),
            TensorType.parse(kind) if kind else None,
            parse_nonfinite(nonfinite) if nonfinite else None,
        )
    except InputError:
        return None


def _repeated_row(table: Table) -> int | None:
    """The first row whose key stands in a row before it."""
    chunks = range(0, len(table), _CHUNK)
    if all(_rises(_codes(table, begin, begin + _CHUNK + 1)) for begin in chunks):
        return None  # the usual case: lines in dataflow order
    codes = _codes(table, 0, len(table))
    if not _has_equal(np.sort(codes)):
        return None
    order = np.argsort(codes, kind="stable")
    again = order[1:][codes[order[1:]] == codes[order[:-1]]]
    return int(again.min())


def _codes(table: Table, begin: int, end: int) -> np.ndarray:
    """A number for the key of each of some rows; equal for equal keys."""
    pos, place = table.pos[begin:end], table.place[begin:end]
    codes: np.ndarray = pos * np.int64(len(table.places)) + place
    return codes


def _rises(codes: np.ndarray) -> bool:
    return bool((codes[1:] > codes[:-1]).all())


def _has_equal(ascending: np.ndarray) -> bool:
    return bool((ascending[1:] == ascending[:-1]).any())
