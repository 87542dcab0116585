"""Every cell of a panel is what stands in the JSON; one shown otherwise is seen, by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.runs.checks import CheckRun
from parity_reports import html_checks, html_gate, html_ladder, html_probes, html_shell
from parity_reports.html_checks import render
from tests.reports import check_records as made
from tests.reports import panel_faults as faults
from tests.reports.check_records import Record, run_of
from tests.reports.html_tables import tables


def page(folder: Path, *records: Record) -> str:
    return render(run_of(folder, list(records)))


def sides(html: str, record: Record) -> list[str]:
    """The headers of a gate."""
    told = [record["base"], record["candidate"]]
    return faults.sides(html, ["base", "candidate"], told)


CHECKS: dict[str, tuple[Callable[[], Record], Callable[[str, Record], list[str]]]] = {
    "grid": (made.isodiff, faults.grid),
    "costs": (made.isodiff, faults.costs),
    "rollback": (made.rollback, faults.rollback),
    "chunks": (made.chunks, faults.chunks),
    "ladder": (made.ladder, faults.ladder),
    "equality": (made.gate, faults.equality),
    "refused equality": (made.refused_gate, faults.equality),
    "timing": (made.gate, faults.timing),
    "sides": (made.gate, sides),
    "promises": (made.conformance, faults.promises),
    "selftest": (made.selftest, faults.selftest),
}


@pytest.mark.parametrize("name", CHECKS)
def test_cells_are_those_of_the_json(name: str, tmp_path: Path) -> None:
    record, check = CHECKS[name]
    assert check(page(tmp_path, record()), record()) == []


def test_controls_of_several_probes_stand_together(tmp_path: Path) -> None:
    records = [made.isodiff(), made.rollback()]
    assert faults.controls(page(tmp_path, *records), records) == []


def test_headers_of_a_ladder_are_of_the_ref_and_every_rung(tmp_path: Path) -> None:
    record = made.ladder()
    told = [record["ref"], *(rung["dut"] for rung in record["rungs"])]
    assert faults.sides(page(tmp_path, record), ["ref", "fast", "exact"], told) == []


def test_provenance_holds_code_mask_and_packages(tmp_path: Path) -> None:
    shown = {row.texts[0]: row.texts[1:] for row in tables(page(tmp_path, made.gate()))["sides"]}
    assert shown["compiled"] == ["29440e74c581d06c", "the same"]
    assert shown["mask"] == ["0000", "0002"]
    assert shown["packages"] == ["parity=1.0 numpy=2.0", "the same"]


def test_a_block_of_many_seeds_has_a_table_each(tmp_path: Path) -> None:
    blocks = [made.block(2, 5, [0, 0], seed=seed) for seed in (7, 8, 9)]
    record = made.probe("isodiff", blocks=blocks)
    html = page(tmp_path, record)
    assert faults.grid(html, record) == []
    assert [f"Seed {seed}</h3>" in html for seed in (7, 8, 9, 10)] == [True, True, True, False]


@pytest.mark.parametrize("m", [12, 13, 64])
def test_a_wide_block_goes_downwards(m: int, tmp_path: Path) -> None:
    logits = [*range(m - 1), None]
    red = made.block(m, 9, logits, telling=True, verdict="diverged", state="l0_k", keys=[1] * m)
    record = made.probe("isodiff", blocks=[made.block(m, 8, [0] * m), red])
    html = page(tmp_path, record)
    assert faults.grid(html, record) == []
    assert len(tables(html)[f"grid-7-{m}"]) == (3 if m == 12 else 1 + m + 2)


def test_large_numbers_have_commas_and_long_lists_a_button(tmp_path: Path) -> None:
    cells = {"keys": ""}
    drafts = [{"seed": 7, "m": 8, "what": f"check {at}", "cells": cells} for at in range(1234)]
    record = {**made.rollback(), "drafts": drafts}
    html = page(tmp_path, record)
    assert len(tables(html)["drafts"]) == 1 + html_checks.LISTED
    assert f"1,234 checks; this file lists the first {html_checks.LISTED}" in html
    fed = [{"seed": 7, "size": 2, "way": "rows", "keys": 1234567, "equal": 1234567}]
    record = made.probe("chunks", fed=fed)
    assert faults.chunks(page(tmp_path, record), record) == []
    assert "1,234,567 of 1,234,567" in page(tmp_path, record)


# What is shown otherwise is seen


def tampered(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Plant a fault in the templates."""
    true = html_shell.asset.__wrapped__

    def changed(name: str) -> str:
        text = true(name)
        if name == "panels.html.j2":
            assert text.count(old) == 1
            return text.replace(old, new)
        return text

    monkeypatch.setattr(html_shell, "asset", changed)
    monkeypatch.setattr(html_shell, "environment", html_shell.environment.__wrapped__)


def test_red_a_red_cell_shown_green_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_probes.Cell, "differs", property(lambda cell: False))
    wrong = faults.grid(page(tmp_path, made.isodiff()), made.isodiff())
    assert wrong[:3] == [
        "grid-7-3 pos 34 rows row 1 differs: False shown, True recorded",
        "grid-7-3 pos 34 rows row 1 dim: True shown, False recorded",
        "grid-7-3 pos 34 rows row 1 first: False shown, True recorded",
    ]
    assert "grid-7-3 pos 34 rows row 2 differs: False shown, True recorded" in wrong
    where = "grid-7-3 pos 33 single steps without a tap row"
    assert f"{where} 2 differs: False shown, True recorded" in wrong


def test_red_a_key_that_differs_under_equal_logits_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_probes.Cell, "differs", property(lambda cell: cell.logits != 0))
    assert faults.grid(page(tmp_path, made.isodiff()), made.isodiff()) == [
        "grid-7-3 pos 34 rows row 2 differs: False shown, True recorded",
        "grid-7-3 pos 34 rows row 2 dim: True shown, False recorded",
    ]


def test_red_rows_in_the_places_of_others_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = html_probes._line

    def swapped(block: Record) -> Any:
        return true({**block, "logits": block["logits"][::-1], "keys": block["keys"][::-1]})

    monkeypatch.setattr(html_probes, "_line", swapped)
    wrong = faults.grid(page(tmp_path, made.isodiff()), made.isodiff())
    assert wrong[0] == "grid-7-3 pos 34 rows row 0: '0 3 keys' shown, '0' recorded"


TEMPLATE = {
    "state always equal": (
        *("grid", '{{ after(line.state, " pad") }}', '{{ after("", " pad") }}'),
        "grid-7-3 pos 34 rows state: 'equal' shown, 'l0_k row 35' recorded",
    ),
    "a difference of a draft": (
        *("rollback", "{{ equal(draft.cells[name]) }}", '{{ equal("") }}'),
        "M 4 accept 1 further: 'equal' shown, 'DIFF at step 2' recorded",
    ),
    "a difference by M": (
        "rollback",
        '{% elif text == "equal" %}<td class="nw">',
        '{% elif text != "not run" %}<td class="nw">',
        "M 4 8 further steps: 'equal' shown, 'DIFF at step 2' recorded",
    ),
    "what was not run": (
        *("rollback", '{% elif text == "not run" %}', '{% elif text == "skipped" %}'),
        "M 4 keys icon: 'no' shown, 'dash' recorded",
    ),
    "a broken rule": (
        *("rollback", 'yes(not rule.problem, "yes"', 'yes(true, "yes"'),
        "rule a mark at position 0 held: 'yes' shown, 'was refused: no mark' recorded",
    ),
    "a refused chunk": (
        *("chunks", "{{ ui.dash() }} not run: {{ one.refused }}", '{{ equal("") }}'),
        "chunk 100 rows: ['7', '100', 'rows', '', 'equal'] shown, "
        "['7', '100', 'rows', '', 'not run: 100 rows in one forward'] recorded",
    ),
    "a promise": (
        *("promises", 'yes(false, "", "broken")', 'yes(true, "kept", "")'),
        "reset_forgets: ['reset_forgets', 'kept', 'other logits at step 2'] shown, "
        "['reset_forgets', 'broken', 'other logits at step 2'] recorded",
    ),
    "a missed fault": (
        *("selftest", "yes(one.caught, one.want", "yes(true, one.want"),
        "same bytes, dumps: 'quiet' shown, 'ALARM' recorded",
    ),
    "a slower pair": (
        *("timing", "{{ number(one.signs.slower) }}", "{{ number(one.signs.ties) }}"),
        "M 1: ['1', '4.00 (3.60 to 4.40)', '3.20 (2.88 to 3.52)', '0.800', '0.800 to 0.830', "
        "'3', '0', '0'] shown, ['1', '4.00 (3.60 to 4.40)', '3.20 (2.88 to 3.52)', '0.800', "
        "'0.800 to 0.830', '3', '1', '0'] recorded",
    ),
    "who went first": (
        *("timing", '"candidate" if pair.candidate_first', '"candidate" if true'),
        "pair 1, M 1: ['1', '7', '1', 'candidate', '4,000,000', '3,200,000'] shown, "
        "['1', '7', '1', 'base', '4,000,000', '3,200,000'] recorded",
    ),
    "a refused candidate": (
        "refused equality",
        "{% set wrong = seed.problem if seed.problem and seed.problem.singly else none %}",
        "{% set wrong = none %}",
        "seed 7 single steps: ['7', 'single steps', 'diverged', '236 of 1,840', '', '', '', "
        "'none planted'] shown, ['7', 'single steps', 'a key differs, first t0_l0_nrm', "
        "'236 of 1,840', '', '', '', 'none planted'] recorded",
    ),
    "the rung that decides": (
        "ladder",
        '{% set one = rung.found %}\n<tr{% if loop.last %} class="hot"',
        '{% set one = rung.found %}\n<tr{% if loop.first %} class="hot"',
        "rung fast decides: True shown, False recorded",
    ),
}


@pytest.mark.parametrize("name", TEMPLATE)
def test_red_a_template_that_shows_otherwise_is_seen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, old, new, fault = TEMPLATE[name]
    tampered(monkeypatch, old, new)
    record, found = CHECKS[check]
    assert fault in found(page(tmp_path, record()), record())


def test_red_a_flip_at_another_place_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_ladder, "WIDTH", 50.0)
    assert faults.ladder(page(tmp_path, made.ladder()), made.ladder()) == [
        "rung fast track: ['37.5%', '37.5%'] shown, ['75.0%', '75.0%'] recorded"
    ]


def test_red_headers_of_the_wrong_side_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = made.gate()
    swapped = {**record, "base": record["candidate"], "candidate": record["base"]}
    wrong = sides(page(tmp_path, swapped), record)
    assert "header mask: ['0002', '0000'] shown, ['0000', '0002'] recorded" in wrong


# The plot of a gate


def place(found: html_gate.Ratios, ratio: float) -> float:
    """Where a ratio stands on the axis, from the ticks alone."""
    first, last = found.ticks[0], found.ticks[-1]
    low, high = float(first.text), float(last.text)
    return first.place + (ratio - low) / (high - low) * (last.place - first.place)


def plot_faults(found: html_gate.Ratios, record: Record) -> list[str]:
    """Dots, medians and intervals that do not stand where the axis says they are."""
    wrong, statistics = [], record["statistics"]
    summaries = {**statistics["by_size"], "all": statistics["all"]}
    for strip in found.strips:
        ratios = [
            pair["candidate"] / pair["base"]
            for pair in record["timing"]["pairs"]
            if str(pair["size"]) == strip.name
        ]
        one = summaries[strip.name]
        wanted = [*ratios, one["ratio"]]
        shown = [*strip.dots, strip.median]
        if strip.interval is not None:
            wanted += [one["interval"]["low"], one["interval"]["high"]]
            shown += strip.interval
        elif one["interval"]["low"] is not None:
            wrong.append(f"{strip.name}: no interval shown")
        for at, (dot, ratio) in enumerate(zip(shown, wanted, strict=True)):
            if abs(dot - place(found, ratio)) > 0.01:
                wrong.append(f"{strip.name} mark {at}: {ratio} at {dot}")
    return wrong


def gate_plot(folder: Path) -> tuple[html_gate.Ratios, Record]:
    record = run_of(folder, [made.gate()]).records[0]
    pairs, margin = record["timing"]["pairs"], record["settings"]["margin"]
    return html_gate.ratios(record["statistics"], pairs, margin), dict(record)


def test_marks_of_the_plot_stand_where_the_axis_says(tmp_path: Path) -> None:
    found, record = gate_plot(tmp_path)
    assert [strip.name for strip in found.strips] == ["1", "4", "all"]
    assert plot_faults(found, record) == []
    assert abs(found.one - place(found, 1)) < 0.01
    assert [
        abs(edge - place(found, at)) < 0.01
        for edge, at in zip(found.margin, (0.99, 1.01), strict=True)
    ] == [True, True]
    marks = [mark for strip in found.strips for mark in (*strip.dots, strip.median)]
    assert all(0 < mark < 100 for mark in [*marks, *found.margin])
    assert found.strips[1].interval is None
    texts = [float(tick.text) for tick in found.ticks]
    assert texts == sorted(texts)
    assert len(set(tick.text for tick in found.ticks)) == len(texts) > 2


def test_red_a_dot_that_stands_elsewhere_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = html_gate._strip

    def moved(name: str, found: list[float], timing: Record, place: Any) -> html_gate.Strip:
        return true(name, [1 / ratio for ratio in found], timing, place)

    monkeypatch.setattr(html_gate, "_strip", moved)
    found, record = gate_plot(tmp_path)
    wrong = plot_faults(found, record)
    assert len(wrong) == 4
    assert wrong[0].startswith("1 mark 0: 0.8 at ")


def test_the_plot_is_drawn_from_those_places(tmp_path: Path) -> None:
    found, _ = gate_plot(tmp_path)
    html = page(tmp_path, made.gate())
    for strip in found.strips:
        assert html.count(f'class="median" x1="{strip.median}%" x2="{strip.median}%"') >= 1
        assert all(f'<circle class="dot" cx="{dot}%"' in html for dot in strip.dots)
    assert html.count('class="interval"') == 2
    assert html.count('class="dot"') == 4


def test_equal_ratios_still_have_an_axis() -> None:
    statistics = made.gate()["statistics"]
    same = {"1": made.timing(1.0, 1.0, 1.0)}
    pairs = [{"size": 1, "base": 5, "candidate": 5}]
    found = html_gate.ratios({**statistics, "all": same["1"], "by_size": same}, pairs, 0.0)
    assert [strip.dots for strip in found.strips] == [[50.0], []]
    assert len(found.ticks) > 1


def test_decision_holds_settings_test_and_evidence(tmp_path: Path) -> None:
    html = page(tmp_path, made.gate())
    text = " ".join(html.replace("<i>", "").replace("</i>", "").split())
    for word in (
        "sign test: 3 of 4 pairs faster, 1 slower, p = 0.5",
        "order statistics, ranks 1 and 4 of 4; coverage at least 0.95, here 0.9609",
        "the same speed: the whole interval within 1 % of 1",
        "g, entry 2 of 2026-01-31T12:00:00Z",
        made.HEX,
        "Linux, Python 3.11.7, 2 processors",
        "a note",
    ):
        assert word in text
    row = tables(html)["corrected"][1]
    assert row.texts == ["1", "0.790", "0.840", "0.9609"]
    refused = page(tmp_path, made.refused_gate())
    assert "corrected" not in tables(refused)


def test_no_panel_of_another_file(tmp_path: Path) -> None:
    """A record of each kind gives the tables of its kind alone."""
    own = {
        "ladder": {"rungs", "sides"},
        "conformance": {"promise-table"},
        "selftest": {"fault-table", "trials"},
        "chunks": {"fed", "control-faults", "sides"},
    }
    for kind, names in own.items():
        assert set(tables(page(tmp_path, *made.ALL[kind]))) == names
    assert isinstance(run_of(tmp_path, made.ALL["gate"]), CheckRun)


def test_batches_are_listed_with_what_differs(tmp_path: Path) -> None:
    found = tables(page(tmp_path, made.batch()))
    assert set(found) == {"by-batch", "sequences", "sides"}
    head = ["B", "Neighbours", "Index", "Sequences that differ", "First key", "Neighbours' tokens"]
    assert found["by-batch"][0].texts == head
    assert [row.texts for row in found["by-batch"][1:]] == [
        ["2", "copies", "0", "equal", "", "not compared"],
        ["2", "other prompts tried", "1", "equal", "", "equal"],
        ["2", "ragged", "0", "1 of 2", "t0_l0_attn", "not compared"],
        ["3", "other prompts", "0", "equal", "", "t1_l0_k changes"],
        ["4", "ragged", "3", "not comparable", "", "not compared"],
    ]
    every = [row.texts for row in found["sequences"][1:]]
    assert len(every) == 10
    red = ["7", "2", "ragged", "0", "0", "5", "82", "1,003", "92 of 184", "t0_l0_attn"]
    assert every[4] == red
    assert every[5] == ["7", "2", "ragged", "0", "1", "87", "0", "0", "0 of 184", "none"]
