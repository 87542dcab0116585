"""Is an order one of the contract's, or of its variants? Its digest beside theirs says so."""

from __future__ import annotations

from dataclasses import replace

from parity.order.known import KNOWN, Known
from parity.order.tree import Order, Tree


def named(order: Order) -> str:
    """What the contract calls ``order``: ``contract 1.1``, ``variant split_k (1.3)``; "" for none.

    Of short sums several orders are one tree: then all names stand there, ``; `` between them. The
    whole order counts: products that enter unrounded too, and no wide, fused or narrow addition.
    """
    return "; ".join(names(order))


def names(order: Order) -> tuple[str, ...]:
    """Every name of ``order``, in the order of the contract's sections."""
    if len(order.tree.children) != order.tree.n - 1:  # a fused sum: the contract has none
        return ()
    return tuple(known.name for known in KNOWN if _is(order, known))


def _is(order: Order, known: Known) -> bool:
    n = order.tree.n
    if order.terms not in known.terms or frozenset(known.fma(n)) != order.fma:
        return False
    nested = known.nested(n)
    if nested is None:
        return False
    plain = Order(Tree.of(nested), order.terms, order.dtype, fma=order.fma)
    return _bare(order).digest() == plain.digest()


def _bare(order: Order) -> Order:
    """Without what says nothing about the order of additions: what the op does with the sum, and
    how a fused sum would be cut where there is none."""
    bare = replace(order, post="", settings=())
    if not order.fused_nodes:
        bare = replace(bare, bits=None, rounding="rn")
    return bare if order.narrow else replace(bare, stored="f32")
