"""The orders of sums behind a key as data: both sides' trees on one line, and where they part.

Part of the divergence tree (``parity.tree``); ``parity.explain.orders`` finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SideOrder:
    """How one side adds. ``op``: what was probed ("cpu.q4_matvec K=160 N=9 M=1"), or ""; ``name``:
    of the order where it has one ("contract 1.3"); ``line``: its tree on one line, "" where there
    is none; ``digest``: 16 digits of the order; ``note``: why there is none."""

    op: str = ""
    name: str = ""
    line: str = ""
    digest: str = ""
    note: str = ""


@dataclass(frozen=True)
class SumOrders:
    """One sum on both sides. ``sum``: what adds ("k_proj", "q_norm"); ``difference``: in words
    where the orders part, "" where they are the same or one is not known."""

    sum: str
    ref: SideOrder
    dut: SideOrder
    difference: str = ""

    @property
    def known(self) -> bool:
        """Whether both sides have a tree."""
        return bool(self.ref.digest and self.dut.digest)

    @property
    def same(self) -> bool:
        """Whether both sides add in one order."""
        return self.known and self.ref.digest == self.dut.digest


@dataclass(frozen=True)
class KeyOrders:
    """The sums that make ``key``. ``note``: why there is none, or why one is missing."""

    key: str
    sums: list[SumOrders] = field(default_factory=list)
    note: str = ""

    @property
    def telling(self) -> SumOrders | None:
        """The sum to tell of: the first whose orders differ, else the first with two of them."""
        known = [one for one in self.sums if one.known]
        return next((one for one in known if not one.same), known[0] if known else None)


def orders_of_plain(body: Sequence[dict[str, Any]]) -> list[KeyOrders]:
    """Read back what JSON holds; TypeError or KeyError for anything else."""
    return [
        KeyOrders(**{**one, "sums": [_sum_of_plain(dict(each)) for each in one["sums"]]})
        for one in body
    ]


def _sum_of_plain(body: dict[str, Any]) -> SumOrders:
    ref, dut = (SideOrder(**body.pop(side)) for side in ("ref", "dut"))
    return SumOrders(ref=ref, dut=dut, **body)
