"""The reports of parity mathfn: whole, safe, inside 80 columns, at every kind of result."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from parity.elementary.mathfn import (
    Ask,
    Bin,
    Expected,
    Exponent,
    Placed,
    Sweep,
    Table,
    TableRow,
    percent,
)
from parity.elementary.tally import LISTS
from parity.presenting import Options
from parity.progress import Progress
from parity.status import Verdict
from parity_probes.mathfn import Mathfn
from parity_reports.mathfn_console import FunctionConsole
from parity_reports.mathfn_html import render
from parity_reports.mathfn_plot import HEIGHT, LEAST, drift
from tests.probes.mathfn_sides import Side, changed, identity
from tests.reports import html_page
from tests.reports.test_console_hostile import HOSTILE

WORDS = ("[red]", 'a<b>&"c"', "</script>", *HOSTILE)


def scattered(bits: np.ndarray) -> np.ndarray:
    """Every kind of difference: near, far, other sign, infinity, NaN for numbers and the other way,
    other payloads."""
    mixed = bits * np.uint32(2_654_435_761)
    return np.select(
        [mixed % 11 == place for place in range(5)],
        [bits + 1, bits ^ np.uint32(1 << 31), mixed, np.full_like(bits, 0x7F800000), bits | 0x7FC],
        bits,
    ).astype(np.uint32)


def swept(dut: Side, function: str = "cosf", **options: object) -> Sweep:
    ask = Ask(function, exhaustive=True, chunk=1 << 14, positions=False, reproduce="parity X")
    ask = replace(ask, **options)  # type: ignore[arg-type]
    return Mathfn().run(ask, identity(), dut, Progress(quiet=True))


def every_kind() -> Sweep:
    """All lists filled; numbers as wide as they get."""
    found = swept(changed("scattered", scattered), span=(0x7F7FE000, 0x7F802000))
    wide = [[16_777_214, 1_020_169_705, 1_018_170_956, 2_180_453, 2_237_668_968]] * 5
    return replace(found, results=wide, input_classes=wide[0])


def equal() -> Sweep:
    return swept(identity(), span=(0, 1 << 12))


def sampled() -> Sweep:
    flipped = changed("flipped", lambda bits: bits ^ (bits & 1))
    ask = Ask("expf", samples=500, domain=(-100.0, 0.0), positions=False, reproduce="parity Y")
    return Mathfn().run(ask, identity(), flipped, Progress(quiet=True))


def unstable() -> Sweep:
    placed = Placed(10_001, "dut", "3f800000: 3f800000 in the array, 3f800001 alone", 7)
    return replace(equal(), verdict=Verdict.UNSTABLE, placed=placed)


def hostile() -> Sweep:
    found = sampled()
    for place, word in enumerate(WORDS):
        found.ref[f"label {place}"] = word
    return replace(found, remarks=list(WORDS), reproduce=f"parity {WORDS[1]}")


def table() -> Table:
    base = TableRow("row", "ucrt", "cuda", "400,002 in [-100, 0]", Expected("28.3 %"), Verdict.SAME)
    rows = [
        replace(base, pairs=400_002, differ=105_600, max_ulp=2),
        replace(base, pairs=9, verdict=Verdict.DIVERGED, expected=Expected("0", count=(0, 0))),
        replace(base, verdict=Verdict.NOT_RUN, reason=WORDS[1]),
    ]
    return Table(Verdict.DIVERGED, 7, rows, {"numpy": "2", "x": WORDS[2]}, "parity mathfn --table")


RESULTS: dict[str, Callable[[], Sweep | Table]] = {
    made.__name__: made for made in (every_kind, equal, sampled, unstable, hostile, table)
}
each = pytest.mark.parametrize("name", RESULTS)


def console(found: Sweep | Table, **options: object) -> str:
    out = io.StringIO()
    FunctionConsole().write(found, out, Options(**options))  # type: ignore[arg-type]
    return out.getvalue()


def page_text(found: Sweep | Table) -> str:
    return " ".join(html_page.read(render(found)).text.split())


@each
def test_pages_are_well_formed_and_load_nothing(name: str) -> None:
    assert html_page.problems(render(RESULTS[name]())) == []


@each
def test_console_lines_fit(name: str) -> None:
    found = RESULTS[name]()
    lines = console(found).splitlines()
    long = [line for line in lines if len(line) > 80 and found.reproduce not in line]
    assert long == [] or name == "hostile"  # a long word runs long
    assert lines[0] == lines[0].strip() != ""
    assert not any(one == two == "" for one, two in pairwise(lines))


@each
def test_text_is_data(name: str) -> None:
    text = console(RESULTS[name]())
    assert "\x1b" not in text
    assert text.isascii() or name == "hostile"
    assert render(RESULTS[name]()).isascii()


@each
def test_colour_adds_nothing(name: str) -> None:
    import re

    found = RESULTS[name]()
    assert re.sub(r"\x1b\[[0-9;]*m", "", console(found, color=True)) == console(found)


@pytest.mark.parametrize("name", [name for name in RESULTS if name != "table"])
def test_console_and_page_hold_the_same_facts(name: str) -> None:
    found = RESULTS[name]()
    assert isinstance(found, Sweep)
    text, page = " ".join(console(found).split()), page_text(found)
    numbers = [f"{one.count:,}" for one in found.bins]
    numbers += [f"{count:,}" for row in found.results for count in row if count]
    for number in numbers:
        assert number in page
    for one in found.bins:
        assert f"{one.name} {one.count:,}" in text
    for shown in found.examples.get("first", [])[:4]:
        assert shown.x_hex in text
        assert shown.x_hex in page.replace(" ", "")


def test_every_kind_of_difference_is_shown() -> None:
    found = every_kind()
    assert set(found.examples) == {*LISTS} - {"zero sign"}
    text = console(found)
    for label in ("NaN in ref", "NaN in dut", "NaN payload", "infinity", "all"):
        assert f"\n  {label} " in text
    for heading in ("first", "worst", "NaN in ref", "NaN in dut", "NaN payload"):
        assert f"\n  {heading}\n" in text
    assert "inputs differ by at most 4,278,189,968 ULP\n" in text
    for kind in ("NaN in ref", "NaN in dut", "NaN payload", "infinity", "beyond 1"):
        assert kind in page_text(found)


def test_a_panel_without_data_is_absent() -> None:
    page = html_page.read(render(equal()))
    assert [one.attributes["id"] for one in page.all("section")] == [
        "distance",
        "classes",
        "provenance",
    ]
    assert "reproduce" not in console(equal())
    assert "drift" not in console(equal())


def test_a_list_that_another_one_repeats_is_left_out() -> None:
    """As on the console; the column of kinds only where a result has one."""
    alike = swept(changed("up", lambda bits: bits + 1), span=(0x3F800000, 0x3F801000))
    assert alike.examples["worst"] == alike.examples["first"]
    html = render(alike)
    assert "First: the lowest bit patterns; none is worse" in html
    assert 'id="list-worst"' not in html
    assert ">Kind</th>" not in html
    mixed = render(every_kind())
    assert "none is worse" not in mixed
    assert 'id="list-worst"' in mixed
    assert ">Kind</th>" in mixed


def test_quiet_is_one_line() -> None:
    for made in RESULTS.values():
        assert console(made(), quiet=True).count("\n") == 1
    assert console(unstable(), quiet=True) == (
        "unstable: cosf: dut identity depends on where an input sits\n"
    )


def test_a_headline_keeps_nan_bits_apart() -> None:
    found = swept(
        changed("flipped", lambda bits: bits ^ np.uint32(1)), "expf", span=(0x7F7FFF00, 0x7F800100)
    )
    nans = next(one.count for one in found.bins if one.name == "NaN payload")
    assert (found.pairs, found.differ, nans) == (512, 512, 254)
    found = replace(found, max_ulp=1)
    head = "expf: 258 of 512 inputs differ by at most 1 ULP, and 254 NaN in other bits"
    assert console(found, quiet=True) == f"diverged: {head}\n"
    assert head in page_text(found)
    whole = swept(
        changed("flipped", lambda bits: bits ^ np.uint32(1)), "expf", span=(0x7FC00000, 0x7FC00010)
    )
    assert console(whole, quiet=True) == (
        "diverged: expf: 16 of 16 inputs differ, all NaN in other bits\n"
    )


def test_a_headline_too_wide_for_the_screen_is_parted() -> None:
    found = replace(
        every_kind(),
        function="expf",
        pairs=1 << 32,
        differ=193_924 + 8_388_607,
        max_ulp=1,
        bins=[Bin("equal", 0), Bin("1", 193_924), Bin("NaN payload", 8_388_607)],
    )
    lines = console(found).splitlines()
    assert lines[0] == "DIVERGED  expf: 193,924 of 4,294,967,296 inputs differ by at most 1 ULP"
    assert lines[2] == "  besides  8,388,607 NaN in other bits"
    wide = replace(found, function="softplus", max_ulp=4_278_189_968, differ=4_278_189_968)
    assert console(wide).splitlines()[:4] == [
        "DIVERGED  softplus: 4,269,801,361 of 4,294,967,296 inputs differ",
        "",
        "  largest  4,278,189,968 ULP",
        "  besides  8,388,607 NaN in other bits",
    ]
    plain = console(replace(wide, bins=[Bin("1", 4_278_189_968)])).splitlines()
    assert plain[0] == "DIVERGED  softplus: 4,278,189,968 of 4,294,967,296 inputs differ (99.6 %)"
    assert plain[2] == "  largest  4,278,189,968 ULP"


def test_special_values_not_shown_are_counted() -> None:
    def spoiled(bits: np.ndarray) -> np.ndarray:
        return np.where((bits & 0x7FFFFF) == 0, bits ^ 1, bits).astype(np.uint32)

    ask = Ask("expf", samples=500, domain=(-100.0, 0.0), positions=False)
    found = Mathfn().run(ask, identity(), changed("spoiled", spoiled), Progress(quiet=True))
    assert found.special is not None
    more = found.special.differ - 4
    assert more > 0
    lines = console(found).splitlines()
    at = lines.index("  special")
    assert lines[at + 5] == f"  {more} more, in the JSON and HTML reports"
    shown = replace(found.special, differ=4, examples=found.special.examples[:4])
    few = replace(found, special=shown)
    assert "more, in the JSON" not in console(few)


def test_a_table_that_lacks_a_device_says_what_to_do() -> None:
    without = replace(table(), next_step="get a GPU")
    assert "\n  next     get a GPU\n" in console(without)
    assert "get a GPU" in page_text(without)
    assert "\n  next" not in console(table())


# --- the plot -------------------------------------------------------------------------------------


def exponent(sign: str, number: int, differ: int, ulp: int, pairs: int = 1_000) -> Exponent:
    return Exponent(sign, number, pairs, differ, ulp)


def test_bars_stand_where_their_exponents_do() -> None:
    found = drift(
        [
            exponent("-", 128, 500, 2),
            exponent("-", 127, 0, 0),
            exponent("-", 0, 1, 1),
            exponent("+", 0, 1000, 0),
            exponent("+", 127, 250, 8),
        ]
    )
    assert found is not None
    shares, sizes = found.plots
    assert found.zero == 60.0
    assert [bar.x for bar in shares.bars] == [0.0, 40.0, 60.0, 80.0]
    assert {bar.width for bar in shares.bars} == {18.0}
    assert [bar.height for bar in shares.bars] == [HEIGHT / 2, LEAST, HEIGHT, HEIGHT / 4]
    assert all(bar.y + bar.height == HEIGHT for plot in found.plots for bar in plot.bars)
    assert (shares.top, sizes.top) == ("100 %", "8 ULP")
    assert [bar.height for bar in sizes.bars] == [HEIGHT / 2, HEIGHT / 4, HEIGHT]
    assert [label.text for label in found.labels] == ["-2^1", "-2^0", "-0", "+0", "+2^0"]
    assert [label.place for label in found.labels] == [9.0, 29.0, 49.0, 69.0, 89.0]


def test_labels_at_the_edges_stay_on_the_page() -> None:
    """-inf/NaN is centred on the first of 512 columns: half of it would stand left of the page."""
    order = [*(("-", n) for n in reversed(range(256))), *(("+", n) for n in range(256))]
    every = [exponent(sign, number, 1, 1) for sign, number in order]
    found = drift(every)
    assert found is not None
    anchors = [label.anchor for label in found.labels]
    assert anchors == ["start", *["middle"] * (len(anchors) - 1)]
    last = drift([*every[:12], *every[12:23]])
    assert last is not None
    assert [one.anchor for one in last.labels if one.place > 96] == ["end"]
    assert 'text-anchor="start">-inf/NaN</text>' in render(replace(every_kind(), exponents=every))


def test_a_single_difference_among_all_floats_is_seen() -> None:
    every = [exponent("+", number, 1 if number == 3 else 0, 0, 1 << 23) for number in range(256)]
    found = drift(every)
    assert found is not None
    (plot,) = found.plots
    assert [bar.height for bar in plot.bars] == [HEIGHT]
    assert plot.top == "1.19e-05 %"
    assert len(found.labels) == 12
    assert found.zero is None


def test_without_a_difference_there_is_no_plot() -> None:
    assert drift([exponent("+", 3, 0, 0)]) is None
    assert drift([]) is None


@pytest.mark.parametrize(
    ("differ", "pairs", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (8_388_607, 8_388_608, "over 99.9 %"),
        (105_600, 400_002, "26.4 %"),
        (28, 400_002, "0.007 %"),
        (3, 1 << 32, "7.0e-08 %"),
        (1, 1000, "0.1 %"),
    ],
)
def test_percent(differ: int, pairs: int, text: str) -> None:
    assert percent(differ, pairs) == text
