"""Bad input: one line naming the thing, the next step, status 2 or 3, no traceback, no file."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from parity import __main__ as entry
from parity.errors import InputError, NotRunError
from parity_cuda import emu_backend
from parity_cuda.emu.compiler import find_compiler
from parity_cuda.sources import kernel_sources
from tests.caches import own_cache
from tests.cli.running import SHORT, faulty, said, written_dump
from tests.cli_runner import run_cli

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(str(ROOT / part) for part in ("", "engines", "reports"))
CPU = ("diff", "--ref", "cpu", "--dut", "cpu")
WRITABLE = "give a file in a folder that exists and can be written, or - for stdout"

BAD_INPUT = [
    # What is typed: a command, an option, a value.
    (("dmup",), "No such command 'dmup'. Did you mean 'dump'?", "parity --help"),
    (("diff", "extra"), "Got unexpected extra argument (extra)", "parity diff --help"),
    (("compare", "a"), "Missing argument 'DUT'", "parity compare --help"),
    (("dump",), "Missing option '-o' / '--output'", "parity dump --help"),
    (("diff", "--n"), "Option '--n' requires an argument", "parity diff --help"),
    (
        (*CPU, "--n", "x"),
        "Invalid value for '--n': 'x' is not a valid integer",
        "parity diff --help",
    ),
    (
        (*CPU, "--hash", "md5"),
        "Invalid value for '--hash': 'md5' is not one of 'fnv1a64', 'kestrel-fnv'",
        "parity diff --help",
    ),
    (
        (*CPU, "--level", "most"),
        "Invalid value for '--level': 'most' is not one of 'bit', 'logits', 'greedy'",
        "parity diff --help",
    ),
    # What is to be run.
    ((*CPU, "--n", "0"), "--n 0: nothing to decode", "give --n 1 or more"),
    ((*CPU, "--n", "-4"), "--n -4: nothing to decode", "give --n 1 or more"),
    ((*CPU, "--seed", "-1"), "seed -1 is out of range", "give a seed of 0 to 2^64 - 1"),
    (
        (*CPU, "--seed", str(1 << 64)),
        "seed 18446744073709551616 is out of range",
        "give a seed of 0 to 2^64 - 1",
    ),
    ((*CPU, "--tokens", "1,,2"), "--tokens: '' is not a token id", "write --tokens 1,2,3"),
    ((*CPU, "--tokens", ""), "--tokens: '' is not a token id", "write --tokens 1,2,3"),
    ((*CPU, "--tokens", "1,-2"), "--tokens: '-2' is not a token id", "write --tokens 1,2,3"),
    ((*CPU, "--tokens", "1,two"), "--tokens: 'two' is not a token id", "write --tokens 1,2,3"),
    ((*CPU, "--tokens", "1;2"), "--tokens: '1;2' is not a token id", "write --tokens 1,2,3"),
    (
        (*CPU, "--tokens", "1,512,2"),
        "token 512 at position 1 is outside the vocabulary of moe-tiny (512 ids)",
        "give ids of 0 to 511",
    ),
    (
        (*CPU, "--n", "2017"),
        "position 2048 is past the KV cache of moe-tiny (2,048 positions)",
        "give a shorter prompt or a smaller --n",
    ),
    (
        (*CPU, "--n", "1" + "0" * 18),
        "position 1000000000000000031 is past the KV cache of moe-tiny (2,048 positions)",
        "give a shorter prompt or a smaller --n",
    ),
    (
        (*CPU, "--fields", "ffn"),
        "--fields: 'ffn' does not start with +",
        "write --fields +ffn",
    ),
    (
        (*CPU, "--dump-prefill", "--prefill", "ref"),
        "--dump-prefill with --prefill ref: the dut takes over the ref's state and has no keys "
        "of the prompt",
        "leave one of the two out",
    ),
    # Probes.
    (("isodiff", "--m", "0"), "--m 0: nothing to run", "write --m 2..8"),
    (("isodiff", "--m", "8..2"), "--m 8..2: nothing to run", "write --m 2..8"),
    (
        ("isodiff", "--m", "2,x"),
        "--m: 'x' is not a number or a range of at most six digits",
        "write --m 2..8",
    ),
    (
        ("isodiff", "--m", "2", "--pos", "5:3"),
        "--pos: '5:3' is not a range of positions",
        "write --pos 33:38",
    ),
    (
        ("isodiff", "--m", "2..2003"),
        "--pos 38 with --m 2003 and 8 further steps: position 2048 is past the KV cache of "
        "moe-tiny (2,048 positions)",
        "give a smaller --pos or --m",
    ),
    (("rollback", "--seeds", "0"), "--seeds 0: nothing to run", "give --seeds 1 or more"),
    (("rollback", "--seed", "-1"), "seed -1 is out of range", "give a seed of 0 to 2^64 - 1"),
    # Files.
    (
        ("diff", "--ref", "missing.dump", "--dut", "cpu"),
        "missing.dump: No such file or directory",
        "give a dump file that exists",
    ),
    (
        ("diff", "--ref", "cpu", "--dut", "./missing", *SHORT),
        "missing: No such file or directory",
        "give a dump file that exists",
    ),
    (
        ("compare", "missing.dump", "missing.npz"),
        "missing.dump: No such file or directory",
        "give a dump file that exists",
    ),
    (
        ("report", "missing.json"),
        "missing.json: No such file or directory",
        "give a file of --json",
    ),
    (
        (*CPU, "--json", "no/such/x.json"),
        "no/such/x.json: cannot be written: no such folder, or not writable",
        WRITABLE,
    ),
    ((*CPU, "--csv", "."), ".: cannot be written: is a folder", WRITABLE),
    (("engines", "--json", "."), ".: cannot be written: is a folder", WRITABLE),
    (("doctor", "--json", "."), ".: cannot be written: is a folder", WRITABLE),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message", "next_step"),
    BAD_INPUT,
    ids=[" ".join(case[0])[-40:] for case in BAD_INPUT],
)
def test_red_bad_input(folder: Path, words: tuple[str, ...], message: str, next_step: str) -> None:
    result = run_cli(*words)
    assert said(result) == (2, "", f"parity: {message}\n  next: {next_step}\n")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", [(*CPU,), ("dump", "-o", "x"), ("doctor",)])
def test_red_unknown_preset(folder: Path, command: tuple[str, ...]) -> None:
    result = run_cli(*command, "--model", "moe-tinny")
    assert (result.status, result.stdout) == (2, "")
    message, next_step = result.stderr.splitlines()
    assert message == "parity: unknown model 'moe-tinny'"
    assert next_step.startswith("  next: did you mean moe-tiny? presets: moe-tiny, moe-48, ")
    assert list(folder.iterdir()) == []


def test_red_unknown_field() -> None:
    result = run_cli(*CPU, "--fields", "+gates")
    assert (result.status, result.stdout) == (2, "")
    message, next_step = result.stderr.splitlines()
    assert message == "parity: unknown field 'gates'"
    assert next_step.startswith("  next: did you mean +gate? known: +ffn, ")


def test_no_command_shows_the_help_on_stderr() -> None:
    result = run_cli()
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: parity [OPTIONS] [COMMAND] [ARGS]...\n")
    assert "Render a saved result again." in result.stderr


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("diff", "-h"), ("--version",)])
def test_help_is_no_error(words: tuple[str, ...]) -> None:
    result = run_cli(*words)
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout.startswith(("Usage: parity", "parity 0."))


def test_report_that_cannot_be_written_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("parity.runs.sides.open_unloaded", None)  # would fail if it were called
    result = run_cli(*CPU, "--json", "/nonexistent/x.json")
    assert result.status == 2
    assert result.stderr.startswith("parity: /nonexistent/x.json: cannot be written: ")


def test_probes_leave_stdout_to_json() -> None:
    words = ("isodiff", "--m", "2", "--pos", "3")
    one = run_cli(*words, "--json", "-")
    assert (one.status, one.stderr) == (0, "")
    assert json.loads(one.stdout)["name"] == "isodiff"
    both = json.loads(run_cli(*words, "--rb", "--json", "-").stdout)
    assert [found["name"] for found in both] == ["isodiff", "rollback"]


def test_existing_report_outlives_a_failure(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("precious\n")
    for words in ((*CPU, "--n", "0"), ("diff", "--ref", "missing.dump", "--dut", "cpu")):
        assert run_cli(*words, "--json", str(kept)).status == 2
    assert run_cli("diff", *SHORT, "--dut", "exec:true", "--json", str(kept)).status == 3
    assert run_cli("diff", *SHORT, "--dut", faulty("ManyLines"), "--json", str(kept)).status == 2
    assert kept.read_text() == "precious\n"
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


# What the machine lacks.


class FakeRuntime:
    """A CUDA runtime without a driver."""

    driverGetVersion = staticmethod(lambda: 0)


class FakeCuda:
    """cupy.cuda of a machine without a driver."""

    runtime = FakeRuntime


class FakeCupy:
    """CuPy on a machine without a driver."""

    cuda = FakeCuda


@pytest.mark.parametrize(
    ("cupy", "message"),
    [
        (None, "cuda: CuPy is not installed"),
        (FakeCupy, "cuda: no NVIDIA driver on this machine (libcuda.so.1 not found)"),
    ],
)
def test_red_no_device(monkeypatch: pytest.MonkeyPatch, cupy: Any, message: str) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for words in (("diff", *SHORT, "--dut", "cuda"), ("dump", "-o", "-", "--engine", "cuda")):
        result = run_cli(*words)
        assert (result.status, result.stdout) == (3, "")
        first, next_step = result.stderr.splitlines()
        assert first == f"parity: not run: {message}"
        assert next_step.startswith("  next: ")
        assert "use --dut emu" in next_step


def test_red_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: name != "ziglang" and find(name, *rest)
    )
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("PARITY_CXX", raising=False)
    result = run_cli("diff", *SHORT, "--dut", "emu")
    assert said(result) == (
        3,
        "",
        "parity: not run: the emulator needs a C++ compiler and found none\n"
        "  next: install g++ or clang++, or run: pip install 'parity-harness[emu]' "
        "(brings ziglang)\n",
    )


def test_red_chosen_compiler_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_CXX", "/nonexistent")
    result = run_cli("diff", *SHORT, "--dut", "emu")
    assert said(result) == (
        2,
        "",
        "parity: PARITY_CXX names a compiler that does not run: /nonexistent\n"
        "  next: set it to a C++ compiler, or unset it\n",
    )


@pytest.fixture
def compiler() -> None:
    """Skip where no C++ compiler is."""
    try:
        find_compiler()
    except NotRunError as error:
        pytest.skip(f"emu: {error.message}")


@pytest.mark.usefixtures("compiler")
def test_red_kernel_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = kernel_sources()
    lines = sources["add.cu"].splitlines()
    at = next(i for i, line in enumerate(lines) if "__fadd_rn" in line)
    lines[at] = lines[at].replace("__fadd_rn", "no_such_function")
    monkeypatch.setattr(
        emu_backend, "kernel_sources", lambda: {**sources, "add.cu": "\n".join(lines)}
    )
    own_cache(tmp_path / "cache", monkeypatch, "emu-objects", "numba")
    result = run_cli("diff", *SHORT, "--dut", "emu")
    assert (result.status, result.stdout) == (2, "")
    message, next_step = result.stderr.splitlines()[-2:]
    assert message.startswith(f"parity: add.cu:{at + 1}: ")
    assert "no_such_function" in message
    log = Path(next_step.split(": ")[-1])
    assert next_step.startswith("  next: fix the kernel source; everything the compiler said: ")
    assert "no_such_function" in log.read_text()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("variable", ["PARITY_CACHE", "XDG_CACHE_HOME", "HOME"])
def test_red_cache_folder_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("PARITY_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, "/proc/x")
    result = run_cli("diff", *SHORT, "--dut", "emu")
    assert (result.status, result.stdout) == (2, "")
    message, next_step = result.stderr.splitlines()[-2:]
    assert message.startswith("parity: cannot make the cache folder /proc/x/")
    assert next_step.startswith("  next: set PARITY_CACHE to a folder ")


def test_cpu_engine_without_a_cache_says_so_in_one_line(tmp_path: Path) -> None:
    done = in_process_of_its_own("engines", PARITY_CACHE="/proc/x")
    assert done.returncode == 0
    note, *rest = done.stderr.splitlines()
    assert note.startswith("parity: note: compiled code is not kept, so every run compiles anew")
    assert note.endswith("set PARITY_CACHE to a folder of your own")
    assert rest == []


# What nobody foresaw.


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("Quits", "SystemExit: 0"),
        ("BrokenPipe", "BrokenPipeError: [Errno 32] Broken pipe"),
        ("EndOfFile", "EOFError: no more weights"),
        ("ManyLines", "ValueError: first line\\x1b[31m"),
    ],
)
def test_red_engine_that_raises_is_never_a_verdict(engine: str, message: str) -> None:
    result = run_cli("diff", *SHORT, "--dut", faulty(engine))
    assert (result.status, result.stdout) == (2, "")
    wanted = (
        rf"parity: internal error: {re.escape(message)}, in engines_for_tests\.py line [0-9]+\n"
        r"  next: set PARITY_TRACEBACK=1, run again and report what it prints\n"
    )
    assert re.fullmatch(wanted, result.stderr)


def test_traceback_on_request_keeps_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_TRACEBACK", "1")
    result = run_cli("diff", *SHORT, "--dut", faulty("ManyLines"))
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert "second line" in result.stderr


def test_interrupted_engine() -> None:
    result = run_cli("diff", *SHORT, "--dut", faulty("Interrupted"))
    assert said(result) == (2, "", "parity: interrupted\n")


def test_message_is_one_line_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.fail("a\nb\x1b[2J", "one\ntwo", InputError.exit_status)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "parity: a\\nb\\x1b[2J\n  next: one\n        two\n"


# Streams that are closed, full or left.


def in_process_of_its_own(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """``python -m parity WORDS``; upper-case options are environment variables."""
    named = {name: value for name, value in options.items() if name.isupper()}
    rest = {name: value for name, value in options.items() if not name.isupper()}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **rest}
    return subprocess.run(
        [sys.executable, "-m", "parity", *words],
        env={**os.environ, "PYTHONPATH": PATHS, **named},
        text=True,
        timeout=60,
        check=False,
        **streams,
    )


@pytest.fixture
def left_pipe() -> Any:
    """The writing end of a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def buffering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python with and without its own buffer, which decides when a fault is met."""
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


@pytest.mark.usefixtures("buffering")
@pytest.mark.parametrize("words", [("--version",), ("diff", "--help"), ("compare",), ("dump",)])
def test_reader_that_has_seen_enough_changes_no_status(
    tmp_path: Path, left_pipe: int, words: tuple[str, ...]
) -> None:
    status = 0
    if words == ("compare",):
        ref, dut = written_dump(tmp_path), written_dump(tmp_path, "short.dump", "--n", "1")
        words, status = ("compare", str(ref), str(dut)), 1
    elif words == ("dump",):
        words = ("dump", "-o", "-", *SHORT)
    done = in_process_of_its_own(*words, stdout=left_pipe)
    assert done.returncode == status
    assert done.stderr == ("138 keys written to stdout\n" if words[0] == "dump" else "")


@pytest.mark.usefixtures("buffering")
@pytest.mark.parametrize("words", [("--version",), ("compare",)])
def test_red_full_stdout(tmp_path: Path, words: tuple[str, ...]) -> None:
    if words == ("compare",):
        path = str(written_dump(tmp_path))
        words = ("compare", path, path)
    with open("/dev/full", "w") as full:
        done = in_process_of_its_own(*words, stdout=full)
    assert done.returncode == 2
    message, next_step = done.stderr.splitlines()
    assert message == "parity: stdout: cannot be written: No space left on device"
    assert next_step.startswith("  next: ")


def closed(descriptor: int, *words: str) -> subprocess.CompletedProcess[str]:
    """``parity WORDS`` started with one stream closed."""
    command = f'"$0" -m parity "$@" {descriptor}>&-'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, *words],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_closed_streams(tmp_path: Path) -> None:
    ref, dut = written_dump(tmp_path), written_dump(tmp_path, "short.dump", "--n", "1")
    done = closed(1, "compare", str(ref), str(dut))
    assert (done.returncode, done.stderr) == (1, "")
    done = closed(1, "dump", "-o", "-", *SHORT)
    assert done.returncode == 2
    assert done.stderr == "parity: -o -: stdout is closed\n  next: give -o a file\n"
    # What belongs on stderr never goes to stdout instead.
    done = closed(2, "compare", "missing.dump", str(dut))
    assert (done.returncode, done.stdout) == (2, "")


def test_interrupt_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "parity", "diff", *SHORT, "--ref", "cpu"]
    command += ["--dut", f"exec:sh -c 'touch {ready}; exec sleep 60'"]
    running = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": PATHS},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 50
    while not ready.exists() and time.monotonic() < until:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (2, "", "parity: interrupted\n")


def test_shell_completion_still_works() -> None:
    words = {"_PARITY_COMPLETE": "bash_complete", "COMP_WORDS": "parity dif", "COMP_CWORD": "1"}
    done = in_process_of_its_own(**words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain,diff\n", "")
