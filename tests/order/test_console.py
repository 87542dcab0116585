"""The console of ``parity order``: inside its columns, nothing lost, nothing interpreted."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from parity.order.record import Bits, OrderTable, read_table
from parity.presenting import Options
from parity_reports.order_console import OrderConsole
from tests.order.tables import green, orders, red, refused, row
from tests.order.test_html import WORDS


def printed(found: OrderTable, width: int = 80, **options: object) -> str:
    stream = io.StringIO()
    OrderConsole().write(found, stream, Options(width=width, **options))  # type: ignore[arg-type]
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("table", [green(), red()], ids=["green", "red"])
def test_it_fits(table: OrderTable, width: int) -> None:
    lines = printed(table, width).splitlines()
    command = f"  {table.reproduce}"  # stays whole, to be copied
    assert max(len(line) for line in lines if line != command) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_size_has_its_line(width: int) -> None:
    found = green()
    lines = printed(found, width).splitlines()
    for one in found.rows:
        here = [line for line in lines if line.split()[:2] == [f"{one.M}", "tree"]]
        assert len(here) == 1
        assert one.digest in here[0]
        assert f"{one.probes:,}" in here[0]


def test_a_cut_tree_is_whole_below_or_in_a_file() -> None:
    found = green()
    text = printed(found)
    assert "cut above at ...:" in text
    joined = " ".join(text.split())
    for one in found.rows:
        assert one.words in joined
    order = orders()["chain"]
    long = replace(found.rows[0], words="chain[" + "0, " * 200 + "0]")
    cut = " ".join(printed(replace(found, rows=[long])).split())
    assert "(...: the whole is in kept.m1.order.json)" in cut
    bare = replace(found, rows=[long], written=[])
    assert "(...: the whole is in what --json FILE writes)" in " ".join(printed(bare).split())
    told = " ".join(printed(bare, json_path="all.json").split())
    assert "(...: the whole is in all.json)" in told
    short = replace(found, rows=[row(1, 1, order)])
    assert "cut" not in printed(short)


def test_the_first_line_is_the_verdict() -> None:
    def head(found: OrderTable) -> str:
        return printed(found).splitlines()[0]

    whole = green()
    assert head(whole) == "TREE  8 trees over 8 batch sizes"
    order = orders()["chain"]
    same = replace(whole, rows=[row(M, 1, order) for M in (1, 8)], bits=[])
    assert head(same) == "TREE  the same at M 1, 8"
    many = replace(same, rows=[row(M, 1, order) for M in range(1, 10)])
    assert head(many) == "TREE  the same at M 1, 2, 3, 4 and 5 more"
    assert head(replace(same, rows=same.rows[:1])) == "TREE  at M 1"
    wrong = replace(same, bits=[Bits(1, 8, True, 10, 1, "x")])
    assert head(wrong) == "CONTRADICTED  the bits of M 1 and 8 say otherwise"
    bad = replace(same, rows=[*same.rows, refused(9, "no tree", "why")])
    assert head(bad) == "NO TREE  at M 9"
    assert printed(bad, quiet=True) == "no tree: at M 9: made.up f32, K 64, N 64, cpu\n"
    assert "  op       made.up f32, K 64, N 64, cpu\n" in printed(same)
    assert "  op       made.up f32, K 64, cpu\n" in printed(replace(same, terms="values"))


@pytest.mark.parametrize(
    ("found", "green_one"),
    [
        (green(), True),
        (red(), False),
        (replace(green(), rows=[]), False),
        (replace(green(), bits=[Bits(1, 2, True, 0, 0, "")]), False),
        (replace(green(), bits=[Bits(1, 2, False, 9, 0, "")]), False),
        (replace(green(), bits=[Bits(1, 2, True, 9, 1, "")]), False),
        (replace(green(), rows=[*green().rows, refused(3, "no tree")]), False),
    ],
    ids=["green", "red", "no rows", "nothing compared", "no bit", "a bit", "one is no tree"],
)
def test_red_only_all_of_it_is_green(found: OrderTable, green_one: bool) -> None:
    assert found.green is green_one
    assert found.exit_status == (0 if green_one else 1)


def test_nothing_is_interpreted() -> None:
    text = printed(red(*WORDS), 200, color=True)
    assert "[red]" in text
    plain = printed(red(*WORDS), 200)
    assert all(char.isprintable() or char == "\n" for char in plain)


@pytest.mark.parametrize("table", [green(), red(), red(*WORDS)], ids=["green", "red", "hostile"])
def test_json_holds_all_of_it(table: OrderTable) -> None:
    assert read_table(table.to_json(), "table") == table
