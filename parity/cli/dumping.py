"""``parity dump``: run one engine and write its keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from parity.cli.options import input_files, make_run, name_model
from parity.cli.reporting import require_writable_reports
from parity.dump import Dump
from parity.dumps.writer import write_dump
from parity.errors import InputError
from parity.presenting import STDOUT, write_out
from parity.progress import Progress
from parity.spec import TENSOR_SUFFIXES, runnable


def run_dump(engine: str, output: str, *, plain: bool, force: bool, options: dict[str, Any]) -> int:
    """Run ``parity dump``; a file that must not or cannot be written is refused before the run.

    Interrupted, it writes the steps that were done, marked partial, and raises again.
    """
    from parity.runs.run import Interrupted, run_side
    from parity.runs.sides import open_side

    spec = runnable(engine, "--engine")
    name_model(options, spec)
    _require_free(output, force)
    require_writable_reports(output, inputs=input_files(**options))
    run = make_run(sides=(spec,), **options)
    with Progress() as progress:
        side = open_side("engine", spec, run, progress)
        where = "stdout" if output == STDOUT else output
        try:
            done = run_side(side, run)
        except Interrupted as stop:
            progress.note(_keep(stop.done.dump, output, where, plain))
            raise
        _write(done.dump, output, plain=plain, force=force)
        progress.note(f"{done.dump.size:,} keys written to {where}")
    return 0


def _keep(dump: Dump, output: str, where: str, plain: bool) -> str:
    """Write what an interrupted run left; a whole dump that stands there is worth more."""
    if output != STDOUT and Path(output).is_file():
        return f"{where} is left as it was"
    _write(dump, output, plain=plain, force=False)
    return f"{dump.size:,} keys written to {where}, marked partial"


def _write(dump: Dump, output: str, *, plain: bool, force: bool) -> None:
    if output == STDOUT:
        write_out(STDOUT, lambda _: write_dump(dump, Path(STDOUT), plain=plain))
    else:
        write_dump(dump, Path(output), plain=plain, force=force)


def _require_free(output: str, force: bool) -> None:
    if output == STDOUT:
        if sys.stdout is None:
            raise InputError("-o -: stdout is closed", "give -o a file")
        return
    if not output:
        raise InputError("-o: the name is empty", "write -o run.dump")
    if output.lower().endswith(TENSOR_SUFFIXES):
        raise InputError(
            f"{output}: a dump is text, and the name is that of a file of values",
            "write -o run.dump; parity.record(..., tensors=FILE) writes values",
        )
    if Path(output).is_file() and not force:
        raise InputError(f"{output}: exists already", "give another name, or --force")
