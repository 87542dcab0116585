"""Damaged reports: refused in one line, or read as trees that every presenter can show."""

from __future__ import annotations

import io
import json
import random

import pytest

from parity.errors import InputError, ParityBug
from parity.presenting import Options, require_consistent
from parity.registry import REPORTS, plugins
from parity.tree import Tree
from tests.core.mutations import BUDGET, SEED, altered, mutated
from tests.core.test_tree import full

TEXT = full().to_json()
WORDS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"null",
        b"true",
        b"1e999",
        b"NaN",
        b"-1",
        b"9" * 5000,
    ),
    *(b"[" * 2000, b'"\\ud800"', b"\xff", b"\0", b'"bit"', b'"t0_l0_x"', b'"key"', b"\\u0000"),
]


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Chance from a seed that a failing test prints."""
    print(f"PARITY_FUZZ_SEED={SEED} PARITY_FUZZ={BUDGET}")
    return random.Random(f"{request.node.name} {SEED}")


def read(text: str) -> Tree | None:
    """The tree, None where it was refused; a refusal is one printable line and a next step."""
    try:
        return Tree.from_json(text, "run.json")
    except InputError as error:
        found = error
    assert found.message.startswith("run.json: ")
    assert found.message.isprintable()
    assert found.next_step
    return None


def test_damaged_text_is_refused_or_read(chance: random.Random) -> None:
    refused = 0
    for _ in range(BUDGET // 2):
        text = mutated(TEXT.encode(), WORDS, chance).decode("utf-8", "replace")
        print(text)
        refused += read(text) is None
    assert refused > BUDGET // 10


def test_a_tree_with_other_values_is_refused_or_shown(chance: random.Random) -> None:
    body = json.loads(TEXT)
    presenters = [found.load()() for found in plugins(REPORTS).values()]
    read_trees = refused = 0
    for _ in range(BUDGET):
        text = json.dumps(altered(body, chance))
        print(text)
        tree = read(text)
        if tree is None:
            refused += 1
            continue
        read_trees += 1
        assert Tree.from_json(tree.to_json()) == tree
        if read_trees % 4 == 0 and consistent(tree):
            for presenter in presenters:
                presenter.write(tree, io.StringIO(), Options())
    assert min(read_trees, refused) > BUDGET // 20


def consistent(tree: Tree) -> bool:
    """Whether ``write_report`` would hand the tree to a presenter."""
    try:
        require_consistent(tree)
    except ParityBug:
        return False
    return True
