"""Where two sides cease to be fed the same tokens: no later key is evidence (contract 7).

With ``--tokens-from own`` each side follows its own choices: after the first other choice both
compute something else, and that their keys differ says nothing about the arithmetic.
"""

from __future__ import annotations

from dataclasses import replace

from parity.comparison.compare import compare_dumps
from parity.comparison.matching import Apart
from parity.dump import Dump
from parity.dumps.table import tables
from parity.keys import Key
from parity.tree import KeyState, Tree

_HEADER_NOTE = "tokens differ: "  # the note of compare_dumps, which lists all tokens


def parting(ref: Dump, dut: Dump) -> tuple[int, str, str] | None:
    """(position, the ref's token, the dut's token) of the first other token, from the headers.

    None where none differs in the positions that both have, or where a header names none.
    """
    sides = (side.header.get("tokens", "").split(",") for side in (ref, dut))
    pairs = enumerate(zip(*sides, strict=False))
    return next(((pos, *pair) for pos, pair in pairs if all(pair) and pair[0] != pair[1]), None)


def label_parting(tree: Tree, ref: Dump, dut: Dump, apart: Apart | None = None) -> None:
    """Say in ``tree`` where the tokens part; keys from there on become not comparable.

    Where no key before differs the verdict keeps its keys, and the note alone explains them.
    ``apart``: what the comparison of the two was told.
    """
    pos = note_parting(tree, ref, dut)
    if pos is not None and tree.first is not None and Key.of_name(tree.first).pos < pos:
        _mask(tree, (_before(ref, pos), _before(dut, pos)), pos, apart)


def note_parting(tree: Tree, ref: Dump, dut: Dump) -> int | None:
    """Put the note of the parting first, in the place of the one that lists all tokens.

    Returns its position, or None where the tokens do not part.
    """
    parted = parting(ref, dut)
    if parted is None:
        return None
    pos, ref_token, dut_token = parted
    text = f"tokens part at t{pos} (ref {ref_token}, dut {dut_token}): "
    text += "from there on the keys compare different inputs"
    tree.notes = [text, *(note for note in tree.notes if not note.startswith(_HEADER_NOTE))]
    return pos


def _mask(tree: Tree, before: tuple[Dump, Dump], pos: int, apart: Apart | None) -> None:
    counts = compare_dumps(*before, partial=True, apart=apart).counts
    whole = tree.counts
    masked = whole.total - counts.total + counts.not_comparable
    tree.counts = replace(counts, ref=whole.ref, dut=whole.dut, not_comparable=masked)
    tree.keys = [
        replace(row, state=KeyState.NOT_COMPARABLE) if Key.of_name(row.key).pos >= pos else row
        for row in tree.keys
    ]


def _before(dump: Dump, pos: int) -> Dump:
    """The keys of positions below ``pos``."""
    segments = {name: table.select(table.pos < pos) for name, table in tables(dump).items()}
    return replace(dump, segments=segments)
