"""Comparing what two sides hold: KV rows, scales, lengths, and the weights they loaded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from parity.dump import TensorType
from parity.tree import StateDiff, StatePart

RECURRENT = ("s", "hist")  # parts without a position (contract 6)
_PART = re.compile(r"l(\d+)_(\w+)")


def compare_states(
    when: str, ref: Mapping[str, np.ndarray], dut: Mapping[str, np.ndarray]
) -> StateDiff:
    """Compare part by part, row by row: presence, dtype, shape and bytes.

    The first difference is the lowest position, then layer, then part: the order in which the
    rows were written. ``lengths`` comes before all.
    """
    names = list(dict.fromkeys([*ref, *dut]))
    parts = [_part(name, ref.get(name), dut.get(name)) for name in names]
    differing = [part for part in parts if part.differ]
    if not differing:
        return StateDiff(when, parts, None)
    first = min(differing, key=lambda part: _written(part, names))
    return StateDiff(when, parts, _place(first))


def differing_rows(
    ref: Mapping[str, np.ndarray], dut: Mapping[str, np.ndarray]
) -> dict[str, list[int]]:
    """The rows that differ of each part that both sides hold in one form; parts without any are
    left out."""
    both = [name for name in ref if name in dut and _same_form(ref[name], dut[name])]
    found = {name: _changed_rows(ref[name], dut[name]) for name in both}
    return {name: rows for name, rows in found.items() if rows}


def unlike_form(ref: Mapping[str, np.ndarray], dut: Mapping[str, np.ndarray]) -> str:
    """The first part that only one side has, or in another dtype or shape; "" where none is: each
    side can take over the other's state."""
    for name in dict.fromkeys([*ref, *dut]):
        sides = (ref.get(name), dut.get(name))
        texts = ["none" if a is None else _form(a) for a in sides]
        if texts[0] != texts[1]:
            return f"{name}: ref {texts[0]}, dut {texts[1]}"
    return ""


def unlike_row(ref: Mapping[str, np.ndarray], dut: Mapping[str, np.ndarray]) -> str:
    """The first part that both hold with another dtype or shape of a row; "" where none is."""
    for name in ref:
        if name in dut and not _same_form(ref[name], dut[name]):
            return f"{name}: ref {_form(ref[name])}, dut {_form(dut[name])}"
    return ""


def differing_weights(
    ref: Mapping[str, tuple[TensorType, int]], dut: Mapping[str, tuple[TensorType, int]]
) -> list[str]:
    """Names of the tensors whose type or digest is not the same on both sides, in load order."""
    return [name for name in dict.fromkeys([*ref, *dut]) if ref.get(name) != dut.get(name)]


def _part(name: str, ref: np.ndarray | None, dut: np.ndarray | None) -> StatePart:
    if ref is None or dut is None:
        held = ref if ref is not None else dut
        rows = 0 if held is None else len(np.atleast_1d(held))
        side = "ref" if ref is None else "dut"
        return StatePart(name, rows, max(rows, 1), 0, f"missing in {side}")
    if not _same_form(ref, dut):
        note = f"ref {_form(ref)}, dut {_form(dut)}"
        rows = len(np.atleast_1d(ref))
        return StatePart(name, rows, max(rows, 1), 0, note)
    changed = _changed_rows(ref, dut)
    lengths = [len(np.atleast_1d(side)) for side in (ref, dut)]
    note = "" if lengths[0] == lengths[1] else f"ref {lengths[0]} rows, dut {lengths[1]}"
    return StatePart(name, max(lengths), len(changed), changed[0] if changed else None, note)


def _form(part: np.ndarray) -> str:
    return f"{part.dtype}{list(part.shape)}"


def _same_form(ref: np.ndarray, dut: np.ndarray) -> bool:
    """Whether rows can be compared: the same dtype, and the same shape of a row."""
    return ref.dtype == dut.dtype and ref.ndim == dut.ndim and ref.shape[1:] == dut.shape[1:]


def _changed_rows(ref: np.ndarray, dut: np.ndarray) -> list[int]:
    """Rows whose bytes differ, and those that one side lacks, ascending."""
    ref, dut = np.atleast_1d(ref), np.atleast_1d(dut)
    common = min(len(ref), len(dut))
    changed = np.flatnonzero((_row_bytes(ref[:common]) != _row_bytes(dut[:common])).any(axis=1))
    return [*changed.tolist(), *range(common, max(len(ref), len(dut)))]


def _row_bytes(rows: np.ndarray) -> np.ndarray:
    """The bytes of each row, uint8[rows, bytes of a row]."""
    width = rows.dtype.itemsize * math.prod(rows.shape[1:])
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).reshape(len(rows), width)


def _written(part: StatePart, names: list[str]) -> tuple[int, int, int]:
    found = _PART.fullmatch(part.name)
    if found is None:
        return (-1, 0, names.index(part.name))
    if found[2] in RECURRENT:
        # Which position put it there is not known: only its layer places it.
        return (0, int(found[1]), names.index(part.name))
    return (part.first_row or 0, int(found[1]), names.index(part.name))


def _place(part: StatePart) -> str:
    if _PART.fullmatch(part.name) is None or part.first_row is None:
        return part.name
    if part.name.rsplit("_", 1)[1] in RECURRENT:
        return f"{part.name} row {part.first_row}"
    return f"{part.name} row {part.first_row} (position {part.first_row})"
