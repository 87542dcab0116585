"""Rows of an op's sums with the bits that the device gave: what a replay makes again.

Inputs are written out, or made from a seed by integers alone, so that any machine and any version
of NumPy makes the same: half of the terms are the others with the other sign, the exact sum is 0
and every bit of the answer is rounding. Sums of fewer than FEW terms and of squares do not cancel;
where the output of squares is narrow they add up to halfway between two of its numbers (``ties``).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parity.errors import NotRunError, ParityBug

if TYPE_CHECKING:
    import numpy as np

    from parity.order.op import SummingOp
    from parity.order.tree import Order

# How rows are made from a seed; another way is another kind, and files have those of their time.
KIND, OLD = "noise 2", "noise 1"
KINDS = (KIND, OLD)
PARTS = 4  # of recorded rows: each has an x and pairs of its own
MOST_ROWS = 1 << 20
MOST_SEED = (1 << 63) - 1
FEW = 8  # below so few terms, half of them cancel without any rounding
# Weights lie over 2^-spread to 2^spread. Single values of few bits, and f64 additions, round only
# where magnitudes differ by more than the bits that are left: else every sum would be 0.
# f16 has no room for more, and less where partial sums are stored in it.
SPREADS = {"f32": 1, "bf16": 12, "f16": 8}
VALUES = {"f32": 1, "bf16": 14, "f16": 11}
OLD_SPREADS = {"f32": 1, "bf16": 6, "f16": 3}
OLD_VALUES = {"f32": 1, "bf16": 10, "f16": 8}
WIDE = {"f32": 30, "bf16": 30, "f16": 8}
PLACES = {"f32": 23, "bf16": 7, "f16": 10}  # bits after the first one


@dataclass(frozen=True, eq=False)
class Rows:
    """``out``: float32[count], the device's sums, each of the values of ``order.out``.

    Inputs: ``seed`` and ``kind``, or ``x``: float32[n] (None: not products) and ``w``:
    float32[count, n].
    """

    out: np.ndarray
    seed: int | None = None
    x: np.ndarray | None = None
    w: np.ndarray | None = None
    kind: str = KIND

    def inputs(self, order: Order) -> tuple[np.ndarray | None, np.ndarray]:
        """x and w."""
        if self.w is not None:
            return self.x, self.w
        return seeded(order, self.seed or 0, len(self.out), self.kind)


def recorded(op: SummingOp, order: Order, seed: int, count: int) -> list[Rows]:
    """``count`` rows of ``op`` in PARTS, each made from a seed. NotRunError where equal rows of a
    batch differ, or a row is not what ``order`` gives: the op adds otherwise by now, and the file
    would not replay."""
    sizes = [(count + part) // PARTS for part in range(PARTS)]
    seeds = [(seed + part) & MOST_SEED for part in range(PARTS)]
    made = [_asked(op, order, *each) for each in zip(seeds, sizes, strict=True) if each[1]]
    unlike = sum(each for _, each in made)
    if unlike:
        raise NotRunError(
            f"{op.name}: {unlike:,} of {count:,} rows asked later are not what its tree gives",
            "ask it again",
        )
    return [rows for rows, _ in made]


def _asked(op: SummingOp, order: Order, seed: int, count: int) -> tuple[Rows, int]:
    """Rows of ``op``, and how many are not what ``order`` gives."""
    import numpy as np

    from parity.order.twin import evaluate

    x, w = seeded(order, seed, count)
    found = []
    for begin in range(0, count, op.rows):
        part = w[begin : begin + op.rows]
        sums = np.asarray(op.run(x, np.resize(part, (op.rows, op.n))))
        sums = sums.reshape(op.rows, -1).astype(np.float32)
        if not (sums.view(np.int32) == sums[:, :1].view(np.int32)).all():
            raise NotRunError(f"{op.name}: equal rows of one batch have other bits", "ask it again")
        found.append(sums[: len(part), 0])
    out = np.concatenate(found)
    unlike = int((out.view(np.int32) != evaluate(order, x, w).view(np.int32)).sum())
    return Rows(out, seed), unlike


def seeded(
    order: Order, seed: int, count: int, kind: str = KIND
) -> tuple[np.ndarray | None, np.ndarray]:
    """x: float32[n] (None: not products) and w: float32[count, n], of the values of order.dtype."""
    import numpy as np

    from parity.model.generator import words

    n, places = order.tree.n, PLACES[order.dtype]
    if order.terms == "squares" and order.out != "f32" and kind != OLD:
        from parity.order.ties import rows_at_ties

        return None, rows_at_ties(
            order, words(seed, f"{kind} ties", 0, count * n).reshape(count, n)
        )

    def values(name: str, size: int, spread: int) -> np.ndarray:
        whole, exponent = drawn(words(seed, f"{kind} {name}", 0, size), places, spread)
        made: np.ndarray = np.ldexp(whole.astype(np.float32), exponent - places)
        return made

    w = values("w", count * n, _spread(order, kind)).reshape(count, n)
    if order.terms == "squares":
        return None, w
    x = values("x", n, 0)
    if n < FEW:
        return (x if order.terms == "products" else None), w
    mixed = np.argsort(words(seed, f"{kind} pairs", 0, n), kind="stable")
    one, other, rest = np.split(mixed, [n // 2, n // 2 * 2])
    w[:, rest] = 0
    if order.terms == "values":
        w[:, other] = -w[:, one]
        return None, w
    w[:, other], x[other] = w[:, one], -x[one]
    return x, w


def drawn(bits: np.ndarray, places: int, spread: int) -> tuple[np.ndarray, np.ndarray]:
    """int32 each, of a random uint64 each: a number of ``places`` bits after the first one, of
    either sign, and an exponent from -spread to spread."""
    import numpy as np

    whole = (bits & np.uint64((1 << places) - 1)).astype(np.int32) + (1 << places)
    sign = np.where(bits >> np.uint64(63), np.int32(-1), np.int32(1))
    moved = (bits >> np.uint64(32)) % np.uint64(2 * spread + 1)
    return whole * sign, moved.astype(np.int32) - spread


def _spread(order: Order, kind: str) -> int:
    """The powers of two, each way, over which the weights of an order's rows lie."""
    if order.wide:
        return WIDE[order.dtype]
    if kind == OLD or order.narrow:
        return (OLD_VALUES if order.terms == "values" else OLD_SPREADS)[order.dtype]
    return (VALUES if order.terms == "values" else SPREADS)[order.dtype]


# --- as plain data --------------------------------------------------------------------------------


def plain_rows(rows: Rows, order: Order) -> dict[str, Any]:
    """As JSON has it: bit patterns of the values' own format, little-endian, in base64."""
    made: dict[str, Any] = {"count": len(rows.out), "out": _packed(rows.out, order.out)}
    if rows.w is None:
        return {**made, "kind": rows.kind, "seed": rows.seed or 0}
    x = "" if rows.x is None else _packed(rows.x, order.dtype)
    return {**made, "x": x, "w": _packed(rows.w, order.dtype)}


def rows_of(plain: dict[str, Any], order: Order) -> Rows:
    """From plain data; ValueError says what is wrong with it."""
    count = plain.get("count")
    if type(count) is not int or not 1 <= count <= MOST_ROWS:
        raise ValueError(f"count is {repr(count)[:20]}, not 1 to {MOST_ROWS}")
    out = _unpacked(plain, "out", order.out, count)
    if plain.keys() == {"count", "out", "kind", "seed"}:
        seed = plain["seed"]
        if plain["kind"] not in KINDS:
            raise ValueError(f"kind {str(plain['kind'])[:20]!r} is unknown")
        if type(seed) is not int or not 0 <= seed <= MOST_SEED:
            raise ValueError(f"seed {repr(seed)[:20]}")
        return Rows(out, seed, kind=plain["kind"])
    if plain.keys() != {"count", "out", "x", "w"}:
        raise ValueError("neither a seed nor x and w")
    w = _unpacked(plain, "w", order.dtype, count * order.tree.n).reshape(count, -1)
    terms = order.tree.n if order.terms == "products" else 0
    x = _unpacked(plain, "x", order.dtype, terms)
    return Rows(out, None, x if terms else None, w)


def _packed(values: np.ndarray, form: str) -> str:
    """The bits of values that are exact in ``form``; ParityBug for others: they would be lost."""
    import numpy as np

    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    if form == "bf16":
        bits: np.ndarray = (flat.view(np.uint32) >> np.uint32(16)).astype("<u2")
    else:
        bits = flat.astype("<f2" if form == "f16" else "<f4")
    if _widened(bits.tobytes(), form).tobytes() != flat.tobytes():
        raise ParityBug(f"rows of an order file hold values that are not exact in {form}")
    return base64.b64encode(bits.tobytes()).decode()


def _unpacked(plain: dict[str, Any], name: str, form: str, count: int) -> np.ndarray:
    """float32[count] of the bit patterns in ``plain[name]``."""
    text, width = plain.get(name), 4 if form == "f32" else 2
    if not isinstance(text, str):
        raise ValueError(f"{name} is missing")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} is no base64 text") from error
    if len(data) != count * width:
        raise ValueError(f"{name} has {len(data)} bytes, not {count * width}")
    return _widened(data, form)


def _widened(data: bytes, form: str) -> np.ndarray:
    import numpy as np

    if form == "bf16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.frombuffer(data, "<f2" if form == "f16" else "<f4").astype(np.float32)
