"""The pages tell the truth: their commands print what they show, their links lead somewhere."""

from pathlib import Path

import pytest

from tests.docs import console, links

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    p.relative_to(ROOT).as_posix() for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert links.broken(ROOT / page) == []


@pytest.mark.parametrize("page", PAGES)
def test_runnable_commands(page: str, tmp_path: Path) -> None:
    # One folder for a page: a later command may use what an earlier one wrote.
    problems = [line for c in console.commands(ROOT / page) for line in console.run(c, tmp_path)]
    assert not problems, "\n".join(problems)


def test_readme_has_a_runnable_command() -> None:
    assert console.commands(ROOT / "README.md")
