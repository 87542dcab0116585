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
    if ref.dtype != dut.dtype or ref.ndim != dut.ndim or ref.shape[1:] != dut.shape[1:]:
        note = f"ref {ref.dtype}{list(ref.shape)}, dut {dut.dtype}{list(dut.shape)}"
        rows = len(np.atleast_1d(ref))
        return StatePart(name, rows, max(rows, 1), 0, note)
    ref, dut = np.atleast_1d(ref), np.atleast_1d(dut)
    common = min(len(ref), len(dut))
    rows = max(len(ref), len(dut))
    changed = np.flatnonzero((_row_bytes(ref[:common]) != _row_bytes(dut[:common])).any(axis=1))
    differ = len(changed) + rows - common
    first = int(changed[0]) if len(changed) else (common if rows > common else None)
    note = "" if rows == common else f"ref {len(ref)} rows, dut {len(dut)}"
    return StatePart(name, rows, differ, first, note)


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
