"""Reports and exit statuses when something goes wrong: B07, B09, two writers, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from parity.dumps.reader import read_dump
from parity.tree import Tree
from tests.cli.running import SHORT, faulty, said, written_dump
from tests.cli_runner import run_cli
from tests.reports.html_page import read

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(str(ROOT / part) for part in ("", "engines", "probes", "reports"))
ONE, OTHER = "0123456789abcdef", "fedcba9876543210"


def started(*words: str, **options: object) -> subprocess.Popen[str]:
    """``python -m parity WORDS`` in a process of its own."""
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "parity", *words],
        env={**variables, "PYTHONPATH": PATHS},
        text=True,
        **streams,
    )


# B07: reports that eat what they show

LONG = "a_field_name_so_long_that_a_table_of_eighty_columns_would_like_to_cut_it_in_two"
HOSTILE = ("gemv[/fast]", "[red]", '<lambda> a<b>&"c"', "</script><script>alert(1)</script>")


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[str, str]:
    """Two dumps that differ, with markup in every name a dump can hold."""
    lines = [
        f"# variants {HOSTILE[0]}",
        f"# model {HOSTILE[2]}",
        f"# compiler {HOSTILE[3]}",
        f"t0_l0_{LONG} {ONE} f32[4,32]",
        f"# segment {HOSTILE[1]}",
        f"t0_l0_x {OTHER} f32[4,32]",
        f"# segment {HOSTILE[3]}",
        f"t0_l0_x {OTHER} f32[4,32]",
    ]
    ref, dut = tmp_path / "<lambda>[red] ref.dump", tmp_path / "[bold] <b>dut.dump"
    ref.write_text("\n".join(lines) + "\n")
    dut.write_text("\n".join(lines).replace(ONE, "00000000000000ff") + "\n")
    return str(ref), str(dut)


def test_b07_piped_text_is_whole_and_brackets_are_as_typed(hostile: tuple[str, str]) -> None:
    out, err = (running := started("compare", *hostile)).communicate(timeout=60)
    assert (running.returncode, err) == (1, "")
    for word in (f"t0_l0_{LONG}", ONE, "00000000000000ff", "gemv[/fast]"):
        assert word in out
    assert "\u2026" not in out
    assert all(Path(path).name in out for path in hostile)


@pytest.mark.parametrize("option", ["--html", "--junit", "--csv", "--json"])
def test_b07_every_format_holds_the_words_as_text(
    tmp_path: Path, hostile: tuple[str, str], option: str
) -> None:
    path = tmp_path / "report"
    assert run_cli("compare", *hostile, option, str(path)).status == 1
    text = path.read_text()
    assert LONG in text
    if option == "--html":
        page = read(text)
        assert page.nesting == []
        assert [word for word in HOSTILE if word not in page.text] == []
        assert not any("alert(1)" in script.text for script in page.all("script")[1:])
    elif option == "--junit":
        values = [element.get("value") for element in ET.fromstring(text).iter("property")]
        assert [word for word in (HOSTILE[0], *HOSTILE[2:]) if word not in values] == []
    elif option == "--json":
        tree = Tree.from_json(text)
        assert (tree.ref["model"], tree.ref["compiler"]) == HOSTILE[2:]
        assert [row.segment for row in tree.keys] == ["", HOSTILE[1], HOSTILE[3]]


# B09: differences found, status zero

MODES = {
    "console": (),
    "quiet": ("-q",),
    "json": ("--json", "-"),
    "csv": ("--csv", "-"),
    "html": ("--html", "-"),
    "junit": ("--junit", "-"),
}
SIDES = {
    "same": (f"t0_x {ONE}\n", 0),
    "other": (f"t0_x {OTHER}\n", 1),
    "malformed": ("t0_x 012\n", 2),
    "unreadable": (None, 2),
    "empty": ("", 3),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("side", SIDES)
def test_b09_the_status_is_the_same_in_every_mode(tmp_path: Path, mode: str, side: str) -> None:
    text, status = SIDES[side]
    ref, dut = tmp_path / "ref.dump", tmp_path / "dut.dump"
    ref.write_text(SIDES["same"][0])
    if text is not None:
        dut.write_text(text)
    result = run_cli("compare", str(ref), str(dut), *MODES[mode])
    assert (result.status, bool(result.stdout)) == (status, status != 2)
    if mode not in ("console", "quiet"):
        file = tmp_path / "report"
        result = run_cli("compare", str(ref), str(dut), MODES[mode][0], str(file))
        assert (result.status, file.exists()) == (status, status != 2)


@pytest.mark.parametrize("option", ["--json", "--csv", "--html", "--junit"])
@pytest.mark.parametrize("dut", ["same", "other"])
def test_b09_a_report_that_cannot_be_written_is_no_verdict(
    tmp_path: Path, option: str, dut: str
) -> None:
    ref, other = tmp_path / "ref.dump", tmp_path / "dut.dump"
    ref.write_text(SIDES["same"][0])
    other.write_text(str(SIDES[dut][0]))
    for path, problem in (
        (tmp_path / "no" / "such", "no such folder, or not writable"),
        (tmp_path, "is a folder"),
        (Path("/dev/full"), "No space left on device"),
    ):
        result = run_cli("compare", str(ref), str(other), option, str(path))
        assert result.status == 2
        assert result.stderr.startswith(f"parity: {path}: cannot be written: {problem}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dut.dump", "ref.dump"]


def test_b09_an_unwritable_report_is_refused_before_the_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # whoever opens it waits for ever
    words = ("compare", str(pipe), str(pipe), "--json", str(tmp_path / "no" / "such.json"))
    out, err = (running := started(*words)).communicate(timeout=60)
    assert (running.returncode, out) == (2, "")
    assert "cannot be written" in err


@pytest.mark.parametrize(
    ("mode", "dut", "status"),
    [
        *(("console", "other", 1), ("json", "same", 0), ("json", "other", 1)),
        *(("csv", "other", 1), ("html", "other", 1)),
    ],
)
def test_b09_a_reader_that_leaves_after_one_line_changes_no_status(
    tmp_path: Path, mode: str, dut: str, status: int
) -> None:
    """As ``| head -1``, with more to come than a pipe holds."""
    lines = [f"t{pos}_l0_{LONG} {ONE}\n" for pos in range(3000)]
    ref, other = tmp_path / "ref.dump", tmp_path / "dut.dump"
    ref.write_text("".join(lines))
    other.write_text("".join(lines) if dut == "same" else "".join(lines).replace(ONE, OTHER))
    running = started("compare", str(ref), str(other), *MODES[mode])
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait(60) == status


# B05 (e): two writers of one dump


def test_b05_of_two_runs_that_write_one_dump_the_second_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.dump"
    runs = [started("dump", "-o", str(path), *SHORT, "--seed", str(seed)) for seed in (7, 8)]
    said_of = [(run.communicate(timeout=60)[1], run.returncode) for run in runs]
    statuses = [status for _, status in said_of]
    assert sorted(statuses) == [0, 2]
    refused = next(text for text, status in said_of if status == 2)
    assert refused.splitlines()[0] == f"parity: {path}: exists already"
    dump = read_dump(path)
    assert dump.header["model"].endswith(f"seed {7 + statuses.index(0)}")
    assert dump.size == 138
    assert os.listdir(tmp_path) == ["run.dump"]


# Ctrl-C


def test_an_interrupted_dump_keeps_its_whole_steps_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.dump"
    words = ("dump", "-o", str(path), *SHORT, "--engine", faulty("Stopped", pos=5))
    assert said(run_cli(*words)) == (
        2,
        "",
        f"92 keys written to {path}, marked partial\nparity: interrupted\n",
    )
    dump = read_dump(path)
    assert dump.header["partial"] == "interrupted at t5"
    assert dump.header["tokens"] == "1,2,3,482,418"
    assert {entry.key.pos for entry in dump.entries} == {3, 4}
    assert set(dump.header["greedy"].split(",")) == {"2:482", "3:418", "4:431"}
    whole = written_dump(tmp_path, "whole.dump")
    for sides in ((path, whole), (whole, path)):
        result = run_cli("compare", *map(str, sides))
        assert said(result) == (
            2,
            "",
            f"parity: {path}: a partial dump: interrupted at t5\n"
            "  next: write it again, or let parity compare --partial compare what it holds\n",
        )
    result = run_cli("compare", str(whole), str(path), "--partial", "-q")
    assert said(result) == (
        3,
        "not run: 92 keys are the same, 46 are not comparable; dut partial\n",
        "",
    )
    as_side = run_cli("diff", "--ref", str(path), "--dut", str(whole))
    assert (as_side.status, "a partial dump" in as_side.stderr) == (2, True)


def test_a_dump_interrupted_before_its_first_step_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.dump"
    words = ("dump", "-o", str(path), *SHORT, "--engine", faulty("Stopped", pos=3))
    assert said(run_cli(*words)) == (2, "", "parity: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_dump_never_takes_the_place_of_a_whole_one(tmp_path: Path) -> None:
    path = written_dump(tmp_path)
    before = path.read_bytes()
    words = ("dump", "-o", str(path), "--force", *SHORT, "--engine", faulty("Stopped", pos=5))
    assert said(run_cli(*words)) == (*(2, "", f"{path} is left as it was\nparity: interrupted\n"),)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_an_interrupted_dump_of_the_prompt_keeps_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "run.dump"
    words = ("--dump-prefill", "--engine", faulty("Stopped", pos=3))
    assert run_cli("dump", "-o", str(path), *SHORT, *words).status == 2
    dump = read_dump(path)
    assert {entry.key.pos for entry in dump.entries} == {0, 1, 2}
    assert (dump.header["tokens"], dump.header["partial"]) == ("1,2,3", "interrupted at t3")


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A comparison that waits for the rest of its dut, and the writing end it waits for."""
    ref, pipe = tmp_path / "ref.dump", tmp_path / "pipe"
    ref.write_text(f"t0_x {ONE}\n")
    os.mkfifo(pipe)
    running = started("compare", str(ref), str(pipe), "--json", str(tmp_path / "tree.json"))
    writing = os.open(pipe, os.O_WRONLY)
    os.write(writing, f"t0_x {ONE}\n".encode())
    yield running, writing
    os.close(writing)
    running.kill()
    running.communicate()


def test_an_interrupted_comparison_is_one_line_and_no_report(
    tmp_path: Path, blocked: tuple[subprocess.Popen[str], int]
) -> None:
    running, _ = blocked
    time.sleep(0.2)  # it reads
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (2, "", "parity: interrupted\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "ref.dump"]


@pytest.mark.parametrize("ref", ["cpu", "file"])
def test_an_interrupted_diff_reports_on_the_steps_that_were_done(tmp_path: Path, ref: str) -> None:
    saved = tmp_path / "run.json"
    ref = ref if ref == "cpu" else str(written_dump(tmp_path))
    words = ("diff", *SHORT, "--ref", ref, "--json", str(saved), "-q")
    result = run_cli(*words, "--dut", faulty("Stopped", pos=5))
    reason = "92 keys are the same, 46 are not comparable; dut partial"
    assert said(result) == (2, f"not run: {reason}\n", "parity: interrupted\n")
    tree = Tree.from_json(saved.read_text())
    assert (tree.reason, tree.dut["partial"]) == (reason, "interrupted at t5")
    assert "dut is partial: interrupted at t5" in tree.notes
    assert run_cli("report", str(saved), "-q").status == 3
    saved.unlink()
    assert run_cli(*words, "--dut", faulty("Stopped", pos=5, key="t4_l1_x")).status == 2
    tree = Tree.from_json(saved.read_text())
    assert (tree.verdict, tree.first, tree.counts.not_comparable) == ("diverged", "t4_l1_x", 46)


def test_a_diff_interrupted_before_the_duts_first_step_leaves_no_report(tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    words = ("diff", *SHORT, "--ref", "cpu", "--json", str(saved))
    for pos in (1, 3):
        result = run_cli(*words, "--dut", faulty("Stopped", pos=pos))
        assert said(result) == (2, "", "parity: interrupted\n")
    assert list(tmp_path.iterdir()) == []
