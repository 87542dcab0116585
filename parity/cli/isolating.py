"""``parity isolate``: two engines, the parts to do, what is printed."""

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
from parity.registry import ENGINES, plugins
from parity.runs.side_diff import FALLBACK, FELL_BACK, default_dut
from parity.spec import EngineSpec, parse_spec
from parity.status import Level


def run_isolate(
    typed: str,
    *,
    ref: str,
    dut: str | None,
    level: str,
    only: str,
    keys: tuple[str, ...],
    no_cache: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Run ``parity isolate``; returns the exit status of the verdict."""
    from parity.isolate.isolation import Wanted, isolate_engines
    from parity.runs.engine_diff import Ask

    trusted = _engine("--ref", ref)
    tested = _engine("--dut", dut) if dut is not None else None
    parts = parse_parts(only)
    if keys and "transplant" not in parts:
        raise InputError(
            f"--transplant {keys[0]} with --only {only}: nothing is transplanted",
            "leave --only out, or name transplant too",
        )
    reports = report_paths(options)
    name_model(options, *filter(None, (trusted, tested)))
    require_writable_reports(*reports.values(), inputs=input_files(**options))
    chosen = tested or _engine("--dut", default_dut())
    run = make_run(sides=(trusted, chosen), **options)
    reproduce = rerun(typed) if dut else f"{rerun(typed)} --dut {chosen.text}"
    ask = Ask(Level(level), reproduce, int(options["seed"]))
    wanted = Wanted(parts, bool(only), keys, not no_cache)
    with Progress(quiet=quiet) as progress:
        try:
            tree = isolate_engines((trusted, chosen), run, ask, wanted, progress)
        except NotRunError as error:
            write_not_run(error, (ref, chosen.text), reproduce, reports)
            raise
    if dut is None and chosen.text == FALLBACK:
        tree.notes.append(FELL_BACK)
    return write_reports(tree, reports, quiet=quiet)


def parse_parts(text: str) -> tuple[str, ...]:
    """``variants,placement`` as parts, all of them for an empty text; raises InputError."""
    from parity.isolate.isolation import PARTS

    asked = [part.strip() for part in text.split(",") if part.strip()]
    bad = next((part for part in asked if part not in PARTS), None)
    if bad is not None:
        raise InputError(f"--only: no part {bad!r}", f"parts: {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in asked) or PARTS


def _engine(option: str, text: str) -> EngineSpec:
    spec = parse_spec(text, plugins(ENGINES))
    if not isinstance(spec, EngineSpec):
        raise InputError(
            f"{option} {text}: not an engine: it cannot be run another way",
            "parity engines lists them; parity compare takes dumps",
        )
    return spec
