"""The divergence tree's JSON form."""

from __future__ import annotations

import json

import pytest

from parity.errors import InputError
from parity.status import Level, Verdict
from parity.tree import (
    Control,
    Counts,
    ElementRow,
    Elements,
    KeyRow,
    KeyState,
    Search,
    StateDiff,
    StatePart,
    Tree,
)

ROW = KeyRow("t0_l1_x", KeyState.DIFFERS, "00ff f32[4]", "01ff f32[4]", "B.redo")
ELEMENT = ElementRow((0, 3), "3f800000", "7fc00000", "+1.0", "NaN", None, "NaN in dut")


def full() -> Tree:
    """A tree in which every field holds something."""
    return Tree(
        verdict=Verdict.DIVERGED,
        first="t0_l1_x",
        counts=Counts(ref=3, dut=3, same=1, differ=1, missing=1, extra=1, not_comparable=2),
        level=Level.GREEDY,
        level_asked=Level.LOGITS,
        ref={"engine": "cpu", "spec": "caf\u00e9 <a>&[red]"},
        dut={"engine": "cuda"},
        reason="contaminated start",
        run={"model": "moe-tiny"},
        keys=[ROW, KeyRow("t0_logits", KeyState.MISSING, "00ff", None)],
        elements=Elements(
            *("t0_l1_x", "f32[2,4]", "f32[2,4]", 8, 1, None, "ULP"),
            *([("NaN in dut", 1)], [(0, 1)], [ELEMENT], "a note"),
        ),
        inputs=[KeyRow("t0_l1_ores", KeyState.SAME, "00", "00")],
        states=[
            StateDiff("start", [StatePart("l0_ks", 4, 1, 3, "row 3")], "l0_ks row 3"),
            StateDiff("end", [StatePart("lengths", 1, 0, None)], None),
        ],
        decode=Tree(
            *(Verdict.SAME, None, Counts(1, 1, 1, 0, 0, 0), Level.BIT, Level.BIT, {}, {}),
            keys=[ROW],
        ),
        control=Control("inject", True, "t0_l0_x", "t0_l0_x", 12),
        search=Search("t0_l1", 22, 24, 4),
        greedy=[(0, 7, 7), (1, 8, 9)],
        notes=["emulated"],
        reproduce="parity diff",
        seconds=1.5,
    )


def bare() -> Tree:
    counts = Counts(0, 0, 0, 0, 0, 0)
    return Tree(Verdict.NOT_RUN, None, counts, Level.NONE, Level.BIT, {}, {})


@pytest.mark.parametrize("tree", [full(), bare()], ids=["full", "bare"])
def test_a_tree_survives_json(tree: Tree) -> None:
    back = Tree.from_json(tree.to_json())
    assert back == tree
    assert back.to_json() == tree.to_json()


def test_types_survive_json() -> None:
    back = Tree.from_json(full().to_json())
    assert back.verdict is Verdict.DIVERGED
    assert back.elements is not None
    assert back.elements.rows[0].index == (0, 3)
    assert [state.equal for state in back.states] == [False, True]
    assert back.counts.total == 6


def test_the_json_names_its_format_and_version() -> None:
    body = json.loads(full().to_json())
    assert list(body)[:2] == ["format", "version"]
    assert (body["format"], body["version"]) == ("parity-divergence", 4)


def without(name: str) -> str:
    body = json.loads(full().to_json())
    del body[name]
    return json.dumps(body)


def with_value(name: str, value: object) -> str:
    return json.dumps({**json.loads(full().to_json()), name: value})


DAMAGED = {
    "not JSON": ("{", "not JSON"),
    "a list": ("[]", "not a parity-divergence file"),
    "another format": (with_value("format", "x"), "not a parity-divergence file"),
    "another version": (with_value("version", 5), "version 5"),
    "no verdict": (without("verdict"), "damaged"),
    "unknown verdict": (with_value("verdict", "fine"), "damaged"),
    "unknown field": (with_value("more", 1), "damaged"),
    "short greedy row": (with_value("greedy", [[1, 2]]), "damaged"),
    "short key row": (with_value("keys", [["t0_x"]]), "damaged"),
    "counts as a list": (with_value("counts", [1]), "damaged"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_anything_else_is_refused_with_the_files_name(name: str) -> None:
    text, what = DAMAGED[name]
    with pytest.raises(InputError) as caught:
        Tree.from_json(text, "run.json")
    assert caught.value.message.startswith("run.json: ")
    assert what in caught.value.message
