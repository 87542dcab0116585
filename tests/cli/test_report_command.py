"""parity report: every kind of saved result, several formats at once, older files, bad files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity import tree as trees_of
from parity.cli import conforming
from parity.cli.reporting import CHECK_REPORTS
from parity.elementary import mathfn
from parity.gate import evidence
from parity.presenting import STDOUT
from parity.registry import FUNCTION_REPORTS, REPORTS, plugins
from parity.runs import ladder, probe
from parity.selftest import planting
from parity.tree import VERSION, KeyRow, KeyState, Tree
from tests.cli.running import ENGINES, SHORT, said
from tests.cli_runner import run_cli
from tests.reports import trees
from tests.reports.check_runs import GREEN, RED
from tests.reports.test_console_hostile import hostile_tree

FIXTURES = Path(__file__).parents[1] / "fixtures"
OPTIONS = ("--json", "--csv", "--html", "--junit", "--markdown")
MATHFN = ("mathfn", "expf", "--ref", "ucrt", "--dut", "ucrt", "--n", "2000", "--no-positions")


def saved(folder: Path, tree: Tree, version: int = VERSION) -> Path:
    """A tree's file as ``version`` wrote it."""
    body = json.loads(tree.to_json())
    path = folder / f"v{version}.json"
    path.write_text(json.dumps(older(body, version)))
    return path


def older(body: dict[str, Any], version: int) -> dict[str, Any]:
    """A body without what that version did not have."""
    new = {4: [], 3: ["profile"], 2: ["profile", "baseline"]}
    new[1] = [*new[2], "births", "stability", "margins", "isolation", "repro"]
    kept = {name: part for name, part in body.items() if name not in new[version]}
    if version == 1:
        kept["keys"] = [row[:5] for row in kept["keys"]]
        if kept["decode"] is not None:
            kept["decode"] = older(kept["decode"], version)
            kept["decode"].pop("version", None)
    elif version == 2 and kept["stability"] is not None:
        kept["stability"].pop("places", None)
    return {**kept, "version": version} if "version" in body else kept


def outputs(folder: Path, *options: str) -> list[str]:
    """Options with a path each in ``folder``."""
    folder.mkdir(exist_ok=True)
    return [word for option in options for word in (option, str(folder / option.lstrip("-")))]


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dut", ["cpu", f"{ENGINES}:Moved@key=t4_l2_attn"], ids=["green", "red"])
def test_a_report_made_again_is_the_one_the_run_wrote(tmp_path: Path, dut: str) -> None:
    tree, first, again = tmp_path / "run.json", tmp_path / "first", tmp_path / "again"
    words = ("diff", *SHORT, "--dut", dut, "--json", str(tree))
    ran = run_cli(*words, *outputs(first, *OPTIONS[1:]))
    made = run_cli("report", str(tree), *outputs(again, *OPTIONS))
    assert said(made) == (ran.status, ran.stdout, "")
    assert held(again) == {**held(first), "json": tree.read_bytes()}
    assert len(held(again)) == len(OPTIONS)


def test_one_more_report_by_its_name_and_an_annotation(tmp_path: Path) -> None:
    path = saved(tmp_path, trees.explained())
    words = ("--format", "markdown", "--junit", str(tmp_path / "j.xml"), "--github")
    made = run_cli("report", str(path), *words)
    assert made.status == 1
    assert made.stdout.startswith("### parity: **DIVERGED** first at `t33_l7_attn`")
    assert made.stderr.startswith("::error title=parity DIVERGED::")
    assert (tmp_path / "j.xml").read_text().startswith("<?xml")
    alone = run_cli("report", str(path), "--format", "csv", "-o", str(tmp_path / "t.csv"))
    assert said(alone) == (1, "", "")


def test_a_report_on_stdout_takes_the_place_of_the_console(tmp_path: Path) -> None:
    path = saved(tmp_path, trees.green())
    made = run_cli("report", str(path), "--markdown", STDOUT)
    assert made.stdout.startswith("### parity: **SAME**")
    assert "SAME  " not in made.stdout


# --- kinds of files -------------------------------------------------------------------------------


def probe_file(folder: Path) -> Path:
    path = folder / "probe.json"
    path.write_text(json.dumps([replace(RED, command="parity isodiff").record(), GREEN.record()]))
    return path


def test_a_file_of_probes_has_its_own_formats(tmp_path: Path) -> None:
    path, made = probe_file(tmp_path), tmp_path / "made"
    result = run_cli("report", str(path), *outputs(made, "--junit", "--markdown"), "--github")
    assert result.status == 1
    assert result.stdout.startswith("DIVERGED  M = 3, pos 33; the keys are equal")
    assert result.stderr.startswith("::error title=parity isodiff and rollback DIVERGED::")
    assert b"t33_l1_attn" in held(made)["junit"]
    assert held(made)["markdown"].startswith(b"### parity isodiff and rollback: **DIVERGED**")


@pytest.mark.parametrize("option", ["--csv", "--json"])
def test_red_a_format_that_a_file_of_probes_has_not(tmp_path: Path, option: str) -> None:
    path, made = probe_file(tmp_path), tmp_path / "made"
    result = run_cli("report", str(path), *outputs(made, "--markdown", option))
    name = option.lstrip("-")
    assert said(result) == (
        2,
        "",
        f"parity: {path}: a parity-probe file has no {name} report\n"
        "  next: it has: console, github, html, junit, markdown\n",
    )
    assert held(made) == {}


def test_red_a_format_that_a_file_of_functions_has_not(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert run_cli(*MATHFN, "--json", str(path)).status == 0
    assert run_cli("report", str(path), "-q").status == 0
    for words in (("--junit", str(tmp_path / "x")), ("--github",), ("--format", "junit")):
        result = run_cli("report", str(path), *words)
        name = words[-1] if words[0] == "--format" else words[0].lstrip("-")
        assert said(result) == (
            2,
            "",
            f"parity: {path}: a parity-mathfn file has no {name} report\n"
            "  next: it has: console, html, json\n",
        )
    assert os.listdir(tmp_path) == ["r.json"]


def test_red_a_format_that_nobody_has(tmp_path: Path) -> None:
    path = saved(tmp_path, trees.green())
    result = run_cli("report", str(path), "--format", "pdf")
    assert said(result) == (
        2,
        "",
        "parity: no report 'pdf'\n"
        "  next: installed: console, csv, github, html, json, junit, markdown\n",
    )


# --- older and newer files ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("name", ["green", "red", "contaminated", "not_run"])
def test_an_older_file_gives_the_same_reports(tmp_path: Path, version: int, name: str) -> None:
    """Trees of which version 1 knew all there is."""
    tree = trees.ALL[name]()
    old, new = saved(tmp_path, tree, version), saved(tmp_path, tree)
    assert f'"version": {version}' in old.read_text()
    made = {}
    for path in (old, new):
        folder = tmp_path / f"made-{path.stem}"
        result = run_cli("report", str(path), *outputs(folder, "--csv", "--junit", "--json"))
        shown = result.stdout.replace(str(path), "RUN")
        made[path] = (result.status, shown, result.stderr, held(folder))
    assert made[old] == made[new]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_that_an_older_parity_wrote(tmp_path: Path, version: int) -> None:
    """Files of ``parity diff --dut cpu:exact+libm_exp --prefill ref --n 1``, as written then."""
    path = FIXTURES / f"tree_version_{version}.json"
    result = run_cli("report", str(path), *outputs(tmp_path, *OPTIONS))
    assert result.status == 1
    lines = result.stdout.splitlines()
    born = ", born here" if version > 1 else ""
    assert lines[0] == f"DIVERGED  first at t32_l0_attn{born}, decode only"
    assert any(line.startswith("     [1, 12]  3d93c837  +7.21592233e-02") for line in lines)
    assert len(held(tmp_path)) == len(OPTIONS)
    now = Tree.from_json(held(tmp_path)["json"].decode())
    assert (now.first, now.counts.differ, now.births is None) == ("t32_l0_attn", 31, version == 1)


def test_red_a_version_1_read_as_one_of_today_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees_of, "_of_version_1", lambda body: body)
    path = FIXTURES / "tree_version_1.json"
    result = run_cli("report", str(path))
    problem = f"parity: {path}: damaged: 'births' is missing\n  next: write the report again\n"
    assert said(result) == (2, "", problem)


def test_version_2_keeps_its_causes(tmp_path: Path) -> None:
    path = saved(tmp_path, trees.explained(), 2)
    assert "DIVERGED  first at t33_l7_attn, born here" in run_cli("report", str(path)).stdout


def test_red_a_version_1_with_what_it_did_not_have_is_damaged(tmp_path: Path) -> None:
    body = json.loads(trees.red().to_json())
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**older(body, 1), "news": 1}))
    result = run_cli("report", str(path))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: {path}: damaged: an unknown field")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_red_a_cut_file_says_so_and_writes_nothing(tmp_path: Path, part: float) -> None:
    path, made = saved(tmp_path, trees.red()), tmp_path / "made"
    text = trees.red().to_json().rstrip()
    path.write_text(text[: int(len(text) * part)])
    result = run_cli("report", str(path), *outputs(made, *OPTIONS))
    assert (result.status, result.stdout) == (2, "")
    lines = path.read_text().rstrip().count("\n") + 1
    problem = f"not JSON: cut short, the text ends inside line {lines}"
    assert result.stderr == f"parity: {path}: {problem}\n  next: give a file of --json\n"
    assert held(made) == {}


def test_the_page_says_which_versions_and_formats_are_read() -> None:
    """The table of docs/reports.md is what the program does."""
    lines = (Path(__file__).parents[2] / "docs" / "reports.md").read_text().splitlines()
    at = lines.index("| format of the file | versions read | reports |") + 2
    rows = [line.strip("| ").split(" | ") for line in lines[at : at + 5]]
    checks = ", ".join(plugins(CHECK_REPORTS))
    assert rows == [
        [
            "`parity-divergence`",
            f"{trees_of.OLDEST} to {trees_of.VERSION}",
            ", ".join(plugins(REPORTS)),
        ],
        ["`parity-probe`", f"{probe.OLDEST} to {probe.VERSION}", checks],
        [
            "`parity-conformance`, `parity-ladder`, `parity-gate`",
            str(conforming.VERSION),
            "the same",
        ],
        ["`parity-selftest`", f"1 to {planting.VERSION}", "the same"],
        [
            "`parity-mathfn`",
            str(mathfn.VERSION),
            ", ".join(sorted({"json", *plugins(FUNCTION_REPORTS)})),
        ],
    ]
    assert {conforming.VERSION, ladder.VERSION, evidence.VERSION} == {1}


# --- nothing is overwritten -----------------------------------------------------------------------


@pytest.mark.parametrize("option", [*OPTIONS, "-o"])
@pytest.mark.parametrize("way", ["itself", "link", "folder"])
def test_red_a_report_over_its_own_input(tmp_path: Path, option: str, way: str) -> None:
    path = saved(tmp_path, trees.red())
    before = path.read_bytes()
    (tmp_path / "link.json").symlink_to(path)
    (tmp_path / "other").mkdir()
    ways = {"link": tmp_path / "link.json", "folder": tmp_path / "other" / ".." / path.name}
    target = str(ways.get(way, path))
    result = run_cli("report", str(path), option, target)
    assert said(result) == (
        2,
        "",
        f"parity: {target}: already taken by the input {path}\n  next: give another file\n",
    )
    assert path.read_bytes() == before


def test_red_two_reports_in_one_file(tmp_path: Path) -> None:
    path, target = saved(tmp_path, trees.red()), str(tmp_path / "x")
    result = run_cli("report", str(path), "--csv", target, "--markdown", target)
    assert result.stderr.startswith(f"parity: {target}: already taken by another report\n")
    assert not Path(target).exists()


# --- case B07: a pipe, at any width ---------------------------------------------------------------

BRACKETS = ("gemv[/fast]", "[red]", "/m/<lambda>.gguf", 'a<b>&"c"', "</script>")


def piped(path: Path, **environment: str) -> str:
    """What a pipe gets of ``parity report``, with COLUMNS as given or not set at all."""
    kept = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
    given = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1", **environment}
    command = [sys.executable, "-m", "parity", "report", str(path)]
    done = subprocess.run(command, env={**kept, **given}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    return done.stdout.decode()


def b07() -> Tree:
    """Brackets in a key, a spec, the model, notes and the command; every hash and key whole."""
    tree = hostile_tree(BRACKETS[0])
    name = "t33_l7_" + "x" * 90
    row = KeyRow(name, KeyState.DIFFERS, f"{'0' * 15}1 f32[4]", f"{'0' * 15}2 f32[4]")
    first = replace(trees.elements(), key=name)
    return replace(
        tree,
        first=name,
        keys=[row],
        counts=trees.count([row]),
        elements=first,
        notes=list(BRACKETS),
        births=None,
        run={"model": BRACKETS[2]},
    )


@pytest.mark.parametrize("columns", [None, "60", "80", "200"])
def test_brackets_keys_and_hashes_are_whole_in_a_pipe(tmp_path: Path, columns: str | None) -> None:
    path = saved(tmp_path, b07())
    text = piped(path, **({} if columns is None else {"COLUMNS": columns}))
    for word in BRACKETS:
        assert f"  note     {word}\n" in text
    lines = text.splitlines()
    for word in (
        "t33_l7_" + "x" * 90,
        "0" * 15 + "1",
        "0" * 15 + "2",
        "parity compare gemv[/fast]",
    ):
        assert any(word in line for line in lines), word
    assert "…" not in text
    assert "..." not in text
    assert "\x1b" not in text
