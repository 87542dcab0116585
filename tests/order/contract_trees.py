"""The orders of the contract as nested tuples, written from its text and from nothing else.

Used by the tests that reveal them from outside; ``parity.order.naming`` has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Nested = Any


def chain(parts: Iterable[Nested]) -> Nested:
    """Ascending: ``((a + b) + c) + ...``; the accumulator's +0.0 changes nothing."""
    total: Nested = None
    for part in parts:
        total = part if total is None else (total, part)
    return total


def ascending(n: int) -> Nested:
    """Contract 1.2, 1.4 (blocks), 1.5, 1.8 (keys), 3.2."""
    return chain(range(n))


def rmsnorm(d: int) -> Nested:
    """Contract 1.1: blocks of 8, then the tail."""
    blocks = []
    for at in range(0, d - d % 8, 8):
        lo = [(at + k, at + 4 + k) for k in range(4)]
        blocks.append(((lo[0], lo[1]), (lo[2], lo[3])))
    return chain([*blocks, *range(d - d % 8, d)])


def q4_block(at: int) -> Nested:
    """Contract 1.3: pairs (e, e + 16), ascending."""
    return chain((at + e, at + e + 16) for e in range(16))


def q4(n: int) -> Nested:
    """Contract 1.3: blocks ascending."""
    return chain(q4_block(at) for at in range(0, n, 32))


def q4_unpaired(n: int) -> Nested:
    """Contract 5, unpaired: strictly 0..31, blocks ascending."""
    return chain(chain(range(at, at + 32)) for at in range(0, n, 32))


def q4_split(n: int) -> Nested:
    """Contract 5, split_k: block b adds to partial b mod 4, the four partials ascending."""
    blocks = [q4_block(at) for at in range(0, n, 32)]
    return chain(chain(blocks[partial::4]) for partial in range(4))


def by_tree(n: int) -> Nested:
    """Contract 5, norm_tree and router_tree: padded with +0.0 to a power of two, halving."""
    width = 1
    while width < n:
        width *= 2
    values: Sequence[Nested] = [*range(n), *[None] * (width - n)]
    while width > 1:
        width //= 2
        values = [_sum(values[i], values[i + width]) for i in range(width)]
    return values[0]


def in_parts(n: int) -> Nested:
    """Contract 5, split_keys: keys 0..127, 128..255, ... each ascending, then the parts."""
    return chain(chain(range(at, min(at + 128, n))) for at in range(0, n, 128))


def _sum(one: Nested, other: Nested) -> Nested:
    return one if other is None else (one, other)


def residual(n: int) -> Nested:
    """Contract 2: ``x = ores + ffn``, ffn the ranks (and the shared expert) ascending; ores is the
    last term."""
    return (n - 1, ascending(n - 1))


def lower_halves(n: int) -> frozenset[int]:
    """Contract 5, fma in 1.3: the first product of each pair."""
    return frozenset(at + e for at in range(0, n, 32) for e in range(16))


def all_but_first_of_blocks(n: int) -> frozenset[int]:
    """Contract 5, fma with unpaired: into an accumulator of 0 a product is rounded once anyway."""
    return frozenset(j for j in range(n) if j % 32)


def all_but_first(n: int) -> frozenset[int]:
    """Contract 5, fma in 1.5."""
    return frozenset(range(1, n))
