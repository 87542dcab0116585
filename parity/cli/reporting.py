"""Writing the reports of one tree, through the entry points anyone may add to."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from parity.compare import exit_status
from parity.errors import InputError
from parity.presenting import STDOUT, Options, require_writable, write_report
from parity.registry import REPORTS, find
from parity.tree import Tree


def require_writable_reports(*paths: str | None, inputs: Sequence[Path] = ()) -> None:
    """Refuse a report that could not be written, or would overwrite another one or an input.

    To be asked before any run is made.
    """
    taken = {os.path.realpath(path): f"the input {path}" for path in inputs}
    for path in paths:
        if path is None:
            continue
        require_writable(path)
        place = path if path == STDOUT else os.path.realpath(path)
        if place in taken:
            raise InputError(f"{path}: already taken by {taken[place]}", "give another file")
        taken[place] = "another report"


def write_reports(tree: Tree, *, json_path: str | None, csv_path: str | None, quiet: bool) -> int:
    """Write JSON and CSV where asked, then the console; returns the exit status.

    A report that takes stdout for itself replaces the console text there.
    """
    options = Options(quiet=quiet, json_path=json_path or "")
    for name, path in (("json", json_path), ("csv", csv_path)):
        if path is not None:
            write_report(find(REPORTS, name).load()(), tree, path, options)
    if STDOUT not in (json_path, csv_path):
        write_report(find(REPORTS, "console").load()(), tree, STDOUT, options)
    return int(exit_status(tree))


def write_lines(lines: Sequence[str], path: str) -> None:
    """Write plain text lines to a file, or to stdout for ``-``."""
    text = "".join(f"{line}\n" for line in lines)
    if path == STDOUT:
        if sys.stdout is not None:  # None: closed by whoever started the process
            sys.stdout.write(text)
        return
    require_writable(path)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}", "give a file") from error
