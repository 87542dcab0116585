"""Outputs of two batch sizes on the same inputs: one order must give equal bits, two must not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import cast

import numpy as np

from parity.order.noise import FEW, SCALES, Batch, noise_batch, spreads_of
from parity.order.op import Floats, Multiplying, Repeating, SummingOp
from parity.order.record import Bits

BLOCK = 1 << 24  # numbers of one round of inputs
ROWS = 1024  # of it at least, where a call gives few sums
XS = 64  # beside each w of products, at least: to make a w takes longer than to ask for its sums
OUTPUTS, SECONDS = 1_000_000, 30.0  # of one pair, unless a number is asked for
FRESH = 256  # rounds of values before new numbers are drawn; between them the terms move round


def compare_bits(
    ref: SummingOp,
    dut: SummingOp,
    sizes: tuple[int, int],
    *,
    same: bool,
    outputs: int | None,
    seed: int,
) -> Bits:
    """``outputs`` outputs of both ops on rows of rounding noise; where the orders differ, only as
    many as it takes to see it. ``sizes``: the two M. ``outputs`` None: OUTPUTS of them, or as many
    as SECONDS allow; the result tells how many it was."""
    done = unlike = 0
    example, began = "", time.monotonic()
    wanted = OUTPUTS if outputs is None else outputs
    rounds = _products(ref, dut, wanted, seed, same=same)
    for batch in _values(ref, wanted, seed) if rounds is None else rounds:
        ones, others = (asked(op, batch)[: wanted - done] for op in (ref, dut))
        differs = ones.view(np.uint32) != others.view(np.uint32)
        done, unlike = done + len(ones), unlike + int(differs.sum())
        if differs.any() and not example:
            row = int(np.argmax(differs))
            example = f"M = {sizes[0]}: {_shown(ones[row])}, M = {sizes[1]}: {_shown(others[row])}"
        if done == wanted or (unlike and not same):
            break
        if outputs is None and time.monotonic() - began > SECONDS:
            break
    return Bits(*sizes, same=same, outputs=done, unlike=unlike, example=example)


def asked(op: SummingOp, batch: Batch) -> Floats:
    """float32[sums]: of each row of w with each x, or with the one; of a sum that a call gives M
    times the first."""
    if batch.x is not None and batch.x.ndim > 1:
        return cast(Multiplying, op).products(batch.x, batch.w).reshape(-1)
    found = np.zeros(len(batch.w), np.float32)
    room = op.rows * (op.calls if isinstance(op, Repeating) else 1)
    for at in range(0, len(found), room):
        here = batch.w[at : at + room]
        w = np.zeros((-(-len(here) // op.rows) * op.rows, op.n), np.float32)
        w[: len(here)] = here
        sums = op.run(batch.x, w)[: len(here)]
        found[at : at + len(here)] = sums if sums.ndim == 1 else sums[:, 0]
    return found


def _products(
    ref: SummingOp, dut: SummingOp, outputs: int, seed: int, *, same: bool
) -> Iterator[Batch] | None:
    """Noise of every spread in turn, without end, many x beside each w; None for ops that take one
    x at a time. Of two orders few sums tell enough for a first look."""
    if not (isinstance(ref, Multiplying) and isinstance(dut, Multiplying)):
        return None
    if ref.terms != "products" or ref.n < FEW:
        return None
    largest = max(ref.batch, dut.batch)
    if not same:
        return _rounds(ref, -(-ROWS // largest), largest, seed)
    xs = max(XS, largest)
    rows = min(max(ref.rows, min(ROWS, -(-outputs // xs))), BLOCK // ref.n)
    return _rounds(ref, max(1, rows), xs, seed)


def _rounds(op: SummingOp, rows: int, xs: int, seed: int) -> Iterator[Batch]:
    rng, scale = np.random.default_rng(seed), 2.0 ** SCALES[op.dtype][0]
    while True:
        for spread in spreads_of(op)[::-1]:
            yield noise_batch(op, spread, scale, rng, rows, xs=xs)


def _values(op: SummingOp, outputs: int, seed: int) -> Iterator[Batch]:
    """Noise of every spread in turn, ``outputs`` rows or more in all; x and w turn together, so
    that a row's sum stays 0."""
    rng = np.random.default_rng(seed)
    rows = max(1, min(outputs, max(op.rows, ROWS), BLOCK // 4 // op.n))
    spreads, scale = spreads_of(op)[::-1], 2.0 ** SCALES[op.dtype][0]
    kept: dict[int, Batch] = {}
    for turn in range(-(-outputs // rows)):
        slot = turn % len(spreads)
        if turn % FRESH < len(spreads):
            kept[slot] = noise_batch(op, spreads[slot], scale, rng, rows)
        batch, shift = kept[slot], int(rng.integers(op.n))
        x = None if batch.x is None else np.roll(batch.x, shift)
        yield Batch(x, np.roll(batch.w, shift, axis=1))


def _shown(value: np.float32) -> str:
    return f"{int(value.view(np.uint32)):08x}"
