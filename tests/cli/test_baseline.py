"""``parity baseline save``, ``check``, ``list``, ``show``: what they accept, print and leave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from parity.baseline import save_arrays
from parity.store import Store
from parity.tree import Tree
from tests.cli.baselines import check, checked, footprint, save, saved, shown
from tests.cli.running import SHORT, STEP_KEYS, faulty, written_dump
from tests.cli_runner import run_cli
from tests.programs.specs import EXAMPLE

KEYS = 3 * STEP_KEYS


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_save_and_check(store: Path, tmp_path: Path) -> None:
    result = save(store, "x", "cpu", "--ref", "emu")
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"  accepted   x, entry 1, {Store(store).latest('baseline', 'x').digest[:12]}",
        "  side       cpu  cpu 0.1.0 exact",
        "  model      moe-tiny seed 7",
        "  tokens     from --tokens",
        f"  keys       {KEYS}",
        "  states     digests of every row",
        "  tensors    none kept",
        "  stable     3 runs alike",
        f"  green      {KEYS} keys the same as emu, states equal before and after",
    ]
    before = footprint(store)
    status, tree = checked(store, tmp_path)
    assert (status, tree.verdict, tree.counts.same) == (0, "same", KEYS)
    assert [state.equal for state in tree.states] == [True, True]
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("inject", True)
    assert tree.ref["spec"] == "baseline x"
    assert tree.dut["spec"] == "cpu"
    assert footprint(store) == before


def test_another_engine_with_the_same_bits(store: Path, tmp_path: Path) -> None:
    saved(store)
    status, tree = checked(store, tmp_path, "--engine", "emu")
    assert (status, tree.verdict) == (0, "same")
    assert "engine changed since it was accepted: cpu, now emu" in tree.notes


def test_the_record_says_how_it_was_made(store: Path, tmp_path: Path) -> None:
    saved(store, "x", "cpu:exact", "--fields", "+ffn", "--ref", "emu", "--tensors", "first")
    record = shown(store, tmp_path)["record"]
    line = "parity baseline save x cpu:exact --tokens 1,2,3 --n 3 --store"
    assert record["command"].startswith(line)
    assert record["spec"] == "cpu:exact"
    assert record["settings"] == {
        **{"model": "moe-tiny", "weights": "q4", "seed": 7, "tokens": "1,2,3", "n": 3},
        **{"fields": "+ffn", "dump_prefill": False, "hash_name": "fnv1a64"},
    }
    header = record["header"]
    for name in ("weights", "kernels", "compiler", "options", "device", "driver", "version"):
        assert header[name], name
    assert record["input"]["tokens"].startswith("1,2,3,")
    assert record["input"]["from"] == "--tokens"
    assert record["stability"]["runs"] == 3
    assert record["evidence"]["ref"] == "emu"
    assert record["evidence"]["keys"] == record["keys"]
    assert set(record["tensors"]) == {tag for tag in record["tensors"] if tag.startswith("t3_")}
    assert record["tensors"]["t3_logits"] == "f32[512]"


def test_a_prompt_from_the_seed(store: Path, tmp_path: Path) -> None:
    words = ("baseline", "save", "x", "cpu", "--n", "1", "--seed", "9")
    assert run_cli(*words, "--store", str(store)).status == 0
    record = shown(store, tmp_path)["record"]
    assert record["input"]["from"] == "seed 9"
    assert (record["settings"]["tokens"], record["settings"]["seed"]) == (None, 9)
    assert check(store, "x", "-q").status == 0
    prompt = ",".join(record["input"]["tokens"].split(",")[:32])
    assert check(store, "x", "-q", "--tokens", prompt).status == 0
    result = check(store, "x", "-q", "--tokens", f"1{prompt}")
    assert result.status == 2
    assert "baseline 'x' is of another run: --tokens" in result.stderr


def test_a_dump_file(store: Path, tmp_path: Path) -> None:
    path = written_dump(tmp_path, "ref.dump", "--dump-prefill")
    result = save(store, "x", str(path))
    assert result.status == 0, result.stderr
    assert "  stable     not recorded" in result.stdout
    assert "  green      not recorded (no --ref)" in result.stdout
    assert "  states     not recorded" in result.stdout
    record = shown(store, tmp_path)["record"]
    assert record["settings"]["dump_prefill"] is True
    assert record["stability"] is record["evidence"] is record["objects"]["states"] is None
    status, tree = checked(store, tmp_path, "--engine", "cpu")
    assert (status, tree.verdict, tree.counts.same) == (0, "same", 6 * STEP_KEYS)
    assert "states not compared: ref lacks the capability 'state'" in tree.notes
    status, tree = checked(store, tmp_path, "--engine", str(path))
    assert (status, tree.verdict) == (0, "same")
    result = check(store)
    assert result.status == 2
    assert "baseline 'x': saved from a dump file" in result.stderr


def test_a_dump_of_a_model_that_no_option_names(store: Path, tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    text = path.read_text().replace("# model moe-tiny seed 7", "# model mine")
    path = tmp_path / "mine.dump"
    path.write_text(text)
    assert save(store, "x", str(path)).status == 0
    assert checked(store, tmp_path, "--engine", str(path))[0] == 0
    result = check(store, "x", "--engine", "cpu")
    assert (result.status, result.stdout) == (2, "")
    assert "its header names no run that the options can make" in result.stderr


def test_a_program_in_line_mode(store: Path, tmp_path: Path) -> None:
    """Kept and run again by its command; what it does not tell is said."""
    result = save(store, "x", EXAMPLE)
    assert result.status == 0, result.stderr
    assert "  model      toy, weights not told" in result.stdout
    status, tree = checked(store, tmp_path)
    assert (status, tree.verdict, tree.counts.same) == (0, "same", 27)
    assert tree.run["model"] == "toy"
    assert "weights not compared: the recorded side and dut did not tell them" in tree.notes
    result = check(store, "x", "--engine", "cpu")
    assert result.status == 2
    assert "of another run: model toy recorded, moe-tiny seed 7 given" in result.stderr


def test_an_engine_that_does_not_tell_its_weights(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(store)
    monkeypatch.setattr("parity_cpu.engine.Engine.weights", lambda _: {})
    status, tree = checked(store, tmp_path)
    assert (status, tree.verdict) == (0, "same")
    assert "weights not compared: dut did not tell them" in tree.notes


def test_a_program_that_writes_a_dump(store: Path, tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    saved(store)
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\ncp "{path}" "$PARITY_DUMP"\n')
    program.chmod(0o755)
    status, tree = checked(store, tmp_path, "--engine", f"exec:{program}")
    assert (status, tree.verdict) == (0, "same")


def test_a_green_report_as_evidence(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "green.json"
    words = ("diff", "--ref", "emu", "--dut", "cpu", *SHORT, "-q", "--json", str(path))
    assert run_cli(*words).status == 0
    assert save(store, "x", "cpu", "--from", str(path)).status == 0
    evidence = shown(store, tmp_path)["record"]["evidence"]
    assert (evidence["ref"], evidence["keys"]) == ("emu", KEYS)
    assert len(evidence["report"]) == 64
    result = save(store, "y", "cpu", "--from", str(path), "--tokens", "1,2,4")
    assert (result.status, result.stdout) == (2, "")
    assert "it does not show t3_l0_nrm as it is to be accepted" in result.stderr
    assert Store(store).names("baseline") == ["x"]


# --- a red check ----------------------------------------------------------------------------------


def test_the_elements_of_a_kept_tensor(store: Path, tmp_path: Path) -> None:
    saved(store, "x", "cpu", "--tensors", "t4_l2_attn", "--tensors", "t4_logits")
    moved = faulty("Moved", key="t4_l2_attn")
    before = footprint(store)
    status, tree = checked(store, tmp_path, "--engine", moved)
    assert (status, tree.verdict, tree.first) == (1, "diverged", "t4_l2_attn")
    assert tree.elements is not None
    assert (tree.elements.key, tree.elements.differ, tree.elements.max_ulp) == ("t4_l2_attn", 1, 1)
    assert footprint(store) == before  # B08 (d)


def test_no_elements_where_no_tensor_was_kept(store: Path, tmp_path: Path) -> None:
    saved(store)
    status, tree = checked(store, tmp_path, "--engine", faulty("Moved", key="t4_l2_attn"))
    assert (status, tree.first, tree.elements) == (1, "t4_l2_attn", None)
    assert "no elements: no tensor of t4_l2_attn was kept (save --tensors)" in tree.notes


def test_every_report_of_a_check(store: Path, tmp_path: Path) -> None:
    saved(store)
    files = {name: tmp_path / f"r.{name}" for name in ("json", "html", "junit", "csv")}
    words = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    result = check(store, "x", "--engine", faulty("Moved", key="t5_logits"), "-q", *words)
    assert result.status == 1
    assert result.stdout.startswith("diverged: t5_logits, 1 of 138 keys")
    assert all(path.stat().st_size for path in files.values())
    tree = Tree.from_json(files["json"].read_text())
    spec = faulty("Moved", key="t5_logits")
    assert tree.reproduce == f"parity baseline check x --store {store} --engine {spec}"
    assert run_cli("report", str(files["json"]), "-q").status == 1


def test_a_report_in_the_store_is_refused(store: Path) -> None:
    saved(store)
    before = footprint(store)
    result = check(store, "x", "--json", str(store / "head.json"))
    assert (result.status, result.stdout) == (2, "")
    assert f"{store / 'head.json'}: lies in the store" in result.stderr
    assert footprint(store) == before


def test_a_report_in_the_place_of_the_dump_is_refused(store: Path, tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    saved(store, "x", str(path))
    before = path.read_bytes()
    result = check(store, "x", "--engine", str(path), "--json", str(path))
    assert (result.status, result.stdout) == (2, "")
    assert f"{path}: already taken by the input {path}" in result.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [("list",), ("show", "x")], ids=["list", "show"])
@pytest.mark.parametrize("part", ["head.json", "format", "new.json"])
def test_a_listing_in_the_store_is_refused(
    store: Path, tmp_path: Path, words: tuple[str, ...], part: str
) -> None:
    saved(store, "x", str(written_dump(tmp_path)))
    (tmp_path / "other").symlink_to(store)
    before = footprint(store)
    path = tmp_path / "other" / part
    result = run_cli("baseline", *words, "--store", str(store), "--json", str(path))
    assert (result.status, result.stdout) == (2, "")
    assert f"{path}: lies in the store" in result.stderr
    assert footprint(store) == before


# --- list and show --------------------------------------------------------------------------------


def test_list_of_nothing(store: Path) -> None:
    result = run_cli("baseline", "list", "--store", str(store))
    assert (result.status, result.stdout) == (0, f"no baselines in {store}\n")
    assert not store.exists()


def test_list_verifies_each(store: Path, tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    for name in ("one", "two"):
        saved(store, name, str(path), *(["--ref", "emu"] if name == "two" else []))
    out = tmp_path / "list.json"
    result = run_cli("baseline", "list", "--store", str(store), "--json", str(out))
    assert result.status == 0
    head, one, two = result.stdout.splitlines()
    assert head.split() == ["name", "entry", "accepted", "side", "model", "keys", "digest"]
    assert (one.split()[:2], two.split()[:2]) == (["one", "1"], ["two", "1"])
    body = json.loads(out.read_text())
    assert [row["name"] for row in body["baselines"]] == ["one", "two"]
    entry = store / "names" / "baseline" / "one" / "000001.json"
    entry.chmod(0o644)
    entry.write_bytes(entry.read_bytes().replace(b'"save"', b'"sav!"'))
    result = run_cli("baseline", "list", "--store", str(store))
    assert result.status == 2
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [
        ["one", "ALTERED"],
        ["two", "1"],
    ]
    assert f"{entry}: altered" in result.stderr


def test_list_sees_what_no_baseline_needs(store: Path, tmp_path: Path) -> None:
    saved(store, "x", str(written_dump(tmp_path)))
    address = Store(store).put(b"left by a killed writer")
    path = store / "objects" / address[:2] / address
    path.chmod(0o644)
    path.write_bytes(b"something else")
    result = run_cli("baseline", "list", "--store", str(store))
    assert result.status == 2
    assert f"{path}: altered: its SHA-256 is not its name" in result.stderr


def test_show_prints_everything(store: Path, tmp_path: Path) -> None:
    saved(store)
    result = run_cli("baseline", "show", "x", "--store", str(store))
    assert result.status == 0
    record = shown(store, tmp_path)["record"]
    lines = [line.strip() for line in result.stdout.splitlines()]
    told = {line.split(" ")[0]: line for line in reversed(lines) if line}
    for name, value in record["header"].items():
        if name != "tokens":
            assert told[name].endswith(value), name
    assert f"tokens     {record['input']['tokens']}" in lines
    assert told["packages"].endswith(record["packages"])
    assert told["dump"].endswith(record["objects"]["dump"])
    assert told["1"].endswith(Store(store).latest("baseline", "x").digest[:12])
    assert told["command"].endswith(record["command"])


def test_arrays_of_a_test_are_listed_and_shown(store: Path) -> None:
    """What the pytest plug-in accepts lies in the same store; it is checked where it is made."""
    save_arrays(Store(store), "tests/x.py::test_a", {"x": np.zeros(3)}, command="pytest")
    result = run_cli("baseline", "list", "--store", str(store))
    assert result.stdout.splitlines()[1].split()[:2] == ["tests/x.py::test_a", "1"]
    result = run_cli("baseline", "show", "tests/x.py::test_a", "--store", str(store))
    assert "  model      not recorded\n" in result.stdout
    assert "  tensors    1 kept\n" in result.stdout
    for words in (("check",), ("promote", "--ref", "cpu")):
        result = run_cli(
            "baseline", words[0], "tests/x.py::test_a", "--store", str(store), *words[1:]
        )
        assert (result.status, result.stdout) == (2, "")
        assert "baseline 'tests/x.py::test_a': holds arrays, no run" in result.stderr


def test_the_group_says_what_it_does() -> None:
    result = run_cli("baseline", "--help")
    assert result.status == 0
    for name in ("save", "check", "list", "show", "promote"):
        assert f"\n  {name} " in result.stdout
    assert run_cli("baseline", "sav").status == 2
    result = run_cli("baseline")
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr == "parity: Missing command\n  next: parity baseline --help\n"
