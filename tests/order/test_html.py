"""The page of ``parity order``: whole, safe, and its drawings true to their trees."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from parity.errors import InputError
from parity.order.record import OrderTable
from parity.order.tree import Order, Tree
from parity_reports.order_drawing import (
    ADD,
    APART,
    FMA,
    FUSED,
    LARGEST,
    REST,
    TERM,
    TOP,
    WIDE,
    drawing,
)
from parity_reports.order_html import render
from tests.order.tables import chain, green, orders, red
from tests.reports import html_page
from tests.reports.test_console_hostile import HOSTILE

WORDS = ("[red]", 'a<b>&"c"', "</script>", *HOSTILE)
PAGES = {"green": green(), "red": red(), "hostile": red(*WORDS)}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_sound(name: str) -> None:
    html = render(PAGES[name])
    assert html_page.problems(html) == []
    assert html.isascii()


def test_it_says_what_was_found() -> None:
    page = html_page.read(render(green()))
    text = " ".join(page.text.split())
    assert [one.text for one in page.all("h2")] == [
        "By batch size",
        "Bits",
        "Trees",
        "Holds for",
    ]
    assert "M = 1 splits K into 2 x 8, M = 2 does not: this is why the bits change" in text
    assert "8 different trees" in text
    assert "1 and 4 the same 1,000,000 0" in text
    assert "fused-chain[256 x (step 16) {0..15}] +2 bits, rz" in text
    assert "kept.m1.order.json" in text
    assert "no loops for M = 2: no short form" in text
    assert len(page.all("svg")) > 16
    boxes = [one for one in page.all("div") if one.attributes.get("class") == "tree-box"]
    assert len(boxes) == 8
    assert all(one.attributes["tabindex"] == "0" for one in boxes)  # the keyboard scrolls them


def test_red_evidence_and_contradictions_are_told() -> None:
    page = html_page.read(render(red()))
    text = " ".join(page.text.split())
    assert "No tree" in text
    assert "M 2: no tree the answer is 0.5, no count from 0 to 64" in text
    assert text.count("contradicted") == 2
    assert page.by_id("evidence") is not None
    assert html_page.read(render(green())).by_id("evidence") is None


def test_red_a_damaged_order_is_refused() -> None:
    table = green()
    first = table.rows[0]
    plain = {**(first.order or {}), "n": 3}
    broken = replace(table, rows=[replace(first, order=plain), *table.rows[1:]])
    with pytest.raises(InputError, match="M 1: damaged: "):
        render(broken)


def kinds(order: Order) -> dict[str, int]:
    marks = drawing(order).marks
    return {kind: sum(m.kind == kind for m in marks) for kind in {m.kind for m in marks}}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("chain", {TERM: 24, ADD: 23}),
        ("fma", {TERM: 4, FMA: 60, ADD: 63}),
        ("wide", {TERM: 64, ADD: 61, WIDE: 2}),
        ("fused", {TERM: 64, FUSED: 4}),
        ("narrow", {TERM: 4, ADD: 3}),
        ("one", {TERM: 1}),
    ],
)
def test_every_node_is_drawn_as_what_it_is(name: str, wanted: dict[str, int]) -> None:
    order = orders()[name]
    drawn = drawing(order)
    assert kinds(order) == wanted
    assert drawn.whole
    assert {kind for kind, _ in drawn.legend} - {"narrow"} == set(wanted)
    assert len(drawn.lines) == len(drawn.marks) - 1  # a tree: each node but the root hangs once
    assert [m.label for m in drawn.marks if m.kind in (TERM, FMA)] == [
        str(at) for at in range(order.tree.n)
    ]


def test_stored_partials_are_underlined() -> None:
    drawn = drawing(orders()["narrow"])
    assert [m.narrow for m in drawn.marks] == [False] * 4 + [True, True, False]
    assert drawn.legend[-1] == ("narrow", "underlined: its result is stored in bf16")


@pytest.mark.parametrize("name", ["long", "long fused"])
def test_of_a_large_tree_the_top_is_drawn(name: str) -> None:
    order = orders()[name]
    drawn = drawing(order)
    assert not drawn.whole
    ends = [m for m in drawn.marks if m.kind in (TERM, REST)]
    assert 2 <= len(ends) <= TOP
    hidden = sum(int(m.label.replace(",", "")) for m in ends if m.kind == REST)
    assert hidden + sum(m.kind == TERM for m in ends) == order.tree.n
    assert len(drawn.lines) == len(drawn.marks) - 1


@pytest.mark.parametrize("name", orders())
def test_no_mark_covers_another_and_parents_stand_above(name: str) -> None:
    order = orders()[name]
    drawn = drawing(order)
    places = [(m.x, m.y) for m in drawn.marks]
    assert len(set(places)) == len(places)
    for y in {y for _, y in places}:
        row = sorted(x for x, at in places if at == y)
        gaps = [right - left for left, right in pairwise(row)]
        assert all(gap > APART - 0.2 for gap in gaps)
    assert all(line.y2 < line.y1 for line in drawn.lines)
    assert all(0 < x < drawn.width and 0 < y < drawn.height for x, y in places)


def test_crossing_trees_are_pushed_apart() -> None:
    """All four first additions have their middle at one place."""
    drawn = drawing(Order(Tree.of((((0, 7), (1, 6)), ((2, 5), (3, 4))))))
    level = sorted(m.x for m in drawn.marks if m.told.startswith("2 parts, 2 terms"))
    assert len(level) == 4
    assert all(right - left >= APART for left, right in pairwise(level))


def test_the_largest_whole_drawing_fits_a_wide_page() -> None:
    assert drawing(Order(Tree.of(chain(range(LARGEST))))).width <= 1230
    assert not drawing(Order(Tree.of(chain(range(LARGEST + 1))))).whole


def test_terms_stand_in_the_order_of_their_index() -> None:
    drawn = drawing(Order(Tree.of(((3, 0), (2, 1)))))
    assert [m.label for m in sorted(drawn.marks, key=lambda m: (-m.y, m.x))[:4]] == list("0123")


def test_a_table_without_rows_is_still_a_page() -> None:
    empty = OrderTable("made.up", 4, 4, "f32", "cpu", "values", [])
    assert html_page.problems(render(empty)) == []
