"""A Chromium for the tests of pages, opened once a file, and a tree's page in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from parity.tree import Tree
from parity_reports.html_report import render
from tests.reports.browser import Browser, Load, open_browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def load(chromium: Browser, tmp_path: Path) -> Load:
    """Write a tree's page and open it."""

    def opened(tree: Tree, hash_: str = "", width: int = 1440) -> Browser:
        path = tmp_path / "report.html"
        path.write_text(render(tree, "run.json"), encoding="ascii")
        chromium.problems.clear()
        chromium.look()
        chromium.open(path, hash_, width)
        return chromium

    return opened
