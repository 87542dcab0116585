"""How far what differs moved: the first key and the logits in their own dtype, and what that does
to the greedy choice. Descriptions of a difference; none decides whether there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from parity.comparison.elements import compare_tensors
from parity.dtypes import dtype_name
from parity.explain.margin import Greedy, Risk, greedy_risk
from parity.keys import Key
from parity.protocol import Plan, Step
from parity.runs.probe import Moved, Size
from parity.runs.run import Side

NEAR = "closest at "
_WIDE = 16  # bits of f32 below those of bf16


@dataclass
class Moves:
    """Rows of logits held against each other so far. ``real_ids``: ids from here on are padding."""

    real_ids: int = 0
    rows: int = 0
    flipped: int = 0
    at_risk: int = 0
    logits: Size | None = None
    closest: tuple[str, Greedy] | None = None

    def add(self, where: str, ref: Step, dut: Step) -> None:
        """One row, told as ``where``: ``pos 36, row 2``."""
        self.rows += 1
        if ref.logits.tobytes() == dut.logits.tobytes():
            return
        found = greedy_risk(ref.logits, dut.logits, self.real_ids)
        self.flipped += found.risk is Risk.FLIPPED
        self.at_risk += found.risk is Risk.AT_RISK
        size = logits_size(ref, dut)
        if self.logits is None or _extent(size) > _extent(self.logits):
            self.logits = size
        if self.closest is None or _urgency(found) < _urgency(self.closest[1]):
            self.closest = where, found

    def told(self, first: Size | None) -> Moved:
        """The record; ``first``: how far the first key moved."""
        closest = "" if self.closest is None else _closest(*self.closest)
        return Moved(first, self.logits, self.rows, self.flipped, self.at_risk, closest)


def _extent(size: Size) -> tuple[int, int]:
    return size.ulp or 0, size.differ


def _urgency(found: Greedy) -> tuple[int, float]:
    return list(Risk).index(found.risk), found.closeness


def _closest(where: str, found: Greedy) -> str:
    if not np.isfinite(found.gap):
        return f"{where}: not finite"
    moved = f"logits moved by up to {found.largest:.2g}"
    if found.risk is Risk.FLIPPED:
        return f"{where}: {found.ref} led by {found.gap:.2g}, {moved}, now {found.dut}"
    return f"{where}: {found.ref} leads by {found.gap:.2g}, {moved}"


def tensor_size(what: str, ref: np.ndarray, dut: np.ndarray, dtype: str = "") -> Size | None:
    """How far ``dut`` is from ``ref``; None where dtype or size differ. ``dtype``: the dump's name
    where the arrays only carry it (bf16 in uint16)."""
    names = (dtype, dtype) if dtype else None
    found = compare_tensors(what, ref, dut, limit=1, dtypes=names)
    if not found.total:
        return None
    name = dtype or dtype_name(ref.dtype)
    with np.errstate(invalid="ignore"):  # infinity on both sides
        moved = np.abs(_values(dut, name) - _values(ref, name))
    largest = float(moved.max(initial=0.0))
    kept = largest if np.isfinite(largest) else None
    return Size(what, name, found.differ, found.total, found.max_ulp, kept)


def _values(array: np.ndarray, name: str) -> np.ndarray:
    if name == "bf16" and array.dtype == np.uint16:
        return (array.astype(np.uint32) << _WIDE).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def logits_size(ref: Step, dut: Step) -> Size:
    """How far the logits moved, in the dtype that the dump has for them: an engine returns them
    widened to float32, in which a step of bf16 is 65,536 ULP."""
    name = _logits_dtype(ref)
    rows = [_narrowed(step.logits, name) for step in (ref, dut)]
    if any(row is None for row in rows):
        name, rows = "f32", [ref.logits, dut.logits]
    carried = name if name == "bf16" else ""
    size = tensor_size("logits", rows[0], rows[1], carried)  # type: ignore[arg-type]
    return size or Size("logits", name, ref.logits.size, ref.logits.size, None, None)


def _logits_dtype(step: Step) -> str:
    types = (one.type for one in step.entries if one.key.field == "logits")
    return next((type_.dtype for type_ in types if type_ is not None), "f32")


def _narrowed(row: np.ndarray, name: str) -> np.ndarray | None:
    """float32 as the narrower format it was widened from; None where it was not."""
    if name == "bf16":
        bits = row.view(np.uint32)
        return None if (bits & 0xFFFF).any() else (bits >> _WIDE).astype(np.uint16)
    if name == "f16":
        with np.errstate(over="ignore"):
            narrow = row.astype(np.float16)
        same = narrow.astype(np.float32).tobytes() == row.tobytes()
        return narrow if same or np.isnan(row).any() else None
    return row


def telling_plan(plan: Plan, tag: str, side: Side) -> Plan:
    """``plan`` that also keeps the value behind a key and tells what ran for it, as far as the
    engine can."""
    key = frozenset({Key.parse(tag)})
    kept = key if side.has("capture") else plan.tensors
    return replace(plan, tensors=kept, trace=key if side.has("trace") else plan.trace)


def calls_text(tag: str, ref: Iterable[Step], dut: Iterable[Step]) -> str:
    """What ran for a key where that is not the same on both sides of a check of one engine; "" from
    steps that were not traced."""
    key = Key.parse(tag)
    texts = [
        ", ".join(dict.fromkeys(call.op for step in steps for call in step.calls.get(key, ())))
        for steps in (ref, dut)
    ]
    if not all(texts) or texts[0] == texts[1]:
        return ""
    return f"ref {texts[0]}; dut {texts[1]}"


def key_size(tag: str, ref: Iterable[Step], dut: Iterable[Step]) -> Size | None:
    """How far the values behind a key moved, from steps that kept them; None where one did not."""
    key = Key.parse(tag)
    kept = [
        next((step.tensors[key] for step in steps if key in step.tensors), None)
        for steps in (ref, dut)
    ]
    if kept[0] is None or kept[1] is None:
        return None
    return tensor_size(tag, kept[0], kept[1])


def move_facts(moved: Moved | None) -> list[tuple[str, str]]:
    """The facts of a red run: how far, and the greedy choice; none where nothing was measured."""
    if moved is None:
        return []
    told = [("size", size_text(moved)), ("greedy", greedy_text(moved))]
    return [(label, text) for label, text in told if text]


def size_text(moved: Moved) -> str:
    """``t5_l0_attn: 3 of 64 elements differ, up to 2 ULP (f32); logits: ...``."""
    texts = [_size(one) for one in (moved.first, moved.logits) if one is not None]
    return "; ".join(texts)


def _size(size: Size) -> str:
    text = f"{size.what}: {size.differ:,} of {size.total:,} differ"
    if size.ulp is not None:
        unit = "step" if "int" in size.dtype else "ULP"
        text += f", by up to {size.ulp:,} {unit} of {size.dtype}"
    return f"{text} and {size.largest:.2g}" if size.largest else text


def greedy_text(moved: Moved) -> str:
    """Whether the greedy choice is at risk, and where it is nearest."""
    if not moved.closest:
        return f"safe: no logits differ in {moved.rows:,} rows"
    parts = []
    if moved.flipped:
        parts.append(f"flipped in {moved.flipped:,} of {moved.rows:,} rows")
    if moved.at_risk:
        parts.append(f"at risk in {moved.at_risk:,} of {moved.rows:,} rows")
    if not parts:
        parts.append(f"safe in {moved.rows:,} of {moved.rows:,} rows")
    return f"{', '.join(parts)}; {NEAR}{moved.closest}"
