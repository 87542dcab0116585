"""The orders of the sums behind a key, both sides', revealed by probes: do they add alike?

An engine tells by ``sums_of(field, layer, rows)``, an optional method, which sums make a field;
each is probed as ``parity order`` does, on inputs of its own: nothing of the run is touched, and no
verdict depends on it. A sum is probed once in a process. What a report may spend is counted in
numbers handed to ops, not in seconds: the same run gives the same report on any machine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from parity.errors import InputError, NotRunError
from parity.keys import Key
from parity.orders import KeyOrders, SideOrder, SumOrders
from parity.protocol import Engine
from parity.tree import CONTAMINATED, Tree

if TYPE_CHECKING:
    import numpy as np

    from parity.order.answer import Answer
    from parity.order.op import SummingOp
    from parity.order.sums import SumAsk
    from parity.order.tree import Order

LIMIT = 1 << 23  # numbers that all probes of a report hand to ops: 3 s or so
MOST_KEYS = 8  # births that are looked at, one a field
LARGEST = 1 << 22  # weights of one call: with more, a few calls take the limit
SEED = 0
NOT_PROBED = "not probed"
LEFT = "from here on not probed; run parity order"
Probed = tuple[SideOrder, "Order | None"]


Known = dict[tuple[object, ...], tuple[Probed, int]]  # with what the probes cost
_FOUND: Known = {}  # of this process


class UsedUpError(Exception):
    """The limit is over. Caught in this module."""


@dataclass
class Finder:
    """Reveals sums until ``limit`` numbers were asked. ``reveal``: a test's own in place of the
    real one. A sum known from before costs what it cost then: no report depends on others."""

    limit: int = field(default_factory=lambda: LIMIT)
    reveal: Callable[[SummingOp], Answer] | None = None
    spent: int = 0
    over: bool = False
    found: Known = field(default_factory=lambda: _FOUND)

    def key(self, tag: str, ref: Sequence[SumAsk], dut: Sequence[SumAsk]) -> KeyOrders:
        """The sums behind a key, those of one name on both sides beside each other."""
        duts = {one.what: one for one in dut}
        pairs: list[tuple[SumAsk | None, SumAsk | None]]
        pairs = [(one, duts.pop(one.what, None)) for one in ref]
        pairs += [(None, one) for one in duts.values()]
        return KeyOrders(tag, [self._sum(*pair) for pair in pairs])

    def side(self, ask: SumAsk | None) -> Probed:
        """The order of one sum; a note where there is none."""
        if ask is None:
            return SideOrder(note=NOT_PROBED), None
        op = op_text(ask)
        if ask.ask.K * max(ask.ask.N, ask.M) > LARGEST:
            return SideOrder(op, note=f"{NOT_PROBED}: too large; run parity order"), None
        try:
            opened = ask.open()
            return self._known(op, opened, ask.M)
        except UsedUpError:
            self.over = True
            note = f"skipped: probes of {self.limit:,} numbers are used up; run parity order"
            return SideOrder(op, note=note), None
        except (InputError, NotRunError) as error:
            return SideOrder(op, note=f"{NOT_PROBED}: {error.message}"), None
        except Exception as error:  # whatever a probe meets, the comparison stands without it
            said = f"internal error: {type(error).__name__}: {error}"
            return SideOrder(op, note=f"{NOT_PROBED}: {said}"), None

    def _sum(self, ref: SumAsk | None, dut: SumAsk | None) -> SumOrders:
        from parity.order.words import difference

        (one, ref_order), (other, dut_order) = self.side(ref), self.side(dut)
        either = ref if ref is not None else dut
        found = SumOrders(either.what if either is not None else "", one, other)
        if ref_order is None or dut_order is None or found.same:
            return found
        names = _short_names(one, other)
        words = difference(ref_order, dut_order, *names)
        return SumOrders(found.sum, one, other, words)

    def _known(self, op: str, opened: SummingOp, m: int) -> Probed:
        """The order of an opened op, probed unless it was before; UsedUpError where it costs more
        than is left."""
        place = (op, *sorted(opened.key.items()))
        if self.over:
            raise UsedUpError
        if place not in self.found:
            _warm(opened)
            meter = Meter(self.limit - self.spent)
            answer = self._reveal(metered(opened, m, meter))
            order = answer.order if answer.green else None
            self.found[place] = (side_order(op, answer), order), meter.used
        probed, cost = self.found[place]
        if cost > self.limit - self.spent:
            raise UsedUpError
        self.spent += cost
        return probed

    def _reveal(self, op: SummingOp) -> Answer:
        if self.reveal is not None:
            return self.reveal(op)
        from parity.order.reveal import reveal

        return reveal(op, seed=SEED)


def _warm(op: SummingOp) -> None:
    """Have the twin's kernel and the op compiled: once on a machine, no part of a sum's time."""
    import numpy as np

    from parity.order.tree import Order, Tree
    from parity.order.twin import evaluate

    pair = np.ones((1, 2), np.float32)
    evaluate(Order(Tree.of((0, 1))), pair[0], pair)
    ones = np.ones((op.rows, op.n), np.float32)
    op.run(ones[0] if op.terms == "products" else None, ones)


@dataclass
class Meter:
    """Counts the numbers that probes hand to an op, up to ``limit``."""

    limit: int
    used: int = 0

    def add(self, numbers: int) -> None:
        """Count; UsedUpError past the limit."""
        self.used += numbers
        if self.used > self.limit:
            raise UsedUpError


def metered(op: SummingOp, m: int, meter: Meter) -> SummingOp:
    """A copy of ``op`` whose calls, of ``m`` rows each, are counted."""
    clone = copy.copy(op)
    for name in ("run", "exceeds"):
        if hasattr(op, name):
            object.__setattr__(clone, name, _counting(getattr(op, name), op.n * m, meter))
    return clone


def _counting(call: Callable[..., np.ndarray], numbers: int, meter: Meter) -> Any:
    def counted(*args: Any) -> np.ndarray:
        (w,) = (one for one in args if getattr(one, "ndim", 0) == 2)
        meter.add(len(w) * numbers)
        return call(*args)

    return counted


def side_order(op: str, answer: Answer) -> SideOrder:
    """What is told of an answer; only a green one has a tree."""
    if not answer.green or answer.order is None:
        return SideOrder(op, note=answer.verdict)
    from parity.order.naming import named
    from parity.order.words import one_line

    order = answer.order
    return SideOrder(op, named(order), one_line(order), order.digest())


def op_text(ask: SumAsk) -> str:
    """``cpu.q4_matvec@variants=fma K=160 N=192 M=1``."""
    options = "".join(f"@{name}={value}" for name, value in ask.ask.options.items())
    dtype = "" if ask.ask.dtype == "f32" else f" {ask.ask.dtype}"
    return f"{ask.ask.op}{options}{dtype} K={ask.ask.K} N={ask.ask.N} M={ask.M}"


def sums_behind(engine: Engine, key: Key, rows: int) -> Sequence[SumAsk]:
    """What the engine tells of a key; nothing where it has no ``sums_of``."""
    asked = getattr(engine, "sums_of", None)
    return () if asked is None else tuple(asked(key.field, key.layer, rows))


def add_orders(
    tree: Tree,
    engines: tuple[Engine, Engine],
    rows: tuple[int, int] = (1, 1),
    finder: Finder | None = None,
) -> None:
    """Put into ``tree`` the sums behind its births, one a field; where none are named, those behind
    its first key. Not where both sides run one op. ``rows``: M of the forward of each side."""
    finder = finder or Finder()
    seen: set[tuple[object, ...]] = set()
    for tag in _keys(tree):
        key = Key.parse(tag)
        ref, dut = (
            sums_behind(engine, key, count) for engine, count in zip(engines, rows, strict=True)
        )
        texts = [[op_text(ask) for ask in asks] for asks in (ref, dut)]
        place = (key.field, *texts[0], *texts[1])
        if texts[0] == texts[1] or place in seen:
            continue
        seen.add(place)
        if len(seen) > MOST_KEYS or finder.over:
            tree.orders.append(KeyOrders(tag, note=LEFT))
            return
        tree.orders.append(finder.key(tag, ref, dut))


def rows_facts(
    engine: Engine, tag: str, rows: int, finder: Finder | None = None
) -> list[tuple[str, str]]:
    """Labelled facts about the sums behind a key in a forward of ``rows`` rows beside a single
    step: where their orders part, and both trees. None where no sum of it is told."""
    key, finder = Key.parse(tag), finder or Finder()
    found = finder.key(tag, sums_behind(engine, key, 1), sums_behind(engine, key, rows))
    told = found.telling
    if told is None:
        return [("order", f"{one.sum}: {one.ref.note or one.dut.note}") for one in found.sums]
    if told.same:
        name = f" ({told.ref.name.partition(';')[0]})" if told.ref.name else ""
        alike = f"by itself the op adds alike at M = 1 and M = {rows}"
        return [("order", f"{told.sum}: {alike}{name}")]
    trees = f"M = 1: {told.ref.line}; M = {rows}: {told.dut.line}"
    return [("order", f"{told.sum}: {told.difference}"), ("trees", trees)]


def _keys(tree: Tree) -> Iterator[str]:
    """The births, in dataflow order; without them the first key, whose inputs are all equal, unless
    the sides did not start from one state."""
    if tree.births is not None:
        yield from (birth.key for birth in tree.births.found)
    elif tree.first is not None and tree.reason != CONTAMINATED:
        yield tree.first


def _short_names(ref: SideOrder, dut: SideOrder) -> tuple[str, str]:
    """What the sides are called in words: by their ops, with M where that is all that differs."""
    names = [one.op.split(" ")[0].split("@")[0] for one in (ref, dut)]
    if names[0] == names[1]:
        names = [one.op.rpartition(" ")[2].replace("=", " = ") for one in (ref, dut)]
    if names[0] == names[1]:
        names = ["ref", "dut"]
    return names[0], names[1]
