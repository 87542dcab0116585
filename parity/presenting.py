"""Present a divergence tree: the presenter Protocol, and writing its output to a path or stdout.

Exit statuses. A presenter decides nothing: the status of a run is that of the tree's verdict, and
it stands before anything is written. A report that cannot be written raises InputError (2). The
command line takes the more severe of the two, so a 1 can become a 2, never a 0. A reader that
closes the pipe early (``| head -1``) changes no status. A shell pipe does: after ``| tee log`` the
shell reports tee's status, unless ``set -o pipefail`` is on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from parity.errors import InputError, ParityBug
from parity.status import Level, Verdict
from parity.tree import KeyState, Tree

STDOUT = "-"


@dataclass(frozen=True)
class Options:
    """What the command line chose for all reports; a presenter uses what concerns it.

    ``width``: columns; None is the terminal's own, 80 where the stream is no terminal.
    ``color``: None colours in a terminal only, and not with NO_COLOR. ``quiet``: one line.
    ``json_path``: where the same tree lies as JSON; reports name it when they leave rows out.
    """

    width: int | None = None
    color: bool | None = None
    quiet: bool = False
    json_path: str = ""


class Presenter(Protocol):
    """One report format, found through the entry-point group ``parity.reports``."""

    name: str

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write the whole report of ``tree`` to ``stream``. Computes nothing, prints nothing."""


def write_report(
    presenter: Presenter, tree: Tree, path: str, options: Options | None = None
) -> None:
    """Write one report. ``path`` ``-`` is stdout; a file appears whole or not at all.

    Raises InputError when the path cannot be written, ParityBug when the tree contradicts itself.
    """
    require_consistent(tree)
    chosen = options or Options()
    write_out(path, lambda stream: presenter.write(tree, stream, chosen))


def write_out(path: str, write: Callable[[TextIO], None]) -> None:
    """Let ``write`` fill a file, whole or not at all, or stdout for ``-``.

    Raises InputError when ``path`` cannot be written. A closed stdout is no error.
    """
    if path == STDOUT:
        _write_stdout(write)
        return
    target = Path(os.path.realpath(path))
    try:
        # Only a plain file can be replaced: a device or a pipe must stay what it is.
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", newline="\n") as stream:
                write(stream)
        else:
            _replace(target, write)
    except OSError as error:
        raise _unwritable(path, error) from error


def require_writable(path: str) -> None:
    """Raise InputError when ``path`` cannot be written: ask before a long run, not after it."""
    target = Path(os.path.realpath(path))
    if path == STDOUT or (target.exists() and not target.is_dir() and os.access(target, os.W_OK)):
        return
    if target.exists() or not os.access(target.parent, os.W_OK | os.X_OK):
        problem = "is a folder" if target.is_dir() else "no such folder, or not writable"
        raise InputError(f"{path}: cannot be written: {problem}", _NEXT)


def require_consistent(tree: Tree) -> None:
    """Raise ParityBug when the verdict contradicts what the same tree holds."""
    problem = _contradiction(tree)
    if problem:
        raise ParityBug(f"the divergence tree contradicts itself: {problem}")


def write_text(stream: TextIO, text: str) -> None:
    """Write ``text``; what the stream's encoding lacks is written as a backslash escape."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def printable(text: str) -> str:
    """``text`` with control characters, line ends and direction marks shown as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


_NEXT = "give a file in a folder that exists and can be written, or - for stdout"


def _contradiction(tree: Tree) -> str:
    counts = tree.counts
    unequal = counts.total - counts.same
    listed = next((row for row in tree.keys if row.state != KeyState.SAME), None)
    if tree.verdict is Verdict.SAME:
        if counts.total == 0:
            return "verdict same, but no key was compared"
        if tree.level is Level.BIT and listed is not None:
            return f"verdict same at level bit, but key {listed.key}: {listed.state}"
        if tree.level is Level.BIT and unequal:
            return f"verdict same at level bit, but {unequal:,} of {counts.total:,} keys are not"
        if not tree.level.satisfies(tree.level_asked):
            return f"verdict same, but level {tree.level} was reached, {tree.level_asked} asked for"
        if tree.profile is not None and tree.profile.outside:
            return f"verdict same, but {tree.profile.outside} is outside its bound"
    nothing = tree.first is None and not unequal and all(state.equal for state in tree.states)
    if tree.verdict is Verdict.DIVERGED and nothing and not tree.reason:
        return "verdict diverged, but nothing in it differs"
    return ""


def _write_stdout(write: Callable[[TextIO], None]) -> None:
    stream = sys.stdout
    if stream is None:  # closed by whoever started the process
        return
    try:
        write(stream)
        stream.flush()
    except BrokenPipeError:
        _abandon(stream)  # the reader has seen enough
    except OSError as error:
        _abandon(stream)
        raise _unwritable("stdout", error) from error


def _abandon(stream: TextIO) -> None:
    """Point a broken stream at nothing: Python flushes it at exit, and would change the status."""
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def _replace(target: Path, write: Callable[[TextIO], None]) -> None:
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    stream = partial.open("x", encoding="utf-8", newline="\n")
    try:
        with stream:
            write(stream)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _unwritable(path: str, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be written: {error.strerror or error}", _NEXT)
