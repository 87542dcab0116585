"""What the probes write down block by block is what they published and judged."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from parity.errors import InputError
from parity.runs.probe import FORMAT, VERSION, Block, Found
from parity.status import Verdict
from parity_probes import isodiff
from parity_probes.chunks import Chunks
from parity_probes.isodiff import Isodiff
from parity_probes.rollback import Rollback
from tests.probes.asking import ask_for, run_probe
from tests.red import rollback_faults, row_faults

NDIFF = re.compile(r"\[SPECTOP1\] pos=(\d+) col=(\d+) .* ndiff=(\d+)")


def published(found: Found) -> list[tuple[int, int, int]]:
    """Position, column and logits that differ, line by line."""
    read = (NDIFF.match(line) for line in found.lines)
    return [(int(one[1]), int(one[2]), int(one[3])) for one in read if one]


def in_blocks(found: Found) -> list[tuple[int, int, int | None]]:
    """The same from the blocks that were asked for."""
    return [
        (block.pos, row, count)
        for block in found.blocks
        if block.how == isodiff.ROWS and block.asked
        for row, count in enumerate(block.logits)
    ]


def test_equal_blocks_are_all_there_and_equal() -> None:
    found = run_probe(Isodiff, "cpu", ask_for("dense-tiny", (2, 3), (4, 5)))
    assert published(found) == in_blocks(found)
    tapped = [block for block in found.blocks if block.how == isodiff.ROWS]
    assert [(block.m, block.pos) for block in tapped] == [(2, 4), (2, 5), (3, 4), (3, 5)]
    for block in found.blocks:
        assert block.verdict is Verdict.SAME
        assert block.logits == [0] * block.m
        assert block.keys == ([0] * block.m if block in tapped else [])
        assert (block.state, block.further, block.first) == ("", "", None)
        assert not block.telling
    untapped = [(block.m, block.pos, block.how) for block in found.blocks if block not in tapped]
    assert untapped == [
        (size, 4, f"{what} without a tap")
        for size in (2, 3)
        for what in (isodiff.ROWS, "single steps")
    ]
    assert [one.fired for one in found.controls] == [True]


def test_red_a_differing_row_is_written_down_as_published() -> None:
    ask, options = ask_for("moe-tiny", (2, 4), (3,)), {"fault": "key_too_few"}
    found = run_probe(Isodiff, row_faults.OnCpu, ask, options=options)
    assert found.verdict is Verdict.DIVERGED
    assert published(found) == in_blocks(found)
    telling = [block for block in found.blocks if block.telling]
    assert [(block.m, block.pos, block.how) for block in telling] == [(2, 3, isodiff.ROWS)]
    assert telling[0].first == found.first
    assert telling[0].logits[0] == telling[0].keys[0] == 0
    assert all(count for count in (telling[0].logits[1], telling[0].keys[1]))
    assert telling[0].state
    assert found.controls == []


def test_a_smaller_size_that_was_tried_is_marked() -> None:
    ask, options = ask_for("moe-tiny", (8,), (3,)), {"fault": "split_by_rows"}
    found = run_probe(Isodiff, row_faults.OnCpu, ask, options=options)
    asked = {block.m: block.asked for block in found.blocks if block.how == isodiff.ROWS}
    assert asked == {8: True, 2: False, 3: False, 4: False, 5: False}
    assert [(block.m, block.pos) for block in found.blocks if block.telling] == [(5, 3)]
    assert published(found) == in_blocks(found)


@pytest.mark.parametrize("engine", ["cpu", rollback_faults.SkipsHist], ids=["true", "red"])
def test_the_table_of_rollback_is_made_of_its_drafts(engine: Any) -> None:
    found = run_probe(Rollback, engine, ask_for("hybrid-tiny", (2, 3), (5,)))
    grid = found.grid
    assert grid is not None
    heads = [*grid.heads[1:-1], "further"]
    for row in grid.rows:
        mine = [draft.cells for draft in found.drafts if str(draft.m) == row[0]]
        for name, text in zip(heads, row[1:], strict=True):
            told = [cells[name] for cells in mine if name in cells]
            differs = any(told)
            assert (text != "equal") == differs, (row[0], name)
    wrong = [draft.problem for draft in found.drafts if draft.problem]
    assert bool(wrong) == (found.verdict is Verdict.DIVERGED) == (engine != "cpu")
    assert all(one.fired for one in found.controls)
    assert bool(found.rules) == (engine == "cpu")
    assert not any(rule.problem for rule in found.rules)


def test_prompts_in_chunks_are_written_down() -> None:
    found = run_probe(Chunks, "cpu", ask_for("dense-tiny", (2,), (0,), chunks=(16, 65)))
    told = [(one.size, one.way, one.problem) for one in found.fed if not one.refused]
    assert {(16, "prefill", ""), (16, "rows", "")} <= set(told)
    assert sum(one.keys for one in found.fed) == found.compared
    assert all(one.keys == one.equal for one in found.fed)
    refused = [one for one in found.fed if one.refused]
    assert [(one.size, one.way, one.keys) for one in refused] == [(65, "rows", 0)]
    assert [one.fired for one in found.controls] == [True]


def test_a_record_comes_back_whole() -> None:
    found = run_probe(Isodiff, "cpu", ask_for("dense-tiny", (2,), (4,)))
    again = Found.of_record(json.loads(found.to_json()), "x.json")
    assert again == found
    assert again.blocks[0] == Block(**json.loads(found.to_json())["blocks"][0])


def record(**changes: Any) -> dict[str, Any]:
    """A small record, changed."""
    found = Found("isodiff", Verdict.SAME, "x", blocks=[Block(7, 1, 0, "rows", Verdict.SAME, [0])])
    return {**json.loads(found.to_json()), **changes}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (record(version=2), f"x.json: version 2 of {FORMAT}, this parity reads 3 to {VERSION}"),
        (record(version=6), f"x.json: version 6 of {FORMAT}, this parity reads 3 to {VERSION}"),
        (record(compared="1"), "x.json: damaged: compared: a value of another kind"),
        (record(news=1), "x.json: damaged: an unknown field, or a value of another kind"),
        (record(verdict="green"), "x.json: damaged: an unknown field, or a value of another kind"),
        (record(facts=[["a"]]), "x.json: damaged: an unknown field, or a value of another kind"),
        (record(grid={"heads": []}), "x.json: damaged: an unknown field, or a value of another"),
    ],
)
def test_red_a_record_that_is_none_is_refused_by_name(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as raised:
        Found.of_record(body, "x.json")
    assert raised.value.message.startswith(problem)
