"""Writing reports: whole files or none, pipes and devices, and what may change a status."""

import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest

from parity.errors import InputError, ParityBug
from parity.presenting import (
    Options,
    Presenter,
    printable,
    require_writable,
    write_report,
    write_text,
)
from parity.status import ExitStatus, Level, Verdict
from parity.tree import Tree
from parity_reports.console import ConsoleReport
from parity_reports.csv_report import CsvReport
from parity_reports.json_report import JsonReport
from tests.reports import trees

PRESENTERS: tuple[Presenter, ...] = (ConsoleReport(), JsonReport(), CsvReport())
each_presenter = pytest.mark.parametrize("presenter", PRESENTERS, ids=lambda p: p.name)


class Failing:
    """A presenter that writes half a report, then fails."""

    name = "failing"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write half a report, then raise."""
        stream.write("half")
        raise self.error


@each_presenter
def test_a_file_holds_what_the_stream_gets(
    tmp_path: Path, presenter: Presenter, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report"
    write_report(presenter, trees.red(), str(path))
    write_report(presenter, trees.red(), "-")
    assert path.read_text(encoding="utf-8") == capsys.readouterr().out != ""
    assert os.listdir(tmp_path) == ["report"]


def test_a_file_follows_the_umask_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    before = os.umask(0o027)
    try:
        write_report(JsonReport(), trees.red(), str(path))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_text() == trees.red().to_json()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    write_report(JsonReport(), trees.red(), str(link))
    assert link.is_symlink()
    assert target.read_text() == trees.red().to_json()


def test_a_named_pipe_stays_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(path.read_text()), daemon=True)
    reader.start()
    write_report(JsonReport(), trees.red(), str(path))
    reader.join(10)
    assert got == [trees.red().to_json()]
    assert path.is_fifo()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("x")])
def test_a_failed_report_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, error: Exception
) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with pytest.raises((InputError, RuntimeError)):
        write_report(Failing(error), trees.red(), str(path))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.json"]


UNWRITABLE = {
    "no folder": "absent/run.json",
    "a folder": ".",
    "under a file": "file/run.json",
    "name too long": "n" * 300,
}


@pytest.mark.parametrize("name", UNWRITABLE.values(), ids=list(UNWRITABLE))
@each_presenter
def test_red_an_unwritable_path_is_an_input_error(
    tmp_path: Path, presenter: Presenter, name: str
) -> None:
    (tmp_path / "file").write_text("")
    path = str(tmp_path / name)
    with pytest.raises(InputError, match="cannot be written") as caught:
        write_report(presenter, trees.red(), path)
    assert caught.value.message.startswith(path)
    assert caught.value.next_step
    assert caught.value.exit_status == ExitStatus.USAGE
    assert max(caught.value.exit_status, trees.red().verdict.exit_status) == ExitStatus.USAGE


def test_the_path_can_be_asked_for_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for good in ("-", str(tmp_path / "new.json"), str(tmp_path / "file"), os.devnull):
        require_writable(good)
    for bad in ("absent/run.json", ".", "file/run.json"):
        with pytest.raises(InputError, match="cannot be written"):
            require_writable(str(tmp_path / bad))
    assert sorted(os.listdir(tmp_path)) == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


@each_presenter
def test_red_no_format_writes_a_tree_that_contradicts_itself(
    tmp_path: Path, presenter: Presenter
) -> None:
    lie = replace(trees.red(), verdict=Verdict.SAME, level=Level.BIT)
    with pytest.raises(ParityBug, match="key t33_l7_attn: differs"):
        write_report(presenter, lie, str(tmp_path / "report"))
    assert os.listdir(tmp_path) == []


def test_printable_changes_only_what_does_not_print() -> None:
    assert printable("a[b]<c> é 中") == "a[b]<c> é 中"
    assert printable("a\tb\x1b\x00\u202e\udc80") == "a\\tb\\x1b\\x00\\u202e\\udc80"


def test_a_lone_surrogate_is_written_as_an_escape(tmp_path: Path) -> None:
    with (tmp_path / "text").open("w", encoding="utf-8") as stream:
        write_text(stream, "a\udc80é")
    assert (tmp_path / "text").read_text(encoding="utf-8") == "a\\udc80é"


# stdout, in a process of its own: its exit status is what is at stake

SCRIPT = """
import sys
from dataclasses import replace
from parity.errors import ParityError
from parity.presenting import write_report
from parity_reports.console import ConsoleReport
from tests.reports import trees
tree = replace(trees.red(), notes=["x" * int(sys.argv[1])])
try:
    write_report(ConsoleReport(), tree, "-")
except ParityError as error:
    print(error.message, file=sys.stderr)
    sys.exit(int(error.exit_status))
sys.exit(int(tree.verdict.exit_status))
"""
# Less than Python's own buffer, which fails when flushed, and more, which fails when written.
each_size = pytest.mark.parametrize("size", [0, 1_000_000], ids=["small", "large"])


def run_script(size: int, stdout: int) -> tuple[int, str]:
    """Exit status and stderr of SCRIPT with that file descriptor as stdout."""
    command = [sys.executable, "-c", SCRIPT, str(size)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("PYTHONUNBUFFERED", None)  # with it nothing is left to fail at exit
    done = subprocess.run(
        command, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


@each_size
def test_a_reader_that_has_left_changes_no_status(size: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run_script(size, writer) == (ExitStatus.DIVERGED, "")
    finally:
        os.close(writer)


def test_a_closed_stdout_changes_no_status() -> None:
    extra = {"PY": sys.executable, "SCRIPT": SCRIPT, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["bash", "-c", '"$PY" -c "$SCRIPT" 0 >&-']
    done = subprocess.run(
        command, env={**os.environ, **extra}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (ExitStatus.DIVERGED, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@each_size
def test_red_a_full_disk_behind_stdout_ends_in_two(size: int) -> None:
    with open("/dev/full", "w") as full:
        status, stderr = run_script(size, full.fileno())
    assert stderr == "stdout: cannot be written: No space left on device\n"
    assert status == ExitStatus.USAGE
