"""parity dump, compare and report: the three steps apart."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.dumps.reader import parse_dump, read_dump
from parity.keys import Key
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity.tree import VERSION, Tree
from parity_cpu.engine import Engine
from tests.cli.running import ENGINES, SHORT, said, written_dump
from tests.cli_runner import run_cli

ROOT = Path(__file__).parents[2]


def compared(tmp_path: Path, ref: Path, dut: Path, *words: str) -> tuple[int, Tree]:
    """Status and tree of ``parity compare``."""
    path = tmp_path / "compared.json"
    result = run_cli("compare", str(ref), str(dut), *words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


def edited(path: Path, name: str, line: int, text: str | None) -> Path:
    """A copy of a dump in which one record line is replaced, or left out."""
    lines = path.read_text().splitlines()
    at = next(i for i, found in enumerate(lines) if not found.startswith("#")) + line
    lines[at : at + 1] = [] if text is None else [text]
    copy = path.with_name(name)
    copy.write_text("\n".join(lines) + "\n")
    return copy


# dump


def test_dump_holds_every_key_and_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "run.dump"
    result = run_cli("dump", "--engine", "cpu", "-o", str(path), *SHORT)
    assert said(result) == (0, "", f"138 keys written to {path}\n")
    dump = read_dump(path)
    assert len(dump.entries) == 138
    wanted = {"hash": "fnv1a64", "engine": "cpu", "tier": "exact", "variants": "none"}
    wanted |= {"model": "moe-tiny seed 7", "tokens": "1,2,3,482,418,431", "prefill": "3 own"}
    assert {name: dump.header[name] for name in wanted} == wanted
    assert all(entry.type is not None for entry in dump.entries)


def test_dump_takes_the_options_of_a_run(tmp_path: Path) -> None:
    words = ("--fields", "+ffn", "--dump-prefill", "--hash", "kestrel-fnv")
    dump = read_dump(written_dump(tmp_path, "full.dump", *words))
    assert len(dump.entries) == 6 * (46 + 32)
    assert (dump.header["hash"], dump.header["fields"]) == ("kestrel-fnv", "ffn")


def test_plain_dump_has_two_columns(tmp_path: Path) -> None:
    path = written_dump(tmp_path, "plain.dump", "--plain")
    records = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert {len(line.split(" ")) for line in records} == {2}
    status, tree = compared(tmp_path, written_dump(tmp_path), path)
    assert status == 0
    assert tree.notes == ["dtype and shape not recorded in dut (138 keys): digest alone compared"]


def test_dump_to_stdout_is_the_file(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'engines'}:{ROOT / 'reports'}"}
    command = [sys.executable, "-m", "parity", "dump", "-o", "-", *SHORT]
    done = subprocess.run(
        command, capture_output=True, check=True, cwd=tmp_path, env=environment, timeout=60
    )
    assert done.stdout == written_dump(tmp_path).read_bytes()
    assert done.stderr == b"138 keys written to stdout\n"


def test_dump_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "kept.dump"
    path.write_text("precious\n")
    result = run_cli("dump", "-o", str(path), *SHORT)
    assert said(result) == (
        2,
        "",
        f"parity: {path}: exists already\n  next: give another name, or --force\n",
    )
    assert path.read_text() == "precious\n"
    assert run_cli("dump", "-o", str(path), "--force", *SHORT).status == 0
    assert len(read_dump(path).entries) == 138


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors", "X.NPZ"])
def test_red_a_dump_is_no_file_of_values(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for words in ((), ("--force",)):
        assert said(run_cli("dump", "-o", str(path), *words, *SHORT)) == (
            2,
            "",
            f"parity: {path}: a dump is text, and the name is that of a file of values\n"
            "  next: write -o run.dump; parity.record(..., tensors=FILE) writes values\n",
        )
    assert not path.exists()


def test_dump_into_a_device_is_no_overwriting() -> None:
    assert run_cli("dump", "-o", "/dev/null", *SHORT).status == 0


@pytest.mark.parametrize(
    ("output", "message", "next_step"),
    [
        ("", "-o: the name is empty", "write -o run.dump"),
        (
            "/nonexistent/run.dump",
            "/nonexistent/run.dump: cannot be written: no such folder, or not writable",
            "give a file in a folder that exists and can be written, or - for stdout",
        ),
        (
            "/dev",
            "/dev: cannot be written: is a folder",
            "give a file in a folder that exists and can be written, or - for stdout",
        ),
    ],
)
def test_red_output_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch, output: str, message: str, next_step: str
) -> None:
    monkeypatch.setattr("parity.runs.sides.open_unloaded", None)  # would fail if it were called
    result = run_cli("dump", "-o", output, *SHORT)
    assert said(result) == (2, "", f"parity: {message}\n  next: {next_step}\n")


def test_red_dump_needs_an_engine(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    result = run_cli("dump", "--engine", str(path), "-o", str(tmp_path / "x.dump"))
    assert said(result) == (
        2,
        "",
        f"parity: --engine {path}: not an engine\n  next: parity engines lists them\n",
    )


# compare


def test_equal_dumps(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    result = run_cli("compare", str(path), str(path), "-q")
    assert said(result) == (0, "same: 138 of 138 keys, level bit, control: dump level\n", "")


def test_red_edited_dumps(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    entries = read_dump(path).entries
    lines = [f"{entry.key.tag} {entry.value_text()}" for entry in entries]
    tag, digest, kind = lines[50].split(" ")
    digit = "0" if digest[-1] != "0" else "1"
    cases = {
        "digit": f"{tag} {digest[:-1]}{digit} {kind}",
        "dtype": f"{tag} {digest} f64{kind[kind.index('[') :]}",
        "shape": f"{tag} {digest} f32[1]",
        "missing": None,
    }
    for name, text in cases.items():
        status, tree = compared(tmp_path, path, edited(path, f"{name}.dump", 50, text))
        assert (status, tree.verdict, tree.first) == (1, "diverged", tag), name
    status, tree = compared(tmp_path, edited(path, "missing.dump", 50, None), path)
    assert (status, tree.first, tree.counts.extra) == (1, tag, 1)


def test_other_line_order_is_reported_and_no_verdict(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    other = tmp_path / "other.dump"
    other.write_text("\n".join([*lines[:at], *reversed(lines[at:])]) + "\n")
    status, tree = compared(tmp_path, path, other)
    assert (status, tree.verdict) == (0, "same")
    assert tree.notes == ["line order differs: compared by key, in dataflow order"]


@pytest.mark.parametrize(
    ("text", "said_of_it"),
    [
        ("garbage\n", " line 1: not a key: 'garbage'"),
        ("t0_l0_x 123 f32[1]\n", " line 1: hash has 3 digits, 16 needed: t0_l0_x"),
        ("t0_l0_x 0123456789ab", " line 1: truncated: the file ends inside"),
        ("t0_x 0123456789abcdef f32[ 1]\n", " line 1: type 'f32[' is not dtype[shape]: t0_x"),
        ("# format parity-dump 9\n", " line 1: format 'parity-dump 9'; this parity reads"),
        ("t0_x 0123456789abcdef\n" * 2, " line 2: key t0_x appears twice in its segment"),
    ],
)
def test_red_malformed_dump(tmp_path: Path, text: str, said_of_it: str) -> None:
    good, bad = written_dump(tmp_path), tmp_path / "bad.dump"
    bad.write_text(text)
    for sides in ((good, bad), (bad, good)):
        result = run_cli("compare", *map(str, sides))
        assert (result.status, result.stdout) == (2, "")
        message, next_step = result.stderr.splitlines()
        assert message.startswith(f"parity: {bad}{said_of_it}")
        assert next_step.startswith("  next: ")
    as_side = run_cli("diff", "--ref", str(bad), "--dut", "cpu", *SHORT)
    assert as_side.stderr.startswith(f"parity: {bad}{said_of_it}")


def test_red_nothing_to_compare(tmp_path: Path) -> None:
    good, empty = written_dump(tmp_path), tmp_path / "empty.dump"
    empty.write_text("# engine none\n")
    result = run_cli("compare", str(good), str(empty), "-q")
    assert said(result) == (3, "not run: nothing compared: no keys in dut\n", "")
    result = run_cli("compare", str(empty), str(empty), "-q")
    assert said(result) == (3, "not run: nothing compared: no keys in ref and dut\n", "")


def test_red_other_hash(tmp_path: Path) -> None:
    ref = written_dump(tmp_path)
    dut = written_dump(tmp_path, "kestrel.dump", "--hash", "kestrel-fnv")
    result = run_cli("compare", str(ref), str(dut))
    assert said(result) == (
        2,
        "",
        f"parity: hashes differ: {ref} has fnv1a64, {dut} has kestrel-fnv\n"
        "  next: write one of the two again, with the same --hash\n",
    )


def test_tensor_files_show_elements(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)
    moved = values.copy()
    moved[1, 2:3].view(np.uint32)[0] += 1
    for name, array in (("ref", values), ("dut", moved)):
        np.savez(tmp_path / f"{name}.npz", first=np.int32(3), second=array)
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "first.npy", np.int32(3))
        np.save(tmp_path / name / "second.npy", array)
    for ref, dut in (("ref.npz", "dut.npz"), ("ref", "dut"), ("ref.npz", "dut")):
        status, tree = compared(tmp_path, tmp_path / ref, tmp_path / dut)
        assert (status, tree.first) == (1, "second")
        assert tree.elements is not None
        assert (tree.elements.differ, tree.elements.rows[0].index) == (1, (1, 2))
        assert tree.elements.max_ulp == 1
    status, tree = compared(tmp_path, tmp_path / "ref.npz", tmp_path / "ref")
    assert (status, tree.verdict) == (0, "same")
    # The same files are sides of a diff, too.
    result = run_cli("diff", "--ref", str(tmp_path / "ref.npz"), "--dut", str(tmp_path / "dut.npz"))
    assert (result.status, "DIVERGED  first at second" in result.stdout) == (1, True)


def test_engine_against_tensors_of_the_same_keys(tmp_path: Path) -> None:
    engine = Engine(EngineSettings())
    engine.load(synthetic("moe-tiny", 7), 6)
    engine.prefill([1, 2, 3])
    key = Key(3, 2, "attn")
    step = engine.step(482, Plan((), tensors=frozenset({key})))
    np.savez(tmp_path / "framework.npz", **{key.tag: step.tensors[key]})
    words = ("--ref", "cpu", "--dut", str(tmp_path / "framework.npz"))
    result = run_cli("diff", *SHORT, *words, "--json", "-")
    tree = Tree.from_json(result.stdout)
    assert (tree.counts.same, tree.counts.missing, tree.counts.differ) == (1, 137, 0)


# report


def test_report_renders_the_saved_run_again(tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    for dut in ("cpu", f"{ENGINES}:Moved@key=t4_l2_attn"):
        run = run_cli("diff", *SHORT, "--dut", dut, "--json", str(saved))
        again = run_cli("report", str(saved))
        assert said(again) == (run.status, run.stdout, "")
        quiet = run_cli("report", str(saved), "-q")
        assert (quiet.status, quiet.stdout.count("\n")) == (run.status, 1)
        assert json.loads(run_cli("report", str(saved), "--format", "json").stdout) == json.loads(
            saved.read_text()
        )


def test_report_as_csv_into_a_file(tmp_path: Path) -> None:
    saved, table = tmp_path / "run.json", tmp_path / "run.csv"
    run_cli("diff", *SHORT, "--dut", "cpu", "--json", str(saved))
    assert run_cli("report", str(saved), "--format", "csv", "-o", str(table)).status == 0
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(rows) == 138
    assert {row["state"] for row in rows} == {"same"}


def test_report_carries_the_status_of_each_verdict(tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    for dut, status in (("Once", 1), ("DeadTap", 3), ("Silent@key=t4_l1_x", 1)):
        run_cli("diff", *SHORT, "--dut", f"{ENGINES}:{dut}", "--json", str(saved))
        assert run_cli("report", str(saved), "-q").status == status


@pytest.mark.parametrize(
    ("text", "said_of_it"),
    [
        ("{", "not JSON: cut short, the text ends inside line 1\n"),
        ('{\n"a": "b', "not JSON: cut short, the text ends inside line 2\n"),
        ("key value\n", "not JSON, at line 1 column 1\n"),
        ("", "not JSON, at line 1 column 1\n"),
        ("[" + "9" * 5000 + "]", "not JSON: too large a number\n"),
        ("[]", "no file of --json\n"),
        ('{"format": "other"}', "no file of --json\n"),
        (
            '{"format": "parity-digest", "version": 1}',
            "a parity-digest file, which has no report\n",
        ),
        (
            '{"format": "parity-divergence", "version": 9}',
            f"version 9 of parity-divergence, this parity reads 1 to {VERSION}\n"
            "  next: update parity, or render it with the one that wrote it\n",
        ),
        (
            '{"format": "parity-divergence", "version": 0}',
            f"version 0 of parity-divergence, this parity reads 1 to {VERSION}\n"
            "  next: make the run again\n",
        ),
        ('{"format": "parity-divergence", "version": "2"}', "damaged: its version is no number\n"),
        ('{"format": "parity-divergence", "version": true}', "damaged: its version is no number\n"),
        (
            f'{{"format": "parity-divergence", "version": {VERSION}}}',
            "damaged: 'elements' is missing",
        ),
        ("[" * 100_000, "not JSON: nested too deep\n"),
    ],
)
def test_red_report_of_something_else(tmp_path: Path, text: str, said_of_it: str) -> None:
    saved = tmp_path / "run.json"
    saved.write_text(text)
    result = run_cli("report", str(saved))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(f"parity: {saved}: {said_of_it}")


def test_red_report_with_another_kind_of_value(tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    run_cli("diff", *SHORT, "--dut", "cpu", "--json", str(saved))
    body = json.loads(saved.read_text())
    for name in ("states", "keys", "greedy", "inputs"):
        saved.write_text(json.dumps({**body, name: [5]}))
        result = run_cli("report", str(saved))
        assert (result.status, result.stdout) == (2, ""), name
        assert result.stderr.startswith(f"parity: {saved}: damaged: ")
        assert result.stderr.endswith("\n  next: write the report again\n")


def test_red_report_of_no_file(tmp_path: Path) -> None:
    for path, problem in ((tmp_path / "absent", "No such file or directory"), (tmp_path, "Is a")):
        result = run_cli("report", str(path))
        assert (result.status, result.stdout) == (2, "")
        assert result.stderr.startswith(f"parity: {path}: {problem}")
        assert result.stderr.endswith("\n  next: give a file of --json\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    result = run_cli("report", str(tmp_path / "bytes"))
    assert result.stderr == (
        f"parity: {tmp_path / 'bytes'}: not UTF-8\n  next: give a file of --json\n"
    )


# Reports never take the place of an input or of one another.


@pytest.mark.parametrize("option", ["--json", "--csv"])
def test_red_report_over_an_input(tmp_path: Path, option: str) -> None:
    path = written_dump(tmp_path)
    before = path.read_bytes()
    other = tmp_path / "folder"
    other.mkdir()
    (tmp_path / "link.dump").symlink_to(path)
    same = other / ".." / "ref.dump"
    commands = [
        ("compare", str(path), str(path)),
        ("diff", "--ref", str(path), "--dut", "cpu", *SHORT),
        ("diff", "--ref", "cpu", "--dut", str(tmp_path / "link.dump"), *SHORT),
    ]
    for words in commands:
        result = run_cli(*words, option, str(same))
        assert (result.status, result.stdout) == (2, "")
        assert result.stderr.startswith(f"parity: {same}: already taken by the input ")
        assert path.read_bytes() == before


def test_red_report_over_the_saved_run(tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    run_cli("diff", *SHORT, "--dut", "cpu", "--json", str(saved))
    before = saved.read_bytes()
    result = run_cli("report", str(saved), "-o", str(saved))
    assert said(result) == (
        2,
        "",
        f"parity: {saved}: already taken by the input {saved}\n  next: give another file\n",
    )
    assert saved.read_bytes() == before


def test_red_two_reports_in_one_place(tmp_path: Path) -> None:
    for path in ("-", str(tmp_path / "x")):
        result = run_cli("diff", *SHORT, "--dut", "cpu", "--json", path, "--csv", path)
        assert said(result) == (
            2,
            "",
            f"parity: {path}: already taken by another report\n  next: give another file\n",
        )
    assert list(tmp_path.iterdir()) == []


def test_dump_of_stdin_can_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written_dump(tmp_path)
    stdin = io.TextIOWrapper(io.BytesIO(path.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    result = run_cli("compare", str(path), "-", "-q")
    assert said(result) == (0, "same: 138 of 138 keys, level bit, control: dump level\n", "")
    assert len(parse_dump(path.read_bytes(), "bytes").entries) == 138
