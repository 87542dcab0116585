"""Entries that are made when somebody looks at them: what a step shares, and what it never does."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.dump import Entry, TensorType
from parity.dumps import texts
from parity.dumps.forms import Form, Forms
from parity.dumps.table import Builder, Kinds, Places, Table, joined
from parity.errors import ParityBug
from parity.keys import FREE, Key, KeyOrder
from parity.protocol import Step
from parity.runs.stability import unlike_entries

F32, INT8 = TensorType("f32", (4,)), TensorType("int8", (2, 2))
WHERE = [(0, "nrm"), (0, "x"), (None, "logits")]
KINDS = [F32, INT8, F32]


@contextmanager
def entries_made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Counts the entries that are made, whoever makes them."""
    made, real = [0], Entry.__init__

    def counting(self: Entry, *args: Any, **named: Any) -> None:
        made[0] += 1
        real(self, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Entry, "__init__", counting)
        yield lambda: made[0]


def table_of(
    pos: int = 5, first: int = 1, nonfinite: dict[int, tuple[int, int]] | None = None
) -> Table:
    """A step of three keys with the digests ``first`` and so on."""
    form = Forms().of([0] * 3, WHERE, KINDS, 1)[0]
    return form.table(pos, np.arange(first, first + 3, dtype=np.uint64), nonfinite or {})


# --- forms ----------------------------------------------------------------------------------------


def test_values_are_put_in_dataflow_order_whatever_the_order_of_offering() -> None:
    rows = [0, 1, 0, 1, 0, None]
    where = [(None, "logits"), (0, "nrm"), (1, "nrm"), (None, "logits"), (0, "nrm"), (0, "x")]
    kinds = [F32, INT8, F32, F32, INT8, F32]
    digests = np.array([10, 11, 12, 13, 14, 15], np.uint64)
    first, second = (
        form.table(7 + m, digests, {2: (3, 1), 3: (1, 0)})
        for m, form in enumerate(Forms().of(rows, where, kinds, 2))
    )
    assert first == [
        Entry(Key(7, 0, "nrm"), 14, INT8),
        Entry(Key(7, 1, "nrm"), 12, F32, (3, 1)),
        Entry(Key(7, None, "logits"), 10, F32),
    ]
    assert second == [
        Entry(Key(8, 0, "nrm"), 11, INT8),
        Entry(Key(8, None, "logits"), 13, F32, (1, 0)),
    ]


def test_forms_are_made_anew_when_anything_offered_is_another() -> None:
    forms = Forms()
    given = ([0, 0, 0], WHERE, KINDS, 1)
    first = forms.of(*given)
    assert forms.of([0, 0, 0], list(WHERE), list(KINDS), 1) is first
    others: list[Any] = [
        ([0, 0], WHERE[:2], KINDS[:2], 1),
        ([0, 0, None], WHERE, KINDS, 1),
        ([0, 0, 1], WHERE, KINDS, 2),
        ([0, 0, 0], [(0, "nrm"), (1, "x"), (None, "logits")], KINDS, 1),
        ([0, 0, 0], WHERE, [F32, TensorType("int8", (4,)), F32], 1),
    ]
    for other in others:
        forms.of(*given)
        made = forms.of(*other)
        (told, *_) = (form.table(0, np.zeros(3, np.uint64), {}) for form in made)
        assert told != first[0].table(0, np.zeros(3, np.uint64), {})
        assert told == Forms().of(*other)[0].table(0, np.zeros(3, np.uint64), {})


@pytest.mark.parametrize("row", [-1, 2])
def test_red_a_value_of_a_row_that_is_none(row: int) -> None:
    with pytest.raises(ParityBug, match=rf"row {row}: a forward of 2 rows has none"):
        Forms().of([0, row, 1], WHERE, KINDS, 2)


def test_rows_that_tell_the_same_share_their_columns_and_no_digest() -> None:
    one, two = Forms().of([0, 1], [(0, "x")] * 2, [F32] * 2, 2)
    assert one.place is two.place
    assert one.places is two.places
    digests = np.array([1, 2], np.uint64)
    tables = [form.table(m, digests, {}) for m, form in enumerate((one, two))]
    digests[:] = 9  # what the engine does with its memory is its own affair
    assert [table[0].digest for table in tables] == [1, 2]
    for column in (tables[0].place, tables[0].kind):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


# --- a step's entries as users meet them ----------------------------------------------------------


def test_a_table_is_a_sequence_that_can_be_kept_copied_and_pickled() -> None:
    table = table_of(nonfinite={1: (2, 3)})
    plain = [
        Entry(Key(5, 0, "nrm"), 1, F32),
        Entry(Key(5, 0, "x"), 2, INT8, (2, 3)),
        Entry(Key(5, None, "logits"), 3, F32),
    ]
    step = Step(np.zeros(1, np.float32), table)
    for same in (table, copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert same == plain == [*same]
        assert plain == same
        assert (len(same), same[-1], same[0:2]) == (3, plain[2], plain[0:2])
    assert pickle.loads(pickle.dumps(step)).entries == plain
    assert plain[1] in table
    assert table.index(plain[2]) == 2
    assert [*table, *plain] == plain * 2
    assert table != plain[:2]
    assert not table_of().select(np.zeros(3, bool))


def test_looking_at_one_entry_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = table_of(), table_of()
    with entries_made(monkeypatch) as made:
        assert table == other
        assert len(table) == 3
        assert made() == 0
        assert table[1].key == Key(5, 0, "x")
        assert made() == 1
        assert len([*table]) == 3
        assert made() == 4


CHANGES = [
    {"digest": 77},
    {"type": TensorType("f32", (2, 2))},
    {"type": TensorType("f64", (4,))},
    {"type": None},
    {"nonfinite": (1, 0)},
    {"key": Key(5, 1, "nrm")},
    {"key": Key(6, 0, "nrm")},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("at", [0, 2])
def test_red_tables_that_differ_in_one_entry_are_not_equal(change: dict[str, Any], at: int) -> None:
    """Columns first, with the same and with other numbers of places and types; order counts too."""
    plain = [*table_of()]
    plain[at] = replace(plain[at], **change)
    table, changed = table_of(), Table.of(plain)
    assert table != changed
    assert changed != table
    assert table != Table.of([*table_of()][::-1])
    rows = table.unlike_rows(changed)
    assert rows == (None if "key" in change else [at])
    if "key" not in change:
        assert unlike_entries(table, changed) == table.key(at)


FIELDS = st.sampled_from(["x", "nrm", "my"])
ENTRY = st.builds(
    Entry,
    st.builds(Key, st.integers(0, 2), st.none() | st.integers(0, 1), FIELDS),
    st.integers(0, 2),
    st.sampled_from([None, F32, INT8]),
    st.sampled_from([None, None, (1, 2)]),
)
SIDE = st.lists(ENTRY, max_size=8, unique_by=lambda entry: entry.key)


@given(SIDE, SIDE, st.data())
@settings(derandomize=True, max_examples=150, deadline=None)
def test_the_first_unlike_key_is_that_of_plain_entries(
    one: list[Entry], two: list[Entry], data: st.DataObject
) -> None:
    digests = data.draw(st.lists(st.integers(0, 1), min_size=len(one), max_size=len(one)))
    for other in (
        two,
        [replace(e, digest=e.digest ^ d) for e, d in zip(one, digests, strict=True)],
    ):
        assert unlike_entries(Table.of(one), Table.of(other)) == unlike_entries(one, other)
        assert (Table.of(one) == Table.of(other)) == (one == other)


@given(st.lists(SIDE, max_size=3))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_tables_are_joined_and_parted_as_lists_are(sides: list[list[Entry]]) -> None:
    plain = [entry for side in sides for entry in side]
    table = joined(map(Table.of, sides))
    assert table == plain == [*joined(sides)]
    assert [*table.keys()] == [entry.key for entry in plain]
    assert table.of_fields({"x"}) == [entry for entry in plain if entry.key.field == "x"]
    parted = table.by_position()
    assert set(parted) == {entry.key.pos for entry in plain}
    for pos, part in parted.items():
        assert part == [entry for entry in plain if entry.key.pos == pos]
    order = KeyOrder()
    assert sorted(table, key=lambda e: order(e.key)) == sorted(plain, key=lambda e: order(e.key))


def test_a_builder_numbers_tables_that_grow() -> None:
    """The numbers kept for the table before are of no use where it has got more places."""
    places, kinds, whole = Places(), Kinds(), Builder(Places(), Kinds())
    parts = Builder(places, kinds)
    parts.add([Entry(Key(0, 0, "x"), 1, F32)])
    whole.add(parts.table())
    parts.add([Entry(Key(0, 1, "x"), 2, INT8)])
    whole.add(parts.table())
    assert [(str(e.key), str(e.type)) for e in whole.table()] == [
        ("t0_l0_x", "f32[4]"),
        ("t0_l0_x", "f32[4]"),
        ("t0_l1_x", "int8[2,2]"),
    ]


@pytest.mark.parametrize(
    ("key", "digest", "said"),
    [
        (Key(0, 0, "x"), 2**64, "t0_l0_x: digest 0x10000000000000000: no position or no digest"),
        (Key(0, 0, "x"), -1, "t0_l0_x: digest -0x1: no position or no digest of 64 bits"),
        (Key(2**31, 0, "x"), 1, "t2147483648_l0_x: digest 0x1: no position or no digest"),
    ],
)
def test_red_numbers_that_no_column_holds(key: Key, digest: int, said: str) -> None:
    with pytest.raises(ParityBug, match=said):
        Table.of([Entry(Key(0, 0, "nrm"), 1), Entry(key, digest)])


# --- texts ----------------------------------------------------------------------------------------


@given(SIDE)
@settings(derandomize=True, max_examples=100, deadline=None)
def test_texts_of_many_are_those_of_one(side: list[Entry]) -> None:
    table = Table.of([*side, Entry(Key(FREE, None, "a free name"), 2**64 - 1, F32, (1, 0))])
    rows = np.array([-1, *range(len(table)), 0])
    wanted = [None, *(entry.value_text() for entry in table), table[0].value_text()]
    assert texts.value_texts(table, rows) == wanted
    assert texts.tags(table.pos, table.place, table.places) == [e.key.tag for e in table]
    assert texts.value_texts(Table.of([]), np.array([-1, -1])) == [None, None]


@pytest.mark.parametrize(
    "key",
    [
        *(Key(10**9, 0, "x"), Key(-2, 0, "x"), Key(FREE, None, "x")),
        *(Key(0, 10**6, "x"), Key(0, 0, "l1_x")),
    ],
    ids=str,
)
def test_red_a_key_that_no_dump_may_hold(key: Key) -> None:
    table = Table.of([Entry(Key(0, 0, "x"), 1), Entry(key, 1), Entry(Key(FREE, None, "z"), 1)])
    with pytest.raises(ParityBug, match=re.escape(f"cannot hold the key {key!r}")):
        list(texts.record_lines(table, plain=True))


def test_red_a_form_that_shares_its_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other tests hold a step to, seen to fail: the engine's memory handed out."""
    real = Form.table

    def sharing(self: Form, pos: int, digests: np.ndarray, nonfinite: Any) -> Table:
        return replace(real(self, pos, digests, nonfinite), digest=digests)

    monkeypatch.setattr(Form, "table", sharing)
    with pytest.raises(AssertionError):
        test_rows_that_tell_the_same_share_their_columns_and_no_digest()
