"""Outputs of two batch sizes on the same inputs: one order must give equal bits, two must not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from parity.order.noise import SCALES, Batch, noise_batch, spreads_of
from parity.order.op import Floats, SummingOp
from parity.order.record import Bits

BLOCK = 1 << 22  # numbers of one round of inputs
ROWS = 1024  # of it at least, where a call gives few sums
OUTPUTS, SECONDS = 1_000_000, 30.0  # of one pair, unless a number is asked for
FRESH = 256  # rounds before new numbers are drawn; between them the terms move round


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
    for batch in inputs(ref, OUTPUTS if outputs is None else outputs, seed):
        ones, others = asked(ref, batch), asked(dut, batch)
        differs = ones.view(np.uint32) != others.view(np.uint32)
        done, unlike = done + len(ones), unlike + int(differs.sum())
        if differs.any() and not example:
            row = int(np.argmax(differs))
            example = f"M = {sizes[0]}: {_shown(ones[row])}, M = {sizes[1]}: {_shown(others[row])}"
        if unlike and not same:
            break
        if outputs is None and time.monotonic() - began > SECONDS:
            break
    return Bits(*sizes, same=same, outputs=done, unlike=unlike, example=example)


def asked(op: SummingOp, batch: Batch) -> Floats:
    """float32[rows]: the op's sums, the first of each where a call gives it M times."""
    found = np.zeros(len(batch.w), np.float32)
    for at in range(0, len(found), op.rows):
        here = batch.w[at : at + op.rows]
        w = np.zeros((op.rows, op.n), np.float32)
        w[: len(here)] = here
        sums = op.run(batch.x, w)[: len(here)]
        found[at : at + len(here)] = sums if sums.ndim == 1 else sums[:, 0]
    return found


def inputs(op: SummingOp, outputs: int, seed: int) -> Iterator[Batch]:
    """Noise of every spread in turn, ``outputs`` rows in all; x and w turn together, so that a
    row's sum stays 0."""
    rng = np.random.default_rng(seed)
    rows = max(1, min(outputs, max(op.rows, ROWS), BLOCK // op.n))
    spreads, scale = spreads_of(op)[::-1], 2.0 ** SCALES[op.dtype][0]
    kept: dict[int, Batch] = {}
    left, turn = outputs, 0
    while left > 0:
        slot = turn % len(spreads)
        if turn % FRESH < len(spreads):
            kept[slot] = noise_batch(op, spreads[slot], scale, rng, rows)
        batch = kept[slot]
        shift, count = int(rng.integers(op.n)), min(rows, left)
        x = None if batch.x is None else np.roll(batch.x, shift)
        yield Batch(x, np.roll(batch.w[:count], shift, axis=1))
        left, turn = left - count, turn + 1


def _shown(value: np.float32) -> str:
    return f"{int(value.view(np.uint32)):08x}"
