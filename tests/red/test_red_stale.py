"""An A/B of two variants that switch nothing says so, in a diff, in isolate and in every record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity.isolate import trials
from parity.isolate.trial_cache import TrialCache
from parity.runs.probe import VERSION
from parity.tree import Tree
from parity_cpu.engine import Engine
from tests.cli_runner import Result, run_cli

HERE = "tests.red.test_red_stale"
ISOLATED = "tests.red.isolate_engines:Acting"
SHORT = ("--model", "dense-tiny", "--tokens", "1,2", "--n", "1")
TELLS = ("compiled", "mask", "packages", "kernels")


class Untold(Engine):
    """A user's engine that says nothing of its compiled code."""

    def describe(self) -> Any:
        return {name: text for name, text in super().describe().items() if name not in TELLS[:3]}


def diff(tmp_path: Path, ref: str, dut: str, *words: str) -> tuple[Result, Tree]:
    path = tmp_path / "run.json"
    result = run_cli("diff", "--ref", ref, "--dut", dut, *SHORT, *words, "--json", str(path))
    assert path.exists(), result.stderr
    return result, Tree.from_json(path.read_text())


def code_of(tree: Tree) -> list[str]:
    return [note for note in tree.notes if "compiled code" in note or "one build" in note]


@pytest.mark.parametrize(
    ("ref", "dut"),
    [("cpu", "cpu"), ("emu", "emu"), (ISOLATED, f"{ISOLATED}+idle")],
    ids=["cpu", "emu", "idle"],
)
def test_red_two_variants_that_switch_nothing(tmp_path: Path, ref: str, dut: str) -> None:
    html = tmp_path / "run.html"
    result, tree = diff(tmp_path, ref, dut, "--html", str(html))
    assert result.status == 0
    (note,) = code_of(tree)
    code = tree.ref["compiled"]
    told = f"ref and dut ran the same compiled code ({code}) in the same way"
    assert note == f"{told}: this switches nothing in it"
    assert f"same compiled code ({code})" in " ".join(result.stdout.split())
    page = html.read_text()
    assert note in page
    for name in TELLS:
        assert page.count(f">{name}<") == 1, "among the facts of both sides"


def test_red_a_search_that_switches_nothing(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, "emu", "emu", "--bisect")
    assert result.status == 0
    (note,) = code_of(tree)
    assert note.endswith("in the same way: this switches nothing in it")


def test_dumps_of_two_variants_of_one_build(tmp_path: Path) -> None:
    """Dumps of one setting are meant to come from one build: of these nothing is said."""
    names = {"exact": "emu", "again": "emu", "other": "emu+router_tree"}
    for name, engine in names.items():
        words = ("dump", "--engine", engine, "-o", str(tmp_path / name), *SHORT)
        assert run_cli(*words).status == 0
    notes = {}
    for name in ("again", "other"):
        path = tmp_path / f"{name}.json"
        words = ("compare", str(tmp_path / "exact"), str(tmp_path / name), "--json", str(path))
        assert run_cli(*words).status == 0
        notes[name] = code_of(Tree.from_json(path.read_text()))
    assert notes["again"] == []
    (note,) = notes["other"]
    assert note.startswith("ref and dut ran one build (")
    assert note.endswith("), mask 0000 against 0200: no bit shows it")


@pytest.mark.parametrize("engine", ["cpu", "emu"])
def test_a_variant_that_acts_is_not_called_the_same(tmp_path: Path, engine: str) -> None:
    result, tree = diff(tmp_path, engine, f"{engine}+rsqrt")
    assert result.status == 1
    assert tree.first == "t2_l0_knorm"
    assert code_of(tree) == []
    assert (tree.ref["mask"], tree.dut["mask"]) == ("0000", "0001")
    assert tree.ref["compiled"] == tree.dut["compiled"]


def test_a_variant_of_another_model_shows_no_bit(tmp_path: Path) -> None:
    """router_tree means nothing without experts: one build, another mask, the same bits."""
    result, tree = diff(tmp_path, "cpu", "cpu+router_tree")
    assert result.status == 0
    text = f"ref and dut ran one build ({tree.ref['compiled']}), mask 0000 against 0200"
    assert code_of(tree) == [f"{text}: no bit shows it"]


def test_red_an_engine_that_does_not_tell_its_code(tmp_path: Path) -> None:
    result, tree = diff(tmp_path, f"{HERE}:Untold", f"{HERE}:Untold+router_tree")
    assert result.status == 0
    assert "compiled" not in tree.ref
    assert code_of(tree) == [
        "whether the compiled code differs is not known: the ref tells no digest of it"
    ]
    assert tree.ref["packages"].startswith("parity=")


def test_red_a_difference_from_outside_the_compiled_code(tmp_path: Path) -> None:
    """Its variant ``early`` moves a value in Python."""
    result, tree = diff(tmp_path, ISOLATED, f"{ISOLATED}+early")
    assert result.status == 1
    (note,) = code_of(tree)
    assert note.endswith("in the same way: what differs comes from elsewhere")


def isolate(tmp_path: Path, dut: str) -> Tree:
    path = tmp_path / "isolated.json"
    words = ("isolate", "--ref", "cpu", "--dut", dut, *SHORT, "--only", "variants")
    result = run_cli(*words, "--json", str(path))
    assert result.status == 1, result.stderr
    return Tree.from_json(path.read_text())


def isolated_code(tree: Tree) -> str:
    assert tree.isolation is not None
    (note,) = [
        note
        for note in tree.isolation.notes
        if "compiled code" in note or note.startswith("one build")
    ]
    return note


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trials of our own; compiled code is where it was."""
    folder = tmp_path / "trials"
    folder.mkdir()
    monkeypatch.setattr(TrialCache, "open", lambda wanted: TrialCache(folder))
    return folder


@pytest.mark.usefixtures("cache")
def test_isolate_says_that_one_build_serves_all(tmp_path: Path) -> None:
    tree = isolate(tmp_path, "emu+rsqrt+router_tree")
    code = tree.dut["compiled"]
    told = f"one build ({code}) in every trial: a mask chooses its variants"
    assert isolated_code(tree) == told
    assert isolated_code(isolate(tmp_path, "emu+rsqrt+router_tree")) == told, "from the cache too"


def test_red_isolate_says_which_variant_switches_nothing(tmp_path: Path) -> None:
    tree = isolate(tmp_path, f"{ISOLATED}+rsqrt+idle")
    note = isolated_code(tree)
    assert tree.isolation is not None
    assert tree.isolation.guilty == ["rsqrt"]
    code = f"{tree.dut['compiled']} mask 0001"
    assert note == f"without idle the same compiled code ran ({code}): nothing in it is switched"


def test_red_isolate_of_an_engine_that_does_not_tell(tmp_path: Path) -> None:
    note = isolated_code(isolate(tmp_path, f"{HERE}:Untold+rsqrt+router_tree"))
    assert note == "not known whether the trials ran other compiled code: the dut tells no digest"


@pytest.mark.parametrize("touched", [True, False])
def test_red_results_of_code_that_changed_since_the_start_are_not_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, touched: bool
) -> None:
    """Their name would be made of files that are not what ran."""
    monkeypatch.setattr(trials, "changed_since_start", lambda files: touched)
    tree = isolate(tmp_path, "emu+rsqrt+router_tree")
    assert tree.isolation is not None
    assert tree.isolation.runs > 0
    assert bool(list(cache.iterdir())) is not touched


@pytest.mark.parametrize("engine", ["cpu", "emu+libm_exp"])
def test_records_of_probes_tell_the_build(engine: str) -> None:
    words = ("isodiff", "--engine", engine, "--model", "dense-tiny", "--m", "2", "--pos", "3")
    body = json.loads(run_cli(*words, "--json", "-").stdout)
    assert (body["format"], body["version"]) == ("parity-probe", VERSION)
    about = body["about"]
    assert set(TELLS) <= set(about)
    assert about["engine"] == engine.partition("+")[0]
    assert about["mask"] == ("0020" if "+" in engine else "0000")
    assert len(about["compiled"]) == 16
    assert about["packages"].startswith("parity=")


def test_records_of_functions_tell_the_build(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    words = ("mathfn", "expf", "--ref", "ucrt", "--dut", "libm", "--n", "1000")
    result = run_cli(*words, "--json", str(path))
    assert result.status in (0, 1), result.stderr
    body = json.loads(path.read_text())
    for side in ("ref", "dut"):
        assert len(body[side]["compiled"]) == 16, body[side]
        assert body[side]["packages"].startswith("parity=")
    assert body["ref"]["compiled"] != body["dut"]["compiled"]
    assert body["ref"]["compiled"] not in result.stdout, "not on the console"


def test_a_repro_and_a_digest_file_tell_the_build(tmp_path: Path) -> None:
    folder, dump, digest = (tmp_path / name for name in ("repro", "a.dump", "a.digest"))
    _, tree = diff(tmp_path, "cpu", "emu+rsqrt", "--repro", str(folder))
    record = json.loads((folder / "repro.json").read_text())
    for side, header in (("ref", tree.ref), ("dut", tree.dut)):
        assert {name: record[side][name] for name in TELLS} == {n: header[n] for n in TELLS}
    assert run_cli("dump", "--engine", "cpu", "-o", str(dump), *SHORT).status == 0
    assert run_cli("digest", str(dump), "-o", str(digest)).status == 0
    header = json.loads(digest.read_text())["header"]
    assert {name: header[name] for name in TELLS} == {name: tree.ref[name] for name in TELLS}
