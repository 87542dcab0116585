"""Replay an order file: the recorded rows, evaluated in its order on this CPU, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parity.errors import NotRunError
from parity.order.file import OrderFile, read_order
from parity.order.sums import ASKED
from parity.order.twin import evaluate

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Replayed:
    """``rows`` compared, ``unlike`` of them with other bits; ``example``: the first, in words."""

    file: OrderFile
    rows: int
    unlike: int
    example: str = ""

    @property
    def green(self) -> bool:
        """Every row came out with the device's bits, and there was one."""
        return self.rows > 0 and not self.unlike


def replay(found: OrderFile | Path) -> Replayed:
    """Evaluate the recorded rows and compare bytes.

    Raises InputError for a file that is none, NotRunError for one without rows, whose op does more
    with its sum than add, or whose rows all came out as 0, as any order might give them.
    """
    if isinstance(found, Path):
        found = read_order(found)
    if not found.rows:
        again = "ask the op itself again: --device" if ASKED in found.key else "write it with rows"
        raise NotRunError(f"{found.op}: the file holds no rows to replay", again)
    if found.order.post:
        raise NotRunError(
            f"{found.op}: its rows are what {found.order.post} makes of the sum",
            "ask the op itself again: --device",
        )
    rows, unlike, example = 0, 0, ""
    for batch in found.rows:
        dut = evaluate(found.order, *batch.inputs(found.order))
        wrong = [k for k in range(len(dut)) if dut[k].tobytes() != batch.out[k].tobytes()]
        if wrong and not example:
            example = _example(rows + wrong[0], batch.out[wrong[0]], dut[wrong[0]])
        rows, unlike = rows + len(dut), unlike + len(wrong)
    if not unlike and not any(batch.out.any() for batch in found.rows):
        raise NotRunError(
            f"{found.op}: its {rows:,} rows are all 0, as any order might give them",
            "ask the op itself again: --device",
        )
    return Replayed(found, rows, unlike, example)


def _example(row: int, ref: np.float32, dut: np.float32) -> str:
    def told(value: np.float32) -> str:
        return f"{int.from_bytes(value.tobytes(), 'little'):08x} ({float(value):.9g})"

    return f"row {row}: recorded {told(ref)}, replayed {told(dut)}"
