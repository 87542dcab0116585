"""Dump mode: a program that writes what it should not, or ends as it should not, is never green."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parity.dumps.reader import read_dump
from tests.cli.running import SHORT, STEP_KEYS, diff, said, written_dump
from tests.cli_runner import run_cli
from tests.programs.processes import gone
from tests.programs.specs import EXAMPLE, ROOT, shell

PLAIN_FILE = "  next: let it write a plain file under the name in PARITY_DUMP\n"


def copying(text: str, tmp_path: Path, end: str = "") -> str:
    """A program that writes ``text`` as its dump."""
    path = tmp_path / "made.dump"
    path.write_text(text)
    return shell(f'cp {shlex.quote(str(path))} "$PARITY_DUMP"{end}')


def red(spec: str) -> tuple[int, str, str]:
    return said(run_cli("diff", *SHORT, "--ref", "cpu", "--dut", spec))


# --- what the dump lacks


@pytest.mark.parametrize("position", [3, 4, 5])
def test_red_dump_without_a_position(tmp_path: Path, position: int) -> None:
    lines = written_dump(tmp_path).read_text().splitlines(keepends=True)
    kept = "".join(line for line in lines if not line.startswith(f"t{position}_"))
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", copying(kept, tmp_path))
    assert (status, tree.verdict, tree.first) == (1, "diverged", f"t{position}_l0_nrm")
    assert (tree.counts.missing, tree.counts.same) == (STEP_KEYS, 2 * STEP_KEYS)


@pytest.mark.parametrize("tag", ["t3_l0_nrm", "t4_l2_attn", "t5_logits"])
def test_red_dump_without_a_key(tmp_path: Path, tag: str) -> None:
    lines = written_dump(tmp_path).read_text().splitlines(keepends=True)
    kept = "".join(line for line in lines if not line.startswith(f"{tag} "))
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", copying(kept, tmp_path))
    assert (status, tree.verdict, tree.first, tree.counts.missing) == (1, "diverged", tag, 1)


def test_red_dump_of_other_positions(tmp_path: Path) -> None:
    text = written_dump(tmp_path).read_text()
    moved = text.replace("\nt5_", "\nt6_").replace("\nt4_", "\nt5_").replace("\nt3_", "\nt4_")
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", copying(moved, tmp_path))
    assert (status, tree.verdict, tree.first) == (1, "diverged", "t3_l0_nrm")
    assert (tree.counts.missing, tree.counts.extra) == (STEP_KEYS, STEP_KEYS)


def test_red_partial_dump(tmp_path: Path) -> None:
    text = written_dump(tmp_path).read_text().replace("\n", "\n# partial stopped at t5\n", 1)
    spec = copying(text, tmp_path)
    assert red(spec) == (
        2,
        "",
        f"parity: {spec}: a partial dump: stopped at t5\n"
        "  next: write it again, or let parity compare --partial compare what it holds\n",
    )


@pytest.mark.parametrize("cut", [2, 8, 20])
def test_red_torn_dump(tmp_path: Path, cut: int) -> None:
    text = written_dump(tmp_path).read_text()
    spec = copying(text.rstrip("\n")[: -len("f32[512]") - cut], tmp_path)
    status, out, err = red(spec)
    assert (status, out) == (2, "")
    last = len(text.splitlines())
    assert err.startswith(f"parity: {spec} line {last}: truncated: the file ends inside")


# --- how the program ends


@pytest.mark.parametrize(
    ("end", "how"),
    [("; exit 1", "ended with status 1"), ("; kill -SEGV $$", "was ended by SIGSEGV")],
)
def test_red_program_that_fails_after_a_whole_dump(tmp_path: Path, end: str, how: str) -> None:
    spec = copying(written_dump(tmp_path).read_text(), tmp_path, end)
    status, out, err = red(spec)
    assert (status, out) == (2, "")
    assert err.startswith(f"parity: {spec}: {how}: it said nothing\n  next: run it by itself")


def test_red_program_that_hangs_after_a_whole_dump(tmp_path: Path) -> None:
    spec = copying(written_dump(tmp_path).read_text(), tmp_path, "; sleep 60")
    spec = spec.replace("exec:", "exec@timeout=0.5:", 1)
    assert red(spec) == (
        2,
        "",
        f"parity: {spec}: no end after 0.5 s: it said nothing\n"
        "  next: give it more time with exec@timeout=SECONDS:..., or end it by itself\n",
    )


@pytest.mark.parametrize("where", ["", " >&2"])
def test_red_program_that_floods_its_output(where: str) -> None:
    status, out, err = red(shell(f"yes{where}", "@output=1M"))
    assert (status, out) == (2, "")
    assert ": wrote more than 1,048,576 bytes: y\n  next: let it write less, or raise" in err


def test_red_program_that_floods_its_dump() -> None:
    spec = shell('yes > "$PARITY_DUMP"', "@output=1M")
    assert red(spec) == (
        2,
        "",
        f"parity: {spec}: wrote a dump of more than 1,048,576 bytes: it said nothing\n"
        "  next: let it write less, or raise the limit with exec@output=BYTES:...\n",
    )


def test_red_large_dump_of_a_program_that_is_quick() -> None:
    spec = shell('head -c 2000000 /dev/zero > "$PARITY_DUMP"', "@output=1M")
    status, _, err = red(spec)
    assert status == 2
    assert f"{spec}: wrote a dump of more than 1,048,576 bytes" in err


@pytest.mark.parametrize("made", ['mkfifo "$PARITY_DUMP"', 'ln -s /dev/zero "$PARITY_DUMP"'])
def test_red_dump_that_is_no_plain_file(made: str) -> None:
    """Neither keeps anybody waiting."""
    spec = shell(made)
    assert red(spec) == (2, "", f"parity: {spec}: its dump is no plain file\n{PLAIN_FILE}")


def test_red_child_that_would_go_on_writing(tmp_path: Path) -> None:
    """The program has ended, and so has what it left behind, before the dump is read."""
    path = written_dump(tmp_path)
    script = f'cp {path} "$PARITY_DUMP"; (while :; do echo x >> "$PARITY_DUMP"; done) & sleep 0.2'
    status, out, err = red(shell(script))
    assert (status, out) == (2, "")
    assert "not a key: 'x'" in err


def test_a_program_of_the_time_before_line_mode_still_diffs(tmp_path: Path) -> None:
    """Version 1: dump mode alone, no PARITY_PROTOCOL, words on stdout."""
    fixture = ROOT / "tests" / "fixtures" / "program_v1.py"
    spec = f"exec:{sys.executable} {fixture}"
    other = f"exec:{sys.executable} -u {fixture}"
    ref = tmp_path / "ref.dump"
    told = {"PARITY_TOKENS": "1,2,3,482,418,431", "PARITY_PREFILL": "3"}
    environment = {**os.environ, **told, "PARITY_DUMP": str(ref)}
    subprocess.run(
        [sys.executable, str(fixture)], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    assert len(read_dump(ref).entries) == 6
    status, tree = diff(tmp_path, "--ref", str(ref), "--dut", spec)
    assert (status, tree.verdict, tree.counts.same) == (0, "same", 6)
    status, tree = diff(tmp_path, "--ref", "cpu", "--dut", other)
    assert (status, tree.verdict, tree.first) == (1, "diverged", "t3_l0_nrm")
    for command in ("isodiff", "rollback", "stable"):
        result = run_cli(command, "--engine", spec)
        assert (result.status, result.stdout) == (3, "")
        assert result.stderr == (
            f"parity: not run: {spec} has no line mode: reply to 'hello 2': ended with status 0 "
            "before its reply was complete: no PARITY_DUMP\n"
            "  next: it can be the dut of parity diff as it is; docs/exec.md says what line "
            "mode is\n"
        )


def test_the_example_in_dump_mode_is_the_example_in_line_mode(tmp_path: Path) -> None:
    words = ("--ref", EXAMPLE, "--dut", EXAMPLE, "--dump-prefill", "--hash", "kestrel-fnv")
    status, tree = diff(tmp_path, *words)
    assert (status, tree.verdict, tree.counts.same) == (0, "same", 6 * 9)
    assert tree.control is not None
    assert tree.control.fired


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_program_and_its_children(tmp_path: Path, number: int) -> None:
    told = tmp_path / "numbers"
    script = (
        f"sleep 600 & echo $! > {told}.part; echo $$ >> {told}.part; mv {told}.part {told}; wait"
    )
    words = ["diff", *SHORT, "--ref", "cpu", "--dut", shell(script)]
    parity = subprocess.Popen(
        [sys.executable, "-m", "parity", *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 120
        while not told.exists() and parity.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        parity.send_signal(number)
        _, err = parity.communicate(timeout=120)
    finally:
        parity.kill()
        parity.wait()
    assert (parity.returncode, err) == (2, "parity: interrupted\n")
    assert all(gone(int(number)) for number in told.read_text().split())
