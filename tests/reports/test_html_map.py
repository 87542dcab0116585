"""The map of the HTML report: every key has its place and its shape, at any size."""

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from parity.tree import Cause, KeyRow, KeyState, Tree
from parity_reports import html_map
from parity_reports.html_grid import Grid, build_grid
from parity_reports.html_map import MapView, build_sheet, map_view
from parity_reports.html_report import render
from parity_reports.states import LOOKS, state_name
from tests.reports import html_page, trees
from tests.reports.test_html import LIMIT

STATES = {
    "t33_l7_k": KeyState.MISSING,
    "t33_l7_v": KeyState.EXTRA,
    "t33_l7_attn": KeyState.DIFFERS,
    "t33_l8_x": KeyState.DIFFERS,
    "t33_logits": KeyState.NOT_COMPARABLE,
}


def grid_of(tree: Tree) -> Grid:
    found = build_grid(tree)
    assert found is not None
    return found


def made(tree: Tree) -> MapView:
    return map_view(tree, grid_of(tree), "said", ("ref", "dut"))


def tree_of(rows: list[KeyRow], first: str | None) -> Tree:
    bare = replace(trees.red(), elements=None, inputs=[], control=None)
    return replace(bare, keys=rows, counts=trees.count(rows), first=first)


def run_of(positions: int, layers: int, fields: tuple[str, ...], first: str) -> Tree:
    """A run in which everything from ``first`` on differs, with hashes that do not compress."""
    rng, rows, on = random.Random(7), [], False
    for pos in range(32, 32 + positions):
        tags = [f"t{pos}_l{layer}_{field}" for layer in range(layers) for field in fields]
        for tag in [*tags, f"t{pos}_final_normed", f"t{pos}_logits"]:
            on = on or tag == first
            ref, dut = (f"{rng.getrandbits(64):016x} f32[4,32]" for _ in range(2))
            state = KeyState.DIFFERS if on else KeyState.SAME
            rows.append(KeyRow(tag, state, ref, dut if on else ref))
    return tree_of(rows, first)


def marks(chart: MapView) -> Counter[str]:
    """Marks by shape: of a line one each, of two ticks or three dots as many parts."""
    parts = {KeyState.MISSING: 2, KeyState.EXTRA: 2}
    return Counter({kind: d.count("M") // parts.get(kind, 1) for kind, d in chart.paths})


def test_every_key_has_its_own_place() -> None:
    grid = grid_of(tree_of(trees.key_rows(STATES), "t33_l7_attn"))
    assert grid.places == list(range(35))
    assert len({grid.at(place) for place in grid.places}) == 35
    assert [col.label for col in grid.cols] == ["6", "7", "8", "final"]
    assert grid.cols[0].fields == trees.FIELDS
    assert grid.rows == [("", 33)]


def test_every_state_has_its_path_and_its_shape() -> None:
    chart = made(tree_of(trees.key_rows(STATES), "t33_l7_attn"))
    wanted = {"same": 30, "missing": 1, "extra": 1, "differs": 1, "not comparable": 1, "first": 1}
    assert marks(chart) == wanted
    shapes = {kind: re.sub(r"M[\d.]+ [\d.]+", "M", d.split("M", 2)[1]) for kind, d in chart.paths}
    assert shapes[KeyState.NOT_COMPARABLE].count("h3") == 3
    assert chart.paths[-1][0] == "first"  # drawn last, over all others


def test_red_a_state_drawn_as_another_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_map, "STATES", [KeyState.SAME] * len(LOOKS))
    assert marks(made(tree_of(trees.key_rows(STATES), "t33_l7_attn"))) == {"same": 35}


def test_ring_around_the_first_and_the_control() -> None:
    tree = replace(trees.red(), control=replace(trees.CONTROL, key="t33_l6_v", found="t33_l6_v"))
    control, first = made(tree).rings
    assert (control.kind, control.label) == ("control", "control: t33_l6_v")
    assert (first.kind, first.label) == ("first", f"first: {trees.FIRST}")
    chart = made(tree)
    sheet = chart.sheet
    assert first.y == sheet.slot * trees.FIELDS.index("attn")
    assert first.x == pytest.approx(100 * sheet.edges[1] / sheet.width)


def test_same_key_in_two_segments_has_two_rows() -> None:
    state = {trees.FIRST: KeyState.DIFFERS}
    rows = [*trees.key_rows(segment="A"), *trees.key_rows(state, segment="B.redo")]
    chart = made(tree_of(rows, trees.FIRST))
    assert [label.text for label in chart.row_labels] == ["A t33", "B.redo t33"]
    assert chart.rings[-1].y >= chart.sheet.pitch  # the one that differs, in the second row
    html = render(tree_of([replace(row, segment="s" * 40) for row in rows[35:]], trees.FIRST))
    assert "segment " + "s" * 40 in html_page.read(html).text
    assert html_page.problems(html) == []


def test_keys_before_the_layers_stand_before_them() -> None:
    row = trees.key_row("t33_embed", KeyState.SAME, 99)
    grid = grid_of(tree_of([row, *trees.key_rows({trees.FIRST: KeyState.DIFFERS})], trees.FIRST))
    assert [col.label for col in grid.cols] == ["before", "6", "7", "8", "final"]
    assert grid.at(grid.places[0]) == (0, 0, 0)


def test_layers_of_two_kinds_keep_their_own_fields() -> None:
    tags = [f"t0_l0_{f}" for f in ("nrm", "qkv", "hist", "x")]
    tags += [f"t0_l1_{f}" for f in ("nrm", "kraw", "attn", "ores", "x")]
    rows = [trees.key_row(tag, KeyState.SAME, i) for i, tag in enumerate(tags)]
    grid = grid_of(tree_of(rows, None))
    assert [len(col.fields) for col in grid.cols] == [4, 5]
    assert [grid.at(place)[2] for place in grid.places] == [0, 1, 2, 3, 0, 1, 2, 3, 4]


def test_names_without_position_are_counted() -> None:
    rows = [*trees.key_rows(), KeyRow("free", KeyState.DIFFERS, "0" * 16, "1" * 16)]
    tree = tree_of(rows, "free")
    assert made(tree).unplaced == 1
    text = html_page.read(render(tree)).text
    assert "1 keys whose names have no position are not on the map" in text
    assert build_grid(trees.tensor_files()) is None


def test_default_run_is_small() -> None:
    red = run_of(4, 48, trees.FIELDS, "t32_l0_nrm")  # all 2,120 keys differ
    assert len(red.keys) == 2_120
    sizes = [len(render(red)), len(render(replace(red, decode=red, reason="contaminated start")))]
    assert max(sizes) < LIMIT
    assert len(html_page.listed_keys(html_page.read(render(red)))) == 2_120


def test_above_the_limit_one_mark_a_layer() -> None:
    tree = run_of(16, 64, trees.FIELDS[:6], "t40_l22_ks")
    chart = made(tree)
    assert not chart.sheet.detailed
    assert sum(marks(chart).values()) == 16 * 65
    assert marks(chart)["first"] == 1
    html = render(tree)
    page = html_page.read(html)
    assert html_page.problems(html) == []
    assert len(html) < LIMIT
    assert page.by_id("canvas") is not None
    assert "a mark stands for a layer at a position" in page.text
    listed = html_page.listed_keys(page)
    assert {tag: state for tag, (state, _, _) in listed.items()} == {
        f"/{row.key}": state_name(row) for row in tree.keys
    }
    # Hashes of what differs alone: the first of the differing keys has both.
    assert listed["/t40_l22_ks"][1:] != ("", "")
    assert listed["/t40_l22_k"][1:] == ("", "")


def test_a_mark_over_several_keys_shows_the_worst() -> None:
    order = [KeyState.SAME, KeyState.NOT_COMPARABLE, KeyState.DIFFERS, KeyState.EXTRA]
    order.append(KeyState.MISSING)
    for number, state in enumerate(order):
        for states in (order[: number + 1], order[number::-1]):
            tags = [f"t0_l0_{field}" for field in trees.FIELDS[: len(states)]]
            rows = [trees.key_row(tag, one, 1) for tag, one in zip(tags, states, strict=True)]
            tree = tree_of(rows, None)
            sheet = replace(build_sheet(grid_of(tree)), detailed=False)
            assert [kind for kind, _ in html_map.paths(tree, sheet)] == [state]


def test_rows_share_a_line_above_the_limit() -> None:
    tree = run_of(1_000, 1, ("x",), "t900_l0_x")
    chart = made(tree)
    sheet = chart.sheet
    assert not sheet.detailed  # 3,000 keys, but 1,000 positions
    assert len(sheet.rows) <= html_map.LINES_LIMIT
    assert sheet.rows[0] == range(3)
    assert (chart.rings[-1].label, chart.rings[-1].y) == ("first: t900_l0_x", 289 * sheet.pitch)
    assert html_page.problems(render(tree)) == []


def test_layers_share_a_column_above_the_limit() -> None:
    chart = made(run_of(1, 1_001, ("x",), "t32_l500_x"))
    assert len(chart.sheet.cols) == 335
    assert (chart.col_labels[0].text, chart.col_labels[-1].text) == ("0 to 2", "final")


@pytest.mark.parametrize(("positions", "layers"), [(1, 1), (4, 48), (36, 4), (200, 2), (2, 300)])
def test_nothing_on_the_axes_overlaps(positions: int, layers: int) -> None:
    chart = made(run_of(positions, layers, ("nrm", "x"), "t32_l0_x"))
    places = [label.place for label in chart.row_labels]
    assert all(b - a >= 16 for a, b in pairwise(places))
    layers_only = [label for label in chart.col_labels if label.text != "final"]
    assert 1 <= len(layers_only) <= 14
    assert all(0 <= label.place <= 100 for label in chart.col_labels)


def test_counts_by_position() -> None:
    page = html_page.read(render(tree_of(trees.key_rows(STATES), "t33_l7_attn")))
    assert page.text.count("First not the same") == 1
    row = " ".join(page.text[page.text.index("First not the same") :].split())
    assert row.startswith("First not the same t33 30 2 1 1 1 t33_l7_k")


# Causes


def born_tree(keys: list[str], positions: int = 4, layers: int = 48) -> Tree:
    """A run with a birth at each of ``keys``; what differs beside them is inherited."""
    tree = run_of(positions, layers, trees.FIELDS, keys[0])
    rows = []
    for row in tree.keys:
        cause, source = "", ""
        if row.state == KeyState.DIFFERS:
            born = row.key in keys
            cause, source = (Cause.BORN, row.key) if born else (Cause.INHERITED, keys[0])
        rows.append(replace(row, cause=cause, source=source))
    return replace(tree, keys=rows)


BIRTHS = ["t33_l7_attn", "t34_l23_attn", "t35_l33_x"]


def labels(chart: MapView, kind: str = "born") -> list[str]:
    return [ring.label for ring in chart.rings if ring.kind == kind and ring.label]


def test_every_cause_has_its_path_and_its_shape() -> None:
    chart = made(trees.explained())
    assert marks(chart) == {
        **{"same": 28, "masked": 1, "inherited": 4, "born here": 1},
        "born here, equal in the run": 1,
    }
    assert chart.paths[-1][0] == "born here"  # births are drawn last, over all others
    hollow = dict(chart.paths)["masked"]
    assert hollow.endswith("z")
    assert hollow.count("h") == 2
    text = render(trees.explained())
    for kind in ("born", "inherited", "masked"):
        assert f'class="p-{kind}"' in text


def test_births_have_a_ring_and_a_label() -> None:
    chart = made(born_tree(BIRTHS))
    assert [ring.kind for ring in chart.rings] == ["born", "born", "first"]
    assert labels(chart) == ["born: t34_l23_attn", "born: t35_l33_x"]
    assert labels(chart, "first") == ["first: t33_l7_attn"]
    assert 'class="ring-born"' in render(born_tree(BIRTHS))


def test_labels_of_births_never_lie_on_another_label() -> None:
    near = ["t33_l7_attn", "t33_l8_attn", "t33_l20_x", "t34_l0_v"]
    chart = made(born_tree(near))
    assert labels(chart) == ["born: t34_l0_v"]
    assert len(chart.rings) == 4  # the rings stay


def test_many_births_keep_their_bars_and_lose_labels_then_rings() -> None:
    seven = [f"t33_l{layer}_attn" for layer in range(8)]
    chart = made(born_tree(seven))
    assert labels(chart) == []
    assert len(chart.rings) == 8
    assert len(made(born_tree([f"t33_l{layer}_attn" for layer in range(14)])).rings) == 1
    many = [f"t{pos}_l{layer}_attn" for pos in range(32, 36) for layer in range(48)]
    chart = made(born_tree(many))
    assert [ring.kind for ring in chart.rings] == ["first"]
    assert marks(chart)["born here"] == 192
    assert "born here 192" in " ".join(html_page.read(render(born_tree(many))).text.split())


def test_legend_and_table_count_causes() -> None:
    text = " ".join(html_page.read(render(trees.explained())).text.split())
    legend = "same 28 born here 1 inherited 4 masked 1 born here, equal in the run 1"
    assert f"{legend} missing or extra 0 not comparable 0" in text
    heads = "same born here born here, equal in the run inherited masked missing extra"
    assert f"Position {heads} not comparable First not the same t33 28 1 1 4 1 0 0 0" in text
    plain = " ".join(html_page.read(render(trees.red())).text.split())
    assert "same 30 first differs 5 missing or extra 0" in plain
    assert "Position same differs missing extra not comparable" in plain


def test_the_script_knows_births_and_where_a_difference_comes_from() -> None:
    page = html_page.read(render(trees.explained()))
    listed = html_page.listed_keys(page)
    born = [tag for tag, (state, _, _) in listed.items() if state.startswith("born here")]
    assert born == ["/t33_l7_attn", "/t33_l8_attn"]
    assert [page.data["looks"][state][1] for state in page.data["born"]] == ["born", "born"]
    inherited = dict.fromkeys(["t33_l7_ores", "t33_l7_x", "t33_l8_nrm", "t33_l8_k"], trees.FIRST)
    assert html_page.sources(page) == {**inherited, "t33_logits": "t33_l8_act"}
    assert html_page.sources(html_page.read(render(trees.red()))) == {}


def test_by_layer_a_masked_key_is_seen() -> None:
    tree = run_of(16, 64, trees.FIELDS[:6], "t40_l22_ks")
    rows = [replace(row, cause=Cause.MASKED) if row.key == "t33_l5_k" else row for row in tree.keys]
    chart = made(replace(tree, keys=rows))
    assert marks(chart)["masked"] == 1
    assert chart.cells[0][:2] == ("t33", "layer 5")
    assert chart.cells[0][2] == "ok nrm, kraw, knorm, ks, v; masked k"


def test_a_default_run_with_causes_is_small() -> None:
    many = [f"t{pos}_l{layer}_attn" for pos in range(32, 36) for layer in range(48)]
    tree = born_tree(["t32_l0_nrm", *many])
    found = [trees.birth(key) for key in ["t32_l0_nrm", *many]]
    whole = replace(tree, births=replace(trees.births(), found=found))
    assert len(render(whole)) < LIMIT
