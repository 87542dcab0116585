"""The compare bench times only commands that found what was planted, and says who was too slow."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from parity.dumps.reader import read_dump
from tests.bench import compare


def test_figures_of_every_tool_on_both_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "PARITY_RUNS", 1)
    path = tmp_path / "figures.json"
    assert compare.main(["2000", str(path)]) == 0
    figures = json.loads(path.read_text())
    assert figures["lines"] == 2000
    rows = [(row["tool"], row["pair"]) for row in figures["figures"]]
    assert rows == [(tool, pair) for pair in ("last key", "every key") for tool in compare.tools()]
    assert all(row["seconds"] > 0 and row["peak"] > 1e6 for row in figures["figures"])
    assert capsys.readouterr().out.count("parity") == 2


def test_the_dumps_are_dumps(tmp_path: Path) -> None:
    path = tmp_path / "a.dump"
    compare.write_dump(path, 1234, 1)
    before = read_dump(path)
    tag = compare.change_last(path)
    after = read_dump(path)
    assert before.size == after.size == 1234
    assert [one.key for one in before.entries] == [other.key for other in after.entries]
    changed = [
        str(one.key)
        for one, other in zip(before.entries, after.entries, strict=True)
        if one != other
    ]
    assert changed == [tag] == [str(before.entries[-1].key)]


@pytest.mark.parametrize(
    "script", ["print('t0_x')", "import sys; sys.exit(1)", "print('t0_x'); raise SystemExit(2)"]
)
def test_red_a_command_that_finds_nothing_is_not_timed(script: str) -> None:
    with pytest.raises(compare.Failed):
        compare.once([sys.executable, "-c", script], "t0_x")
    found = "import sys; print('t0_x'); sys.exit(1)"
    seconds, cpu, peak = compare.once([sys.executable, "-c", found], "t0_x")
    assert seconds > 0
    assert cpu > 0
    assert peak > 1e6


def test_red_a_failed_bench_ends_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "tools", lambda: {"none": ([sys.executable, "-c", ""], 1)})
    assert compare.main(["100"]) == 1
    assert "ended 0, without 't" in capsys.readouterr().err


def test_red_too_slow_or_too_large_is_told() -> None:
    def row(tool: str, seconds: float, peak: float) -> compare.Figures:
        return compare.Figures(tool, "last key", seconds, 1.0, int(peak), 1)

    fine, slow, large = row("parity", 9.9, 1e9), row("parity", 10.1, 1e9), row("parity", 1, 2.1e9)
    assert compare.over_limits([fine, row("diff", 99, 9e9)], compare.LINES) == []
    assert compare.over_limits([slow, large], compare.LINES) == [
        "parity, last key: 10.1 s, 1000 MB",
        "parity, last key: 1.0 s, 2100 MB",
    ]
    assert compare.over_limits([slow], 2 * compare.LINES) == []
