"""Read a dump file (docs/dump-format.md): whole, or refused with its line number.

Whole chunks of record lines go through one regular expression; a chunk in which any line is not
a plain record is read again line by line, which is also what finds the line to blame.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from parity.collector import collector_paused
from parity.dump import (
    FORMAT,
    HEADER_NAME,
    HEADER_NAMES,
    MAIN,
    Dump,
    Entry,
    TensorType,
    parse_nonfinite,
)
from parity.dump_faults import AGAIN, explain
from parity.errors import InputError
from parity.keys import Key

_RECORDS = re.compile(
    r"^(t(0|[1-9][0-9]{0,8})_([!-~]+)) ([0-9a-f]{16})(?: ([a-z][a-z0-9_]*\[[0-9,]*\]))?"
    r"(?: nonfinite=([0-9]{1,18}@[0-9]{1,18}))?[ \t]*\r?$",
    re.MULTILINE,
)
_CHUNK = 1 << 18  # characters; bounds what the regular expression returns at once


def read_dump(path: Path) -> Dump:
    """Read the dump file ``path`` (``-`` is standard input).

    Raises InputError, naming file and line, for anything that is not a whole dump.
    """
    source = str(path)
    if source == "-":
        return parse_dump(sys.stdin.buffer.read(), "standard input")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{source}: {error.strerror}", "give a dump file that exists") from error
    return parse_dump(data, source)


def parse_dump(data: bytes, source: str) -> Dump:
    """Read a dump from the bytes of a file; ``source`` names it in messages."""
    text = _decode(data, source)
    reader = _Reader(source)
    with collector_paused():
        for chunk in _chunks(text):
            reader.feed(chunk)
    return reader.dump


def _decode(data: bytes, source: str) -> str:
    """UTF-8 text without its mark; refuses UTF-16, NUL bytes and anything else."""
    if _is_utf16(data):
        raise InputError(
            f"{source}: encoding is UTF-16, not UTF-8",
            "write the file as UTF-8 (PowerShell: | Out-File -Encoding utf8)",
        )
    nul = data.find(b"\0")
    if nul >= 0:
        where = _line_of(data, nul)
        raise InputError(
            f"{source} line {where}: NUL bytes: the file was damaged while it was written",
            AGAIN,
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _line_of(data, error.start)
        raise InputError(
            f"{source} line {where}: encoding is not UTF-8", "write the file as UTF-8"
        ) from error


def _is_utf16(data: bytes) -> bool:
    """A UTF-16 mark, or ASCII text in which every other byte is zero."""
    even, odd = data[:64:2], data[1:64:2]
    halved = bool(odd) and any(even) != any(odd)
    return halved or data.startswith((b"\xff\xfe", b"\xfe\xff"))


def _line_of(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _chunks(text: str) -> Iterator[str]:
    """Pieces of ``text`` that end with a line end (the last one as it is)."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _CHUNK) + 1 or len(text)
        yield text[start:end]
        start = end


class _Numbers(dict[str, int]):
    """Position text to int: one object for each position."""

    def __missing__(self, text: str) -> int:
        self[text] = int(text)
        return self[text]


class _Places(dict[str, tuple[int | None, str]]):
    """What follows ``t<pos>_`` in a tag, to (layer, field)."""

    def __missing__(self, text: str) -> tuple[int | None, str]:
        key = Key.parse(f"t0_{text}")
        self[text] = (key.layer, key.field)
        return self[text]


class _Types(dict[str, TensorType | None]):
    """Type column to TensorType; the empty text is a type not recorded."""

    def __missing__(self, text: str) -> TensorType:
        kind = TensorType.parse(text)
        self[text] = kind
        return kind


class _NonFinite(dict[str, tuple[int, int] | None]):
    """``count@first`` to a pair of ints; the empty text is none."""

    def __missing__(self, text: str) -> tuple[int, int]:
        pair = parse_nonfinite(text)
        self[text] = pair
        return pair


class _Reader:
    """State of reading one file, chunk by chunk."""

    def __init__(self, source: str) -> None:
        self.dump = Dump(source=source)
        self._source = source
        self._line = 0  # lines read so far
        self._segment = MAIN
        self._seen: set[str] = set()
        self._numbers, self._places = _Numbers(), _Places()
        self._types, self._nonfinite = _Types({"": None}), _NonFinite({"": None})

    def feed(self, chunk: str) -> None:
        """Read one chunk: at once when every line is a whole record, else line by line."""
        records = _RECORDS.findall(chunk)
        lines = chunk.count("\n")
        if len(records) == lines and chunk.endswith("\n") and self._add(records):
            self._line += lines
            return
        cut = not chunk.endswith("\n")
        rest = chunk.removesuffix("\n").split("\n")
        for number, line in enumerate(rest, 1):
            self._line += 1
            self._read_line(line.rstrip(" \t\r"), cut and number == len(rest))

    def _add(self, records: list[tuple[str, ...]]) -> bool:
        """Append the entries of ``records``; False, and nothing added, when one is at fault."""
        numbers, places, types = self._numbers, self._places, self._types
        nonfinite = self._nonfinite
        tags = {record[0] for record in records}
        if len(tags) != len(records) or not self._seen.isdisjoint(tags):
            return False
        try:
            entries = [
                Entry(
                    Key(numbers[pos], *places[place]), int(digest, 16), types[kind], nonfinite[bad]
                )
                for tag, pos, place, digest, kind, bad in records
            ]
        except InputError:
            return False
        self._seen |= tags
        self.dump.segments.setdefault(self._segment, []).extend(entries)
        return True

    def _read_line(self, line: str, cut: bool) -> None:
        """Read one line. ``cut``: it has no line end, so that its last column may be torn."""
        if line.startswith("#"):
            self._read_header(line, cut)
        elif line:
            records = _RECORDS.findall(line)
            whole = bool(records) and not (cut and records[0][5])
            if not (whole and self._add(records)):
                self._refuse(*explain(line, self._line, cut, self._seen))

    def _read_header(self, line: str, cut: bool) -> None:
        """``# segment NAME``, ``# name value``; any other ``#`` line is a comment."""
        name, _, value = line.removeprefix("#").removeprefix(" ").partition(" ")
        if not line.startswith("# ") or HEADER_NAME.fullmatch(name) is None:
            return
        if cut and (name in HEADER_NAMES or name == "segment"):
            self._refuse("truncated: the file ends inside this header line", AGAIN)
        if name == "segment":
            self._begin_segment(value)
        elif name == "format" and value != FORMAT:
            self._refuse(
                f"format {value!r}; this parity reads {FORMAT!r}",
                "read it with the parity that wrote it, or write the dump again",
            )
        elif name in HEADER_NAMES and self.dump.header.get(name, value) != value:
            self._refuse(f"header {name} a second time, with another value", AGAIN)
        elif name == "format" and self.dump.segments:
            self._refuse("a second dump begins inside this one", AGAIN)
        else:
            self.dump.header.setdefault(name, value)

    def _begin_segment(self, name: str) -> None:
        if not name:
            self._refuse("segment without a name", "write it as # segment NAME")
        if name in self.dump.segments:
            self._refuse(f"segment {name} begins twice", AGAIN)
        self.dump.segments[name] = []
        self._segment, self._seen = name, set()

    def _refuse(self, what: str, next_step: str) -> NoReturn:
        raise InputError(f"{self._source} line {self._line}: {what}", next_step)
