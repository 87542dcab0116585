"""The data lines of replies (docs/exec.md) as values, and back; anything else is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from parity.dtypes import dtype_name, tensor_bytes
from parity.dump import CONTROL, HEADER_NAME, Entry, TensorType, parse_nonfinite
from parity.errors import InputError
from parity.fnv import fnv1a64_array
from parity.keys import Key
from parity.program.reply import CHECK, Reply

PROTOCOL = 2  # the newest version that this parity speaks; 1 was dump mode alone
WORDS = ("rows", "rollback", "state", "counters", "weights")  # capabilities of hello

# How the data lines of each reply begin.
HELLO = r"(protocol|engine|capabilities|vocab|header)( |$)"
ROWS = r"(row|logits) |t[0-9]"
PARTS, COUNTS, WEIGHTS = "part ", "count ", "weight "
NOTHING = r"(?!)"

# Header values that parity writes itself, from what it asked for and was given.
_OWN_HEADERS = frozenset(
    {
        *("format", "hash", "engine", "version", "tier", "variants", "weights", "tokens"),
        *("prefill", "fields", "greedy", "stopped", "partial", "segment"),
    }
)
_NUMBER = "0|[1-9][0-9]{0,17}"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*"
_PROTOCOL = re.compile(r"protocol ([1-9][0-9]{0,8})")
_ENGINE = re.compile(r"engine ([!-~]+) ([!-~]+)")
_CAPABILITIES = re.compile(r"capabilities((?: [a-z-]+)*)")
_VOCAB = re.compile(r"vocab ([1-9][0-9]{0,8})")
_ROW = re.compile(r"row (0|[1-9][0-9]{0,8})")
_RECORD = re.compile(r"(t[!-~]+) ([0-9a-f]{16}) ([!-~]+)(?: nonfinite=([!-~]+))?")
_PART = re.compile(rf"part ({_NAME}) (\S+) (\S+)", re.ASCII)
_COUNT = re.compile(rf"count ({_NAME}) ({_NUMBER})", re.ASCII)
_WEIGHT = re.compile(rf"weight ({_NAME}) (\S+) ([0-9a-f]{{16}})", re.ASCII)
_STATE_PART = re.compile(r"l(?:0|[1-9][0-9]{0,5})_(\w+)", re.ASCII)
_HEX = "0123456789abcdef"
_BY_POSITION = ("k", "ks", "v", "vs")
_DTYPES = {
    dtype_name(np.dtype(name)): np.dtype(name).newbyteorder("<")
    for name in ("float16", "float32", "float64", "bool")
} | {
    f"{sign}int{bits}": np.dtype(f"{sign}int{bits}").newbyteorder("<")
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True)
class Hello:
    """What a program says of itself. ``vocab``: logits of a row, None for the model's number."""

    protocol: int
    engine: str
    version: str
    capabilities: frozenset[str]
    vocab: int | None
    header: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One row of a reply: keys as the program told them, and float32[vocab] logits."""

    pos: int
    entries: list[Entry]
    logits: np.ndarray


def read_nothing(reply: Reply) -> None:
    """A reply that has no data lines; what cannot be one was refused when it came."""
    assert not reply.lines


def read_hello(reply: Reply) -> Hello:
    """``protocol``, ``engine``, ``capabilities``, then ``vocab`` and ``header`` lines."""
    lines = _Lines(reply)
    protocol = int(lines.take(_PROTOCOL, "protocol NUMBER")[1])
    if protocol > PROTOCOL:
        raise InputError(
            f"{reply.source}: speaks protocol {protocol}; this parity knows 1 to {PROTOCOL}",
            "install a newer parity, or let the program answer hello with the lower version",
        )
    engine = lines.take(_ENGINE, "engine NAME VERSION")
    capabilities = lines.take(_CAPABILITIES, "capabilities WORDS")[1].split()
    unknown = [word for word in capabilities if word not in WORDS]
    if unknown or len(capabilities) != len(set(capabilities)):
        reply.refuse_line(lines.at - 1, f"capabilities are, each once, {' '.join(WORDS)}")
    vocab = lines.take(_VOCAB, "vocab NUMBER") if lines.next_is("vocab") else None
    header: dict[str, str] = {}
    while lines.left:
        _add_header(reply, lines, header)
    told = frozenset(capabilities)
    return Hello(protocol, engine[1], engine[2], told, int(vocab[1]) if vocab else None, header)


def _add_header(reply: Reply, lines: _Lines, header: dict[str, str]) -> None:
    number = lines.at
    word, _, rest = lines.take(re.compile("header .*"), "header NAME VALUE")[0].partition(" ")
    name, _, value = rest.partition(" ")
    if HEADER_NAME.fullmatch(name) is None or not value.strip() or CONTROL.search(value):
        reply.refuse_line(number, f"not {word} NAME VALUE")
    if name in _OWN_HEADERS or name in header:
        what = "parity writes itself" if name in _OWN_HEADERS else "was told before"
        reply.refuse_line(number, f"a header that {what}")
    header[name] = value


def read_rows(reply: Reply, start: int, count: int, vocab: int, *, tapped: bool) -> list[Row]:
    """``count`` rows from position ``start``; keys only where ``tapped``."""
    lines, rows = _Lines(reply), []
    for pos in range(start, start + count):
        if int(lines.take(_ROW, f"row {pos}")[1]) != pos:
            reply.refuse_line(lines.at - 1, f"row {pos} belongs here")
        rows.append(Row(pos, _records(reply, lines, pos, tapped), _logits(reply, lines, vocab)))
    if lines.left:
        reply.refuse_line(lines.at, f"more than the {count} rows asked for")
    return rows


def _records(reply: Reply, lines: _Lines, pos: int, tapped: bool) -> list[Entry]:
    found: dict[Key, Entry] = {}
    while lines.next_is("t"):
        entry = _record(reply, lines)
        number = lines.at - 1
        if not tapped:
            reply.refuse_line(number, "a key, and the tap is off")
        if entry.key.pos != pos:
            reply.refuse_line(number, f"a key of another position than {pos}")
        if entry.key in found:
            reply.refuse_line(number, "a key for the second time")
        found[entry.key] = entry
    return list(found.values())


def _record(reply: Reply, lines: _Lines) -> Entry:
    wanted = "KEY HASH DTYPE[SHAPE] and no more, but nonfinite=N@I"
    tag, digest, kind, nonfinite = lines.take(_RECORD, wanted).groups()
    try:
        return Entry(
            Key.parse(tag),
            int(digest, 16),
            TensorType.parse(kind),
            None if nonfinite is None else parse_nonfinite(nonfinite),
        )
    except InputError as error:
        reply.refuse_line(lines.at - 1, error.message)


def _logits(reply: Reply, lines: _Lines, vocab: int) -> np.ndarray:
    digits = lines.word("logits ", "a key or logits HEX")
    try:
        data = _bytes(digits)
    except InputError as error:
        reply.refuse_line(lines.at - 1, error.message)
    if len(data) != 4 * vocab:
        told = f"{len(data) // 4:,} logits" if len(data) % 4 == 0 else f"{len(data):,} bytes"
        reply.refuse_line(lines.at - 1, f"{told}, not {vocab:,} logits")
    return np.frombuffer(data, "<f4").astype(np.float32)


def read_parts(reply: Reply) -> dict[str, np.ndarray]:
    """State parts by name, ``lengths`` first; arrays of their own."""
    parts: dict[str, np.ndarray] = {}
    for number, line in enumerate(reply.lines):
        try:
            name, array = part_array(line)
        except InputError as error:
            reply.refuse_line(number, error.message)
        if name in parts:
            reply.refuse_line(number, "a part for the second time")
        parts[name] = array
        _check_part(reply, number, name, parts)
    if not parts:
        reply.refuse("no part, not even lengths")
    return parts


def part_array(line: str) -> tuple[str, np.ndarray]:
    """Name and array of a ``part`` line, an array of its own; InputError for any other line."""
    found = _PART.fullmatch(line)
    if found is None:
        raise InputError("not part NAME DTYPE[SHAPE] HEX", CHECK)
    name, kind, digits = found.groups()
    told = TensorType.parse(kind)
    if told.dtype not in _DTYPES:
        raise InputError(f"dtype {told.dtype} is none of {' '.join(_DTYPES)}", CHECK)
    dtype = _DTYPES[told.dtype]
    data, wanted = _bytes("" if digits == "-" else digits), math.prod(told.shape) * dtype.itemsize
    if len(data) != wanted:
        raise InputError(f"{len(data):,} bytes, {kind} has {wanted:,}", CHECK)
    return name, np.frombuffer(data, dtype).reshape(told.shape).astype(dtype.newbyteorder("="))


def _check_part(reply: Reply, number: int, name: str, parts: Mapping[str, np.ndarray]) -> None:
    lengths = parts.get("lengths")
    if lengths is None or lengths.dtype != np.int32 or lengths.shape != (1,):
        reply.refuse_line(number, "the first part is lengths int32[1]")
    if name == "lengths":
        return
    found = _STATE_PART.fullmatch(name)
    if found is None:
        reply.refuse_line(number, "a part is named l<layer>_<name>")
    array, rows = parts[name], int(lengths[0])
    if found[1] in _BY_POSITION and (array.ndim == 0 or len(array) != rows):
        reply.refuse_line(number, f"{name} has one row for each of {rows:,} positions")


def part_lines(state: Mapping[str, np.ndarray]) -> list[str]:
    """A ``part`` line for each part of a state."""
    lines = []
    for name, array in state.items():
        kind = TensorType(dtype_name(array.dtype), array.shape)
        lines.append(f"part {name} {kind} {tensor_bytes(array).hex() or '-'}")
    return lines


def read_counts(reply: Reply) -> dict[str, int]:
    """Counters by name."""
    counts: dict[str, int] = {}
    for number, line in enumerate(reply.lines):
        found = _COUNT.fullmatch(line)
        if found is None or found[1] in counts:
            what = "not count NAME NUMBER" if found is None else "a counter for the second time"
            reply.refuse_line(number, what)
        counts[found[1]] = int(found[2])
    return counts


def read_weights(reply: Reply) -> dict[str, tuple[TensorType, int]]:
    """Type and FNV-1a-64 of each tensor by name, in the order told."""
    weights: dict[str, tuple[TensorType, int]] = {}
    for number, line in enumerate(reply.lines):
        found = _WEIGHT.fullmatch(line)
        if found is None or found[1] in weights:
            what = "not weight NAME DTYPE[SHAPE] HASH" if found is None else "a tensor told twice"
            reply.refuse_line(number, what)
        try:
            weights[found[1]] = TensorType.parse(found[2]), int(found[3], 16)
        except InputError as error:
            reply.refuse_line(number, error.message)
    return weights


def entry_of(key: Key, array: np.ndarray, basis: int) -> Entry:
    """The dump line of a value of any real dtype, with any strides."""
    nonfinite = None
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(array))
        nonfinite = (bad.size, int(bad[0])) if bad.size else None
    kind = TensorType(dtype_name(array.dtype), array.shape)
    return Entry(key, fnv1a64_array(array, basis), kind, nonfinite)


def _bytes(digits: str) -> bytes:
    if digits.strip(_HEX) or len(digits) % 2:
        raise InputError("not bytes as pairs of lower-case hex digits", CHECK)
    return bytes.fromhex(digits)


class _Lines:
    """The data lines of a reply, taken one after the other."""

    def __init__(self, reply: Reply) -> None:
        self.reply, self.at = reply, 0

    @property
    def left(self) -> bool:
        """Whether there are more."""
        return self.at < len(self.reply.lines)

    def next_is(self, begin: str) -> bool:
        """Whether there is another one and it begins so."""
        return self.left and self.reply.lines[self.at].startswith(begin)

    def take(self, form: re.Pattern[str], wanted: str) -> re.Match[str]:
        """The next line, which must have this form; ``wanted`` is how messages tell it."""
        line = self._next(wanted)
        found = form.fullmatch(line)
        if found is None:
            self._refuse(wanted)
        self.at += 1
        return found

    def word(self, begin: str, wanted: str) -> str:
        """The rest of the next line, which must begin so; no pattern walks over long hex."""
        if not self._next(wanted).startswith(begin):
            self._refuse(wanted)
        self.at += 1
        return self.reply.lines[self.at - 1][len(begin) :]

    def _next(self, wanted: str) -> str:
        if not self.left:
            self.reply.refuse(f"it ends where {wanted} belongs")
        return self.reply.lines[self.at]

    def _refuse(self, wanted: str) -> NoReturn:
        self.reply.refuse_line(self.at, f"{wanted} belongs here")
