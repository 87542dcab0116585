"""The bench counts its runs, shows what it measured and refuses to time a failing command."""

import sys

import pytest

from tests.bench import run


def test_every_run_is_timed_after_one_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([9.0, 3.0, 1.0, 2.0])
    monkeypatch.setattr(run, "once", lambda _: next(times))
    measured = run.measure(["/somewhere/parity", "diff", "-q"], 3)
    assert measured == run.Times("parity diff -q", 9.0, (3.0, 1.0, 2.0))
    head, row = run.table([measured])
    assert head.split() == ["command", "n", "first", "min", "median", "max"]
    assert row.split() == ["parity", "diff", "-q", "3", "9.000", "1.000", "2.000", "3.000"]


def test_wall_time_of_a_process() -> None:
    assert run.once([sys.executable, "-c", "import time; time.sleep(0.2)"]) >= 0.2


def test_red_failing_command_is_not_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = (sys.executable, "-c", "import sys; sys.exit('no device')")
    monkeypatch.setattr(run, "COMMANDS", (failing,))
    assert run.main(["1"]) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "ended 1: no device" in streams.err


@pytest.mark.parametrize("argument", ["0", "-1", "many"])
def test_red_no_runs(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([argument]) == 2
    assert f"1 or more, got {argument}" in capsys.readouterr().err
