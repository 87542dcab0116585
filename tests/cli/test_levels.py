"""--level decides the exit status and the JUnit report alike."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli_runner import run_cli


@pytest.mark.parametrize(("level", "status"), [("greedy", 0), ("bit", 1)])
def test_junit_is_red_exactly_when_the_status_is(tmp_path: Path, level: str, status: int) -> None:
    path = tmp_path / "run.xml"
    # A contaminated start whose decoding differs too, with every greedy choice the same.
    words = ("--ref", "cpu", "--dut", "cpu:fast", "--level", level, "--junit", str(path))
    done = run_cli("diff", *words, "-q")
    assert done.status == status
    # One line that says "diverged" and ends 0 says why it may.
    assert ("level greedy, which was asked for" in done.stdout) == (status == 0)
    suite = ET.parse(path).getroot()
    assert (int(suite.attrib["failures"]) > 0) == (status == 1)
    failed = {
        case.attrib["name"] for case in suite.iter("testcase") if case.find("failure") is not None
    }
    assert ("decode" in failed) == (status == 1)


def test_weights_are_hashed_once_a_side(monkeypatch: pytest.MonkeyPatch) -> None:
    from parity_cpu.engine import Engine

    calls: list[str] = []
    weights = Engine.weights

    def counted(self: Engine) -> object:
        calls.append(self.name)
        return weights(self)

    monkeypatch.setattr(Engine, "weights", counted)
    assert run_cli("diff", "--ref", "cpu", "--dut", "cpu:fast", "-q").status == 1
    assert calls == ["cpu", "cpu"]
