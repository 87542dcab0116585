"""What a rule of the contract looks like as a test: chosen inputs, exact bits, wrong variants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracle.exact import Exact

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
Number = int | float


@dataclass(frozen=True)
class Rule:
    """One rule: op(args) must give exactly these outputs, and each wrong variant must not."""

    section: str
    name: str
    op: str
    args: tuple[Any, ...]
    outputs: tuple[Array, ...]
    wrong: tuple[str, ...]


RuleTable = Callable[[], Iterator[Rule]]


def exacts(values: Iterable[Number]) -> list[Exact]:
    """Each value as the nearest binary32, exactly."""
    return [Exact(v) for v in values]


def total(terms: Sequence[Exact]) -> Exact:
    """Ascending from +0.0, one rounding an addition."""
    acc = Exact(0)
    for term in terms:
        acc = acc + term
    return acc


def tree(terms: Sequence[Exact]) -> Exact:
    """Contract 5: padded with +0.0 to a power of two, then halved."""
    if len(terms) == 1:
        return terms[0]
    half = 1 << (len(terms) - 1).bit_length() - 1
    padded = [*terms, *(Exact(0) for _ in range(2 * half - len(terms)))]
    return tree([padded[i] + padded[i + half] for i in range(half)])


def inverse_root(value: Exact) -> Exact:
    """1 over the rounded root (contract 1.1)."""
    return Exact(1) / value.root()


def f32s(*values: Exact) -> Array:
    """The values' bits, flat."""
    return np.array([v.bits for v in values], np.uint32).view(F)


def from_bits(*bits: int) -> Array:
    """Binary32 values by bit pattern, flat."""
    return np.array(bits, np.uint32).view(F)


def row(*values: Number) -> Array:
    """f32[1, n]."""
    return np.array([values], F)


def packed(weights: dict[int, int], count: int = 1) -> Array:
    """u8[count * 16]: the same block again and again, weight 0 where none is given."""
    codes = [weights.get(e, 0) + 8 for e in range(32)]
    block = [codes[e] + 16 * codes[e + 16] for e in range(16)]
    return np.array(block * count, np.uint8)


def spread(values: dict[int, Number], length: int = 32) -> list[Number]:
    """A list of zeros with these values in place."""
    return [values.get(i, 0) for i in range(length)]
