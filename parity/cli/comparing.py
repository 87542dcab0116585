"""``parity compare`` and ``parity report``: the second and the third step by themselves."""

from __future__ import annotations

from pathlib import Path

from parity.cli.reporting import report_paths, require_writable_reports, write_reports
from parity.cli.rerunning import rerun
from parity.comparison.compare import exit_status
from parity.comparison.files import CONTROL_SEED, compare_files
from parity.errors import InputError
from parity.presenting import Options, write_report
from parity.registry import REPORTS, find
from parity.status import Level
from parity.tree import Tree


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


def run_report(run: Path, format_name: str, output: str, *, quiet: bool) -> int:
    """Run ``parity report``; the exit status is that of the saved tree."""
    presenter = find(REPORTS, format_name).load()()
    require_writable_reports(output, inputs=(run,))
    try:
        text = run.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{run}: {error.strerror}", "give a file of --json") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{run}: not UTF-8", "give a file of --json") from error
    tree = Tree.from_json(text, str(run))
    write_report(presenter, tree, output, Options(quiet=quiet, json_path=str(run)))
    return int(exit_status(tree))
