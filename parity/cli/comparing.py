"""``parity compare`` and ``parity report``: the second and the third step by themselves."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from parity.cli.reporting import report_paths, require_writable_reports, write_reports
from parity.comparison import compare_dumps, exit_status
from parity.errors import InputError
from parity.presenting import Options, write_report
from parity.registry import REPORTS, find
from parity.status import Level, Verdict
from parity.tree import Tree

if TYPE_CHECKING:
    from parity.dump import Dump
    from parity.engine_diff import Ask
    from parity.tensor_files import Loader

    Side = tuple[Dump, Loader | None]

CONTROL_SEED = 0
_WORTH_A_THREAD = 1 << 22  # bytes: some 0.02 s of reading


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
    from parity.engine_diff import Ask

    reports = report_paths(paths)
    inputs = (ref, dut, *([alias] if alias else []))
    require_writable_reports(*reports.values(), inputs=inputs)
    ask = Ask(Level(level), typed, CONTROL_SEED)
    tree = compare_files(ref, dut, ask, alias=alias, partial=partial)
    return write_reports(tree, reports, quiet=quiet)


def compare_files(
    ref: Path, dut: Path, ask: Ask, *, alias: Path | None = None, partial: bool = False
) -> Tree:
    """The tree of two dumps or tensor files; with elements where both hold values.

    ``alias``: a file of rules for other names. ``partial``: a dump that is cut or was interrupted
    is compared as far as it goes.
    """
    from parity.alias import Aliased, apply_aliases, read_aliases
    from parity.alias_tensors import apply_to_tensors
    from parity.engine_diff import finish_dumps

    began = time.monotonic()
    rules = read_aliases(alias) if alias is not None else []
    (ref_dump, ref_loader), (dut_dump, dut_loader) = read_sides(ref, dut, partial)
    given = Aliased(dut_dump)
    if rules and ref_loader and dut_loader:
        given, dut_loader = apply_to_tensors(rules, ref_dump, dut_dump, dut_loader)
    elif rules:
        given = apply_aliases(rules, ref_dump, dut_dump)
    tree = compare_dumps(
        ref_dump, given.dut, level_asked=ask.level, partial=partial, apart=given.apart
    )
    tree.notes += given.notes
    tree = finish_dumps(tree, ref_dump, given.dut, ask, apart=given.apart)
    if tree.verdict is Verdict.DIVERGED and ref_loader and dut_loader:
        _add_elements(tree, ref_loader, dut_loader)
    tree.seconds = time.monotonic() - began
    return tree


def read_sides(ref: Path, dut: Path, partial: bool) -> tuple[Side, Side]:
    """Both sides; two large dump files at the same time."""
    if not (_is_large(ref) and _is_large(dut)):
        return read_side(ref, partial), read_side(dut, partial)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(read_side, dut, partial)
        return read_side(ref, partial), other.result()


def _is_large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size >= _WORTH_A_THREAD


def read_side(path: Path, partial: bool = False) -> Side:
    """A dump, or tensors with a loader for their values."""
    from parity.dump_reader import read_dump
    from parity.tensor_files import is_tensor_path, read_tensors

    if is_tensor_path(path):
        return read_tensors(path)
    return read_dump(path, partial=partial), None


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
