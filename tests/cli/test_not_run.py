"""Runs that cannot be made: status 3, one line, and a record where nothing stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.tree import Tree
from tests.cli.running import SHORT
from tests.cli_runner import run_cli


def test_not_run_leaves_a_record_where_nothing_stood(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"run.{name}" for name in ("json", "junit")}
    options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    result = run_cli("diff", *SHORT, "--dut", "exec:true", *options)
    assert result.status == 3
    assert Tree.from_json(paths["json"].read_text()).verdict == "not_run"
    assert 'skipped="1"' in paths["junit"].read_text()
    assert 'failures="0"' in paths["junit"].read_text()


def test_model_that_does_not_fit_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity_cpu.engine.free_bytes", lambda: 1000)
    result = run_cli("diff", *SHORT, "--dut", "cpu")
    assert result.status == 3
    assert "cpu and cpu: moe-tiny needs 2 x 1.4 MB = 2.8 MB of host memory (" in result.stderr
    assert "), 0.0 MB are free\n" in result.stderr
