"""``parity compare`` and ``parity report``: the second and the third step by themselves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from parity.cli.reporting import report_paths, require_writable_reports, write_reports
from parity.compare import compare_dumps, exit_status
from parity.errors import InputError
from parity.presenting import Options, write_report
from parity.registry import REPORTS, find
from parity.status import Level, Verdict
from parity.tree import Tree

if TYPE_CHECKING:
    from parity.diff import Ask
    from parity.dump import Dump
    from parity.tensor_files import Loader

CONTROL_SEED = 0


def run_compare(
    typed: str,
    ref: Path,
    dut: Path,
    *,
    level: str,
    quiet: bool,
    **paths: str | None,
) -> int:
    """Run ``parity compare``; ``paths``: see ``report_paths``. Returns the exit status."""
    from parity.diff import Ask

    reports = report_paths(paths)
    require_writable_reports(*reports.values(), inputs=(ref, dut))
    tree = compare_files(ref, dut, Ask(Level(level), typed, CONTROL_SEED))
    return write_reports(tree, reports, quiet=quiet)


def compare_files(ref: Path, dut: Path, ask: Ask) -> Tree:
    """The tree of two dumps or tensor files; with elements where both hold values."""
    from parity.diff import finish_dumps

    began = time.monotonic()
    ref_dump, ref_loader = read_side(ref)
    dut_dump, dut_loader = read_side(dut)
    tree = compare_dumps(ref_dump, dut_dump, level_asked=ask.level)
    tree = finish_dumps(tree, ref_dump, dut_dump, ask)
    if tree.verdict is Verdict.DIVERGED and ref_loader and dut_loader:
        _add_elements(tree, ref_loader, dut_loader)
    tree.seconds = time.monotonic() - began
    return tree


def read_side(path: Path) -> tuple[Dump, Loader | None]:
    """A dump, or tensors with a loader for their values."""
    from parity.dump_reader import read_dump
    from parity.tensor_files import is_tensor_path, read_tensors

    if is_tensor_path(path):
        return read_tensors(path)
    return read_dump(path), None


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
    tree = _saved_tree(text, str(run))
    write_report(presenter, tree, output, Options(quiet=quiet, json_path=str(run)))
    return int(exit_status(tree))


def _saved_tree(text: str, where: str) -> Tree:
    try:
        return Tree.from_json(text, where)
    except (AttributeError, RecursionError) as error:  # another kind of value than was saved
        raise InputError(f"{where}: damaged: {error}", "write the report again") from error


def _add_elements(tree: Tree, ref: Loader, dut: Loader) -> None:
    from parity.elements import compare_tensors

    row = next((row for row in tree.keys if row.key == tree.first), None)
    if row is None or row.ref is None or row.dut is None:
        return
    ref_tensor, dut_tensor = ref(row.key), dut(row.key)
    tree.elements = compare_tensors(
        row.key,
        ref_tensor.array,
        dut_tensor.array,
        dtypes=(ref_tensor.dtype, dut_tensor.dtype),
    )
