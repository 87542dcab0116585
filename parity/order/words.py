"""An order in one line, and the first difference of two orders in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from parity.order.notation import parse, sequence_text, text_of
from parity.order.shapes import IrregularError, expand, form_of, form_of_leaves

if TYPE_CHECKING:
    from parity.order.tree import Order, Tree

LONGEST = 400  # characters of a tree in one line: longer is no help to a reader
SHOWN = 80  # of a sequence of leaves inside a sentence


def one_line(order: Order) -> str:
    """The tree in the notation of ``notation``, then what its additions do beyond f32.

    ``fused-chain[256 x (step 16) {0..15}] +2 bits, rz``. Deterministic; exact where the tree has a
    short form, else it says ``irregular`` and gives the digest.
    """
    return ", ".join([tree_line(order.tree) + _fused_words(order), *_settings(order)])


def tree_line(tree: Tree) -> str:
    """The tree in one line: exact, so that ``read_tree`` gives it back, or ``irregular``."""
    exact = exact_line(tree)
    if exact:
        return exact
    counts = Counter(len(kids) for kids in tree.children)
    added = ", ".join(f"{count} of {width}" for width, count in sorted(counts.items()))
    return f"irregular[{tree.n} terms; additions: {added}; depth {_depth(tree)}; {tree.digest()}]"


def exact_line(tree: Tree) -> str:
    """The tree in one line, or "" where that would be long."""
    try:
        text = text_of(form_of(tree))
    except IrregularError:
        return ""
    return text if len(text) <= LONGEST else ""


def read_tree(line: str) -> Tree:
    """The tree of an exact line; InputError for any other text."""
    from parity.order.tree import Tree

    return Tree.of(expand(parse(line)))


def _depth(tree: Tree) -> int:
    depths = [0] * tree.n
    for kids in tree.children:
        depths.append(1 + max(depths[kid] for kid in kids))
    return depths[-1]


# --- settings -------------------------------------------------------------------------------------


def _fused_words(order: Order) -> str:
    if not order.fused_nodes:
        return ""
    return " uncut" if order.bits is None else f" +{order.bits} bits"


def _settings(order: Order) -> list[str]:
    found: list[str] = [order.rounding] if order.fused_nodes else []
    found += [f"{words} {text}" for words, text in _sets(order) if text]
    if order.out != "f32":
        found.append(f"{order.out} out")
    if order.post:
        found.append(f"then {order.post}")
    return found


def _sets(order: Order) -> list[tuple[str, str]]:
    """What is said of leaves and nodes: (words, how many)."""
    tree, two = order.tree, len(order.tree.children) - len(order.fused_nodes)
    inner = len(tree.children) - 1
    return [
        ("fma", _share(len(order.fma), tree.n)),
        ("f64 additions:", _share(len(order.wide), two)),
        (f"stored {order.stored}:", _share(len(order.narrow), inner) if order.narrow else ""),
        ("fused pairs:", _share(len(order.fused), len(tree.children))),
    ]


def _share(count: int, whole: int) -> str:
    if not count:
        return ""
    return "all" if count >= whole else f"{count} of {whole}"


# --- two orders -----------------------------------------------------------------------------------


def difference(ref: Order, dut: Order, ref_name: str, dut_name: str) -> str:
    """The first difference in words: "M = 1 splits K into 2 x 2048, M = 64 does not".

    Looked at from the outside in: how many terms; into which runs of terms the sum falls, and in
    which order these are added; the order within the first run that differs; then what the
    additions do. Orders of one digest: "the same order".
    """
    if ref.digest() == dut.digest():
        return f"{ref_name} and {dut_name}: the same order"
    sides = (_Side(ref, ref_name), _Side(dut, dut_name))
    if ref.tree.n != dut.tree.n:
        return f"{ref_name} adds {ref.tree.n} terms, {dut_name} {dut.tree.n}"
    if ref.tree.digest() != dut.tree.digest():
        return _trees(*sides)
    return _additions(*sides)


@dataclass
class _Side:
    order: Order
    name: str

    def __post_init__(self) -> None:
        self.tree = self.order.tree
        self.runs = sorted(_runs(self.tree), key=self.tree.lows.__getitem__)

    @property
    def split(self) -> bool:
        """Whether the runs are ranges of K, one after the other: K is split."""
        return len(self.runs) > 1 and all(
            self.tree.under(one).max() < self.tree.under(other).min()
            for one, other in pairwise(self.runs)
        )

    @property
    def spread(self) -> set[frozenset[int]]:
        """The leaves of each run."""
        return {frozenset(self.tree.under(run).tolist()) for run in self.runs}

    def lengths(self) -> str:
        """``2 x 2048``, ``2 x 1408 + 1280``."""
        sizes = [self.tree.sizes[run] for run in self.runs]
        counts = Counter(sizes)
        if len(counts) > 3:
            return f"{len(sizes)} runs of {min(sizes)} to {max(sizes)}"
        parts = [f"{count} x {size}" if count > 1 else str(size) for size, count in counts.items()]
        return " + ".join(parts)

    def said(self) -> str:
        """How the sum falls into runs, in words."""
        if len(self.runs) == 1:
            return f"adds K in one run{_of_fused(self.tree, self.runs[0])}"
        if self.split:
            return f"splits K into {self.lengths()}"
        first = f"the first: {_shown(self.tree, self.runs[0])}"
        count, sizes = len(self.runs), {self.tree.sizes[run] for run in self.runs}
        if len(sizes) == 1:
            return f"adds K in {count} interleaved runs of {sizes.pop()} ({first})"
        return f"adds K in {count} interleaved runs ({self.lengths()} terms; {first})"


def _runs(tree: Tree) -> list[int]:
    """The nodes below the top additions that join sums alone: what one accumulator adds up.

    A run begins where a term enters directly, or in a fused sum. A tree in which that never comes
    before single terms is one run.
    """
    found, waiting = list[int](), [tree.root]
    while waiting:
        node = waiting.pop()
        kids = tree.children[node - tree.n] if node >= tree.n else ()
        if len(kids) == 2 and min(kids) >= tree.n:
            waiting += kids
        else:
            found.append(node)
    return found


def _of_fused(tree: Tree, node: int) -> str:
    widths = Counter(len(kids) for kids in tree.children)
    if node < tree.n or len(tree.children[node - tree.n]) <= 2:
        return ""
    width = max(widths, key=lambda width: widths[width])
    return f" of fused sums, {width} operands each"


def _trees(ref: _Side, dut: _Side) -> str:
    if ref.spread != dut.spread:
        return _spreads(ref, dut)
    inner = _first_inner(ref, dut)
    if inner:
        return inner
    return (
        f"the {len(ref.runs)} runs of terms ({ref.lengths()}) are joined as {_joined(ref)} by "
        f"{ref.name}, as {_joined(dut)} by {dut.name} (numbers of runs)"
    )


def _spreads(ref: _Side, dut: _Side) -> str:
    if ref.split and len(dut.runs) == 1:
        return f"{ref.name} {ref.said()}, {dut.name} does not"
    if dut.split and len(ref.runs) == 1:
        return f"{dut.name} {dut.said()}, {ref.name} does not"
    return f"{ref.name} {ref.said()}, {dut.name} {dut.said()}"


def _joined(side: _Side) -> str:
    """How the runs become one sum, each run a leaf."""
    from parity.order.tree import Tree

    made: dict[int, object] = {run: number for number, run in enumerate(side.runs)}
    for number, kids in enumerate(side.tree.children, side.tree.n):
        if all(kid in made for kid in kids):
            made.setdefault(number, tuple(made[kid] for kid in kids))
    return tree_line(Tree.of(made[side.tree.root]))


def _first_inner(ref: _Side, dut: _Side) -> str:
    """The first run, by its lowest term, that the two sides add up differently."""
    for one, other in zip(ref.runs, dut.runs, strict=True):
        if _nested(ref.tree, one) != _nested(dut.tree, other):
            return (
                f"the terms {_shown(ref.tree, one)} are added as {_part(ref.tree, one)} by "
                f"{ref.name}, as {_part(dut.tree, other)} by {dut.name}"
            )
    return ""


def _nested(tree: Tree, node: int) -> list[tuple[int, ...]]:
    """The additions under a node, each by the lowest leaf and the size of its operands."""
    found, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if node >= tree.n:
            kids = tree.children[node - tree.n]
            found.append(tuple(v for kid in kids for v in (tree.lows[kid], tree.sizes[kid])))
            waiting += kids
    return found


def _part(tree: Tree, node: int) -> str:
    try:
        text = text_of(form_of(tree, node))
    except IrregularError:
        text = ""
    return text if 0 < len(text) <= LONGEST else f"an irregular tree of {tree.digest()}"


def _shown(tree: Tree, node: int) -> str:
    """The leaves under a node, with their repeats."""
    return _cut(sequence_text(form_of_leaves(sorted(tree.under(node).tolist()))))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


def _additions(ref: _Side, dut: _Side) -> str:
    """One tree, other additions: the first setting that differs."""
    for said in _SETTINGS:
        ours, theirs = said(ref.order), said(dut.order)
        if ours != theirs:
            return f"one tree, but {ref.name} {ours}, {dut.name} {theirs}"
    return f"one tree, but {ref.name} and {dut.name} do other things with the sum"


def _leaves_said(leaves: frozenset[int]) -> str:
    return _cut(sequence_text(form_of_leaves(sorted(leaves)))) if leaves else "none"


_SETTINGS: tuple[Callable[[Order], str], ...] = (
    lambda order: f"adds {order.terms} of {order.dtype}",
    lambda order: f"fuses multiply and add for the products {_leaves_said(order.fma)}",
    lambda order: f"adds in f64 at the nodes {_leaves_said(order.wide)}",
    lambda order: f"has fused sums at the nodes {_leaves_said(frozenset(order.fused_nodes))}",
    lambda order: f"aligns fused sums to {_bits_said(order)}",
    lambda order: f"ends fused sums by {order.rounding}" if order.fused_nodes else "",
    lambda order: f"stores as {order.stored} the nodes {_leaves_said(order.narrow)}",
    lambda order: f"answers in {order.out}",
)


def _bits_said(order: Order) -> str:
    if not order.fused_nodes:
        return "nothing"
    return "all bits" if order.bits is None else f"+{order.bits} bits"
