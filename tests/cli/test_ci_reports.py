"""JUnit and GitHub annotations of every verdict: the key is named, and no status changes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pytest

from parity.inject import move_element
from tests.cli.baselines import saved
from tests.cli.running import SHORT, faulty, written_dump
from tests.cli_runner import Result, run_cli
from tests.reports.junit_schema import faults

COMMAND = re.compile(r"^::(notice|warning|error) title=([^:,]*)::(.*)$", re.MULTILINE)
MOVED = faulty("Moved", key="t4_l1_attn")
ROWS = ("--pos", "5", "--m", "2")
RACES = ("--n", "3", "--tokens", "1,2,3,4,5,6", "--steps", "3")
HYBRID = ("--model", "hybrid-tiny")


class Case(NamedTuple):
    """A command line, its status, and the key or place that its reports must name."""

    words: tuple[str, ...]
    status: int
    named: str


Make = Callable[[Path], Case]


def tensors(folder: Path, *, moved: bool) -> Case:
    ref = np.linspace(-2, 2, 24, dtype=np.float32)
    dut = ref.copy()
    if moved:
        move_element(dut, 5)
    for name, array in (("ref", ref), ("dut", dut)):
        np.savez(folder / f"{name}.npz", t0_l0_attn=ref, t0_l1_x=array)
    words = ("compare", str(folder / "ref.npz"), str(folder / "dut.npz"))
    return Case(words, int(moved), "t0_l1_x" if moved else "")


def checked(folder: Path, *words: str, status: int, named: str) -> Case:
    store = saved(folder / "store", "x", "cpu")
    return Case(("baseline", "check", "x", "--store", str(store), *words), status, named)


RED: dict[str, Make] = {
    "diff": lambda _: Case(("diff", *SHORT, "--dut", MOVED), 1, "t4_l1_attn"),
    "compare": lambda folder: tensors(folder, moved=True),
    "isodiff": lambda _: Case(
        ("isodiff", "--engine", "tests.red.row_faults:OnCpu@fault=key_too_many", *ROWS),
        1,
        "t6_l0_attn",
    ),
    "rollback": lambda _: Case(
        ("rollback", "--engine", "tests.red.rollback_faults:SkipsLast", *ROWS, *HYBRID),
        1,
        "t5_l6_conv",
    ),
    "isodiff and rollback": lambda _: Case(
        ("isodiff", "--rb", "--engine", "tests.red.rollback_faults:SkipsS", *ROWS, *HYBRID),
        1,
        "t5_l0_o",
    ),
    "stable": lambda _: Case(
        ("stable", "--engine", "tests.red.races:Rare@pos=7@run=2", *RACES),
        1,
        "t7_l3_attn",
    ),
    "check": lambda folder: checked(folder, "--engine", MOVED, status=1, named="t4_l1_attn"),
    "conformance": lambda _: Case(
        ("conformance", "tests.engines.broken_capabilities:LosesARow"), 1, "rows_equal_steps"
    ),
}
GREEN: dict[str, Make] = {
    "diff": lambda _: Case(("diff", *SHORT), 0, ""),
    "compare": lambda folder: tensors(folder, moved=False),
    "isodiff": lambda _: Case(("isodiff", *ROWS), 0, ""),
    "rollback": lambda _: Case(("rollback", *ROWS), 0, ""),
    "stable": lambda _: Case(("stable", *RACES), 0, ""),
    "check": lambda folder: checked(folder, status=0, named=""),
    "conformance": lambda _: Case(("conformance", "cpu"), 0, ""),
}
NO_ROWS = "tests.red.row_faults:NoRows"
NOT_RUN: dict[str, Make] = {
    "diff": lambda _: Case(("diff", *SHORT, "--dut", faulty("StaleTap")), 3, "control"),
    "diff not made": lambda folder: Case(
        ("diff", "--ref", str(written_dump(folder)), *SHORT, "--dut", "exec:true"), 3, "no dump"
    ),
    "isodiff": lambda _: Case(
        ("isodiff", "--engine", NO_ROWS, *ROWS), 3, "lacks the capabilities 'rows'"
    ),
    "isodiff not made": lambda _: Case(
        ("isodiff", "--engine", "tests.engines.test_conformance:NotHere", *ROWS), 3, "no device"
    ),
    "conformance": lambda _: Case(
        ("conformance", "tests.engines.test_conformance:NotHere"), 3, "no device"
    ),
}


def ran(case: Case, folder: Path) -> tuple[Result, ET.Element, tuple[str, str, str]]:
    """What was printed, the JUnit report, and (kind, title, text) of the one annotation."""
    path = folder / "junit.xml"
    result = run_cli(*case.words, "--junit", str(path), "--github")
    assert result.status == case.status, result.stderr
    assert faults(path.read_text()) == []
    assert "::" not in result.stdout.replace("::test", "")
    [found] = COMMAND.findall(result.stderr)
    return result, ET.fromstring(path.read_text()), (found[0], *map(unquote, found[1:]))


@pytest.mark.parametrize("make", RED.values(), ids=list(RED))
def test_red_names_the_key_in_failure_and_annotation(make: Make, tmp_path: Path) -> None:
    case = make(tmp_path)
    _, junit, (kind, title, text) = ran(case, tmp_path)
    failures = [one.get("message", "") for one in junit.iter("failure")]
    assert any(case.named in message for message in failures[:1]), failures
    assert kind == "error"
    assert title.startswith("parity ")
    first, *_, last = text.split("\n")
    assert case.named in first
    assert last.startswith(f"reproduce: parity {case.words[0]} ")
    assert "--github" not in last
    assert "--junit" not in last


@pytest.mark.parametrize("make", GREEN.values(), ids=list(GREEN))
def test_green_has_no_failure_and_no_error(make: Make, tmp_path: Path) -> None:
    result, junit, (kind, _, _) = ran(make(tmp_path), tmp_path)
    assert kind == "notice"
    assert "::error" not in result.stderr
    root = junit.attrib
    assert (root["failures"], root["errors"]) == ("0", "0")
    verdict = next(case for case in junit.iter("testcase") if case.get("name") == "verdict")
    assert [child.tag for child in verdict] == ["system-out"]
    assert int(root["tests"]) > 1


@pytest.mark.parametrize("make", NOT_RUN.values(), ids=list(NOT_RUN))
def test_red_not_run_is_skipped_and_a_warning(make: Make, tmp_path: Path) -> None:
    case = make(tmp_path)
    result, junit, (kind, title, text) = ran(case, tmp_path)
    assert (kind, title[-7:]) == ("warning", "NOT RUN")
    assert case.named in text
    assert "::error" not in result.stderr
    cases = list(junit.iter("testcase"))
    assert cases
    tags = [[child.tag for child in case if child.tag != "system-out"] for case in cases]
    assert tags == [["skipped"]] * len(cases)


def test_the_annotation_leaves_a_report_on_stdout_alone(tmp_path: Path) -> None:
    words = tensors(tmp_path, moved=True).words
    alone, beside = run_cli(*words, "--json", "-"), run_cli(*words, "--json", "-", "--github")
    seconds = re.compile(r'"seconds": [0-9.e-]+|"reproduce": .*')
    assert seconds.sub("", alone.stdout) == seconds.sub("", beside.stdout)
    assert (alone.status, beside.status, alone.stderr) == (1, 1, "")
    assert COMMAND.fullmatch(beside.stderr.rstrip("\n"))


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"], ids=["closed", "full"])
@pytest.mark.parametrize("moved", [False, True], ids=["green", "red"])
def test_an_annotation_that_cannot_be_written_changes_no_status(
    tmp_path: Path, moved: bool, stderr: str
) -> None:
    case = tensors(tmp_path, moved=moved)
    command = shlex.join([sys.executable, "-m", "parity", *case.words, "--github", "-q"])
    done = subprocess.run(
        ["sh", "-c", f"{command} {stderr}"], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == case.status
    assert done.stdout.count("\n") == 1


def test_a_saved_tree_is_annotated_again(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    words = tensors(tmp_path, moved=True).words
    told = run_cli(*words, "--json", str(path), "--github").stderr
    again = run_cli("report", str(path), "--format", "github")
    assert again.status == 1
    assert re.sub("reproduce.*", "", again.stdout) == re.sub("reproduce.*", "", told)


def test_a_report_of_before_is_kept_where_nothing_ran(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text("of before")
    result = run_cli(*NOT_RUN["conformance"](tmp_path).words, "--junit", str(path))
    assert (result.status, path.read_text()) == (3, "of before")


@pytest.mark.parametrize("command", [("isodiff", *ROWS), ("conformance", "cpu")])
def test_one_file_for_two_reports_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = str(tmp_path / "out")
    result = run_cli(*command, "--json", path, "--junit", path)
    assert (result.status, result.stdout) == (2, "")
    assert "already taken by another report" in result.stderr
