"""Writing the reports of one tree, through the entry points anyone may add to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from parity.compare import exit_status
from parity.presenting import Options, require_writable, write_report
from parity.registry import REPORTS, find
from parity.tree import Tree


def require_writable_reports(*paths: str | None) -> None:
    """Refuse a report that could not be written, before any run is made."""
    for path in paths:
        if path is not None:
            require_writable(path)


def write_reports(tree: Tree, *, json_path: str | None, csv_path: str | None, quiet: bool) -> int:
    """Write JSON and CSV where asked, then the console; returns the exit status.

    A report that takes stdout for itself replaces the console text there.
    """
    options = Options(quiet=quiet, json_path=json_path or "")
    for name, path in (("json", json_path), ("csv", csv_path)):
        if path is not None:
            write_report(find(REPORTS, name).load()(), tree, path, options)
    if "-" not in (json_path, csv_path):
        write_report(find(REPORTS, "console").load()(), tree, "-", options)
    return int(exit_status(tree))


def write_lines(lines: Sequence[str], path: str) -> None:
    """Write plain text lines to a file, or to stdout for ``-``."""
    text = "".join(f"{line}\n" for line in lines)
    if path == "-":
        sys.stdout.write(text)
        return
    require_writable(path)
    Path(path).write_text(text, encoding="utf-8")
