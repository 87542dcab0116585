"""The orders of the contract (docs/contract.md) and of its variants, written out for any length.

Each tree is the nested form that ``Tree.of`` reads. A sum that starts at +0.0 starts at its first
term here: adding to +0.0 changes no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from parity.order.tree import Terms

BLOCK = 32  # weights of a Q4_0 block (1.3)
HALF = BLOCK // 2
PARTS = 4  # of split_k
EIGHT = 8  # of RMSNorm's blocks (1.1)
KEYS = 128  # of a part of split_keys


@dataclass(frozen=True)
class Known:
    """``name``: as it is told. ``nested(n)``: the tree of n terms, None where the contract has none
    of that length; ``fma(n)``: the leaves whose products enter unrounded."""

    name: str
    terms: tuple[Terms, ...]
    nested: Callable[[int], Any]
    fma: Callable[[int], Iterable[int]] = lambda n: ()


def chained(parts: Iterable[Any]) -> Any:
    """((first + second) + third) + ..."""
    return reduce(lambda total, part: (total, part), parts)


def ascending(n: int) -> Any:
    """1.2, 1.5: one accumulator, index 0 upward."""
    return chained(range(n))


def norm_blocks(n: int) -> Any:
    """1.1: blocks of 8, element k with k + 4, then two pairs; the tail one by one."""
    whole = n - n % EIGHT
    blocks = [_eight(begin) for begin in range(0, whole, EIGHT)]
    return chained([*blocks, *range(whole, n)])


def _eight(at: int) -> Any:
    lanes = [(at + k, at + k + 4) for k in range(4)]
    return ((lanes[0], lanes[1]), (lanes[2], lanes[3]))


def halving(n: int) -> Any:
    """norm_tree, router_tree, two_pass: padded with +0.0 to a power of two, halves added."""
    parts: list[Any] = list(range(n))
    width = 1 << (n - 1).bit_length()
    while width > 1:
        width //= 2
        ends = parts[width:]
        parts = [(one, ends[k]) if k < len(ends) else one for k, one in enumerate(parts[:width])]
    return parts[0]


def parts(n: int) -> Any:
    """split_keys: each part of 128 keys by itself, then the parts; one part is no other order."""
    if n <= KEYS:
        return None
    return chained(chained(range(at, min(at + KEYS, n))) for at in range(0, n, KEYS))


def blocks(n: int, *, split: bool = False, unpaired: bool = False) -> Any:
    """1.3: each block of 32 by itself, then the blocks; None where n is no whole number of them."""
    if n % BLOCK:
        return None
    sums = [_block(begin, unpaired) for begin in range(0, n, BLOCK)]
    if not split:
        return chained(sums)
    return chained(chained(sums[part::PARTS]) for part in range(min(PARTS, len(sums))))


def _block(at: int, unpaired: bool) -> Any:
    if unpaired:
        return chained(range(at, at + BLOCK))
    return chained((at + e, at + e + HALF) for e in range(HALF))


def _later(n: int, every: int) -> Iterable[int]:
    """All but the first leaf of each ``every``, which has no sum to enter."""
    return (leaf for leaf in range(n) if leaf % every)


def _block_variants() -> Iterable[Known]:
    """1.3 with each set of the variants that act on its order."""
    for fused in (False, True):
        for split in (False, True):
            for unpaired in (False, True):
                chosen = {"fma": fused, "split_k": split, "unpaired": unpaired}
                names = [name for name, on in chosen.items() if on]
                yield Known(
                    _name(names, "1.3"),
                    ("products",),
                    partial(blocks, split=split, unpaired=unpaired),
                    _fma_of_block(unpaired) if fused else lambda n: (),
                )


def _fma_of_block(unpaired: bool) -> Callable[[int], Iterable[int]]:
    if unpaired:
        return lambda n: _later(n, BLOCK)
    return lambda n: (leaf for leaf in range(n) if leaf % BLOCK < HALF)


def _name(variants: list[str], section: str) -> str:
    if not variants:
        return f"contract {section}"
    return f"variant{'s' * (len(variants) > 1)} {', '.join(variants)} ({section})"


KNOWN: tuple[Known, ...] = (
    Known("contract 1.1", ("squares",), norm_blocks),
    Known("contract 1.2", ("squares",), ascending),
    Known("variant norm_tree (1.1, 1.2)", ("squares",), halving),
    *_block_variants(),
    Known("contract 1.5", ("products",), ascending),
    Known("contract 1.4 over blocks, 1.8 P V, 2 experts, 3.2 mem and o", ("products",), ascending),
    Known("variant fma (1.5)", ("products",), ascending, lambda n: _later(n, n)),
    Known("variant router_tree (1.5)", ("products",), halving),
    Known("contract 1.8 P V and l, 2 softmax", ("values",), ascending),
    Known("variant two_pass (1.8 l)", ("values",), halving),
    Known("variant split_keys (1.8 P V and l)", ("values", "products"), parts),
)
