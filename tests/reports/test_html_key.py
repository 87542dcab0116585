"""The key view: op and twins, signed distances that add up, where the elements lie, old trees."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.comparison import elements as comparison
from parity.comparison.elements import BLOCK, PLACES, compare_tensors
from parity.tree import Elements, Tree
from parity_cuda.emu.translate import translate
from parity_cuda.sources import kernel_sources, source_of
from parity_reports import html_data
from parity_reports.html_elements import elements_view
from parity_reports.html_grid import build_grid
from parity_reports.html_key import birth_panels, key_panel, twins
from parity_reports.html_report import render
from parity_reports.html_shell import asset
from tests.reports import html_page, trees

SHIFTS = {3: 1, 40: -1, 41: 2, 70: -4, 95: 300}  # flat index: ULP by which the dut is larger


def shifted(shape: tuple[int, ...] = (96,)) -> Elements:
    """Positive values, some of them moved by whole ULP."""
    ref = np.linspace(1.0, 2.0, 96, dtype=np.float32)
    dut = ref.view(np.int32).copy()
    for at, ulp in SHIFTS.items():
        dut[at] += ulp
    return compare_tensors("t0_l0_x", ref.reshape(shape), dut.view(np.float32).reshape(shape))


def test_signed_bins_and_places_are_those_of_the_elements() -> None:
    found = shifted()
    assert found.signed == [("1", 1, 1), ("2", 0, 1), ("3 to 4", 1, 0), ("over 256", 0, 1)]
    assert found.places == [(at, 1 if ulp > 0 else -1) for at, ulp in SHIFTS.items()]
    assert found.blocks == [(0, 1), (1, 2), (2, 2)]
    assert (found.groups, BLOCK) == ([], 32)
    assert shifted((3, 32)).groups == found.blocks
    assert shifted((3, 32)).blocks == []


def test_signs_of_values_on_both_sides_of_zero() -> None:
    ref = np.array([-1.0, 1.0, -0.0, 0.0, np.nan, -1e-45], np.float32)
    dut = np.array([-2.0, -1.0, 0.0, 0.0, 1.0, 1e-45], np.float32)
    found = compare_tensors("t0_l0_x", ref, dut)
    assert found.places == [(0, -1), (1, -1), (2, 0), (4, 0), (5, 1)]
    assert sum(below + above for _, below, above in found.signed) == 3


def test_places_end_at_their_limit() -> None:
    many = np.zeros(PLACES + 9, np.float32)
    found = compare_tensors("t0_l0_x", many, many + 1)
    assert (len(found.places), found.differ) == (PLACES, PLACES + 9)
    where = elements_view(found).where
    assert where is not None
    assert where.drawn == PLACES


def test_red_a_sign_turned_round_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = comparison._signs
    monkeypatch.setattr(
        comparison, "_signs", lambda *given: [(at, -sign) for at, sign in real(*given)]
    )
    assert shifted().places != [(at, 1 if ulp > 0 else -1) for at, ulp in SHIFTS.items()]


def test_bars_stand_in_value_order_and_add_up() -> None:
    view = elements_view(shifted())
    assert [(bar.label, bar.count) for bar in view.bars] == [
        *(("-3 to -4", 1), ("-1", 1), ("equal", 91)),
        *(("+1", 1), ("+2", 1), ("above +256", 1)),
    ]
    assert sum(bar.count for bar in view.bars) == view.total == 96


def test_marks_lie_where_the_elements_lie() -> None:
    where = elements_view(shifted()).where
    assert where is not None
    assert [row.label for row in where.rows] == ["32-block 0", "32-block 1", "32-block 2"]
    # Above the line where the dut is larger, below it where it is smaller.
    assert where.rows[1].path == "M8.5 7v6M9.5 7v-6"
    assert where.rows[2].path == "M6.5 7v6M31.5 7v-6"
    heads = elements_view(replace(shifted((3, 32)), key="t0_l0_attn")).where
    assert heads is not None
    assert (heads.axis, heads.width) == ("head", 32)


def told() -> Tree:
    """Births whose engines told which files ran."""
    tree = trees.explained()
    assert tree.births is not None
    kernels = {"attn": (["attention"], ["attention", "merge"]), "x": (["add"], ["add"])}
    files = {name: (f"cpu/{name}.py", f"cuda/{name}.cu") for name in ("attention", "add")}
    files["merge"] = ("", "cuda/merge.cu")
    return replace(tree, births=replace(tree.births, kernels=kernels, sources=files))


def test_op_contract_twins_and_kernels_of_the_first_key() -> None:
    panel = key_panel(told())
    assert panel is not None
    assert panel.op == "attention (contract 1.8)"
    assert panel.ran == "ref attention, dut attention_rows, attention_merge"
    assert [(twin.side, twin.file) for twin in panel.twins] == [
        *(("ref", "cpu/attention.py"), ("dut", "cuda/attention.cu"), ("dut", "cuda/merge.cu")),
    ]
    text = " ".join(html_page.read(render(told())).text.split())
    for part in (
        *(
            "dtype, shape f32[4,32]",
            "made by attention (contract 1.8)",
            "inputs equal: k, ks, qrope",
        ),
        *("ref twin cpu/attention.py", "dut twin cuda/attention.cu", "dut twin cuda/merge.cu"),
        "function expf differs in 2 of 264 calls, at most 1 ULP",
    ):
        assert part in text, part


def test_every_field_brings_its_op_and_files_to_the_script() -> None:
    ops = html_page.read(render(told())).data["ops"]
    assert ops["x"] == [
        *(
            "FFN and residual (contract 2)",
            "add",
            "add",
            [["ref", "cpu/add.py"], ["dut", "cuda/add.cu"]],
        ),
        ["ores", "topp", "down", "gs", "sh"],
    ]
    assert ops["nrm"] == ["RMSNorm (contract 1.1)", "", "", [], ["x<"]]
    assert ops["attn"][4] == ["qrope", "k", "ks", "v", "vs"]


def test_births_with_elements_have_a_panel_of_their_own() -> None:
    tree = told()
    assert tree.births is not None
    act = replace(tree.births.found[2], elements=replace(trees.elements(), key="t33_l8_act"))
    whole = replace(tree, births=replace(tree.births, found=[*tree.births.found[:2], act]))
    (panel,) = birth_panels(whole)
    assert panel.key is not None
    assert (panel.key.key, panel.remark) == ("t33_l8_act", "found by replay, not dumped")
    details = [
        e for e in html_page.read(render(whole)).all("details") if "data-key" in e.attributes
    ]
    assert [e.attributes["data-key"] for e in details] == ["t33_l8_act"]


def test_a_tree_of_an_older_file_shows_what_it_holds() -> None:
    """Version 2 has no signs, places and files: bars are by distance, no mark is drawn."""
    body = json.loads(told().to_json())
    for name in ("signed", "blocks", "places"):
        for elements in (body["elements"], body["births"]["found"][0]["elements"]):
            del elements[name]
    del body["births"]["sources"]
    old = Tree.from_json(json.dumps(body))
    assert old.elements is not None
    view = elements_view(old.elements)
    assert [(bar.label, bar.count) for bar in view.bars] == [("1", 6), ("equal", 122)]
    assert view.where is not None
    assert view.where.width == 0
    assert twins(old, "attn") == []
    assert html_page.problems(render(old)) == []


def test_new_fields_survive_the_json() -> None:
    tree = replace(told(), elements=shifted())
    assert Tree.from_json(tree.to_json()) == tree


def test_every_kernel_has_its_file() -> None:
    """The names that the compiler of the emulation finds are those that the report can place."""
    texts = kernel_sources()
    kernels = translate(texts).kernels
    assert "swiglu" in kernels
    for kernel in kernels:
        folder, _, name = source_of(kernel).rpartition("/")
        assert folder == "parity_cuda/kernels", kernel
        assert f" {kernel}(" in texts[name]
    assert source_of("attention_int8_scores") == "parity_cuda/kernels/attention_int8.cu"
    assert source_of("no_such_kernel") == ""


def test_the_engines_tell_files_that_exist(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    command = ["--ref", "cpu", "--dut", "emu:exact+rsqrt", "--n", "1", "-q", "--json", str(out)]
    done = subprocess.run([sys.executable, "-m", "parity", "diff", *command], check=False)
    assert done.returncode == 1
    births = Tree.from_json(out.read_text(encoding="utf-8")).births
    assert births is not None
    assert set(births.sources) == {
        name for sides in births.kernels.values() for side in sides for name in side
    }
    for file in {file for pair in births.sources.values() for file in pair if file}:
        assert (Path("engines") / file).is_file(), file
    assert births.sources["swiglu"] == (
        "parity_cpu/ops/swiglu.py",
        "parity_cuda/kernels/swiglu.cu",
    )


# What the file holds


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_text(told().to_json(), encoding="utf-8")
    code = (
        "import sys; from parity.tree import Tree; from parity_reports.html_report import render;"
        f"sys.stdout.write(render(Tree.from_json(open({str(path)!r}).read())))"
    )
    pages = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(pages) == 1


def test_states_are_run_length_coded() -> None:
    grid = build_grid(trees.green())
    assert grid is not None
    assert html_data.script_data(trees.green(), grid, ("ref", "dut"))["states"] == [0, 35]


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast of two colours ``#rgb`` or ``#rrggbb``."""

    def light(color: str) -> float:
        digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_stand_out(theme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", asset("report.css"), re.DOTALL)
    colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", blocks[theme]))
    for name in ("text", "dim", "link", "bad", "good", "warn"):
        assert contrast(colors[name], colors["bg"]) >= 4.5, name
    for name in ("differs", "first", "missing", "nc", "masked"):
        assert contrast(colors[name], colors["bg"]) >= 3, name
    # Told apart in grey too: a birth stands out more than what it left.
    assert contrast(colors["first"], colors["bg"]) > 1.5 * contrast(colors["differs"], colors["bg"])


def test_contrast_of_known_pairs() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)
