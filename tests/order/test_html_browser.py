"""The page of ``parity order`` in Chromium: nothing overflows, drawings scroll by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from parity_reports.order_html import render
from tests.order.tables import green, red
from tests.reports.browser import Browser, open_browser

BOX = "document.querySelector('#tree-1 .tree-box')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(params=["green", "red"])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(render(green() if request.param == "green" else red()), encoding="ascii")
    return path


@pytest.mark.parametrize("width", [390, 800, 1440])
def test_the_page_is_no_wider_than_its_window(browser: Browser, page: Path, width: int) -> None:
    for scheme in ("light", "dark"):
        browser.look(prefers_color_scheme=scheme)
        browser.open(page, width=width)
        assert browser.ask("document.documentElement.scrollWidth") == width
    assert browser.problems == []


def test_a_drawing_is_scrolled_with_the_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    assert browser.ask(f"{BOX}.scrollWidth > {BOX}.clientWidth") is True
    browser.ask(f"{BOX}.focus()")
    assert browser.ask(f"document.activeElement === {BOX}") is True
    browser.key("ArrowRight")
    browser.until(f"{BOX}.scrollLeft > 0")
    assert browser.ask("document.documentElement.scrollLeft") == 0


def test_printed_it_shows_whole_drawings(browser: Browser, page: Path) -> None:
    browser.open(page, width=1000)
    browser.look(media="print")
    assert browser.ask(f"getComputedStyle({BOX}).overflow") == "visible"
    assert browser.ask(f"{BOX}.clientHeight >= {BOX}.querySelector('svg').clientHeight") is True
    browser.look()


def test_marks_have_colours_of_their_own(browser: Browser, page: Path) -> None:
    """In either scheme a mark is told from the ground it stands on."""
    for scheme in ("light", "dark"):
        browser.look(prefers_color_scheme=scheme)
        browser.open(page, width=1440)
        ground = browser.ask("getComputedStyle(document.body).backgroundColor")
        fills = browser.ask(
            "[...document.querySelectorAll('.t-add,.t-fma')].map(n => getComputedStyle(n).fill)"
        )
        strokes = browser.ask(
            "[...document.querySelectorAll('.t-term,.t-wide,.t-fused')]"
            ".map(n => getComputedStyle(n).stroke)"
        )
        assert ground not in {*fills, *strokes}
        assert fills
        assert strokes
