"""The site builds without a warning, loads nothing from elsewhere, and its reference is whole."""

import re
from pathlib import Path

import pytest

import parity
from tests.docs import site

ROOT = Path(__file__).parents[2]
NAV = re.compile(r"^nav:\n(?:[ ].*\n)+", re.MULTILINE)
PARTS = ("parity", "engines", "probes", "reports", "scripts")


def small_site(folder: Path, page: str, *, config: tuple[str, str] = ("", "")) -> Path:
    """Make a folder with the real configuration, ``config`` replaced in it, and one page."""
    for part in PARTS:
        (folder / part).symlink_to(ROOT / part)
    text = NAV.sub("nav:\n  - index.md\n", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert config[0] in text
    (folder / "mkdocs.yml").write_text(text.replace(*config), encoding="utf-8")
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text(page, encoding="utf-8")
    return folder


def test_the_site_is_whole(tmp_path: Path) -> None:
    status, output = site.build(ROOT, tmp_path)
    assert status == 0, output
    assert site.problems(tmp_path) == []
    assert "parity.diff" in (tmp_path / "api.html").read_text(encoding="utf-8")


def test_every_public_name_has_its_entry() -> None:
    entries = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert {f"parity.{name}" for name in parity.__all__} - set(entries) == set()


def test_small_site(tmp_path: Path) -> None:
    folder = small_site(tmp_path, "# A\n\n## B\n\n[x](#b)\n\n::: parity.status.Verdict\n")
    assert site.build(folder, tmp_path / "site")[0] == 0
    assert site.problems(tmp_path / "site") == []


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("[x](gone.md)", "contains a link 'gone.md', but the target is not found"),
        ("[x](#gone)", "contains a link '#gone', but there is no such anchor on this page"),
        ("[x](/a.md)", "contains an absolute link '/a.md'"),
        ("::: parity.gone", "parity.gone could not be found"),
        ("[x][parity.gone]", "Could not find cross-reference target 'parity.gone'"),
    ],
    ids=["page", "anchor", "absolute", "name", "reference"],
)
def test_red_build(tmp_path: Path, page: str, problem: str) -> None:
    status, output = site.build(small_site(tmp_path, f"# A\n\n{page}\n"), tmp_path / "site")
    assert status == 1
    assert problem in output


def pages_named_twice(text: str) -> list[str]:
    """Pages that the navigation of mkdocs.yml names more than once."""
    named = re.findall(r": (\S+\.md)$", NAV.search(text)[0], re.MULTILINE)  # type: ignore[index]
    return sorted({page for page in named if named.count(page) > 1})


def test_no_page_stands_twice_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert pages_named_twice(text) == []
    again = text.replace("nav:\n", "nav:\n  - Again: gate.md\n", 1)
    assert pages_named_twice(again) == ["gate.md"]


def test_red_page_outside_the_navigation(tmp_path: Path) -> None:
    folder = small_site(tmp_path, "# A\n")
    (folder / "docs" / "lost.md").write_text("# Lost\n")
    status, output = site.build(folder, tmp_path / "site")
    assert status == 1
    assert 'not included in the "nav" configuration:\n  - lost.md' in output


@pytest.mark.parametrize(
    ("page", "config", "problem"),
    [
        ("text\n", ("font: false", "font: {text: Roboto}"), "index.html: loads https://fonts."),
        ("![x](https://example.org/x.png)\n", ("", ""), "loads https://example.org/x.png"),
        ("text\n| a | b |\n| --- | --- |\n| 1 | 2 |\n", ("", ""), "shown raw: | --- | --- |"),
        ("text\n```text\na\n```\n\n```no end\n", ("", ""), "index.html: shown raw: "),
        ('<pre class="mermaid">a</pre>\n', ("", ""), "a diagram that loads a script"),
    ],
    ids=["font", "image", "table", "fence", "diagram"],
)
def test_red_site(tmp_path: Path, page: str, config: tuple[str, str], problem: str) -> None:
    folder = small_site(tmp_path, f"# A\n\n{page}", config=config)
    assert site.build(folder, tmp_path / "site")[0] == 0
    found = site.problems(tmp_path / "site")
    assert any(problem in line for line in found), found


def test_red_style_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@import 'https://example.org/a.css'; b { src: url(b.woff) }")
    assert site.problems(tmp_path) == ["a.css: loads https://example.org/a.css"]
