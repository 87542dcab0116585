"""The profile on the console, in Markdown and in HTML, against the tree it was made of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from parity.profiles import Profile
from parity.status import Verdict
from parity.tree import Tree
from parity_reports import html_profile, markdown_report, profiling
from parity_reports.console import ConsoleReport
from parity_reports.html_report import render
from parity_reports.screen import HEIGHT, Screen
from tests.reports import html_page, trees
from tests.reports.html_tables import tables
from tests.reports.profiles import profile

JUDGED = pytest.mark.parametrize("build", [trees.agreed, trees.beyond], ids=["agreed", "beyond"])


def show(tree: Tree, **screen: int) -> list[str]:
    """The lines of the console."""
    return ConsoleReport().render(tree, Screen(**screen)).splitlines()


def unjudged() -> Tree:
    """A red run of one order of addition, measured for ``--profile``."""
    found = profile()
    rows = [replace(row, bound=None) for row in found.rows]
    return replace(trees.explained(), profile=replace(found, rows=rows, judged=False, worst="l8_x"))


def deep(layers: int, build: Callable[[], Tree] = trees.agreed) -> Tree:
    """A profile of many layers."""
    tree = build()
    return replace(tree, profile=profile(tuple(range(layers))))


# --- console --------------------------------------------------------------------------------------


def test_the_first_line_says_what_was_not_expected_and_what_agrees() -> None:
    assert show(trees.agreed())[0] == (
        "SAME  at level greedy, bits not expected: every field within its bound"
    )
    assert show(trees.beyond())[0] == (
        "DIVERGED  bits not expected, outside the bound, first at t33_l7_attn"
    )


@pytest.mark.parametrize("layers", [3, 12, 48, 300])
@pytest.mark.parametrize(
    "build", [trees.agreed, trees.beyond, unjudged], ids=["agreed", "beyond", "unjudged"]
)
def test_it_fits_one_screen(build: Callable[[], Tree], layers: int) -> None:
    tree = build()
    assert tree.profile is not None
    more = replace(tree.profile, rows=profile(tuple(range(layers))).rows)
    if not tree.profile.judged:
        more = replace(more, rows=[replace(row, bound=None) for row in more.rows])
    lines = show(replace(tree, profile=more))
    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= 80
    # Births and elements of a run that was explained come first; its profile is told in one line.
    assert any(line.split()[:1] == ["layer" if more.judged else "profile"] for line in lines)


def test_a_line_a_layer_and_what_is_left_out_is_counted() -> None:
    lines = [line.split() for line in show(deep(48))]
    begin = lines.index(["layer", *" ".join(profiling.HEADS[1:]).split()])
    end = next(at for at, words in enumerate(lines) if words[1:3] == ["more", "layers"])
    named = [words[0] for words in lines[begin + 1 : end]]
    assert named == sorted(named, key=lambda name: 99 if name == "after" else int(name))
    assert (named[0], named[-1]) == ("0", "after")
    assert lines[end][0] == str(49 - len(named))


@pytest.mark.parametrize("most", range(1, 14))
def test_the_worst_layer_is_never_left_out(most: int) -> None:
    found = profile(tuple(range(30)))
    worst = next(at for at, row in enumerate(found.rows) if row.name == "l17_attn")
    rows = [replace(row, relative=1.0) if at == worst else row for at, row in enumerate(found.rows)]
    lines = profiling.layer_lines(replace(found, rows=rows))
    chosen = profiling.chosen(lines, most)
    assert len(chosen) == most
    assert "17" in [line.name for line in chosen]
    assert [line.name for line in lines if line in chosen] == [line.name for line in chosen]


def test_every_figure_of_a_line_is_the_trees() -> None:
    lines = show(trees.beyond(), height=60)
    row = next(line for line in lines if line.split()[:1] == ["7"])
    assert row.split() == [
        *("7", "0", "of", "12", "8,192", "2.0e-03", "4.0e-03", "2.2e-05"),
        *("t33_l7_attn", "[17]"),
    ]
    said = "first beyond its bound: l7_attn 2.0e-03 at t33_l7_attn [17],"
    assert any(said in line for line in lines)
    assert any("ULP of f32; bounds for f32" in line for line in lines)


def test_without_bounds_there_is_no_word_of_one() -> None:
    text = "\n".join(show(unjudged(), height=60))
    assert "largest difference: l8_x" in text
    assert "bound" not in text


def test_what_has_no_measure_is_said() -> None:
    found = profile()
    row = replace(found.rows[4], unmeasured=4, ref_dtype="int8", outside="t33_l7_attn")
    changed = replace(found, rows=[*found.rows[:4], row, *found.rows[5:]], worst="l7_attn")
    changed = replace(changed, outside="t33_l7_attn")
    text = " ".join("\n".join(show(replace(trees.beyond(), profile=changed), height=60)).split())
    assert "first beyond its bound: l7_attn has no common measure (ref int8, dut f32)" in text


def test_red_a_control_that_was_not_seen_is_said() -> None:
    tree = trees.agreed()
    assert tree.control is not None
    control = replace(tree.control, fired=False, found=None)
    text = "\n".join(show(replace(tree, control=control)))
    assert "did not fire: 3 times the bound at t34_l7_x element 12, not found" in text
    assert show(replace(tree, control=control))[0].endswith("control did not fire")


# --- Markdown -------------------------------------------------------------------------------------


@JUDGED
def test_markdown_has_a_row_a_layer(build: Callable[[], Tree]) -> None:
    tree = build()
    assert tree.profile is not None
    text = markdown_report.render(tree)
    rows = [line for line in text.splitlines() if re.match(r"\| (\d+|after) \|", line)]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == ["6", "7", "8", "after"]
    worst = profiling.layer_lines(tree.profile)[1].worst
    assert f"`{worst.key} [17]`" in rows[1]


# --- HTML -----------------------------------------------------------------------------------------


def profile_faults(html: str, tree: Tree) -> list[str]:
    """Cells and marks of the panel that are not what the tree holds."""
    found = tree.profile
    assert found is not None
    wrong = []
    shown = tables(html)
    lines = profiling.layer_lines(found)
    for line, row in zip(lines, shown["profile-layers"][1:], strict=True):
        if row.texts != list(profiling.cells(line, found.judged)):
            wrong.append(f"layer {line.name}: {row.texts}")
        if row.hot != bool(line.worst.outside):
            wrong.append(f"layer {line.name}: set off or not")
    by_name = {row.texts[0]: row for row in shown["profile-fields"][1:]}
    for one in found.rows:
        cells = by_name[one.name].texts
        if cells[1] != one.ref_dtype or cells[5] != profiling.figure(one.max_diff):
            wrong.append(f"field {one.name}: {cells}")
        if by_name[one.name].hot != bool(one.outside):
            wrong.append(f"field {one.name}: set off or not")
    marks = len(re.findall(r'class="range"', html))
    if marks != len(lines):
        wrong.append(f"{marks} bars for {len(lines)} layers")
    crosses = len(re.findall(r'class="beyond"', html))
    if crosses != sum(bool(line.worst.outside) for line in lines):
        wrong.append(f"{crosses} crosses")
    return wrong


@JUDGED
def test_the_panel_shows_the_tree_and_the_page_is_sound(build: Callable[[], Tree]) -> None:
    html = render(build())
    assert profile_faults(html, build()) == []
    assert html_page.problems(html) == []
    assert "profile" in [e.attributes["id"] for e in html_page.read(html).all("section")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('<td class="r nw">4.0e-03</td>', '<td class="r nw">4.0e-04</td>'),
        ('class="beyond"', 'class="dot"'),
        ('class="range"', 'class="hidden"'),
        ('<td class="r nw">2.0e-03</td>', '<td class="r nw">2.0e-02</td>'),
    ],
)
def test_red_a_panel_that_shows_something_else_is_seen(old: str, new: str) -> None:
    html = render(trees.beyond())
    assert old in html
    assert profile_faults(html.replace(old, new, 1), trees.beyond()) != []


def test_without_a_profile_there_is_no_panel() -> None:
    for tree in (trees.red(), replace(trees.red(), profile=Profile(0))):
        ids = [e.attributes["id"] for e in html_page.read(render(tree)).all("section")]
        assert "profile" not in ids


def test_many_layers_keep_their_marks_inside() -> None:
    lines = profiling.layer_lines(profile(tuple(range(64))))
    plot = html_profile.plot(lines)
    assert plot is not None
    assert len(plot.marks) == 65
    for mark in plot.marks:
        assert 0 <= mark.high <= mark.low <= plot.height
        assert mark.bound is None or 0 <= mark.bound <= plot.height
        assert 0 < mark.place < 100
    assert sum(mark.label for mark in plot.marks) <= html_profile.LABELS + 1
    tops = [top for _, top in plot.decades]
    assert tops == sorted(tops, reverse=True)


def test_a_larger_share_stands_higher() -> None:
    found = profile()
    lines = profiling.layer_lines(found)
    plot = html_profile.plot(lines)
    assert plot is not None
    shares = [max(row.relative or 0.0 for row in line.rows) for line in lines]
    order = sorted(range(len(shares)), key=lambda at: shares[at])
    assert [plot.marks[at].high for at in order] == sorted(
        (mark.high for mark in plot.marks), reverse=True
    )
    assert math.isclose(max(shares), 2.8e-6)


def test_equal_sides_have_no_plot_and_keep_their_table() -> None:
    found = profile()
    rows = [
        replace(row, equal=row.keys, differ=0, max_ulp=None, max_diff=0.0, relative=0.0, bound=None)
        for row in found.rows
    ]
    tree = replace(
        trees.green(), profile=replace(found, rows=rows, judged=False, worst="l6_nrm", lone=[])
    )
    assert tree.verdict is Verdict.SAME
    html = render(tree)
    assert '<figure class="profile">' not in html
    assert len(tables(html)["profile-layers"]) == 5
    assert "every field is equal at 4 positions" in html
