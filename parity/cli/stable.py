"""``parity stable``: one engine against itself."""

from __future__ import annotations

from typing import Any

from parity.cli.options import input_files, make_run, name_model
from parity.cli.reporting import (
    report_paths,
    require_writable_reports,
    write_not_run,
    write_reports,
)
from parity.cli.rerunning import rerun
from parity.errors import InputError, NotRunError
from parity.progress import Progress
from parity.spec import runnable


def run_stable(
    typed: str, *, engine: str, runs: int, steps: int, quiet: bool, **options: Any
) -> int:
    """Run ``parity stable``; returns the exit status."""
    from parity.runs.repeats import repeat_runs
    from parity.runs.sides import open_side

    reports = report_paths(options)
    spec = runnable(engine, "--engine")
    name_model(options, spec)
    require_writable_reports(*reports.values(), inputs=input_files(**options))
    if runs < 2:
        raise InputError(f"--n {runs}: nothing to compare run 1 with", "give --n 2 or more")
    if steps < 1:
        raise InputError(f"--steps {steps}: nothing to decode", "give --steps 1 or more")
    run = make_run(n=steps, sides=(spec,), **options)
    seed = int(options["seed"])
    with Progress(quiet=quiet) as progress:
        try:
            tree = repeat_runs(
                lambda: open_side("engine", spec, run, progress),
                run,
                runs,
                seed=seed,
                told=progress.update,
            )
        except NotRunError as error:
            write_not_run(error, (engine, engine), rerun(typed), reports)
            raise
    tree.reproduce = rerun(typed)
    return write_reports(tree, reports, quiet=quiet)
