"""The checks on the pages notice a page that lies."""

from pathlib import Path

import pytest

from tests.docs import console, links


def page_with(folder: Path, text: str) -> Path:
    """Write a page and return its path."""
    page = folder / "page.md"
    page.write_text(text)
    return page


def problems(folder: Path, block: str) -> list[str]:
    """Run a page that holds one block; return its problems without the full output."""
    page = page_with(folder, f"# Title\n\n{block}\n")
    found = [line for c in console.commands(page) for line in console.run(c, folder)]
    return [line for line in found if " printed:" not in line]


def test_true_page(tmp_path: Path) -> None:
    block = "```console run\n$ printf 'one\\ntwo 12.5 s\\nthree\\n'\none\ntwo ... s\n```"
    assert problems(tmp_path, block) == []


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```console run\n$ false\n```", "page.md:4: `false` ended 1, the page says 0"),
        ("```console run exit=3\n$ true\n```", "page.md:4: `true` ended 0, the page says 3"),
        ("```console run\n$ echo a\nb\n```", "page.md:4: `echo a` does not print (here): b"),
        ("```console run\n$ true\n$ false\n```", "page.md:5: `false` ended 1, the page says 0"),
        (
            "```console run\n$ printf 'b\\na\\n'\na\nb\n```",
            "page.md:4: `printf 'b\\na\\n'` does not print (here): b",
        ),
        ("```console run\n$ echo ab\na\n```", "page.md:4: `echo ab` does not print (here): a"),
    ],
    ids=["fails", "other status", "other output", "second command", "other order", "half a line"],
)
def test_red_command(tmp_path: Path, block: str, problem: str) -> None:
    assert problems(tmp_path, block) == [problem]


def test_expected_status_is_honoured(tmp_path: Path) -> None:
    assert problems(tmp_path, "```console run exit=3\n$ exit 3\n```") == []


def test_continued_command_and_shared_folder(tmp_path: Path) -> None:
    block = "```console run\n$ echo left \\\n  > file\n$ cat file\nleft\n```"
    assert problems(tmp_path, block) == []


def test_block_without_run_is_left_alone(tmp_path: Path) -> None:
    page = page_with(tmp_path, "```console\n$ false\n```\n```python\n$ false\n```\n")
    assert console.commands(page) == []


def test_red_runnable_block_without_command(tmp_path: Path) -> None:
    page = page_with(tmp_path, "```console run\nparity demo\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:2: a runnable block starts"):
        console.commands(page)


def test_red_fence_not_closed(tmp_path: Path) -> None:
    page = page_with(tmp_path, "# Title\n\n```console run\n$ false\n")
    with pytest.raises(ValueError, match="line 3: this fence is not closed"):
        console.commands(page)


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[x](gone.md)", "gone.md: no such file"),
        ("[x](#gone)", "#gone: no such heading"),
        ("[x](other.md#gone)", "other.md#gone: no such heading"),
        ("[x](other.md#a-heading-2)", "other.md#a-heading-2: no such heading"),
        ("![x](gone.png)", "gone.png: no such file"),
        ("[x]: gone.md", "gone.md: no such file"),
    ],
    ids=["file", "own heading", "other heading", "third of two", "image", "reference"],
)
def test_red_link(tmp_path: Path, link: str, problem: str) -> None:
    (tmp_path / "other.md").write_text("# A `heading`\n\n## A heading\n")
    assert links.broken(page_with(tmp_path, link)) == [f"page.md: {problem}"]


@pytest.mark.parametrize(
    "link",
    [
        "[x](other.md)",
        "[x](other.md#a-heading)",
        "[x](other.md#a-heading-1)",
        "[x](https://example.org/gone)",
        "`[x](gone.md)`",
        "```\n[x](gone.md)\n```",
    ],
    ids=["file", "heading", "second of its name", "web", "inline code", "fenced code"],
)
def test_good_link(tmp_path: Path, link: str) -> None:
    (tmp_path / "other.md").write_text("# A `heading`\n\n## A heading\n")
    assert links.broken(page_with(tmp_path, link)) == []
