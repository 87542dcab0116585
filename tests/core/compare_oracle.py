"""A second, plain writing of the comparison and of the reading, one key and one line at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from parity.dump import Dump, Entry
from parity.dumps.scan import Block, Scanner
from parity.errors import InputError
from parity.keys import Key, KeyOrder
from parity.status import Verdict
from parity.tree import KeyState, Tree

Row = tuple[str, str, str, str | None, str | None]


class OneByOne(Scanner):
    """Leaves every line to the reader of single lines."""

    def scan(self, data: np.ndarray, size: int) -> Block:
        block = super().scan(data, size)
        block.ok[:] = False
        return block


def rows_of(tree: Tree) -> list[Row]:
    """The tree's rows, to be compared at once."""
    return [(row.segment, row.key, row.state, row.ref, row.dut) for row in tree.keys]


def expected_rows(ref: Dump, dut: Dump) -> list[Row]:
    """What a comparison lists: keys in dataflow order, unnamed segment first, each judged."""
    order = KeyOrder([e.key for e in ref.entries], [e.key for e in dut.entries])
    names = sorted({**ref.segments, **dut.segments}, key=bool)
    rows: list[Row] = []
    stopped = False
    for name in names:
        refs, duts = _by_key(ref, name), _by_key(dut, name)
        for key in sorted(refs | duts, key=order):
            pair = refs.get(key), duts.get(key)
            state = KeyState.NOT_COMPARABLE if stopped else _state(*pair)
            rows.append((name, key.tag, state, *(e.value_text() if e else None for e in pair)))
            stopped = stopped or any(e is not None and e.nonfinite is not None for e in pair)
    return rows


def expected_first(rows: list[Row]) -> str | None:
    """Tag of the first row that is neither the same nor not comparable."""
    fine = (KeyState.SAME, KeyState.NOT_COMPARABLE)
    return next((tag for _, tag, state, _, _ in rows if state not in fine), None)


def check(tree: Tree, ref: Dump, dut: Dump) -> None:
    """Assert that ``tree`` says of two dumps what the plain comparison says."""
    rows = expected_rows(ref, dut)
    states = Counter(state for _, _, state, _, _ in rows)
    assert rows_of(tree) == rows
    counts = tree.counts
    assert (counts.ref, counts.dut) == (len(ref.entries), len(dut.entries))
    assert (counts.same, counts.differ) == (states[KeyState.SAME], states[KeyState.DIFFERS])
    assert (counts.missing, counts.extra) == (states[KeyState.MISSING], states[KeyState.EXTRA])
    assert counts.not_comparable == states[KeyState.NOT_COMPARABLE]
    compared = counts.same + counts.differ > 0
    first = expected_first(rows) if compared else None
    assert tree.first == first
    whole = compared and not counts.not_comparable
    stops = any(entry.nonfinite for side in (ref, dut) for entry in side.entries)
    if first is not None:
        assert tree.verdict is Verdict.DIVERGED
    else:
        assert tree.verdict is (Verdict.SAME if whole and not stops else Verdict.NOT_RUN)
    assert [note for note in tree.notes if "line order" in note] == list(_order_notes(ref, dut))


def _by_key(dump: Dump, name: str) -> dict[Key, Entry]:
    found: dict[Key, Entry] = {}
    for entry in dump.segments.get(name, []):
        if entry.key in found:
            raise InputError(f"{entry.key} twice")
        found[entry.key] = entry
    return found


def _state(ref: Entry | None, dut: Entry | None) -> str:
    if ref is None or dut is None:
        return KeyState.EXTRA if ref is None else KeyState.MISSING
    types = ref.type == dut.type or None in (ref.type, dut.type)
    return KeyState.SAME if types and ref.digest == dut.digest else KeyState.DIFFERS


def _order_notes(ref: Dump, dut: Dump) -> Iterator[str]:
    for name in sorted({**ref.segments, **dut.segments}, key=bool):
        refs, duts = _by_key(ref, name), _by_key(dut, name)
        if [key for key in refs if key in duts] != [key for key in duts if key in refs]:
            where = f" in segment {name}" if name else ""
            yield f"line order differs{where}: compared by key, in dataflow order"
