"""The pages of panels in a real Chromium: no complaint, never sideways, whole without a script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parity.tree import Stability
from parity_reports import html_report
from parity_reports.html_checks import render
from tests.reports import check_records as made
from tests.reports import trees
from tests.reports.browser import Browser, open_browser
from tests.reports.check_records import run_of
from tests.reports.test_html_panels_tree import BASELINE

SIZES = (1440, 800, 390)
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LONG = "tests.red.gate_engines:OneVeryLongName@option=0123456789abcdef"


def pages(folder: Path) -> dict[str, str]:
    """Every kind of page, with long names among them."""
    found = {kind: render(run_of(folder, records)) for kind, records in made.ALL.items()}
    gate = made.gate()
    gate["base"]["spec"] = gate["candidate"]["spec"] = LONG
    blocks = [made.block(33, pos, [*range(33)], telling=pos == 7) for pos in range(7, 27)]
    wide = made.probe("isodiff", blocks=blocks)
    told = Stability(40, "engine", "t33_l4_x", 2, None, ["t33_l4_x"] * 39)
    tree = replace(trees.unstable(), stability=told, baseline=BASELINE)
    return found | {
        "long names": render(run_of(folder, [gate])),
        "33 rows": render(run_of(folder, [wide])),
        "repeats": html_report.render(tree),
        "isolated": html_report.render(trees.isolated()),
        "agreed": html_report.render(trees.agreed()),
        "beyond": html_report.render(trees.beyond()),
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, by their kind."""
    made_in = tmp_path_factory.mktemp("pages")
    for kind, html in pages(made_in).items():
        (made_in / f"{kind}.html").write_text(html, encoding="ascii")
    return made_in


def wider(browser: Browser, folder: Path, width: int) -> dict[str, int]:
    """Pages that go sideways, by how many pixels; whatever the browser complains of fails."""
    found = {}
    for path in sorted(folder.glob("*.html")):
        browser.problems.clear()
        browser.open(path, width=width)
        found[path.stem] = browser.ask(SIDEWAYS)
        assert browser.problems == [], path.stem
    return {kind: pixels for kind, pixels in found.items() if pixels}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", SIZES)
def test_no_page_goes_sideways(browser: Browser, folder: Path, width: int, scheme: str) -> None:
    browser.look(prefers_color_scheme=scheme)
    assert wider(browser, folder, width) == {}


def test_red_a_table_outside_its_box_is_seen(browser: Browser, tmp_path: Path) -> None:
    html = pages(tmp_path)["33 rows"]
    old = '<div class="scroll"><table class="grid tall"'
    assert html.count(old) == 1
    spilled = html.replace(old, '<div><table class="grid tall"')
    (tmp_path / "spilled.html").write_text(spilled, encoding="ascii")
    assert wider(browser, tmp_path, 390)["spilled"] > 100


def test_panels_need_no_script(browser: Browser, folder: Path) -> None:
    browser.scripts(False)
    try:
        for path in sorted(folder.glob("*.html")):
            browser.open(path, width=800)
            hidden = browser.ask(
                "[...document.querySelectorAll('section table, section svg, .runs')]"
                ".filter(n => !n.closest('details:not([open])'))"
                ".filter(n => !n.getBoundingClientRect().height)"
                ".map(n => n.id || n.outerHTML.slice(0, 80))"
            )
            assert hidden == [], path.stem
    finally:
        browser.scripts(True)


def test_a_difference_stands_out_on_paper_and_in_grey(browser: Browser, folder: Path) -> None:
    """Bold and underlined by a bar, whatever the colours are."""
    browser.look("print")
    browser.open(folder / "isodiff.html", width=1100)
    weight, shadow, plain = browser.ask(
        "(() => { const of = (q) => getComputedStyle(document.querySelector(q));"
        "return [of('td.differs').fontWeight, of('td.differs').boxShadow,"
        " of('td.dim').boxShadow]; })()"
    )
    assert (weight, plain) == ("700", "none")
    assert "inset" in shadow
    browser.look()
