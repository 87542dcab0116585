"""How both sides add where a difference begins: the words of ``parity.orders`` for people."""

from __future__ import annotations

import re
from textwrap import shorten

from parity.orders import KeyOrders, SideOrder, SumOrders
from parity.tree import Tree

WIDTH = 200  # three lines of a console of 80 columns; the whole stands in the other reports
SAME = "by themselves both ops add alike; the difference comes from elsewhere"
_DETAIL = re.compile(r" \([^()]*\)")  # which terms: too long for a console
HEADS = ("key", "sum", "ref", "dut", "they part")


def order_sentence(tree: Tree) -> str:
    """Of the first birth, three lines at most: where the orders part, and their names. Empty where
    no sum was looked at."""
    return key_sentence(tree.orders[0]) if tree.orders else ""


def key_sentence(found: KeyOrders) -> str:
    """``k_proj (dut contract 1.3): cpu adds K in 48 interleaved runs, emu splits K in 3 x 32``."""
    told = found.telling
    if told is None:
        return _shortened(_untold(found))
    if told.same:
        return _shortened(f"{told.sum} ({_first(told.ref)}): {SAME}")
    named = [f"{role} {_first(one)}" for role, one in _sides(told) if one.name]
    names = f" ({', '.join(named)})" if named else ""
    return _shortened(f"{told.sum}{names}: {_DETAIL.sub('', told.difference)}")


def order_rows(tree: Tree) -> list[tuple[str, str, str, str, str]]:
    """Under HEADS: every sum of every key that was looked at, with both trees."""
    rows = []
    for found in tree.orders:
        for each in found.sums:
            sides = side_text(each.ref), side_text(each.dut)
            rows.append((found.key, each.sum, *sides, _parting(each)))
        if found.note:
            rows.append((found.key, "", "", "", found.note))
    return rows


def side_text(side: SideOrder) -> str:
    """``contract 1.3: chain[...] (cpu.q4_matvec K=160 N=192 M=1)``, or why there is no tree."""
    if not side.digest:
        return f"{side.note} ({side.op})" if side.op else side.note
    name = f"{side.name}: " if side.name else ""
    return f"{name}{side.line} ({side.op})"


def _sides(one: SumOrders) -> tuple[tuple[str, SideOrder], tuple[str, SideOrder]]:
    return ("ref", one.ref), ("dut", one.dut)


def _first(side: SideOrder) -> str:
    """The first of its names: of short sums several orders of the contract are one tree."""
    return side.name.partition(";")[0] or "an order without a name"


def _parting(one: SumOrders) -> str:
    return SAME if one.same else one.difference


def _shortened(text: str) -> str:
    return shorten(text, WIDTH, placeholder=" ...")


def _untold(found: KeyOrders) -> str:
    """Why there are no two trees to hold side by side."""
    if not found.sums:
        return found.note
    first = found.sums[0]
    said = "; ".join(f"{role} {side.note}" for role, side in _sides(first) if side.note)
    return f"{first.sum}: {said}"
