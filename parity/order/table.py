"""The orders of one op over batch sizes: which share a tree, and where two trees part."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from parity.order.answer import Answer
from parity.order.bits import compare_bits
from parity.order.file import OrderFile, file_of, plain_of
from parity.order.naming import named
from parity.order.op import Finishing, Levelled, SummingOp, Telling
from parity.order.record import TREE, Bits, OrderTable, Row
from parity.order.reveal import reveal
from parity.order.rows import recorded
from parity.order.sums import ASKED, Ask, asked_text, open_op
from parity.order.tree import Order, Tree
from parity.order.twin import evaluate
from parity.order.words import difference, one_line

if TYPE_CHECKING:
    from parity.progress import Progress


@dataclass(frozen=True)
class Study:
    """A table with what it was made of: by M the op and its answer."""

    ask: Ask
    table: OrderTable
    ops: Mapping[int, SummingOp]
    answers: Mapping[int, Answer]

    def order_file(self, M: int, *, rows: int, seed: int) -> OrderFile:
        """The order file of one M, with ``rows`` rows of the op's bits to be replayed.

        There are none of an op that shows no sums, or whose weights hold few values: its file is
        checked with the op alone. InputError where the answer is no tree.
        """
        op, answer = self.ops[M], self.answers[M]
        key = {**op.key, ASKED: asked_text(self.ask, M)}
        shown = rows and not isinstance(op, Finishing | Levelled | Telling)
        kept = recorded(op, answer.order, seed, rows) if shown and answer.order is not None else []
        return file_of(answer, self.ask.op, key, kept)


def study(
    ask: Ask, batch: Sequence[int], *, seed: int, outputs: int | None, progress: Progress
) -> Study:
    """Reveal the op of ``ask`` at each M of ``batch``; then compare ``outputs`` outputs of pairs
    (None: as ``parity.order.bits`` has it).

    All ops are opened before the first is asked. Raises what ``open_op`` raises.
    """
    began = time.monotonic()
    ops = {size: open_op(ask, size) for size in batch}
    _warm()
    answers = {}
    for at, (size, op) in enumerate(ops.items()):
        progress.update(ask.name, f"M = {size}", at, len(ops), "batch sizes")
        answers[size] = reveal(op, seed=seed)
    numbers = _numbered(answers)
    bits = []
    for at, pair in enumerate(pairs := _pairs(answers, numbers) if outputs != 0 else []):
        progress.update(ask.name, f"bits of M = {pair[1]}", at, len(pairs), "pairs")
        bits.append(_compared(ops, pair, answers, outputs=outputs, seed=seed))
    table = OrderTable(
        op=ask.op,
        K=ask.K,
        N=ask.N,
        dtype=ask.dtype,
        device=ask.device,
        terms=next(iter(ops.values())).terms,
        rows=[_row(size, answers[size], numbers, ops[size]) for size in ops],
        partings=[_parting(*pair) for pair in pairwise(_firsts(answers, numbers))],
        bits=bits,
        seconds=time.monotonic() - began,
    )
    return Study(ask, table, ops, answers)


def _warm() -> None:
    """Load the twin's kernel, so that no M is charged with the seconds of its compilation."""
    import numpy as np

    evaluate(Order(Tree.of((0, 1)), "values"), None, np.zeros((1, 2), np.float32))


def _numbered(answers: dict[int, Answer]) -> dict[str, int]:
    """Order digest -> its number from 1, in the order of M."""
    digests = dict.fromkeys(one.order.digest() for one in answers.values() if one.order)
    return {digest: number for number, digest in enumerate(digests, 1)}


def _firsts(answers: dict[int, Answer], numbers: dict[str, int]) -> list[tuple[int, Order]]:
    """The first M of each different order that is one, with it."""
    found: dict[str, tuple[int, Order]] = {}
    for size, answer in answers.items():
        if answer.green and answer.order is not None:
            found.setdefault(answer.order.digest(), (size, answer.order))
    return [found[digest] for digest in numbers if digest in found]


def _row(size: int, answer: Answer, numbers: dict[str, int], op: SummingOp) -> Row:
    order = answer.order
    return Row(
        M=size,
        verdict=answer.verdict,
        tree=numbers[order.digest()] if order else 0,
        digest=order.digest() if order else "",
        words=one_line(order) if order else "",
        name=named(order) if order and answer.verdict == TREE else "",
        probes=answer.probes,
        calls=answer.calls,
        seconds=answer.seconds,
        evidence=_evidence(answer),
        key=dict(op.key),
        order=plain_of(order) if order else None,
        stages=answer.stages,
    )


def _evidence(answer: Answer) -> list[str]:
    """What was asked, and what speaks against a tree, in words."""
    lines = list(answer.contradicts)
    certify, noise = answer.certify, answer.noise
    if certify is not None and certify.contradicted:
        count = f"{certify.contradicted:,} of {certify.asked:,}"
        lines.append(f"certify: {count} counts contradict the tree, first {certify.example}")
    if noise is not None and noise.unlike:
        count = f"{noise.unlike:,} of {noise.rows:,}"
        lines.append(f"noise: {count} rows differ from the twin, first {noise.example}")
    if noise is not None and noise.blind:
        lines.append("noise: blind, no row would tell two swapped terms")
    return lines + [f"undecided: {line}" for line in answer.undecided]


def _parting(ref: tuple[int, Order], dut: tuple[int, Order]) -> str:
    words = difference(ref[1], dut[1], f"M = {ref[0]}", f"M = {dut[0]}")
    return f"{words}: this is why the bits change"


def _pairs(answers: dict[int, Answer], numbers: dict[str, int]) -> list[tuple[int, int]]:
    """Each green M with the first of its order, and the firsts of each two orders."""
    firsts = dict.fromkeys(numbers, 0)
    within = []
    for size, answer in answers.items():
        if not answer.green or answer.order is None:
            continue
        digest = answer.order.digest()
        if firsts[digest]:
            within.append((firsts[digest], size))
        else:
            firsts[digest] = size
    heads = [size for size in firsts.values() if size]
    return within + [(one, other) for at, one in enumerate(heads) for other in heads[at + 1 :]]


def _compared(
    ops: dict[int, SummingOp],
    pair: tuple[int, int],
    answers: dict[int, Answer],
    *,
    outputs: int | None,
    seed: int,
) -> Bits:
    ref, dut = (answers[size].order for size in pair)
    same = ref is not None and dut is not None and ref.digest() == dut.digest()
    one, other = (ops[size] for size in pair)
    return compare_bits(one, other, pair, same=same, outputs=outputs, seed=seed)
