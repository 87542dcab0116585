"""JUnit and GitHub annotations of a gate: each verdict is told, and no status changes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from parity.gate import passes
from tests.cli.test_gate import HERE, gate
from tests.cli_runner import Result
from tests.red.gate_engines import CLOCK
from tests.reports.junit_schema import faults


@pytest.fixture(autouse=True)
def made_up_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "now", CLOCK.now)
    CLOCK.at = 0


def reported(tmp_path: Path, fast: str, *words: str) -> tuple[Result, dict[str, str]]:
    """The result, and what became of each JUnit case: "", "failure" or "skipped"."""
    path = tmp_path / "gate.xml"
    given = ("--junit", str(path), "--github", *words)
    result = gate(tmp_path, *given, fast=f"{HERE}:{fast}")
    text = path.read_text()
    assert faults(text) == []
    cases = ET.fromstring(text).iter("testcase")
    kinds = {
        case.get("name", ""): "".join(part.tag for part in case if part.tag != "system-out")
        for case in cases
    }
    return result, kinds


@pytest.mark.parametrize(
    ("fast", "words", "status", "annotation", "kinds"),
    [
        ("Paced@us=800", (), 0, "::notice title=parity gate DEFAULT::", ["", "", ""]),
        ("Paced@us=1300", (), 1, "::error title=parity gate OPT-IN::", ["failure", "", "failure"]),
        (
            "Paced@us=500",
            ("--rounds", "3"),
            3,
            "::warning title=parity gate UNDECIDED::",
            ["skipped"] * 3,
        ),
    ],
    ids=["default", "opt-in", "undecided"],
)
def test_verdicts_of_an_equal_candidate(
    tmp_path: Path,
    fast: str,
    words: tuple[str, ...],
    status: int,
    annotation: str,
    kinds: list[str],
) -> None:
    result, cases = reported(tmp_path, fast, *words)
    assert (result.status, cases) == (
        status,
        dict(zip(("verdict", "equal", "faster"), kinds, strict=True)),
    )
    assert annotation in result.stderr
    assert result.stdout.split()[0] == annotation.split("gate ")[1].rstrip(":")


def test_a_refused_candidate_is_named_at_its_key(tmp_path: Path) -> None:
    result, cases = reported(tmp_path, "Paced+two_pass@us=500")
    assert result.status == 1
    assert cases == {"verdict": "failure", "equal": "failure", "faster": "skipped"}
    line = next(line for line in result.stderr.splitlines() if line.startswith("::error "))
    assert "first t1_l1_attn" in line
    assert "parity diff --ref" in line
    text = (tmp_path / "gate.xml").read_text()
    assert "a key differs, first t1_l1_attn" in text


def test_a_gate_that_is_not_run_passes_nothing(tmp_path: Path) -> None:
    result, cases = reported(tmp_path, "NoRows")
    assert result.status == 3
    assert set(cases.values()) == {"skipped"}
    assert "::warning title=parity gate NOT RUN::" in result.stderr


def test_reports_do_not_go_into_the_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    inside = str(tmp_path / "store" / "gate.xml")
    result = gate(tmp_path, "--junit", inside)
    assert result.status == 2
    assert "lies in the store" in result.stderr
    assert list((tmp_path / "store").iterdir()) == []
