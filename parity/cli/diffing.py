"""``parity diff``: which sides, how they are run, what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parity.cli.options import input_files, make_run, name_model
from parity.cli.reporting import (
    report_paths,
    require_writable_reports,
    write_not_run,
    write_reports,
)
from parity.cli.rerunning import rerun
from parity.errors import NotRunError
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.runs.side_diff import FALLBACK, FELL_BACK, default_dut, diff_sides
from parity.spec import FileSpec, parse_spec
from parity.status import Level


def run_diff(
    typed: str,
    *,
    ref: str,
    dut: str | None,
    bisect: bool,
    level: str | None,
    profile: bool,
    repro: str | None,
    alias: Path | None,
    quiet: bool,
    **options: Any,
) -> int:
    """Run ``parity diff``; returns the exit status.

    Interrupted in the dut's run, it reports on the steps that both sides have, and raises again.
    """
    from parity.runs.engine_diff import Ask
    from parity.runs.stopped import DiffStopped

    installed = plugins(ENGINES)
    typed_specs = [parse_spec(side, installed) for side in (ref, dut) if side is not None]
    name_model(options, *typed_specs)
    files = [spec.path for spec in typed_specs if isinstance(spec, FileSpec)]
    reports = report_paths(options)
    require_writable_reports(*reports.values(), inputs=[*files, *input_files(**options)])
    if repro is not None:
        from parity.explain.repro import require_new_folder

        require_new_folder(repro)
    chosen = dut or default_dut()
    specs = (typed_specs[0], parse_spec(chosen, installed))
    reproduce = rerun(typed) if dut else f"{rerun(typed)} --dut {chosen}"
    ask = Ask(
        Level(level or "bit"),
        reproduce,
        int(options["seed"]),
        typed=level is not None,
        profile=profile,
        orders=True,
    )
    with Progress(quiet=quiet) as progress:
        try:
            run = make_run(sides=specs, **options)
            tree = diff_sides(specs, run, ask, progress, bisect=bisect, repro=repro, alias=alias)
        except NotRunError as error:
            write_not_run(error, (ref, chosen), reproduce, reports)
            raise
        except DiffStopped as stop:
            progress.close()
            write_reports(stop.tree, reports, quiet=quiet)
            raise
    if dut is None and chosen == FALLBACK:
        tree.notes.append(FELL_BACK)
    return write_reports(tree, reports, quiet=quiet)
