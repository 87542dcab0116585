"""The bench counts its runs, shows what it measured and refuses to time a failing command."""

import json
import sys
from pathlib import Path

import pytest

from tests.bench import run


def test_commands_take_turns_after_one_first_run_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([9.0, 8.0, 3.0, 12.0, 1.0, 8.0, 2.0, 10.0])
    asked: list[str] = []

    def once(command: list[str]) -> float:
        asked.append(command[1])
        return next(times)

    monkeypatch.setattr(run, "once", once)
    measured = run.measure([["/somewhere/parity", "--help"], ["/somewhere/parity", "diff"]], 3)
    assert asked == ["--help", "diff"] * 4
    assert measured[0] == run.Times("parity --help", 9.0, (3.0, 1.0, 2.0))
    head, row, other = run.table(measured)
    assert head.split() == ["command", "n", "first", "min", "median", "max", "ratio"]
    assert row.split()[1:] == ["--help", "3", "9.000", "1.000", "2.000", "3.000", "1.000"]
    # 12 / 3, 8 / 1 and 10 / 2, in pairs.
    assert other.split()[-2:] == ["12.000", "5.000"]


def test_wall_time_of_a_process() -> None:
    assert run.once([sys.executable, "-c", "import time; time.sleep(0.2)"]) >= 0.2


def test_every_figure_is_a_line_of_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "COMMANDS", ((sys.executable, "-c", "pass"),))
    history = tmp_path / "bench.json"
    for _ in range(2):
        assert run.main(["1", "--json", str(history)]) == 0
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    assert [len(line["commands"][0]["timed"]) for line in lines] == [1, 1]
    assert {"date", "platform", "cpus", "load", "python"} < set(lines[0])
    assert "wall seconds" in capsys.readouterr().out


def test_red_failing_command_is_not_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = (sys.executable, "-c", "import sys; sys.exit('no device')")
    monkeypatch.setattr(run, "COMMANDS", (failing,))
    assert run.main(["1"]) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "ended 1: no device" in streams.err


@pytest.mark.parametrize(
    ("argument", "said"),
    [("0", "1 or more, got 0"), ("-1", "1 or more, got -1"), ("many", "invalid int value: 'many'")],
)
def test_red_no_runs(argument: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main([argument])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
