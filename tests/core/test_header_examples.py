"""The toy model of examples/ in C and in Python: the same bits in every mode of a program."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from parity.tree import Tree
from tests.c_header import EXAMPLE, FLAGS, INCLUDE, build, compilers
from tests.cli_runner import run_cli

PYTHON = EXAMPLE.with_name("exec_engine.py")
SHORT = ("--tokens", "1,2,3", "--n", "3")
KEYS = 3 * 9  # of three steps: k, v, attn and x of two layers, and logits


def side(*words: object) -> str:
    """The side that runs these words."""
    return "exec:" + shlex.join(map(str, words))


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The example in C as a side."""
    return side(build(EXAMPLE, tmp_path_factory.mktemp("toy") / "c_engine"))


IN_PYTHON = side(sys.executable, PYTHON)


def test_dumps_of_both_are_the_same(in_c: str, tmp_path: Path) -> None:
    for name, engine in (("c", in_c), ("python", IN_PYTHON)):
        done = run_cli("dump", "--engine", engine, "-o", str(tmp_path / f"{name}.dump"), *SHORT)
        assert done.status == 0, done.stderr
    done = run_cli("compare", str(tmp_path / "c.dump"), str(tmp_path / "python.dump"))
    assert (done.status, f"{KEYS} of {KEYS} keys equal" in done.stdout) == (0, True), done.stdout


@pytest.mark.parametrize("level", ["bit", "greedy"])
def test_each_is_the_dut_of_the_other(in_c: str, tmp_path: Path, level: str) -> None:
    for number, sides in enumerate([(IN_PYTHON, in_c), (in_c, IN_PYTHON)]):
        path = tmp_path / f"{number}.json"
        words = ("--ref", sides[0], "--dut", sides[1], "--level", level, "--json", str(path))
        done = run_cli("diff", *words, "--dump-prefill", *SHORT)
        assert done.status == 0, done.stdout + done.stderr
        tree = Tree.from_json(path.read_text())
        assert (tree.counts.same, tree.counts.total) == (2 * KEYS, 2 * KEYS)


def test_rows_equal_steps_and_rollback_leaves_no_trace(in_c: str) -> None:
    done = run_cli("isodiff", "--engine", in_c, "--m", "2,4", "--rb")
    assert done.status == 0, done.stdout + done.stderr
    assert done.stdout.count("SAME  ") == 2


def test_it_keeps_every_promise_that_it_offers(in_c: str) -> None:
    done = run_cli("conformance", in_c)
    assert (done.status, "KEPT  13 of 21 promises kept, 8 not offered" in done.stdout) == (0, True)


@pytest.mark.parametrize("level", ["-O0", "-O3"])
@pytest.mark.parametrize("name", compilers())
def test_every_compiler_gives_the_same_dump(
    name: str, level: str, in_c: str, tmp_path: Path
) -> None:
    words = [*compilers()[name], *FLAGS, level, "-I", str(INCLUDE), str(EXAMPLE), "-lm"]
    subprocess.run([*words, "-o", str(tmp_path / "other")], check=True)
    lines = {}
    for side_name, program in (("ref", in_c.removeprefix("exec:")), ("dut", tmp_path / "other")):
        told = {"DUMP": tmp_path / side_name, "TOKENS": "5,6,7,8", "PREFILL": 1, "N": 3}
        env = {**os.environ, **{f"PARITY_{key}": str(value) for key, value in told.items()}}
        subprocess.run([str(program)], env=env, check=True)
        lines[side_name] = (tmp_path / side_name).read_bytes()
    assert lines["dut"] == lines["ref"]
    assert lines["ref"].count(b"\n") == 7 + KEYS


def test_it_is_repeatable(in_c: str) -> None:
    done = run_cli("stable", "--engine", in_c, "--n", "3", *SHORT[:2])
    assert done.status == 0, done.stdout + done.stderr
