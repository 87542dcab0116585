"""Progress: one rewritten line in a terminal, gone at the end; silence elsewhere; notes stay."""

import io
import os
import pty
import struct
import termios
from fcntl import ioctl

import pytest

from parity.progress import Progress

NOTE = "building the emulator's kernels (first run on this machine, about 10 s)"


class Clock:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A terminal that remembers what was written, and can show what stands on its last line."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """Lines as a person sees them: a return goes to the line's start, texts overwrite."""
        lines = []
        for line in self.getvalue().split("\n"):
            cells: list[str] = []
            for part in line.split("\r"):
                cells[: len(part)] = part
            lines.append("".join(cells).rstrip())
        return lines


def make() -> tuple[Progress, Terminal, Clock]:
    clock, stream = Clock(), Terminal()
    return Progress(stream, clock=clock), stream, clock


def test_the_line_with_its_estimate() -> None:
    progress, stream, clock = make()
    progress.update("dut cuda", "t32", 0, 2120)
    assert stream.screen() == ["dut cuda  t32  0 of 2,120 keys"]
    clock.now += 4.0
    progress.update("dut cuda", "t34", 1413, 2120)
    assert stream.screen() == ["dut cuda  t34  1,413 of 2,120 keys   about 2 s left"]
    clock.now += 2.0
    progress.update("dut cuda", "t35", 2120, 2120)
    assert stream.screen() == ["dut cuda  t35  2,120 of 2,120 keys"]


def test_a_shorter_line_leaves_nothing_of_the_longer_one() -> None:
    progress, stream, clock = make()
    progress.update("dut cuda:exact+libm_exp", "t34", 1413, 2120)
    clock.now += 1
    progress.update("ref cpu", "t0", 1, 9)
    assert stream.screen() == ["ref cpu  t0  1 of 9 keys"]


def test_the_line_is_gone_at_the_end() -> None:
    progress, stream, _ = make()
    with progress:
        progress.update("ref cpu", "t0", 1, 9)
        assert stream.screen() == ["ref cpu  t0  1 of 9 keys"]
    assert stream.screen() == [""]
    assert stream.getvalue().endswith("\r")
    assert "\n" not in stream.getvalue()


def test_the_line_is_gone_after_an_error() -> None:
    progress, stream, _ = make()

    def fail() -> None:
        with progress:
            progress.update("ref cpu", "t0", 1, 9)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert stream.screen() == [""]


def test_a_note_stays_and_the_line_comes_back_under_it() -> None:
    progress, stream, _ = make()
    progress.update("ref cpu", "t0", 1, 9)
    progress.note(NOTE)
    assert stream.screen() == [NOTE, ""]
    progress.update("ref cpu", "t0", 2, 9)
    assert stream.screen() == [NOTE, "ref cpu  t0  2 of 9 keys"]


def test_no_more_than_ten_drawings_a_second() -> None:
    progress, stream, clock = make()
    start = clock.now
    for number in range(20_000):
        clock.now = start + number / 10_000
        progress.update(f"side {number % 2}", "t0", number, 20_000)
    assert 15 <= stream.getvalue().count("\r") <= 21


@pytest.mark.parametrize(
    ("keys", "seconds", "words"),
    [
        (1, 9.0, "about 81 s left"),
        (1, 10.0, "about 2 min left"),
        (5, 0.5, "about 1 s left"),
        (9, 9.0, "about 1 s left"),
    ],
    ids=["seconds", "minutes", "rounded up", "last"],
)
def test_estimates(keys: int, seconds: float, words: str) -> None:
    progress, stream, clock = make()
    progress.update("ref cpu", "t0", 0, 10)
    clock.now += seconds
    progress.update("ref cpu", "t0", keys, 10)
    assert stream.screen()[0].endswith(f"keys   {words}")


def test_a_side_that_starts_again_is_timed_again() -> None:
    progress, stream, clock = make()
    progress.update("dut emu", "t0", 0, 100)
    clock.now += 50
    progress.update("dut emu", "t0", 100, 100)
    clock.now += 50
    progress.update("dut emu", "t0", 0, 100)
    assert stream.screen() == ["dut emu  t0  0 of 100 keys"]
    clock.now += 1
    progress.update("dut emu", "t0", 50, 100)
    assert stream.screen() == ["dut emu  t0  50 of 100 keys   about 1 s left"]


def test_silent_where_stderr_is_no_terminal_but_notes_are_printed() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.update("ref cpu", "t0", 1, 9)
        assert stream.getvalue() == ""
        progress.note(NOTE)
    assert stream.getvalue() == f"{NOTE}\n"


def test_quiet_says_nothing() -> None:
    stream = Terminal()
    with Progress(stream, quiet=True) as progress:
        progress.update("ref cpu", "t0", 1, 9)
        progress.note(NOTE)
    assert stream.getvalue() == ""


def test_stderr_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    Progress().note(NOTE)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"{NOTE}\n")


def test_closed_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    progress = Progress()
    progress.update("ref cpu", "t0", 1, 9)
    progress.note(NOTE)
    stream = Terminal()
    progress = Progress(stream)
    stream.close()
    progress.note(NOTE)
    progress.update("ref cpu", "t0", 1, 9)
    progress.close()


def test_hostile_names_stay_on_one_line() -> None:
    progress, stream, _ = make()
    progress.update("dut exec:\n\x1b[2J", "t0", 1, 9)
    assert "\n" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    progress.note("a\nb")
    assert stream.screen() == ["a\\nb", ""]


@pytest.mark.parametrize("columns", [120, 40, 20])
def test_a_line_never_reaches_the_last_column(columns: int) -> None:
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clock = Clock()
    with os.fdopen(follower, "w") as stream:
        progress = Progress(stream, clock=clock)
        progress.update("dut cuda", "t32", 0, 2120)
        clock.now += 4
        progress.update("dut cuda", "t34", 1413, 2120)
        print("END", file=stream, flush=True)
        got = ""
        while "END" not in got:  # a terminal gives what it has, not all that was written
            got += os.read(leader, 10_000).decode()
    os.close(leader)
    lines = got.split("END")[0].split("\r")
    assert all(len(line) < columns for line in lines)
    full = "dut cuda  t34  1,413 of 2,120 keys   about 2 s left"
    shown = {120: full, 40: "dut cuda  t34  1,413 of 2,120 keys", 20: "dut cuda  t34  1,41"}
    assert lines[-1].rstrip() == shown[columns]
