"""diff --repro writes the op of a red run into a folder; replay runs that op alone."""

from __future__ import annotations

import errno
import json
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.cli.rerunning import rerun
from parity.explain.repro import INPUTS, OUTPUTS, README, RECORD, STATE, read_repro
from parity.runs import sides
from parity.tree import Tree
from tests.cli.running import said
from tests.cli_runner import Result, run_cli
from tests.red.faults import Patched
from tests.red.repro_faults import Mended

FAULTS, OWN = "tests.red.faults", "tests.red.repro_faults"
SHORT = ("--tokens", "1,2,3,4,5,6", "--n", "2")
MOVED = f"{FAULTS}:Moved@key=t7_l1_attn"
FILES = {README, RECORD, STATE, INPUTS, OUTPUTS}


def diff(folder: Path, dut: str, *options: str) -> tuple[Result, Tree]:
    """A run of ``parity diff --repro`` and its tree."""
    path = folder.with_name("diff.json")
    words = ("diff", "--ref", "cpu", "--dut", dut, *SHORT, *options, "--repro", str(folder))
    result = run_cli(*words, "--json", str(path))
    assert path.exists(), result.stderr
    return result, Tree.from_json(path.read_text())


def replay(folder: Path, *options: str) -> tuple[int, Tree]:
    """Status and tree of ``parity replay``."""
    path = folder.with_name("replay.json")
    result = run_cli("replay", str(folder), *options, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a repro goes."""
    return tmp_path / "repro"


@pytest.fixture
def moved(folder: Path) -> Path:
    """The repro of one element moved in the attention."""
    assert diff(folder, MOVED)[0].status == 1
    return folder


# --- red again ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dut", "options", "key"),
    [
        (MOVED, (), "t7_l1_attn"),
        (f"{FAULTS}:Moved@key=t6_logits", (), "t6_logits"),
        (f"{FAULTS}:Moved@key=t7_l0_k", (), "t7_l0_k"),
        (MOVED, ("--bisect",), "t7_l1_attn"),
        (f"{FAULTS}:Patched@fault=residual", ("--prefill", "ref"), "t6_l0_ores"),
        (f"{FAULTS}:Patched@fault=rank_order", ("--prefill", "ref"), "t6_l0_x"),
        (f"{FAULTS}:FlippedWeight", ("--prefill", "ref"), "t6_l2_qrope"),
        ("cpu:exact+fma", ("--prefill", "ref", "--model", "dense-tiny"), "t6_l0_kraw"),
        ("emu:exact+norm_tree", ("--prefill", "ref", "--weights", "f32"), "t6_l0_knorm"),
        ("cpu:exact+libm_exp", ("--prefill", "ref", "--model", "hybrid-tiny"), "t6_l1_conv"),
        ("tests.red.start_faults:Trap@variant=rsqrt", ("--dump-prefill",), "t0_l0_qrope"),
    ],
)
def test_replay_shows_the_same_elements(
    folder: Path, dut: str, options: tuple[str, ...], key: str
) -> None:
    result, red = diff(folder, dut, *options)
    assert (result.status, red.verdict, red.repro) == (1, "diverged", str(folder))
    assert {path.name for path in folder.iterdir()} == FILES
    assert f"repro folder {folder}: parity replay {folder}" in result.stdout
    status, tree = replay(folder)
    assert (status, tree.verdict, tree.first) == (1, "diverged", key)
    assert red.births is not None
    assert red.births.found[0].key == key
    assert tree.elements is not None
    assert tree.elements == red.births.found[0].elements
    counted = f"{tree.elements.differ:,} of {tree.elements.total:,} elements"
    assert tree.notes[-1] == f"ref as recorded, dut as recorded, differ in {counted}"
    assert {row.state for row in tree.inputs} <= {"same"}
    assert tree.births is not None
    assert [birth.key for birth in tree.births.found] == [key]


def test_what_the_folder_says(moved: Path) -> None:
    repro = read_repro(moved)
    record = repro.record
    assert (record.key, record.position, record.prompt, record.positions) == ("t7_l1_attn", 7, 6, 8)
    assert record.op == "attention (contract 1.8)"
    assert (record.ref["spec"], record.dut["spec"]) == ("cpu", MOVED)
    assert [record.model[name] for name in ("name", "seed", "weights")] == ["moe-tiny", 7, "q4"]
    assert record.fed[:6] == [1, 2, 3, 4, 5, 6]
    assert len(record.fed) == 8
    assert record.versions.keys() == {"parity", "python", "numpy"}
    assert [key.field for key in repro.inputs] == ["qrope", "k", "ks", "v", "vs"]
    assert repro.state["lengths"].tolist() == [7]
    ref, dut = (repro.outputs[side].view(np.uint32) for side in ("ref", "dut"))
    assert np.abs(ref.astype(np.int64) - dut).sum() == 1
    lines = (moved / README).read_text().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("t7_l1_attn: attention (contract 1.8).")
    assert "in this folder: parity replay ." in lines[3]
    assert str(moved.parent) not in "".join(lines)


def test_red_reproduce_line_can_be_run(moved: Path) -> None:
    tree = Tree.from_json(moved.with_name("diff.json").read_text())
    line = shlex.join(("parity", "diff", "--ref", "cpu", "--dut", MOVED, *SHORT))
    assert tree.reproduce == read_repro(moved).record.reproduce == line
    assert (moved / README).read_text().endswith(f": {line}\n")
    result = run_cli(*shlex.split(line)[1:])
    assert (result.status, result.stderr) == (1, "")
    assert result.stdout.startswith("DIVERGED  first at t7_l1_attn")


def test_red_folder_is_replayed_where_it_lies(moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(moved.rename(moved.with_name("elsewhere")))
    assert run_cli("replay", ".").status == 1


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("parity diff --repro r --n 2", "parity diff --n 2"),
        ("parity diff --n 2 --repro=r -q", "parity diff --n 2"),
        ("parity diff --json - --html 'a b' --csv c --junit d --dut emu", "parity diff --dut emu"),
        ("parity diff --quiet --dut 'exec:a b'", "parity diff --dut 'exec:a b'"),
    ],
)
def test_rerun_leaves_out_what_writes_files(typed: str, line: str) -> None:
    assert rerun(typed) == line


def test_red_seconds_are_those_of_opening_the_sides_too(
    moved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = sides.load_side

    def slow(*words: Any) -> Any:
        time.sleep(0.5)
        return loaded(*words)

    monkeypatch.setattr(sides, "load_side", slow)
    assert replay(moved)[1].seconds >= 1.0


def test_reports_of_a_replay(moved: Path, tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("json", "csv", "html", "junit")}
    words = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    result = run_cli("replay", str(moved), *words)
    assert result.status == 1
    assert result.stdout.startswith("DIVERGED  first at t7_l1_attn, born here\n")
    assert "1 of 384 elements differ, at most 1 ULP" in result.stdout
    assert all(path.stat().st_size for path in paths.values())
    quiet = run_cli("replay", str(moved), "-q")
    assert (quiet.status, quiet.stdout.count("\n")) == (1, 1)
    assert quiet.stdout.startswith("diverged: t7_l1_attn")


def test_folder_that_is_there_and_empty_is_taken(folder: Path) -> None:
    folder.mkdir()
    assert diff(folder, MOVED)[0].status == 1
    assert {path.name for path in folder.iterdir()} == FILES
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []


def test_ref_that_cannot_replay_computes_its_inputs_itself(folder: Path) -> None:
    result, _ = diff(folder, MOVED, "--ref", f"{OWN}:Plain")
    assert result.status == 1
    status, tree = replay(folder)
    assert (status, tree.first) == (1, "t7_l1_attn")
    assert tree.notes[-1].startswith("ref as recorded, dut as recorded, differ in 1 of 384")


# --- green, stale, unstable -----------------------------------------------------------------------


def test_another_dut_is_equal(moved: Path) -> None:
    for dut in ("cpu", "emu"):
        status, tree = replay(moved, "--dut", dut)
        assert (status, tree.verdict, tree.first) == (0, "same", None)
        assert tree.notes[-1] == (
            "ref as recorded, dut stale (1 of 384 elements not as recorded), equal now"
        )
        assert tree.control is not None
        assert (tree.control.kind, tree.control.fired) == ("inject", True)
        assert tree.control.key == "t7_l1_attn"


def test_fault_that_is_gone_is_green(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diff(folder, f"{OWN}:Mended@key=t7_l2_kraw")
    assert replay(folder)[0] == 1
    monkeypatch.setattr(Mended, "mended", True)
    status, tree = replay(folder)
    assert (status, tree.verdict) == (0, "same")
    assert tree.notes[-1].endswith("dut stale (1 of 192 elements not as recorded), equal now")


def test_kernel_that_was_mended_is_green(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diff(folder, f"{FAULTS}:Patched@fault=residual", "--prefill", "ref")
    assert replay(folder)[0] == 1
    file, old, _ = Patched.patches["residual"]
    monkeypatch.setattr(Patched, "patches", {"residual": (file, old, old)})
    assert replay(folder)[0] == 0


def test_stale_ref_is_said(moved: Path) -> None:
    status, tree = replay(moved, "--ref", "cpu:exact+two_pass")
    assert status == 1
    assert tree.notes[-1].startswith("ref stale (")
    assert ", dut as recorded, differ in " in tree.notes[-1]


def test_op_that_does_not_repeat_is_unstable(moved: Path) -> None:
    status, tree = replay(moved, "--dut", f"{OWN}:Flaky@key=t7_l1_attn")
    assert (status, tree.verdict) == (1, "unstable")
    assert tree.stability is not None
    assert (tree.stability.side, tree.stability.key) == ("dut", "t7_l1_attn")
    assert tree.births is None


def test_dead_tap_is_not_green(moved: Path) -> None:
    status, tree = replay(moved, "--dut", "tests.cli.engines_for_tests:DeadTap")
    assert (status, tree.verdict) == (3, "not_run")
    assert tree.control is not None
    assert not tree.control.fired


# --- no folder ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dut", "status", "note"),
    [
        ("cpu", 0, ""),
        (
            f"{OWN}:NoReplay@key=t7_l1_attn",
            1,
            f"{OWN}:NoReplay@key=t7_l1_attn lacks the capability ",
        ),
        ("tests.red.races:EmuRace", 1, "the run is unstable"),
        ("tests.red.start_faults:MovedPart@part=l3_k", 1, "no op gives other bytes on the ref's "),
        ("tests.cli.engines_for_tests:DeadTap", 3, "the run is not run"),
    ],
)
def test_no_folder_is_written_and_the_run_says_why(
    folder: Path, dut: str, status: int, note: str
) -> None:
    result, tree = diff(folder, dut)
    assert (result.status, tree.repro) == (status, "")
    assert not folder.exists()
    notes = [text for text in tree.notes if text.startswith("no repro folder")]
    assert len(notes) == bool(note)
    assert all(text.startswith(f"no repro folder: {note}") for text in notes)


def test_red_folder_that_holds_something(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    words = ("diff", "--ref", "cpu", "--dut", MOVED, *SHORT, "--repro", str(folder))
    wanted = f"parity: --repro {folder}: is not empty\n"
    result = run_cli(*words)
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(wanted)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("file", "is no folder"), ("file/below", "its parent is no"), ("a/b", "its parent is no")],
)
def test_red_folder_that_cannot_be_made(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / name
    result = run_cli("diff", "--ref", "cpu", "--dut", "cpu", *SHORT, "--repro", str(path))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: --repro {path}: {problem}")


def test_red_disk_that_is_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of a folder that could not be written whole."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("parity.explain.repro.np.savez", full)
    words = ("diff", "--ref", "cpu", "--dut", MOVED, *SHORT, "--repro", str(folder))
    result = run_cli(*words)
    assert result.status == 2
    assert "cannot be written: No space left on device" in result.stderr
    assert list(folder.parent.iterdir()) == []


def test_red_sides_that_are_no_engines(tmp_path: Path) -> None:
    dump = tmp_path / "ref.dump"
    run_cli("dump", "--engine", "cpu", "-o", str(dump), *SHORT)
    words = ("diff", "--ref", str(dump), "--dut", MOVED, *SHORT, "--repro", str(tmp_path / "r"))
    result = run_cli(*words)
    assert said(result) == (
        2,
        "",
        "parity: --repro needs two engines\n  next: name engines on both sides\n",
    )


# --- damaged folders ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FILES - {RECORD}))
def test_red_file_that_was_changed(moved: Path, name: str) -> None:
    data = bytearray((moved / name).read_bytes())
    data[len(data) // 2] ^= 1
    (moved / name).write_bytes(data)
    result = run_cli("replay", str(moved))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: {moved / name}: damaged: its digest is not the one")


@pytest.mark.parametrize("name", sorted(FILES))
def test_red_file_that_is_missing(moved: Path, name: str) -> None:
    (moved / name).unlink()
    result = run_cli("replay", str(moved))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: {moved / name}: No such file or directory")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"key": "t7_l1_kraw"}, "damaged: it was changed after it was written"),
        ({"digest": "0"}, "damaged: it was changed after it was written"),
        ({"version": 9}, "version 9 of parity-repro, this parity reads 1"),
        ({"format": "parity-dump"}, "not a parity-repro file"),
    ],
)
def test_red_record_that_was_changed(moved: Path, change: dict[str, object], line: str) -> None:
    path = moved / RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    result = run_cli("replay", str(moved))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: {path}: {line}")


def test_red_record_that_is_no_json(moved: Path) -> None:
    (moved / RECORD).write_text("{")
    result = run_cli("replay", str(moved))
    assert result.status == 2
    assert result.stderr.startswith(f"parity: {moved / RECORD}: damaged: not JSON: ")


def test_red_no_folder(folder: Path) -> None:
    result = run_cli("replay", str(folder))
    wanted = f"parity: {folder}: no such folder\n  next: give a folder that --repro wrote\n"
    assert said(result) == (2, "", wanted)


def test_red_other_weights(moved: Path) -> None:
    result = run_cli("replay", str(moved), "--ref", f"{FAULTS}:FlippedWeight")
    assert (result.status, result.stdout) == (2, "")
    line = f"parity: {FAULTS}:FlippedWeight: the weights of moe-tiny seed 7 have the digest "
    assert result.stderr.startswith(line)


@pytest.mark.parametrize(
    ("option", "engine", "lacking"),
    [
        ("--dut", f"{OWN}:NoReplay@key=t7_l1_attn", "replay"),
        ("--dut", "tests.cli.engines_for_tests:NoState", "state"),
        ("--ref", "tests.cli.engines_for_tests:NoCapture@key=t7_l1_attn", "capture"),
    ],
)
def test_missing_capability_is_not_run(
    moved: Path, tmp_path: Path, option: str, engine: str, lacking: str
) -> None:
    path = tmp_path / "record.json"
    result = run_cli("replay", str(moved), option, engine, "--json", str(path))
    assert said(result) == (
        3,
        "",
        f"parity: not run: {engine} lacks the capability '{lacking}', needed for replay\n"
        "  next: parity engines lists what each engine offers\n",
    )
    assert Tree.from_json(path.read_text()).verdict == "not_run"


def test_red_side_that_is_no_engine(moved: Path) -> None:
    result = run_cli("replay", str(moved), "--dut", "run.dump")
    assert said(result)[::2] == (
        2,
        "parity: --dut run.dump: not an engine\n  next: parity engines lists them\n",
    )
