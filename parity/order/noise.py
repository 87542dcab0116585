"""Rows of pure rounding noise: does the twin give the op's bits where nothing but rounding is left?

Half of the terms are the other half with the other sign, so the exact sum is 0 and every bit of the
answer is the order's. On random terms a narrow output hides most orders; here it shows them. A few
rows of random terms stand beside them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.order.answer import Noise
from parity.order.asking import Asker
from parity.order.op import Finishing, Floats, Levelled, SummingOp, Telling
from parity.order.tree import Ints, Order

Evaluate = Callable[[Order, Floats | None, Floats], Floats]

BATCHES = 16  # different x, each of even magnitude
ROWS = 64  # different sums for each x: 1024 in all
# Below so few terms half of them do not make noise: the last one cancels the sum of the others.
FEW = 8
MANTISSA = {"f32": 24, "bf16": 8, "f16": 11}
# Powers of two over which the weights of a batch spread, batches in turn. Sums of products of bf16
# round only where magnitudes differ by more than 2^8, f64 additions where they do by 2^29.
SPREADS = {"f32": (0, 1, 30, 1), "bf16": (4, 6, 30, 5), "f16": (1, 3, 2, 3)}
# Single values of 8 or 11 bits round in f32 only so far apart.
VALUES = {"f32": SPREADS["f32"], "bf16": (9, 11, 30, 10), "f16": (8, 8, 7, 8)}
TIES = 4  # terms that bring a sum of squares to a tie of a narrow output
PLAIN = 8  # one row of so many does not cancel: an op may tell other data from noise
# The scale of x, batches in turn: to find out an op that looks at magnitudes. f16 has no room.
SCALES = {"f32": (0, -20, 12, 0), "bf16": (0, -20, 12, 0), "f16": (4,)}


@dataclass(frozen=True)
class Batch:
    """x: float32[n], float32[count, n] or None; w: float32[rows, n]."""

    x: Floats | None
    w: Floats


def batches(op: SummingOp, order: Order, rng: np.random.Generator) -> Iterator[Batch]:
    """Noise for an op, without end.

    Where the order stores partial sums in fewer bits, they would hide the noise of their terms
    behind the sum itself: every other batch cancels inside of each such partial sum.
    """
    spreads, scales = spreads_of(op), SCALES[op.dtype]
    ways = [(), _stored_apart(order)] if order.narrow else [()]
    for k in itertools.count():
        scale = 2.0 ** scales[k // 4 % len(scales)]
        groups, threes = ways[k // 2 % len(ways)], bool((k + k // 4) % 2)
        yield noise_batch(op, spreads[k % 4], scale, rng, threes=threes, groups=groups)


def _stored_apart(order: Order) -> Sequence[Ints]:
    """The leaves in groups: those under each outermost narrow partial sum, and all others."""
    tree = order.tree
    group = np.zeros(tree.n, np.int64)
    for node in order.narrow:
        if tree.parents[node] not in order.narrow:
            group[tree.under(node)] = node
    return [np.flatnonzero(group == node) for node in np.unique(group)]


def spreads_of(op: SummingOp) -> tuple[int, ...]:
    """The powers of two over which an op's weights spread, batches in turn."""
    return (VALUES if op.terms == "values" else SPREADS)[op.dtype]


def noise(
    asker: Asker, order: Order, evaluate: Evaluate, rng: np.random.Generator, count: int = BATCHES
) -> Noise:
    """The op's bits on ``count`` batches beside those of the order.

    Raises NoTree where the op gives a sum unlike at two places.
    """
    rows = unlike = places = 0
    example = ""
    told = blind = False
    for batch in itertools.islice(batches(asker.op, order, rng), count):
        wanted = twin_bits(asker.op, order, evaluate, batch)
        found = _answers(asker, batch)
        wrong = np.flatnonzero(_bits(found) != _bits(wanted))
        if wrong.size and not example:
            k = int(wrong[0])
            example = _example(rows + k, found[k], wanted[k])
        swap = None if told else _swap(order, rng)
        if swap is not None:
            other = twin_bits(asker.op, order, evaluate, _permuted(batch, swap))
            told = bool((_bits(other) != _bits(wanted)).any())
            blind = not told
        rows, unlike = rows + len(found), unlike + len(wrong)
        places += -(-len(found) // asker.op.rows) * asker.op.rows
    return Noise(rows, unlike, places, blind, example)


def unlike_rows(
    asker: Asker, orders: list[Order], evaluate: Evaluate, rng: np.random.Generator, count: int
) -> list[int]:
    """For each order the rows of ``count`` batches that it does not explain."""
    unlike = [0] * len(orders)
    for batch in itertools.islice(batches(asker.op, orders[0], rng), count):
        found = _bits(_answers(asker, batch))
        for k, order in enumerate(orders):
            wanted = _bits(twin_bits(asker.op, order, evaluate, batch))
            unlike[k] += int((found != wanted).sum())
    return unlike


def twin_bits(op: SummingOp, order: Order, evaluate: Evaluate, batch: Batch) -> Floats:
    """float32[ROWS]: what the op should give."""
    if isinstance(op, Telling):
        batch = Batch(None, op.terms_of(batch.w))
    if not isinstance(op, Finishing):
        return evaluate(order, batch.x, batch.w)
    sums = evaluate(replace(order, out="f32", post=""), batch.x, batch.w)
    finished = [
        op.finish(np.resize(sums[at : at + op.rows], op.rows))[: len(sums) - at]
        for at in range(0, len(sums), op.rows)
    ]
    return np.concatenate(finished)


def _answers(asker: Asker, batch: Batch) -> Floats:
    """float32[rows]: the op's answers; each row is asked at as many places as a call has."""

    def fill(first: int, last: int, w: Floats) -> None:
        w[:] = batch.w[first:last]

    return asker.ask(len(batch.w), fill, batch.x).astype(np.float32)


def noise_batch(
    op: SummingOp,
    spread: int,
    scale: float,
    rng: np.random.Generator,
    rows: int = ROWS,
    *,
    threes: bool = False,
    groups: Sequence[Ints] = (),
    xs: int = 0,
) -> Batch:
    """Rows of noise: weights over 2^-spread to 2^spread, x (or values) times ``scale``.

    Terms cancel in twos; with ``threes`` in threes: an op that sorts by magnitude would put the two
    of a pair side by side, and show no rounding at all. ``groups``: sets of leaves that cancel each
    by itself; by default all of them together. The last of each PLAIN rows do not cancel. ``xs``:
    so many x instead of one, every row cancels with each of them; FEW terms or more.
    """
    n = op.n
    w = _mantissas(op.dtype, (rows, n), rng, spread)
    if isinstance(op, Levelled):
        w = rng.choice(np.array([v for v in op.levels if v], np.float32), w.shape)
    if op.terms == "squares":
        made = Batch(None, w if op.dtype == "f16" else w * np.float32(scale**0.5))
        if op.out != "f32":
            _to_ties(op, made.w, rng)
        return made
    x = _mantissas(op.dtype, (xs, n) if xs else (n,), rng) * np.float32(scale)
    if op.terms == "values":
        w *= np.float32(scale)
    paired = w[: rows - rows // PLAIN]
    if n < FEW:
        _cancel_last(op, x, paired, int(rng.integers(n)))
    else:
        cancel = _threes if threes and not isinstance(op, Levelled) else _pair
        for group in groups or [np.arange(n)]:
            cancel(op, x, paired, rng.permutation(group), rng)
    return Batch(x if op.terms == "products" else None, w)


def _pair(op: SummingOp, x: Floats, w: Floats, order: Ints, _: np.random.Generator) -> None:
    """Gives half of the terms the other sign of the other half; of an odd number one is 0."""
    half = len(order) // 2
    first, second, rest = order[:half], order[half : 2 * half], order[2 * half :]
    w[:, rest] = 0
    if op.terms == "values":
        w[:, second] = -w[:, first]
    else:
        w[:, second] = w[:, first]
        x[..., second] = -x[..., first]


def _threes(op: SummingOp, x: Floats, w: Floats, order: Ints, rng: np.random.Generator) -> None:
    """Gives the terms as a, b and -(a + b), b of a's exponent and the other sign: all exact. Some
    of x are 0: an op may leave such terms out, and deal the others otherwise."""
    third = len(order) // 3
    one, two, last, rest = np.split(order, [third, 2 * third, 3 * third])
    w[:, rest] = 0
    first = w[:, one]
    size = np.ldexp(np.abs(_mantissas(op.dtype, first.shape, rng)), np.frexp(first)[1] - 1)
    w[:, two] = -np.copysign(size, first)
    w[:, last] = -(first + w[:, two])
    x[..., one[: (third + 4) // 8]] = 0
    x[..., two] = x[..., last] = x[..., one]


def _to_ties(op: SummingOp, w: Floats, rng: np.random.Generator) -> None:
    """Gives each row's sum of squares a value beside the middle of two numbers of the output, which
    hides all other rounding (``parity.order.ties`` says which): as near as TIES terms, each smaller
    than the one before, come to it.
    """
    if op.n <= TIES:
        return
    if op.out == "f16":  # below its largest number, whatever n is
        w *= np.float32(2.0 ** -(int(op.n).bit_length() // 2 + 1))
    chosen = rng.choice(op.n, TIES, replace=False)
    w[:, chosen] = 0
    total = np.square(w, dtype=np.float64).sum(axis=1)
    exponent = np.frexp(total)[1]
    place = np.ldexp(1.0, exponent - MANTISSA[op.out])
    beside = np.ldexp(1.0, exponent - MANTISSA["f32"] - 1)
    lower = np.floor(total / place)
    ties = [(k + 0.5) * place + np.where(k % 2, -beside, beside) for k in (lower, lower + 1)]
    left = np.where(ties[0] < total, ties[1], ties[0]) - total
    for leaf in chosen:
        root, exponent = np.frexp(np.sqrt(left))
        term = np.ldexp(np.floor(np.ldexp(root, MANTISSA[op.dtype])), exponent - MANTISSA[op.dtype])
        w[:, leaf] = term
        left = left - np.square(w[:, leaf], dtype=np.float64)
        left = np.maximum(left, 0)


def _cancel_last(op: SummingOp, x: Floats, w: Floats, last: int) -> None:
    """Makes one term minus the sum of the others, as near as the dtype comes to it."""
    if isinstance(op, Levelled) or op.n == 1:
        return
    factor = x.astype(np.float64) if op.terms == "products" else np.ones(op.n)
    w[:, last] = 0
    wanted = -(w @ factor) / factor[last]
    exponent = np.frexp(wanted)[1] - MANTISSA[op.dtype]
    w[:, last] = np.ldexp(np.rint(np.ldexp(wanted, -exponent)), exponent)


def _mantissas(
    dtype: str, shape: tuple[int, ...], rng: np.random.Generator, spread: int = 0
) -> Floats:
    """float32[shape]: from 1 to below 2, every bit of the dtype's mantissa random, either sign,
    times 2^-spread to 2^spread. Made of the bits of one random number each."""
    drawn = rng.integers(1 << 32, size=shape, dtype=np.uint32)
    exponents = (drawn >> np.uint32(24)) * np.uint32(2 * spread + 1) >> np.uint32(8)
    exponents += np.uint32(127 - spread)
    signs = (drawn & np.uint32(1 << 23)) << np.uint32(8)
    drawn &= np.uint32((1 << 23) - (1 << (24 - MANTISSA[dtype])))
    drawn |= signs
    drawn |= exponents << np.uint32(23)
    return drawn.view(np.float32)


def _swap(order: Order, rng: np.random.Generator) -> Ints | None:
    """A permutation of two leaves that makes another tree; None where none is found."""
    parents = np.array(order.tree.parents)
    n = order.tree.n
    for _ in range(64 if n > 2 else 0):
        left, right = rng.choice(n, 2, replace=False)
        if parents[left] != parents[right]:
            swap = np.arange(n)
            swap[[left, right]] = right, left
            return swap
    return None


def _permuted(batch: Batch, swap: Ints) -> Batch:
    return Batch(None if batch.x is None else batch.x[swap], np.ascontiguousarray(batch.w[:, swap]))


def _example(row: int, found: np.float32, wanted: np.float32) -> str:
    def told(value: np.float32) -> str:
        return f"{int(value.view(np.uint32)):08x} ({value:.9g})"

    return f"row {row}: the op gave {told(found)}, the order gives {told(wanted)}"


def _bits(values: Floats) -> Ints:
    return np.ascontiguousarray(values, np.float32).view(np.int32).astype(np.int64)
