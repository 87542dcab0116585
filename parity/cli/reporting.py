"""Writing the reports of one tree, through the entry points anyone may add to."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.comparison.compare import exit_status
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

if TYPE_CHECKING:
    from parity.runs.checks import CheckRun

CHECK_REPORTS = "parity.check_reports"
FORMATS = ("json", "csv", "html", "junit", "markdown")
GITHUB = "github"


class Reports(dict[str, str]):
    """Paths by format name. ``github``: print an annotation too, on stderr."""

    github = False


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


def report_paths(options: dict[str, Any], group: str = REPORTS) -> Reports:
    """Take the report options (``json_path``, ..., ``github``) out of ``options``.

    Raises InputError for a format that is not installed.
    """
    found = {name: options.pop(f"{name}_path", None) for name in FORMATS}
    asked = Reports({name: path for name, path in found.items() if path is not None})
    asked.github = bool(options.pop(GITHUB, False))
    for name in (*asked, *([GITHUB] if asked.github else [])):
        find(group, name)
    return asked


def write_reports(tree: Tree, reports: Mapping[str, str], *, quiet: bool) -> int:
    """Write each format to its path, then the console; returns the exit status.

    A report that takes stdout for itself replaces the console text there. An annotation for GitHub
    goes to stderr, after all of them, so that it never stands inside a report.
    """
    options = Options(quiet=quiet, json_path=reports.get("json", ""))
    for name, path in reports.items():
        write_report(find(REPORTS, name).load()(), tree, path, options)
    if STDOUT not in reports.values():
        write_report(find(REPORTS, "console").load()(), tree, STDOUT, options)
    annotate(reports, REPORTS, tree)
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
    options = Options(json_path=reports.get("json", ""))
    for name, path in reports.items():
        if _is_new(path):
            write_report(find(REPORTS, name).load()(), tree, path, options)
    annotate(reports, REPORTS, tree)


def write_check_reports(run: CheckRun, reports: Mapping[str, str], json_path: str = "") -> None:
    """Write the reports of a run of probes or promises, and the annotation. ``json_path``: where
    all of it stands as JSON."""
    for name, path in reports.items():
        write_check_report(run, name, path, Options(json_path=json_path))
    annotate(reports, CHECK_REPORTS, run)


def write_check_report(run: CheckRun, name: str, path: str, options: Options) -> None:
    """One report of such a run; InputError for a format that is not installed."""
    write = find(CHECK_REPORTS, name).load()().write
    write_out(path, partial(write, run, options=options))


def write_checks_not_run(
    error: NotRunError, name: str, reproduce: str, reports: Mapping[str, str]
) -> None:
    """Leave a record of probes or promises that could not be asked, in the files that are new."""
    from parity.runs.checks import not_run

    reason = [error.message, *error.next_step.splitlines()]
    new = Reports({name: path for name, path in reports.items() if _is_new(path)})
    new.github = isinstance(reports, Reports) and reports.github
    write_check_reports(not_run(name, reason, reproduce), new)


def _is_new(path: str) -> bool:
    """A report that stands there already is kept: nothing new was found."""
    return path != STDOUT and not os.path.exists(path)


def annotate(reports: Mapping[str, str], group: str, result: Tree | CheckRun) -> None:
    """Print one annotation where it was asked for; a closed stderr changes no exit status."""
    stream = sys.stderr
    if stream is None or not isinstance(reports, Reports) or not reports.github:
        return
    with suppress(OSError):
        find(group, GITHUB).load()().write(result, stream, Options())
        stream.flush()


def write_lines(lines: Sequence[str], path: str) -> None:
    """Write plain text lines to a file, or to stdout for ``-``."""
    require_writable(path)
    write_out(path, lambda stream: write_text(stream, "".join(f"{line}\n" for line in lines)))
