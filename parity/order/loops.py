"""An order as readable loops: Python that Numba compiles, for trees that are regular.

The loops are written from the tree's form, so what the one line says in a word is a loop here. Each
is one sum of one row; helpers for what float32 code cannot say come from ``parity_cpu.summing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parity.errors import InputError
from parity.order.shapes import (
    Chain,
    Form,
    Fused,
    Group,
    IrregularError,
    Leaf,
    Pairwise,
    Repeat,
    form_of,
)
from parity.order.words import exact_line, one_line

if TYPE_CHECKING:
    from parity.order.tree import Order

LEAVES = {"products": "x[{0}] * w[{0}]", "values": "w[{0}]", "squares": "w[{0}] * w[{0}]"}
FACTORS = {
    "products": ("x[{0}]", "w[{0}]"),
    "values": ("w[{0}]", "ONE"),
    "squares": ("w[{0}]",) * 2,
}
HELPERS = ("fma", "fused", "put", "round_values")
DEEPEST = 16  # loops within loops: Python compiles 20
INSTEAD = "evaluate it with the twin: parity.order.twin.evaluate"

_HEAD = '''"""{line}.

Written by parity from an order that it revealed: {n} {terms} of {dtype}, {out} out, {digest}.
"""

import numpy as np
from numba import njit
{helpers}

@njit(error_model="numpy")
def row(x, w):
    """The sum of one row, float32. x, w: float32[{n}]; x is read of products alone."""
'''

_TAIL = '''


@njit(error_model="numpy")
def rows(x, w):
    """float32[rows]: the sum of each row of w: float32[rows, {n}]."""
    out = np.empty(w.shape[0], np.float32)
    for r in range(w.shape[0]):
        out[r] = row(x, w[r])
{narrow}    return out
'''


def loops(order: Order) -> str:
    """The source of a module with ``row(x, w)`` and ``rows(x, w)``.

    Raises InputError for an order that is not regular, adds in f64, stores narrow or fuses pairs.
    """
    if order.wide or order.narrow or order.fused:
        what = "adds in f64" if order.wide else "stores narrow" if order.narrow else "fuses pairs"
        raise InputError(f"no loops: the order {what}", INSTEAD)
    try:
        if not exact_line(order.tree):
            raise IrregularError
        writer = _Writer(order)
        total = writer.form(form_of(order.tree), _At((0,)))
    except IrregularError as error:
        raise InputError(f"no loops: {str(error) or 'the tree is not regular'}", INSTEAD) from error
    narrow = {"f32": "", "bf16": "    round_values(out, 1)\n", "f16": "    round_values(out, 2)\n"}
    body = "\n".join([*writer.lines, f"    return {total}"])
    tail = _TAIL.format(n=order.tree.n, narrow=narrow[order.out])
    used = [name for name in HELPERS if f"{name}(" in body + tail]
    helpers = f"\nfrom parity_cpu.summing import {', '.join(used)}\n" if used else ""
    if "ONE" in body:
        helpers += "\nONE = np.float32(1.0)\n"
    head = _HEAD.format(
        helpers=helpers,
        line=one_line(order),
        digest=order.digest(),
        n=order.tree.n,
        terms=order.terms,
        dtype=order.dtype,
        out=order.out,
    )
    return head + body + tail


@dataclass(frozen=True)
class _At:
    """Where a form stands: every shift it is run with, and the names whose sum each shift is."""

    shifts: tuple[int, ...]
    names: tuple[str, ...] = ()

    def of(self, at: int) -> str:
        """The index of a leaf: ``j + lane + 3``."""
        return " + ".join([*self.names, *([str(at)] if at or not self.names else [])])

    def each(self, steps: Sequence[int], name: str) -> _At:
        """Inside a loop whose variable takes these steps."""
        return _At(
            tuple(shift + step for step in steps for shift in self.shifts), (*self.names, name)
        )


Put = Callable[[Form, _At, bool], None]  # an element, where it stands, whether it is the first


@dataclass
class _Writer:
    order: Order
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    used: dict[str, int] = field(default_factory=dict)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, stem: str) -> str:
        """A name that is not in use: s, s2, s3."""
        self.used[stem] = self.used.get(stem, 0) + 1
        return stem if self.used[stem] == 1 else f"{stem}{self.used[stem]}"

    @contextmanager
    def loop(self, name: str, begin: int, end: int, step: int) -> Iterator[None]:
        first = f"{begin}, " if begin or step != 1 else ""
        last = f", {step}" if step != 1 else ""
        self.line(f"for {name} in range({first}{end}{last}):")
        self.depth += 1
        if self.depth > DEEPEST:
            raise IrregularError("loops stand too deep in loops")
        yield
        self.depth -= 1

    def form(self, form: Form, at: _At) -> str:
        """Write what computes a form; returns the expression of its value, used once."""
        match form:
            case Leaf(leaf):
                return LEAVES[self.order.terms].format(at.of(leaf))
            case Chain(items):
                return self.chain(items, at)
            case Pairwise(strides, Leaf(leaf)):
                pair = Chain((Leaf(leaf), Leaf(leaf + strides[-1])))
                return self.pairwise(strides[:-1], pair, at)
            case Pairwise(strides, of):
                return self.pairwise(strides, of, at)
            case Fused(start, steps):
                return self.fused(start, steps, at)
            case _:
                raise IrregularError("a form that is no tree")

    # --- chains

    def chain(self, items: tuple[Form, ...], at: _At) -> str:
        total = self.name("s")
        items = self.turned(items, at)
        self.elements(items, at, lambda form, where, first: self.add(total, form, where, first))
        return total

    def turned(self, items: tuple[Form, ...], at: _At) -> tuple[Form, ...]:
        """A first product that stays exact is added to the second: a + b is b + a."""
        if len(items) < 2 or isinstance(items[1], Repeat) or not isinstance(items[0], Leaf):
            return items
        return (items[1], items[0], *items[2:]) if self.exact(items[0], at) else items

    def add(self, total: str, form: Form, at: _At, first: bool) -> None:
        if isinstance(form, Leaf) and self.exact(form, at):
            if first:
                raise IrregularError("the first product of a chain stays exact")
            one, other = (text.format(at.of(form.at)) for text in FACTORS[self.order.terms])
            self.line(f"{total} = fma({one}, {other}, {total})")
            return
        value = self.form(form, at)
        self.line(f"{total} = {value}" if first else f"{total} = {total} + {value}")

    def exact(self, leaf: Leaf, at: _At) -> bool:
        """Whether the product stays exact, wherever the line that adds it is run."""
        found = {leaf.at + shift in self.order.fma for shift in at.shifts}
        if len(found) > 1:
            raise IrregularError("products stay exact at irregular places")
        return found.pop()

    def elements(self, items: tuple[Form, ...], at: _At, put: Put, first: bool = True) -> None:
        """``put`` every element of a sequence in turn; the very first one before any loop."""
        for item in items:
            if not isinstance(item, Repeat):
                put(item, at, first)
            else:
                self.repeat(item, at, put, first)
            first = False

    def repeat(self, item: Repeat, at: _At, put: Put, first: bool) -> None:
        begin = 1 if first else 0
        if first:
            self.elements(item.items, at, put)
        if begin == item.count:
            return
        steps = [k * item.step for k in range(begin, item.count)]
        name = self.name("j")
        with self.loop(name, steps[0], steps[-1] + (1 if item.step > 0 else -1), item.step):
            self.elements(item.items, at.each(steps, name), put, first=False)

    # --- halves

    def pairwise(self, strides: tuple[int, ...], of: Form, at: _At) -> str:
        if not strides:
            return self.form(of, at)
        parts, lane, half = self.name("parts"), self.name("lane"), self.name("half")
        count = 1 << len(strides)
        self.line(f"{parts} = np.empty({count}, np.float32)")
        with self.loop(lane, 0, count, 1):
            steps = [_offset(strides, k) for k in range(count)]
            text = _offset_text(strides, lane)
            where = text if text == lane else self.name("at")
            if text != lane:
                self.line(f"{where} = {text}")
            self.line(f"{parts}[{lane}] = {self.form(of, at.each(steps, where))}")
        self.line(f"{half} = {count // 2}")
        self.line(f"while {half}:")
        self.line(f"    for {lane} in range({half}):")
        self.line(f"        {parts}[{lane}] = {parts}[{lane}] + {parts}[{lane} + {half}]")
        self.line(f"    {half} //= 2")
        return f"{parts}[0]"

    # --- fused sums

    def fused(self, start: Form | None, steps: tuple[Form, ...], at: _At) -> str:
        total, k, term, size = (self.name(stem) for stem in ("s", "k", "term", "size"))
        widest = max(len(kids) for kids in self.order.tree.children)
        self.line(f"{term} = np.empty(({widest}, 1), np.float64)")
        self.line(f"{size} = np.empty(({widest}, 1), np.int64)")
        if start is not None:
            self.line(f"{total} = {self.form(start, at)}")
        names = (total, k, term, size)

        def put(group: Form, where: _At, first: bool) -> None:
            self.fused_step(group, where, names, begins=first and start is None)

        self.elements(steps, at, put)
        return total

    def fused_step(self, group: Form, at: _At, names: tuple[str, ...], *, begins: bool) -> None:
        if not isinstance(group, Group):
            raise IrregularError("a fused sum of no group")
        total, k, term, size = names
        before = "0" if begins else f"put({term}, {size}, 0, {total}, ONE)"
        self.line(f"{k} = {before}")

        def put(form: Form, where: _At, first: bool) -> None:
            one, other = self.form(form, where), "ONE"
            if isinstance(form, Leaf):
                factors = FACTORS[self.order.terms]
                one, other = (text.format(where.of(form.at)) for text in factors)
            self.line(f"{k} = put({term}, {size}, {k}, {one}, {other})")

        self.elements(group.items, at, put, first=False)
        bits = -1 if self.order.bits is None else self.order.bits
        self.line(f"{total} = fused({term}, {size}, {k}, {bits}, {self.order.rounding == 'rz'})")


def _offset(strides: Sequence[int], lane: int) -> int:
    """How far lane ``lane`` is shifted: the last stride belongs to its highest bit."""
    return sum(stride for bit, stride in enumerate(strides) if lane >> bit & 1)


def _offset_text(strides: Sequence[int], lane: str) -> str:
    first = strides[0]
    if all(stride == first << bit for bit, stride in enumerate(strides)):
        return lane if first == 1 else f"{lane} * {first}"
    bits = [f"({lane} >> {bit} & 1)" if bit else f"({lane} & 1)" for bit in range(len(strides))]
    moved = zip(bits, strides, strict=True)
    return " + ".join(bit if stride == 1 else f"{bit} * {stride}" for bit, stride in moved)
