"""``parity replay``: the one op of a repro folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from parity.cli.options import input_files
from parity.cli.reporting import (
    report_paths,
    require_writable_reports,
    write_not_run,
    write_reports,
)
from parity.cli.rerunning import rerun
from parity.errors import InputError, NotRunError
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.spec import EngineSpec, parse_spec


def run_replay(
    typed: str,
    folder: Path,
    *,
    ref: str | None,
    dut: str | None,
    model: str | None,
    quiet: bool,
    **options: Any,
) -> int:
    """Run ``parity replay``; returns the exit status."""
    from parity.explain.replay import model_of, replay_repro, run_of, sides_of
    from parity.explain.repro import RECORD, read_repro
    from parity.runs.sides import open_sides

    began = time.monotonic()
    reports = report_paths(options)
    inputs = [folder / RECORD, *input_files(model or "")]
    require_writable_reports(*reports.values(), inputs=inputs)
    repro = read_repro(folder)
    recorded = sides_of(repro, model)
    specs = (_engine("--ref", ref or recorded[0]), _engine("--dut", dut or recorded[1]))
    run = run_of(repro, model_of(repro, specs, model))
    with Progress(quiet=quiet) as progress:
        try:
            sides = open_sides(specs, run, progress)
            tree = replay_repro(repro, run, *sides, reproduce=rerun(typed))
        except NotRunError as error:
            write_not_run(error, (specs[0].text, specs[1].text), rerun(typed), reports)
            raise
    tree.seconds = time.monotonic() - began  # with reading the folder and opening the sides
    return write_reports(tree, reports, quiet=quiet)


def _engine(option: str, text: str) -> EngineSpec:
    spec = parse_spec(text, plugins(ENGINES))
    if not isinstance(spec, EngineSpec):
        raise InputError(f"{option} {text}: not an engine", "parity engines lists them")
    return spec
