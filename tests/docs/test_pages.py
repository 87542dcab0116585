"""The pages tell the truth: each block is executed or listed, links lead somewhere."""

from pathlib import Path

import pytest

from parity.cli.commands import cli
from tests.docs import links
from tests.docs.execute import Page
from tests.docs.fences import EXECUTED, Fence, fault, fences, indented_commands
from tests.docs.not_run import NOT_RUN

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    p.relative_to(ROOT).as_posix() for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
BLOCKS = {page: fences(ROOT / page, page) for page in PAGES}
SKIPPED = [block for page in PAGES for block in BLOCKS[page] if (page, block.name) in NOT_RUN]

ON_A_DEVICE = ["docs/howto/cuda-graph-differs.md"]  # the other pages show one machine's evidence


def is_listed(block: Fence) -> bool:
    """Whether a block is in the list of those that are not run."""
    return (block.page, block.name) in NOT_RUN


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert links.broken(ROOT / page) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_listed(page: str) -> None:
    faults = [(block.where, fault(block, is_listed(block))) for block in BLOCKS[page]]
    assert [f"{where}: {line}" for where, line in faults if line] == []
    assert indented_commands(ROOT / page) == []


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]])
def test_blocks_do_what_the_page_says(page: str, tmp_path: Path) -> None:
    for name in ("examples", "tests"):  # pages name files of the repository
        (tmp_path / name).symlink_to(ROOT / name)
    problems = Page(tmp_path).execute(b for b in BLOCKS[page] if not is_listed(b))
    assert not problems, "\n".join(problems)


@pytest.mark.gpu
@pytest.mark.parametrize("page", ON_A_DEVICE)
def test_blocks_that_need_a_device(page: str, tmp_path: Path) -> None:
    problems = Page(tmp_path).execute(BLOCKS[page])
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("block", SKIPPED, ids=lambda block: block.where)
def test_not_run(block: Fence) -> None:
    pytest.skip(f"docs: {NOT_RUN[block.page, block.name]}")


def test_each_name_in_the_list_is_that_of_one_block() -> None:
    assert sorted(NOT_RUN) == sorted((block.page, block.name) for block in SKIPPED)


def test_readme_shows_a_command_that_is_run() -> None:
    assert any(b.language in EXECUTED and not is_listed(b) for b in BLOCKS["README.md"])


def commands_without_a_row(readme: str) -> list[str]:
    """Return the commands that the table of a README leaves out."""
    rows = [line.split("|")[1] for line in readme.splitlines() if line.startswith("| `parity")]
    return [name for name in cli.commands if not any(f"`parity {name}" in row for row in rows)]


def test_readme_lists_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert commands_without_a_row(readme) == []
    assert commands_without_a_row(readme.replace("| `parity mathfn", "| `mathfn")) == ["mathfn"]
