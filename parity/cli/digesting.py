"""``parity digest``: write the prefix-digest tree of a side, or hold it against another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.options import input_files, make_run, name_model
from parity.cli.reporting import (
    report_paths,
    require_writable_reports,
    write_not_run,
    write_reports,
)
from parity.errors import InputError, NotRunError
from parity.presenting import STDOUT, write_out, write_text
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.spec import FileSpec, Spec, parse_spec
from parity.tree import Tree

if TYPE_CHECKING:
    from parity.digests.tree import DigestTree
    from parity.dump import Dump


@dataclass(frozen=True)
class Wanted:
    """How a tree is made: bits of a digest, whether types are part of it, settings of a run."""

    bits: int
    typed: bool
    run: Mapping[str, Any]


@dataclass(frozen=True)
class Opened:
    """A side that was read or run; ``dump`` is None where only its tree is at hand."""

    tree: DigestTree
    dump: Dump | None = None


def run_digest(
    typed: str,
    side: str,
    *,
    output: str | None,
    against: str | None,
    bits: str,
    plain: bool,
    force: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Run ``parity digest``; returns the exit status, 0 where a tree was only written."""
    reports = report_paths(options)
    installed = plugins(ENGINES)
    specs = [parse_spec(text, installed) for text in (side, against) if text is not None]
    if against is None:
        _refuse_reports(reports, quiet)
        output = STDOUT if output is None else output
    name_model(options, *specs)
    files = [spec.path for spec in specs if isinstance(spec, FileSpec)] + input_files(**options)
    _require_free(output, force)
    require_writable_reports(*reports.values(), output, inputs=files)
    _require_one_running(specs)
    wanted = Wanted(int(bits), not plain, options)
    with Progress(quiet=quiet) as progress:
        try:
            ref = _open(specs[0], wanted, progress)
            _write(ref.tree, output, progress)
            if against is None:
                return 0
            tree = _held_against(ref, specs[1], wanted, progress)
        except NotRunError as error:
            write_not_run(error, (side, against or ""), typed, reports)
            raise
    tree.reproduce = typed
    return write_reports(tree, reports, quiet=quiet)


def _refuse_reports(reports: Mapping[str, str], quiet: bool) -> None:
    name = next(iter(reports), "quiet" if quiet else None)
    if name is not None:
        raise InputError(f"--{name}: nothing is compared", "give --against, or leave it out")


def _require_one_running(specs: list[Spec]) -> None:
    if len(specs) > 1 and not any(isinstance(spec, FileSpec) for spec in specs):
        raise InputError(
            "both sides run here",
            "parity diff --bisect finds the first differing key of two engines",
        )


def _require_free(output: str | None, force: bool) -> None:
    if output is None or output == STDOUT:
        return
    if not output:
        raise InputError("-o: the name is empty", "write -o run.digest")
    if Path(output).is_file() and not force:
        raise InputError(f"{output}: exists already", "give another name, or --force")


def _open(
    spec: Spec, wanted: Wanted, progress: Progress, other: DigestTree | None = None
) -> Opened:
    """Read or run a side. ``other``: the tree it will meet, which says whether types count."""
    from parity.digests.file import is_digest_file, read_digest

    if isinstance(spec, FileSpec) and is_digest_file(spec.path):
        return Opened(read_digest(spec.path))
    dump = _dump(spec, wanted.run, progress)
    return Opened(_grown(dump, wanted, other), dump)


def _grown(dump: Dump, wanted: Wanted, other: DigestTree | None) -> DigestTree:
    from parity.digests.control import grown_like

    return grown_like(other, dump, bits=wanted.bits, typed=wanted.typed)


def _dump(spec: Spec, options: Mapping[str, Any], progress: Progress) -> Dump:
    from parity.dumps.reader import read_dump
    from parity.dumps.tensor_files import is_tensor_path, read_tensors
    from parity.runs.run import run_side
    from parity.runs.sides import open_side

    if not isinstance(spec, FileSpec):
        run = make_run(sides=(spec,), **options)
        return run_side(open_side("engine", spec, run, progress), run).dump
    if is_tensor_path(spec.path):
        return read_tensors(spec.path, options["hash_name"])[0]
    return read_dump(spec.path)


def _write(tree: DigestTree, output: str | None, progress: Progress) -> None:
    from parity.digests.file import to_text

    if output is None:
        return
    text = to_text(tree)
    write_out(output, lambda stream: write_text(stream, text))
    where = "stdout" if output == STDOUT else output
    progress.note(f"{len(tree):,} keys, {len(text.encode()):,} bytes written to {where}")


def _held_against(ref: Opened, spec: Spec, wanted: Wanted, progress: Progress) -> Tree:
    """The comparison with the second side."""
    from parity.digests.control import compare_running, compare_written
    from parity.runs.engine_diff import run_facts
    from parity.runs.side_diff import fed_tokens
    from parity.runs.sides import open_side

    began, seed = time.monotonic(), int(wanted.run["seed"])
    if not isinstance(spec, FileSpec):
        run = make_run(sides=(spec,), **wanted.run)
        fed = fed_tokens("ref", ref.tree.head, run)
        dut = open_side("dut", spec, run, progress)
        tree = compare_running(ref.tree, dut, run, fed, seed)
        tree.run = run_facts(run, fed)
        if not fed:
            tree.notes.append("the ref names no tokens: the dut follows its own choices")
    else:
        opened = _open(spec, wanted, progress, ref.tree)
        met = ref.tree if ref.dump is None else _grown(ref.dump, wanted, opened.tree)
        tree = compare_written(met, opened.tree, opened.dump, seed)
    tree.seconds = time.monotonic() - began
    return tree
