"""The checks on the pages notice a page that lies."""

from pathlib import Path

import pytest

from tests.docs import links
from tests.docs.execute import Page
from tests.docs.fences import fault, fences, indented_commands


def page_with(folder: Path, text: str) -> Path:
    """Write a page and return its path."""
    page = folder / "page.md"
    page.write_text(text)
    return page


def problems(folder: Path, *blocks: str) -> list[str]:
    """Execute a page that holds these blocks; return its problems without the full output."""
    page = page_with(folder, "# Title\n\n" + "\n\n".join(blocks) + "\n")
    return [line for line in Page(folder).execute(fences(page)) if " printed:" not in line]


def faults(folder: Path, block: str, *, listed: bool = False) -> list[str]:
    """Return what is wrong with the blocks of a page as they stand."""
    found = fences(page_with(folder, f"# Title\n\n{block}\n"))
    return [line for fence in found if (line := fault(fence, listed))]


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
        (
            "* step\n\n    ```console run\n    $ echo a\n    b\n    ```",
            "page.md:6: `echo a` does not print (here): b",
        ),
    ],
    ids=["fails", "status", "output", "second command", "order", "half a line", "in a list"],
)
def test_red_command(tmp_path: Path, block: str, problem: str) -> None:
    assert problems(tmp_path, block) == [problem]


def test_expected_status_is_honoured(tmp_path: Path) -> None:
    assert problems(tmp_path, "```console run exit=3\n$ exit 3\n```") == []


def test_continued_command_and_shared_folder(tmp_path: Path) -> None:
    block = "```console run\n$ echo left \\\n  > file\n$ cat file\nleft\n```"
    assert problems(tmp_path, block) == []


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```python\nx = 1\nassert x == 2\n```", "line 5"),
        ("```python\nraise SystemExit(0)\n```", "SystemExit: 0"),
        ("```python\nx =\n```", "SyntaxError"),
        ("```python\nimport warnings\nwarnings.warn('old')\n```", "UserWarning: old"),
        ("```sh\ntrue\nfalse\ntrue\n```", "ended 1, the page says 0"),
        ("```bash\nfalse\necho on\n```", "ended 1, the page says 0"),
        ("```c\nint f(void) { return g(); }\n```", "cc ended 1"),
        ("```c\nint f(void) { int unused; return 0; }\n```", "unused"),
        ("```c\nint main(void) { return 3; }\n```", "block ended 3"),
        ("```json\n{'a': 1}\n```", "not json"),
        ("```toml\na = b\n```", "not toml"),
        ("```yaml\na: [\n```", "not yaml"),
        ("```xml\n<a>\n```", "not xml"),
    ],
    ids=[
        *("assertion", "python ends", "python syntax", "warning", "sh", "bash", "c undeclared"),
        *("c warning", "c ends 3", "json", "toml", "yaml", "xml"),
    ],
)
def test_red_block(tmp_path: Path, block: str, problem: str) -> None:
    (line,) = problems(tmp_path, block)
    assert line.startswith("page.md:4: ")
    assert problem in line


@pytest.mark.parametrize(
    "block",
    [
        "```python\nx = 1\nassert x == 1\n```\n\n```python\nassert x == 1\n```",
        "```python\nprint(1)\nprint(2)\n```\n\n```text printed\n1\n2\n```",
        "```sh\nif true; then exit 0; fi\n```",
        "```c\nint f(void) { return 0; }\n```",
        "```c\nint main(void) { return 0; }\n```",
        '```json\n{"a": 1}\n```',
        "```text\nanything\n```",
        "```python file=one.py\nprint(1)\n```\n\n```console run\n$ python one.py\n1\n```",
        "```python file=one.py\nx = 1\n```\n\n```python\nfrom pathlib import Path\n"
        "assert Path('one.py').read_text() == 'x = 1\\n'\n```",
    ],
    ids=["names", "printed", "sh", "c part", "c whole", "json", "text", "file run", "file read"],
)
def test_good_block(tmp_path: Path, block: str) -> None:
    assert problems(tmp_path, block) == []


def test_red_other_print_than_shown(tmp_path: Path) -> None:
    shown = "```text printed\n2\n```"
    expected = "page.md:8: not printed by the block before (here): 2"
    assert problems(tmp_path, "```python\nprint(1)\n```", shown) == [expected]


def test_red_file_that_no_command_uses(tmp_path: Path) -> None:
    block = "```python file=one.py\nraise SystemExit(1)\n```"
    expected = "page.md:4: no later block uses one.py"
    rest = "```console run\n$ true\n```", "```text\none.py\n```"
    assert problems(tmp_path, block, *rest) == [expected]


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```console\n$ false\n```", "neither run nor listed in tests/docs/not_run.py"),
        ("```console rum\n$ false\n```", "unknown word 'rum' after the language"),
        ("```cuda\nint f;\n```", "neither run nor listed in tests/docs/not_run.py"),
        ("```cuda run\nint f;\n```", "'run' after cuda"),
        ("```fish\nfalse\n```", "a block in 'fish' is neither executed nor known as data"),
        ("```\n$ false\n```", "a block in '' is neither executed nor known as data"),
        ("~~~pycon\n>>> 1\n~~~", "a block in 'pycon' is neither executed nor known as data"),
        ("```text\n$ false\n```", "a command in a block of data: $ false"),
        ("```text\nparity x\n```", "a command in a block of data: parity x"),
        ("* a\n\n    ```fish\n    ```", "a block in 'fish' is neither executed nor known as data"),
    ],
    ids=[
        *("not run", "misspelt", "cuda", "cuda run", "other language", "none", "tildes"),
        *("prompt", "command", "in a list"),
    ],
)
def test_red_block_that_nobody_runs(tmp_path: Path, block: str, problem: str) -> None:
    assert faults(tmp_path, block) == [problem]


def test_red_command_in_an_indented_block(tmp_path: Path) -> None:
    text = "Run:\n\n    parity demo\n\n```text\n\n    just red\n```\n\n    $ true\n\n    a text\n"
    page = page_with(tmp_path, text)
    assert indented_commands(page) == ["page.md:3: parity demo", "page.md:10: $ true"]


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```console\n$ false\n```", []),
        ("```python\nx\n```", []),
        ("```console run\n$ true\n```", ["listed as not run, and run"]),
        (
            "```text\nx\n```",
            ["data is never run: it needs no place in tests/docs/not_run.py"],
        ),
    ],
    ids=["console", "python", "run too", "data"],
)
def test_listed_block(tmp_path: Path, block: str, problem: list[str]) -> None:
    assert faults(tmp_path, block, listed=True) == problem


def test_red_runnable_block_without_command(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"page\.md:4: a runnable block starts"):
        problems(tmp_path, "```console run\nparity demo\n```")


@pytest.mark.parametrize(
    "text", ["```console run\n$ false\n", "```text\n$ a\n~~~\n"], ids=["open", "other fence"]
)
def test_red_fence_not_closed(tmp_path: Path, text: str) -> None:
    page = page_with(tmp_path, f"# Title\n\n{text}")
    with pytest.raises(ValueError, match=r"page\.md: line 3: this fence is not closed"):
        fences(page)


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[x](gone.md)", "gone.md: no such file"),
        ("[x](#gone)", "#gone: no such heading"),
        ("[x](other.md#gone)", "other.md#gone: no such heading"),
        ("[x](other.md#a-heading-2)", "other.md#a-heading-2: no such heading"),
        ("![x](gone.png)", "gone.png: no such file"),
        ("[x]: gone.md", "gone.md: no such file"),
        ("[x](other.md#parity.differ)", "other.md#parity.differ: no such heading"),
    ],
    ids=["file", "own heading", "other heading", "third of two", "image", "reference", "entry"],
)
def test_red_link(tmp_path: Path, link: str, problem: str) -> None:
    (tmp_path / "other.md").write_text("# A `heading`\n\n## A heading\n\n::: parity.diff\n")
    assert links.broken(page_with(tmp_path, link)) == [f"page.md: {problem}"]


@pytest.mark.parametrize(
    "link",
    [
        "[x](other.md)",
        "[x](other.md#a-heading)",
        "[x](other.md#a-heading-1)",
        "[x](other.md#parity.diff)",
        "[x](other.md#parity.diff.member)",
        "[x](https://example.org/gone)",
        "`[x](gone.md)`",
        "```\n[x](gone.md)\n```",
    ],
    ids=[
        *("file", "heading", "second of its name", "entry", "member", "web"),
        *("inline code", "fenced code"),
    ],
)
def test_good_link(tmp_path: Path, link: str) -> None:
    (tmp_path / "other.md").write_text("# A `heading`\n\n## A heading\n\n::: parity.diff\n")
    assert links.broken(page_with(tmp_path, link)) == []
