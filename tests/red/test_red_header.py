"""Faults planted in a program that uses parity_dump.h, and in the header itself."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from parity.tree import Tree
from tests.c_header import EXAMPLE, FLAGS, INCLUDE, build, cc
from tests.cli_runner import run_cli

LOOP = EXAMPLE.parents[1] / "tests" / "core" / "c" / "loop_engine.c"
SHORT = ("--tokens", "1,2,3", "--n", "3")
IN_PYTHON = "exec:" + shlex.join([sys.executable, str(EXAMPLE.with_name("exec_engine.py"))])


def example(folder: Path, *flags: str) -> str:
    """The example in C as a side."""
    return f"exec:{shlex.quote(str(build(EXAMPLE, folder / 'c_engine', *flags)))}"


# --- in the program -------------------------------------------------------------------------------


def test_one_ulp_in_the_third_row_of_a_forward(tmp_path: Path) -> None:
    """It reaches no logit: the keys alone show it."""
    done = run_cli("isodiff", "--engine", example(tmp_path, "-DFAULT=1"), "--m", "4")
    assert done.status == 1
    assert "DIVERGED  M = 3, pos 33; first key t35_l1_attn, born here" in done.stdout
    assert "columns  0 of 3 differ" in done.stdout
    clean = run_cli("isodiff", "--engine", example(tmp_path), "--m", "4")
    assert clean.status == 0, clean.stdout


def test_a_stale_row_of_the_kv_cache_after_a_rollback(tmp_path: Path) -> None:
    engine = example(tmp_path, "-DFAULT=2")
    done = run_cli("rollback", "--engine", engine, "--m", "2,4")
    assert done.status == 1
    assert "DIVERGED  M = 2, accept 0: a further step differs, first key t33_l0_k" in done.stdout
    assert run_cli("isodiff", "--engine", engine, "--m", "4").status == 0  # nothing was taken back


@pytest.mark.parametrize(("fault", "promise"), [(1, "rows_equal_steps"), (2, "rollback_restores")])
def test_a_promise_that_is_broken(tmp_path: Path, fault: int, promise: str) -> None:
    done = run_cli("conformance", example(tmp_path, f"-DFAULT={fault}"))
    assert done.status == 1
    assert [line.split(":")[0].split() for line in done.stdout.splitlines() if "BROKEN" in line][
        -1:
    ] == [["BROKEN", promise]]


def test_a_program_that_ends_within_its_dump_has_written_none(tmp_path: Path) -> None:
    """With status 0, too: the temporary file never got the dump's name."""
    dut = example(tmp_path, "-DFAULT=3")
    done = run_cli("diff", "--ref", IN_PYTHON, "--dut", dut, *SHORT)
    assert done.status == 3
    assert f"{dut}: wrote no dump" in done.stderr


# --- in the header --------------------------------------------------------------------------------

# What is changed in parity_dump.h, and what the diff of its example then names first.
FAULTS = {
    "another prime": ("0x100000001b3u", "0x100000001b5u", "t3_l0_k"),
    "a byte too few": ("at < count; at++", "at + 1 < count; at++", "t3_l0_k"),
    "swapped bytes": ("*(const unsigned char *)&one ? 0", "!one ? 0", "t3_l0_k"),
    "the shape cut": ('",%zu" : "%zu", shape[i]', '",%zu" : "%zu", shape[i] - 1', "t3_l0_k"),
    "a field lost": ("return !dump->fields ||", 'return strcmp(field, "attn") &&', "t3_l0_attn"),
    "layers lost": ('layer < 0 ? "t%ld_"', 'layer < 1 ? "t%ld_"', "t3_k"),
}


def with_fault(folder: Path, old: str, new: str) -> str:
    """The example in C, built with a changed header, as a side."""
    text = (INCLUDE / "parity_dump.h").read_text()
    assert text.count(old) == 1
    (folder / "parity_dump.h").write_text(text.replace(old, new))
    program = folder / "c_engine"
    words = [cc(), *FLAGS, "-w", "-I", str(folder), str(EXAMPLE), "-o", str(program), "-lm"]
    subprocess.run(words, check=True)
    return f"exec:{shlex.quote(str(program))}"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_writer_is_seen_at_its_key(fault: str, tmp_path: Path) -> None:
    old, new, first = FAULTS[fault]
    path = tmp_path / "run.json"
    dut = with_fault(tmp_path, old, new)
    done = run_cli("diff", "--ref", IN_PYTHON, "--dut", dut, *SHORT, "--json", str(path))
    tree = Tree.from_json(path.read_text())
    assert (done.status, tree.first) == (1, first), done.stdout


ROW = 'printf("row %ld\\n", pos);'


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        # rows with the lines of others, of another position, behind a line that is no part of it
        ("if (strtol(line + 1, NULL, 10) == pos)", "if (1)", 2, "row"),
        (ROW, ROW.replace("%ld", "0"), 2, "row"),
        ("printf(wrong ?", 'printf("note\\n"), printf(wrong ?', 2, "note"),
    ],
)
def test_a_fault_of_the_loop_is_refused(
    tmp_path: Path, old: str, new: str, status: int, said: str
) -> None:
    done = run_cli("isodiff", "--engine", with_fault(tmp_path, old, new), "--m", "2")
    assert done.status == status, done.stdout
    assert said in done.stderr


def test_logits_of_another_row_are_a_difference(tmp_path: Path) -> None:
    engine = with_fault(tmp_path, "loop->logits.data + row * bytes", "loop->logits.data")
    done = run_cli("isodiff", "--engine", engine, "--m", "2")
    assert done.status == 1, done.stdout
    assert "DIVERGED  M = 2, pos 33, col 1; first key t34_logits, born here" in done.stdout


STATE = ["part lengths int32[1] 01000000"]
STATE += [f"part l{layer}_{name} f32[1,8] {'00' * 32}" for layer in (0, 1) for name in "kv"]
SHORT_HEX = STATE[-1][:-1]


@pytest.mark.parametrize(
    ("old", "new", "put", "said"),
    [
        ("strlen(hex) != 2 * size || ", "", [*STATE[:-1], SHORT_HEX], "bytes that do not fill"),
        (" || hex[strspn(hex, digits)]", "", [*STATE[:-1], SHORT_HEX + "A"], "bytes that do not"),
        ("loop->held < 0 || ", "", [STATE[0].replace("01000000", "feffffff")], "past the end"),
        ("if (strncmp(line, ", "if (0 && strncmp(line, ", STATE[:4], "other parts than in state"),
        ('strcmp(line, "end") ? ', "0 ? ", [*STATE, "one"], "more parts than in state"),
    ],
)
def test_a_state_that_nobody_checks_is_not_refused_as_it_should_be(
    tmp_path: Path, old: str, new: str, put: list[str], said: str
) -> None:
    """Each check of set-state, taken away: the tests of the loop see another reply."""
    given = "".join(f"{line}\n" for line in ("load 4 toy", "set-state", *put, "end"))
    good = f"exec:{shlex.quote(str(build(EXAMPLE, tmp_path / 'good')))}"
    replies = []
    for side in (good, with_fault(tmp_path, old, new)):
        words = shlex.split(side.removeprefix("exec:"))
        done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
        replies.append(done.stdout.removeprefix("ok\n"))
    assert replies[0].startswith(f"error {said}")
    assert not replies[1].startswith(f"error {said}")


def test_a_write_that_nobody_checks_would_leave_a_cut_dump(tmp_path: Path) -> None:
    """What the check in parity_close is for: without it the full disk goes unseen."""
    text = (INCLUDE / "parity_dump.h").read_text()
    for old, new in (
        ("dump->lines.size, 1, file) == 1;", "dump->lines.size, 1, file) < 2;"),
        ("if (file && fclose(file)) good = 0;", "if (file) fclose(file);"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "parity_dump.h").write_text(text)
    program = tmp_path / "c_engine"
    words = [cc(), *FLAGS, "-w", "-I", str(tmp_path), str(EXAMPLE), "-o", str(program), "-lm"]
    subprocess.run(words, check=True)
    ends = {}
    for name, built in (("unchecked", program), ("checked", build(EXAMPLE, tmp_path / "good"))):
        path = tmp_path / f"{name}.dump"
        told = {"DUMP": path, "TOKENS": ",".join("1" * 200), "PREFILL": 1, "N": 199}
        env = {**os.environ, **{f"PARITY_{key}": str(value) for key, value in told.items()}}
        limited = f"trap '' XFSZ; ulimit -f 8; exec {shlex.quote(str(built))}"
        done = subprocess.run(["sh", "-c", limited], env=env, capture_output=True, check=False)
        ends[name] = (done.returncode, path.exists())
    assert ends == {"unchecked": (0, True), "checked": (1, False)}


@pytest.mark.parametrize("put", [0, 1])
def test_a_sync_that_is_left_out_shows_in_the_state(tmp_path: Path, put: int) -> None:
    call = f"if (loop->engine->sync) loop->engine->sync({put});"
    text = (INCLUDE / "parity_dump.h").read_text()
    assert text.count(call) == 1
    parts = ["part lengths int32[1] 05000000", "part l0_odd int8[3] ff7f00"]
    parts += ["part l0_wide f64[2,1] " + "00" * 16]
    given = "\n".join(["load 9 some model seed 7", "set-state", *parts, "end", "state", ""])
    replies = []
    for header in (text, text.replace(call, "")):
        (tmp_path / "parity_dump.h").write_text(header)
        (tmp_path / "engine.c").write_text(LOOP.read_text())
        program = build(tmp_path / "engine.c", tmp_path / "engine", "-DMORE")
        done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
        replies.append([line for line in done.stdout.splitlines() if line.startswith("part")])
    assert replies[0] == parts
    assert [old for old, new in zip(*replies, strict=True) if old != new] == [parts[1]]
