"""A program that runs: its limits, its end, and what it leaves behind (nothing)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.errors import InputError
from parity.program import codec
from parity.program.process import Process, ending
from parity.program.reply import Reply
from parity.registry import ENGINES, plugins
from parity.spec import ProgramSpec, parse_spec
from tests.programs.processes import gone
from tests.programs.specs import shell

MORE_TIME = "give it more time with exec@timeout=SECONDS:..., or end it by itself"
MORE_OUTPUT = "let it write less, or raise the limit with exec@output=BYTES:..."
CHECK = "the protocol is docs/exec.md; logs belong on stderr"


def spec_of(text: str) -> ProgramSpec:
    spec = parse_spec(text, plugins(ENGINES))
    assert isinstance(spec, ProgramSpec)
    return spec


def started(script: str, limits: str = "@timeout=60", *, talks: bool = True) -> Process:
    """A started line of shell."""
    return Process(spec_of(shell(script, limits)), {"TOLD": "told", "HOME": None}, talks=talks)


def asked(process: Process, request: bytes = b"ask\n", begins: str = "line ") -> Reply:
    reply = Reply("exec:x", "ask", begins)
    process.ask(request, reply)
    return reply


def red(process: Process, call: Callable[[], object]) -> tuple[str, str]:
    """Message and next step without the spec; the program is gone, and not a zombie."""
    with pytest.raises(InputError) as caught:
        call()
    pid = process._popen.pid
    assert not Path(f"/proc/{pid}").exists()
    text = caught.value.message.removeprefix(f"{process.spec.text}: ")
    return text, caught.value.next_step


def test_requests_and_replies() -> None:
    process = started("while read word rest; do echo log >&2; echo line $word; echo ok; done")
    assert asked(process, b"one\n").lines == ["line one"]
    assert asked(process, b"two more\n").lines == ["line two"]
    process.stop()
    process.stop()
    assert not Path(f"/proc/{process._popen.pid}").exists()


def test_environment_is_told_and_hidden() -> None:
    process = started('read x; echo "line $TOLD${HOME-unset}"; echo ok')
    assert asked(process).lines == ["line toldunset"]
    process.stop()


def test_megabytes_go_both_ways_at_once() -> None:
    """The program answers while it still reads, through pipes that hold 64 KiB."""
    data = b"x" * 3_000_000
    reply = Reply("exec:x", "ask", "line |$")
    process = started("head -c 3000000 | fold -w 99999 | sed 's/^/line /'; echo; echo ok")
    process.ask(data, reply)
    assert sum(len(line) - 5 for line in reply.lines if line) == len(data)
    process.stop()


def test_a_program_that_ends_well() -> None:
    process = started("echo words; echo logs >&2; exit 5", talks=False)
    assert process.finish(lambda: None) == 5
    assert process.ended()


def test_kinds_of_ends() -> None:
    assert [ending(status) for status in (4, -9, -250)] == [
        "ended with status 4",
        "was ended by SIGKILL",
        "was ended by signal 250",
    ]


# --- red: everything ends, with a line that says what it was

_BROKEN = [
    ("exit 3", "ended with status 3 before its reply was complete: it said nothing"),
    (
        "read x; echo line; echo why >&2; exit 0",
        "ended with status 0 before its reply was complete: why",
    ),
    (
        "read x; echo line a; kill -SEGV $$",
        "was ended by SIGSEGV before its reply was complete: it said nothing",
    ),
    (
        "read x; exec >&-; sleep 60",
        "closed stdout before its reply was complete: it said nothing",
    ),
    ("exec <&-; exit 7", "ended with status 7 before its reply was complete: it said nothing"),
    ("sleep 60 & exit 8", "ended with status 8 before its reply was complete: it said nothing"),
    ("read x; printf 'line a\\no'", "ended with status 0 before its reply was complete: it said"),
]


@pytest.mark.parametrize(("script", "message"), _BROKEN)
def test_red_program_that_ends_in_the_middle(script: str, message: str) -> None:
    process = started(script)
    text, next_step = red(process, lambda: asked(process, begins="line"))
    assert text.startswith(f"reply to 'ask': {message}")
    assert next_step == CHECK


@pytest.mark.parametrize(
    "script", ["read x; sleep 60", "sleep 60", "read x; echo line a; sleep 60"]
)
def test_red_program_that_hangs(script: str) -> None:
    process = started(script, "@timeout=0.5")
    told = red(process, lambda: asked(process))
    assert told == ("reply to 'ask': no end after 0.5 s: it said nothing", MORE_TIME)


def test_red_program_that_reads_nothing() -> None:
    process = started("sleep 60", "@timeout=0.5")
    told = red(process, lambda: asked(process, b"x" * 1_000_000))
    assert told == ("reply to 'ask': no end after 0.5 s: it said nothing", MORE_TIME)


@pytest.mark.parametrize("script", ["yes", "yes >&2", "yes & sleep 60", "yes 'line a'"])
@pytest.mark.parametrize("talks", [True, False])
def test_red_program_that_floods(script: str, talks: bool) -> None:
    process = started(f"read x; {script}", "@output=1M@timeout=60", talks=talks)
    call = (lambda: asked(process, begins="line|y")) if talks else _finish(process)
    text, next_step = red(process, call)
    assert text.startswith(
        f"{'reply to ' + repr('ask') + ': ' if talks else ''}wrote more than 1,048,576 bytes: "
    )
    assert next_step.startswith(MORE_OUTPUT)


def _finish(process: Process) -> Callable[[], object]:
    return lambda: process.finish(lambda: None)


def test_red_run_that_hangs() -> None:
    process = started("echo busy; sleep 60", "@timeout=0.5", talks=False)
    assert red(process, _finish(process)) == ("no end after 0.5 s: busy", MORE_TIME)


def test_red_program_that_speaks_first() -> None:
    process = started("echo hi; read x; echo line a; echo ok; read x; sleep 60")
    text, _ = red(process, lambda: asked(process))
    assert text in (
        r"exec:x: reply to 'ask', line 1: it wrote this before it was asked: 'hi\n'",
        "exec:x: reply to 'ask', line 1: it does not belong here: 'hi'",
    )


def test_red_program_that_goes_on_between_two_requests(tmp_path: Path) -> None:
    """What comes after a reply, before the next request, is no part of that one's reply."""
    mark = tmp_path / "mark"
    process = started(f"read x; echo ok; sleep 0.1; echo ok; : > {mark}; read x; sleep 60")

    def ask_twice() -> None:
        process.ask(b"one\n", Reply("exec:x", "one", codec.NOTHING))
        end = time.monotonic() + 30
        while not mark.exists() and time.monotonic() < end:
            time.sleep(0.01)
        asked(process)

    text, _ = red(process, ask_twice)
    assert text in (
        r"exec:x: reply to 'ask', line 1: it wrote this before it was asked: 'ok\n'",
        "exec:x: reply to 'one', line 1: it goes on after its last line: 'ok'",  # both at once
    )


@pytest.mark.parametrize(
    ("said", "shown", "more"),
    [
        ("one\\n\\n", "one", []),
        ("one\\ntwo\\n", "two", ["one", "two"]),
        ("1\\n2\\n3\\n4\\n5\\n6\\n", "6", ["2", "3", "4", "5", "6"]),
        ("\\377\\033[31m\\n", "\ufffd\x1b[31m", []),
    ],
)
def test_the_end_of_what_it_said_is_shown(said: str, shown: str, more: list[str]) -> None:
    process = started(f"printf '{said}' >&2; exit 4")
    text, next_step = red(process, lambda: asked(process))
    assert text == f"reply to 'ask': ended with status 4 before its reply was complete: {shown}"
    assert next_step.splitlines() == [CHECK, *(["it said at the end:", *more] if more else [])]


@pytest.mark.parametrize("how", ["", "; sleep 60", "; exit 3"])
def test_children_are_ended_with_the_program(tmp_path: Path, how: str) -> None:
    told = tmp_path / "child"
    process = started(f"sleep 600 & echo $! > {told}; read x; echo ok{how}")
    asked(process)
    process.stop()
    assert gone(int(told.read_text()))


def test_children_of_a_run_are_ended(tmp_path: Path) -> None:
    """A child that holds the pipes open does not keep anybody waiting."""
    told = tmp_path / "child"
    process = started(f"sleep 600 & echo $! > {told}", talks=False)
    assert process.finish(lambda: None) == 0
    assert gone(int(told.read_text()))


@pytest.mark.parametrize("talks", [True, False])
def test_an_interrupt_ends_the_program(talks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    process = started("sleep 60", talks=talks)
    monkeypatch.setattr("parity.program.process.time.monotonic", _interrupting())
    with pytest.raises(KeyboardInterrupt):
        asked(process) if talks else process.finish(lambda: None)
    monkeypatch.undo()
    assert not Path(f"/proc/{process._popen.pid}").exists()


def _interrupting() -> Callable[[], float]:
    """A clock that is interrupted when it is read for the third time."""
    reads = iter([0.0, 0.0])

    def clock() -> float:
        try:
            return next(reads)
        except StopIteration:
            raise KeyboardInterrupt from None

    return clock


def test_ctrl_c_is_not_sent_to_the_program() -> None:
    """It has a session of its own: parity decides when it ends."""
    process = started("read x; echo ok; sleep 60")
    asked(process)
    assert os.getsid(process._popen.pid) == process._popen.pid != os.getsid(0)
    os.kill(process._popen.pid, signal.SIGTERM)
    process.stop()


def test_red_program_that_cannot_be_started() -> None:
    with pytest.raises(InputError) as caught:
        Process(spec_of("exec:/nonexistent/engine --flag"), {}, talks=True)
    assert caught.value.message == (
        "exec:/nonexistent/engine --flag: cannot be started: No such file or directory"
    )
    assert caught.value.next_step == "check the path of /nonexistent/engine"
