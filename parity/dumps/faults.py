"""What is wrong with a line that is not a record, in words (docs/dump-format.md)."""

from __future__ import annotations

import re
from collections.abc import Set

from parity.dump import TensorType, parse_nonfinite
from parity.errors import InputError
from parity.keys import Key

AGAIN = "write the dump again, with one writer for each file"
_FORM = "write <tag> <hash16> [dtype[shape]] [nonfinite=n@i], one space between"
_SPLICED = re.compile(r"[0-9a-f]{1,16}t[0-9]+_| t[0-9]+_[A-Za-z]")
_HEX = re.compile(r"[0-9a-f]*")


def explain(line: str, number: int, cut: bool, seen: Set[str]) -> tuple[str, str]:
    """(what is wrong, what to do next) for line ``number``, which is no record or a repeated one.

    ``cut``: the line is the last one and has no line end. ``seen``: tags read in this segment.
    """
    if "\r" in line:
        return "a carriage return inside the line", "end each line with LF or CR LF"
    if "\t" in line:
        return "a tab; one space separates the columns", "put one space in place of the tab"
    tag, *columns = line.split(" ")
    if "" in (tag, *columns):
        return "blanks; one space separates the columns", "keep one space, and none in front"
    if _SPLICED.search(line, len(tag)):
        return f"two records on one line, at {tag!r}", AGAIN
    cut_step = f"write the dump again; line {number} may be cut"
    if cut:
        return f"truncated: the file ends inside this record: {line!r}", cut_step
    try:
        Key.parse(tag)
    except InputError as error:
        return error.message, error.next_step
    if not columns:
        return f"no hash after {tag}", cut_step
    return _bad_hash(tag, columns[0], cut_step) or _bad_rest(tag, columns[1:], seen)


def _bad_hash(tag: str, digits: str, cut_step: str) -> tuple[str, str] | None:
    if _HEX.fullmatch(digits.lower()) is None:
        return f"hash {digits!r} is not hexadecimal: {tag}", _FORM
    if len(digits) != 16:
        return f"hash has {len(digits)} digits, 16 needed: {tag}", cut_step
    if _HEX.fullmatch(digits) is None:
        return f"hash has capital digits: {tag}", "write the digits a to f in lower case"
    return None


def _bad_rest(tag: str, columns: list[str], seen: Set[str]) -> tuple[str, str]:
    """Fault of the columns after the hash; a line without one can only be a repeated key."""
    try:
        if columns and not columns[0].startswith("nonfinite="):
            TensorType.parse(columns.pop(0))
        if columns and columns[0].startswith("nonfinite="):
            parse_nonfinite(columns.pop(0).removeprefix("nonfinite="))
    except InputError as error:
        return f"{error.message}: {tag}", error.next_step
    if columns or tag not in seen:
        return f"unknown column {' '.join(columns)!r}: {tag}", _FORM
    return f"key {tag} appears twice in its segment", AGAIN
