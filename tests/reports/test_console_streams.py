"""The console report on pipes and terminals: colour, width, characters."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest

from parity.presenting import Options
from parity.tree import Tree
from parity_reports import console
from parity_reports.console import ConsoleReport
from parity_reports.screen import Screen
from tests.reports import trees

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A text stream that says it is a terminal, and has no file behind it."""

    def isatty(self) -> bool:
        return True


class Narrow(io.TextIOWrapper):
    """A stream that can encode ASCII only."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", newline="\n")

    def text(self) -> str:
        self.seek(0)
        return self.read()


def show(tree: Tree, width: int = 80) -> str:
    return ConsoleReport().render(tree, Screen(width))


def written(tree: Tree, stream: TextIO, color: bool | None = None) -> None:
    ConsoleReport().write(tree, stream, Options(color=color))


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_pipe_gets_no_colour_and_eighty_columns() -> None:
    stream = io.StringIO()
    written(trees.red(), stream)
    assert stream.getvalue() == show(trees.red())
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_colour_and_the_same_words() -> None:
    stream = Terminal()
    written(trees.red(), stream)
    assert "\x1b[" in stream.getvalue()
    assert ESCAPE.sub("", stream.getvalue()) == show(trees.red())


@pytest.mark.parametrize(
    ("name", "value", "colored"),
    [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False)],
    ids=["NO_COLOR", "NO_COLOR empty", "dumb terminal"],
)
def test_environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str, colored: bool) -> None:
    monkeypatch.setenv(name, value)
    stream = Terminal()
    written(trees.red(), stream)
    assert ("\x1b" in stream.getvalue()) is colored


def test_colour_can_be_chosen() -> None:
    piped, terminal = io.StringIO(), Terminal()
    written(trees.red(), piped, color=True)
    written(trees.red(), terminal, color=False)
    assert "\x1b[" in piped.getvalue()
    assert "\x1b" not in terminal.getvalue()


def test_colour_stands_where_the_design_allows_it() -> None:
    text = ConsoleReport().render(trees.red(), Screen(color=True), json_path="run.json")
    lines = text.splitlines()
    assert lines[0] == "\x1b[1;31mDIVERGED\x1b[0m  first at \x1b[1mt33_l7_attn\x1b[0m"
    by_words = {ESCAPE.sub("", line): line for line in lines}
    for words in (f"  {trees.COMMAND}", "  2 more in run.json"):
        assert "\x1b" not in by_words[words]
    keys = next(line for line in lines if "  keys" in line)
    assert keys == "\x1b[2m  keys     \x1b[0m5 of 35 differ; 19 equal before the first"
    strip = next(line for line in lines if "nrm " in line)
    assert "nrm \x1b[2mok\x1b[0m · kraw" in strip
    assert "attn \x1b[31mDIFF\x1b[0m" in text
    row = next(line for line in lines if "[1, 2]" in line)
    digit = "\x1b[1;4;31m{}\x1b[0m"
    assert f"3e0e01e{digit.format(1)}  +1.38" in row
    assert f"3e0e01e{digit.format(2)}  +1.38" in row
    assert row.count("\x1b[") == 4
    hashes = next(line for line in lines if "  ref 5c55827df1d1b1a4" in line)
    assert "\x1b" not in hashes.split("f32", 1)[1]


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("green", "\x1b[1;32mSAME\x1b[0m  35 of"),
        ("unstable", "\x1b[1;31mUNSTABLE\x1b[0m  t33"),
        ("not_run", "\x1b[1;33mNOT RUN\x1b[0m  cuda"),
    ],
)
def test_only_the_verdict_word_is_coloured(name: str, start: str) -> None:
    line = ConsoleReport().render(trees.ALL[name](), Screen(color=True)).split("\n", 1)[0]
    assert line.startswith(start)
    assert "\x1b" not in line[len(start) :]


def test_quiet_is_one_plain_line() -> None:
    for build in trees.ALL.values():
        text = ConsoleReport().render(build(), Screen(color=True), quiet=True)
        assert text.endswith("\n")
        assert text.count("\n") == 1
        assert "\x1b" not in text


def test_an_ascii_stream_gets_bars_and_escapes() -> None:
    stream = Narrow()
    written(replace(trees.red(), notes=["modèle"]), stream)
    assert "  t33 layer 7: nrm ok | kraw ok | knorm ok" in stream.text()
    assert "  note     mod\\xe8le\n" in stream.text()


def test_wide_characters_are_measured_in_columns() -> None:
    tree = replace(
        trees.green(), ref={**trees.REF, "spec": "模型"}, dut={**trees.DUT, "spec": "emu"}
    )
    text = show(tree)
    assert "  ref      模型    parity_cpu" in text
    assert "  dut      emu     parity_cuda" in text


def test_a_real_terminal_gives_its_width() -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    with os.fdopen(follower, "w", encoding="utf-8") as stream:
        written(trees.red(), stream)
        print("END", file=stream, flush=True)
        read = b""
        while b"END" not in read:  # a terminal gives what it has, not all that was written
            read += os.read(leader, 100_000)
    os.close(leader)
    got = read.decode().replace("\r\n", "\n").removesuffix("END\n")
    assert ESCAPE.sub("", got) == ConsoleReport().render(trees.red(), Screen(60, 23))
    assert got != show(trees.red(), width=60)


@pytest.mark.parametrize("columns", [None, 60, 80, 200, "wide", ""])
def test_a_real_pipe(tmp_path: Path, columns: object) -> None:
    """``parity report`` into a pipe: no colour, as wide as COLUMNS says, else 80 columns."""
    path = tmp_path / "run.json"
    path.write_text(trees.explained().to_json())
    loud = {"FORCE_COLOR": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
    asked = {} if columns is None else {"COLUMNS": str(columns)}
    done = subprocess.run(
        [sys.executable, "-m", "parity", "report", str(path)],
        env={**os.environ, **loud, **asked},
        capture_output=True,
        check=False,
    )
    screen = Screen(columns if isinstance(columns, int) else 80)
    wanted = ConsoleReport().render(trees.explained(), screen, json_path=str(path))
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.decode() == wanted
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", trees.ALL)
def test_a_report_fits_one_screen(name: str, width: int) -> None:
    """30 lines; a few more at 60 columns, where tables are folded to one fact a line."""
    text = show(trees.ALL[name](), width)
    assert text.count("\n") <= (38 if width == 60 else 30)


def test_a_low_screen_tells_less_and_counts_what_it_leaves_out() -> None:
    tree = trees.explained()
    high = ConsoleReport().render(tree, Screen(height=100))
    low = ConsoleReport().render(tree, Screen(height=26))
    assert "[1, 8]" in high
    assert "  stable   repeatable" in high
    assert "swiglu (contract 1.9): 1 birth, t33_l8_act" in high
    for words in ("[1, 8]", "  stable ", "  ref  ", "swiglu"):
        assert words not in low
    for words in ("  4 more with --json FILE\n", "  1 more op with 1 birth\n"):
        assert words in low
    assert low.splitlines()[0] == high.splitlines()[0]
    assert f"  {trees.COMMAND}\n" in low


def test_many_remarks_of_an_isolation_are_counted_where_they_do_not_fit() -> None:
    tree = trees.isolated()
    assert tree.isolation is not None
    many = replace(tree, isolation=replace(tree.isolation, notes=[f"remark {n}" for n in range(5)]))
    text = show(many)
    assert "  note     5 remarks on how it was tried, in the JSON and HTML reports\n" in text
    assert "remark 4" not in text
    assert text.count("\n") <= 30
    assert "  note     remark 4\n" in ConsoleReport().render(many, Screen(height=60))


def test_red_a_report_that_tells_all_is_longer_than_a_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "STEPS", console.STEPS[:1])
    assert show(trees.explained()).count("\n") == 31


def test_lines_of_the_environment_are_the_height(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "24")
    stream = io.StringIO()
    written(trees.explained(), stream)
    assert stream.getvalue() == ConsoleReport().render(trees.explained(), Screen(height=24))
