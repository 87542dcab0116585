"""docs/models.md: every test that its table names is there, and every option stands there."""

from __future__ import annotations

import re
from pathlib import Path

from parity.cli.options import MODEL, PROMPT, WEIGHTS
from parity.model.folder.config import ARCHITECTURES
from parity.model.gguf.names import FAMILIES
from parity.model.gguf.reading import SUPPORTED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def names_of_tests() -> set[str]:
    """Names of all test functions."""
    files = (ROOT / "tests").rglob("test_*.py")
    found = (re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE) for path in files)
    return {name for names in found for name in names}


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 30
    assert named - names_of_tests() == set()


def test_every_convention_names_a_test() -> None:
    table = PAGE.partition("| convention | what is done | test |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 15
    assert [row for row in rows if "`test_" not in row and "---" not in row] == []


def test_architectures_and_types_stand_there() -> None:
    short = {name.removesuffix("ForConditionalGeneration") for name in ARCHITECTURES}
    for name in (*FAMILIES, *SUPPORTED, *short):
        assert name in PAGE, name


def test_every_option_stands_there() -> None:
    for option in (MODEL, WEIGHTS, *PROMPT):

        def command() -> None:
            """Takes the option."""

        option(command)
        (made,) = command.__click_params__  # type: ignore[attr-defined]
        assert f"`{made.opts[0]}" in PAGE, made.opts
