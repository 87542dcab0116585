"""Trees as forms: what repeats is said once, shifted. Words, files and loops are made of forms.

A form is exact: ``expand`` gives the nested tree back. Two subtrees have one *shape* when one is
the other shifted by a number of leaves; shapes are numbered bottom up, so that comparing two
subtrees of any size is comparing two numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from parity.order.tree import Tree

Nested = Any  # a leaf's number, or a tuple of these: what Tree.of reads
Form = Union["Leaf", "Repeat", "Chain", "Pairwise", "Fused", "Group"]

LEAST_LEAVES = 3  # two numbers are as short as a range of them
WIDEST_BLOCK = 8  # items that may repeat together
MOST_ITEMS = 64  # of one sequence, repeats taken together: more is no regular tree
DEEPEST = 40  # forms within forms


class IrregularError(Exception):
    """The tree has no short form. Caught inside this package; users see words."""


@dataclass(frozen=True)
class Leaf:
    """One term."""

    at: int


@dataclass(frozen=True)
class Repeat:
    """``count`` times ``items`` in a sequence, each time ``step`` leaves further."""

    count: int
    step: int
    items: tuple[Form, ...]


@dataclass(frozen=True)
class Chain:
    """((first + second) + third) + ..."""

    items: tuple[Form, ...]


@dataclass(frozen=True)
class Pairwise:
    """``of``, and the same shifted by the last stride, added; that and ... the first stride."""

    strides: tuple[int, ...]
    of: Form


@dataclass(frozen=True)
class Group:
    """The terms of one fused sum, without the value that it goes on from."""

    items: tuple[Form, ...]


@dataclass(frozen=True)
class Fused:
    """Fused sums, each with the one before as a term; ``start``: a term of the first."""

    start: Form | None
    steps: tuple[Form, ...]


# --- trees to forms -------------------------------------------------------------------------------


def form_of(tree: Tree, node: int | None = None) -> Form:
    """The form of a tree, or of what hangs under a node of it; raises IrregularError where it would
    not be short."""
    return _Former(tree).node(tree.root if node is None else node, 0)


def form_of_leaves(leaves: Sequence[int]) -> tuple[Form, ...]:
    """A sequence of leaves with its repeats, however long."""
    items = _compressed([_Item(0, leaf, leaf) for leaf in leaves])
    return tuple(_formed(item, lambda payload: Leaf(payload)) for item in items)


@dataclass(frozen=True)
class _Item:
    """One element of a sequence: the number of its shape, its lowest leaf, and what it stands for.

    ``payload`` of a repeat: (count, step, items).
    """

    shape: int
    low: int
    payload: Any
    repeat: bool = False


@dataclass
class _Former:
    tree: Tree
    shapes: list[int] = field(default_factory=list)
    numbers: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tree, lows = self.tree, self.tree.lows
        self.shapes = [0] * tree.n
        for number, kids in enumerate(tree.children):
            low = lows[tree.n + number]
            made = tuple((self.shapes[kid], lows[kid] - low) for kid in kids)
            self.shapes.append(self.numbers.setdefault(made, len(self.numbers) + 1))

    def kids(self, node: int) -> tuple[int, ...]:
        return self.tree.children[node - self.tree.n] if node >= self.tree.n else ()

    def node(self, node: int, depth: int) -> Form:
        if depth > DEEPEST:
            raise IrregularError
        kids = self.kids(node)
        if not kids:
            return Leaf(node)
        if len(kids) > 2:
            return self.fused(node, depth)
        strides, part = self.strides(node)
        if strides and (len(strides) > 1 or part >= self.tree.n):
            return Pairwise(tuple(strides), self.node(part, depth + 1))
        items = self.chain_items(node)
        if len(items) > 2 and items[-1] >= self.tree.n > items[-2]:  # a sum joins a chain of terms
            items = sorted(kids, key=lambda kid: kid == items[-1])
        return Chain(self.sequence(items, depth))

    def strides(self, node: int) -> tuple[list[int], int]:
        """The strides of halves that are one shape, and the half where that ends."""
        found: list[int] = []
        while len(kids := self.kids(node)) == 2 and self.shapes[kids[0]] == self.shapes[kids[1]]:
            found.append(self.tree.lows[kids[1]] - self.tree.lows[kids[0]])
            node = kids[0]
        return found, node

    def chain_items(self, node: int) -> list[int]:
        """What is added one after the other: the larger operand is the sum so far."""
        sizes, parts = self.tree.sizes, list[int]()
        while len(kids := self.kids(node)) == 2 and sizes[kids[0]] != sizes[kids[1]]:
            small, node = sorted(kids, key=sizes.__getitem__)
            parts.append(small)
        if len(kids) == 2 and self.opens(kids, parts):
            parts += reversed(self.oriented(kids, parts))
        else:
            parts.append(node)
        return parts[::-1]

    def opens(self, kids: tuple[int, ...], parts: list[int]) -> bool:
        """Whether a chain begins with both of two equal operands, and not with their sum."""
        alike = [self.shapes[node] for node in (*kids, *parts[-1:])]
        return not parts or sizes_of_leaves(kids, self.tree.n) or len(set(alike)) == 1

    def oriented(self, kids: tuple[int, ...], parts: list[int]) -> tuple[int, ...]:
        """The first two of a chain, which may be swapped, in the direction of the third."""
        lows = self.tree.lows
        if parts and lows[parts[-1]] - lows[kids[0]] == lows[kids[0]] - lows[kids[1]]:
            return kids[::-1]
        return kids

    def fused(self, node: int, depth: int) -> Form:
        items, start = list[_Item](), None
        while True:
            kids = self.kids(node)
            if len(kids) <= 2:
                start = self.node(node, depth + 1)
                break
            before = self.before(kids)
            items.append(self.step(tuple(kid for kid in kids if kid != before)))
            if before is None:
                break
            node = before
        made = [_formed(item, lambda kids: self.group(kids, depth)) for item in short(items[::-1])]
        return Fused(start, tuple(made))

    def before(self, kids: tuple[int, ...]) -> int | None:
        """The operand that a fused sum goes on from: the largest one, if one is."""
        inner = sorted((kid for kid in kids if kid >= self.tree.n), key=self.tree.sizes.__getitem__)
        if not inner or (
            len(inner) > 1 and self.tree.sizes[inner[-2]] == self.tree.sizes[inner[-1]]
        ):
            return None
        return inner[-1]

    def step(self, kids: tuple[int, ...]) -> _Item:
        low = min(self.tree.lows[kid] for kid in kids)
        made = ("step", *((self.shapes[kid], self.tree.lows[kid] - low) for kid in kids))
        return _Item(self.numbers.setdefault(made, len(self.numbers) + 1), low, kids)

    def group(self, kids: tuple[int, ...], depth: int) -> Form:
        return Group(self.sequence(kids, depth))

    def sequence(self, nodes: Sequence[int], depth: int) -> tuple[Form, ...]:
        items = [_Item(self.shapes[node], self.tree.lows[node], node) for node in nodes]
        return tuple(
            _formed(item, lambda node: self.node(node, depth + 1)) for item in short(items)
        )


def sizes_of_leaves(kids: Sequence[int], n: int) -> bool:
    """Whether all of ``kids`` are leaves."""
    return all(kid < n for kid in kids)


def _formed(item: _Item, form: Callable[..., Form]) -> Form:
    if not item.repeat:
        return form(item.payload)
    count, step, items = item.payload
    return Repeat(count, step, tuple(_formed(one, form) for one in items))


# --- sequences to repeats -------------------------------------------------------------------------


def short(items: list[_Item]) -> list[_Item]:
    """A sequence with its repeats taken together; raises IrregularError where it stays long."""
    found = _compressed(items)
    if len(found) > MOST_ITEMS:
        raise IrregularError
    return found


def _compressed(items: list[_Item]) -> list[_Item]:
    """Single items first, level by level; then blocks of several; until nothing repeats."""
    numbers: dict[object, int] = {}
    while True:
        shorter = _repeats(items, 1, numbers)
        if len(shorter) == len(items):
            widths = range(2, min(WIDEST_BLOCK, len(items) // 2) + 1)
            blocks = (_repeats(items, width, numbers) for width in widths)
            shorter = min(blocks, key=len, default=items)
        if len(shorter) >= len(items):
            return items
        items = shorter


def _repeats(items: list[_Item], width: int, numbers: dict[object, int]) -> list[_Item]:
    found, begin = list[_Item](), 0
    while begin < len(items):
        count, step = _counted(items, begin, width)
        block = items[begin : begin + width]
        if count < (LEAST_LEAVES if width == 1 and block[0].shape == 0 else 2):
            found.append(items[begin])
            begin += 1
            continue
        low = block[0].low
        made = (count, step, *((item.shape, item.low - low) for item in block))
        shape = -numbers.setdefault(made, len(numbers) + 1)  # never that of a subtree
        found.append(_Item(shape, low, (count, step, tuple(block)), repeat=True))
        begin += count * width
    return found


def _counted(items: list[_Item], begin: int, width: int) -> tuple[int, int]:
    """How often the block at ``begin`` stands there, and its step."""
    count, step = 1, 0
    while (at := begin + count * width) + width <= len(items):
        pairs = [(items[begin + k], items[at + k]) for k in range(width)]
        steps = {other.low - one.low for one, other in pairs}
        if any(one.shape != other.shape for one, other in pairs) or len(steps) != 1:
            break
        moved = steps.pop()
        if moved != count * (step or moved):
            break
        step, count = moved // count, count + 1
    return count, step


# --- forms to trees -------------------------------------------------------------------------------


def leaf_count(form: Form, limit: int) -> int:
    """Terms of a form; at most ``limit`` + 1 are counted."""
    return min(_count(form), limit + 1)


def _count(form: Form) -> int:
    match form:
        case Leaf():
            return 1
        case Repeat(count, _, items):
            return count * sum(map(_count, items))
        case Chain(items) | Group(items):
            return sum(map(_count, items))
        case Pairwise(strides, of):
            return _count(of) << len(strides)
        case Fused(start, steps):
            return (0 if start is None else _count(start)) + sum(map(_count, steps))


def expand(form: Form, shift: int = 0) -> Nested:
    """The nested tree of a form."""
    match form:
        case Leaf(at):
            return at + shift
        case Pairwise(strides, of):
            return _halves(strides, of, shift)
        case Chain(items):
            return _folded(items, shift)
        case Fused(start, steps):
            return _fused(start, steps, shift)
        case _:
            raise ValueError(f"{type(form).__name__} is no tree")


def sequence(items: tuple[Form, ...], shift: int) -> Iterator[tuple[Form, int]]:
    """Every element of a sequence with its shift, repeats written out."""
    for item in items:
        if isinstance(item, Repeat):
            for number in range(item.count):
                yield from sequence(item.items, shift + number * item.step)
        else:
            yield item, shift


def _fused(start: Form | None, steps: tuple[Form, ...], shift: int) -> Nested:
    before = [] if start is None else [expand(start, shift)]
    for group, moved in sequence(steps, shift):
        before = [(*before, *_terms(group, moved))]
    return before[0]


def _terms(group: Form, shift: int) -> tuple[Nested, ...]:
    if not isinstance(group, Group):
        raise ValueError("a fused sum is written {...}")
    return tuple(expand(form, moved) for form, moved in sequence(group.items, shift))


def _folded(items: tuple[Form, ...], shift: int) -> Nested:
    total: Nested | None = None
    for form, moved in sequence(items, shift):
        part = expand(form, moved)
        total = part if total is None else (total, part)
    if not isinstance(total, tuple):
        raise ValueError("a chain of one")
    return total


def _halves(strides: tuple[int, ...], of: Form, shift: int) -> Nested:
    if not strides:
        return expand(of, shift)
    rest = strides[1:]
    return (_halves(rest, of, shift), _halves(rest, of, shift + strides[0]))
