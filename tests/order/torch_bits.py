"""torch's CPU sums held to their revealed orders, bit by bit; ``python -m tests.order.torch_bits``.

16 x of even magnitude, 1,024 rows each: half of them sums of pure rounding noise, half plain random
numbers of mixed sizes. Written apart from ``parity.order.noise``: these rows judge the answer.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.order.answer import Answer
from parity.order.op import SummingOp
from parity.order.reveal import reveal
from parity.order.sums import Ask
from parity.order.tree import Format, Order
from parity.order.twin import evaluate
from parity.order.words import one_line

XS, ROWS, SEED = 16, 1024, 20_261_130
BATCHES = {"sum": (1, 4, 16, 64), "mv": (1,), "linear": (1, 4, 16, 64)}
DTYPES: tuple[Format, ...] = ("f32", "bf16")
BITS = {"f32": 24, "bf16": 8}
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Bits:
    """Rows compared, those that differ, and in how many of them another order gives other bits."""

    rows: int
    unlike: int
    telling: int


def numbers(
    dtype: str, shape: tuple[int, ...], rng: np.random.Generator, spread: int = 6
) -> Floats:
    """Exact in dtype, all bits of the mantissa random, magnitudes over 2 * spread powers of two."""
    places = BITS[dtype]
    whole = rng.integers(1 << (places - 1), 1 << places, shape) * rng.choice([-1, 1], shape)
    return np.ldexp(whole, rng.integers(-spread, spread + 1, shape) - places).astype(np.float32)


def rows_of(op: SummingOp, rng: np.random.Generator) -> tuple[Floats | None, Floats]:
    """x and 1,024 rows of w; in the first half of these each term stands twice, once negative."""
    n, half = op.n, op.n // 2
    x = numbers(op.dtype, (n,), rng) if op.terms == "products" else None
    # Of values with 8 bits an f32 sum rounds only where they lie far apart.
    spread = 16 if (op.dtype, op.terms) == ("bf16", "values") else 6
    w = numbers(op.dtype, (ROWS, n), rng, spread)
    places = rng.permutation(n)
    first, second = places[:half], places[half : 2 * half]
    noisy = w[: ROWS // 2]
    noisy[:, places[2 * half :]] = 0
    if x is None:
        noisy[:, second] = -noisy[:, first]
    else:
        x[second] = -x[first]
        noisy[:, second] = noisy[:, first]
    return x, w


def compare(op: SummingOp, order: Order, seed: int = SEED) -> Bits:
    """Every row by the op and by the twin of ``order``, as bits; -0 is not 0."""
    rng = np.random.default_rng(seed)
    rows = unlike = telling = 0
    other = rng.permutation(op.n)
    for _ in range(XS):
        x, w = rows_of(op, rng)
        found = op.run(x, w)
        found = found if found.ndim == 1 else found.T
        wanted = evaluate(order, x, w)
        shuffled = evaluate(order, None if x is None else x[other], w[:, other])
        bits = np.atleast_2d(found.astype(np.float32)).view(np.uint32)
        unlike += int((bits != wanted.view(np.uint32)).any(axis=0).sum())
        telling += int((shuffled.view(np.uint32) != wanted.view(np.uint32)).sum())
        rows += len(w)
    return Bits(rows, unlike, telling)


def torch_op(name: str, dtype: Format, K: int, N: int, M: int) -> SummingOp:
    """One of torch's sums on one CPU thread."""
    from parity_torch.sums import TorchSums

    return TorchSums().make(name, Ask(f"torch.{name}", K, N, dtype, threads=1), M)


def judged(name: str, dtype: Format, K: int, N: int, M: int) -> tuple[Answer, Bits | None]:
    """What the study says of an op, and of a green order every bit."""
    op = torch_op(name, dtype, K, N, M)
    answer = reveal(op)
    if answer.order is None or not answer.green:
        return answer, None
    return answer, compare(op, answer.order)


def main() -> None:
    """The table for a shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--K", type=int, default=1024)
    parser.add_argument("--N", type=int, default=512)
    shape = parser.parse_args()
    for dtype in DTYPES:
        for name, batches in BATCHES.items():
            for M in batches:
                began = time.process_time()
                answer, bits = judged(name, dtype, shape.K, shape.N, M)
                spent = time.process_time() - began
                line = one_line(answer.order) if answer.order else "; ".join(answer.contradicts)
                counts = "" if bits is None else f"{bits.unlike} of {bits.rows} rows differ"
                telling = "" if bits is None else f"{bits.telling} tell another order"
                cells = (f"{name} {dtype} M={M}", answer.verdict, counts, telling)
                print(*cells, f"{spent:.1f} s CPU", line, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
