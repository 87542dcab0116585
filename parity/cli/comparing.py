"""``parity compare``: the second step by itself."""

from __future__ import annotations

from pathlib import Path

from parity.cli.reporting import report_paths, require_writable_reports, write_reports
from parity.cli.rerunning import rerun
from parity.comparison.files import CONTROL_SEED, compare_files
from parity.status import Level


def run_compare(
    typed: str,
    ref: Path,
    dut: Path,
    *,
    level: str,
    quiet: bool,
    alias: Path | None,
    partial: bool,
    **paths: str | None,
) -> int:
    """Run ``parity compare``; ``paths``: see ``report_paths``. Returns the exit status."""
    from parity.runs.engine_diff import Ask

    reports = report_paths(paths)
    inputs = (ref, dut, *([alias] if alias else []))
    require_writable_reports(*reports.values(), inputs=inputs)
    ask = Ask(Level(level), rerun(typed), CONTROL_SEED)
    tree = compare_files(ref, dut, ask, alias=alias, partial=partial)
    return write_reports(tree, reports, quiet=quiet)
