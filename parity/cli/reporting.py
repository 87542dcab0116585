"""Writing the reports of one tree, through the entry points anyone may add to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.comparison import exit_status
from parity.errors import InputError, NotRunError
from parity.presenting import (
    STDOUT,
    Options,
    require_writable,
    write_out,
    write_report,
    write_text,
)
from parity.registry import REPORTS, find
from parity.status import Level, Verdict
from parity.tree import Counts, Tree

FORMATS = ("json", "csv", "html", "junit")


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


def report_paths(options: dict[str, Any]) -> dict[str, str]:
    """Take the report options (``json_path``, ...) out of ``options``: format name to path.

    Raises InputError for a format that is not installed.
    """
    found = {name: options.pop(f"{name}_path", None) for name in FORMATS}
    asked = {name: path for name, path in found.items() if path is not None}
    for name in asked:
        find(REPORTS, name)
    return asked


def write_reports(tree: Tree, reports: Mapping[str, str], *, quiet: bool) -> int:
    """Write each format to its path, then the console; returns the exit status.

    A report that takes stdout for itself replaces the console text there.
    """
    options = Options(quiet=quiet, json_path=reports.get("json", ""))
    for name, path in reports.items():
        write_report(find(REPORTS, name).load()(), tree, path, options)
    if STDOUT not in reports.values():
        write_report(find(REPORTS, "console").load()(), tree, STDOUT, options)
    return int(exit_status(tree))


def write_not_run(
    error: NotRunError, specs: tuple[str, str], reproduce: str, reports: Mapping[str, str]
) -> None:
    """Leave a record of a run that could not be made, in the files asked for that are new."""
    tree = Tree(
        verdict=Verdict.NOT_RUN,
        first=None,
        counts=Counts(0, 0, 0, 0, 0, 0),
        level=Level.NONE,
        level_asked=Level.BIT,
        ref={"spec": specs[0]},
        dut={"spec": specs[1]},
        reason="\n".join(part for part in (error.message, error.next_step) if part),
        reproduce=reproduce,
    )
    for name, path in reports.items():
        # A report that stands there already is kept: nothing new was found.
        if path != STDOUT and not os.path.exists(path):
            write_report(find(REPORTS, name).load()(), tree, path, Options())


def write_lines(lines: Sequence[str], path: str) -> None:
    """Write plain text lines to a file, or to stdout for ``-``."""
    require_writable(path)
    write_out(path, lambda stream: write_text(stream, "".join(f"{line}\n" for line in lines)))
