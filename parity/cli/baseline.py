"""``parity baseline save``, ``check`` and ``promote``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.baseline_evidence import Trust, evidence_of, require_other_engine
from parity.cli.baseline_listing import accepted_lines, require_outside
from parity.cli.baseline_settings import (
    checked_settings,
    header_settings,
    require_options,
    settled,
)
from parity.cli.options import input_files, make_run, name_model
from parity.cli.reporting import (
    report_paths,
    require_writable_reports,
    write_lines,
    write_not_run,
    write_reports,
)
from parity.cli.rerunning import rerun
from parity.errors import InputError, NotRunError
from parity.presenting import STDOUT
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.spec import EngineSpec, FileSpec, ProgramSpec, Runnable, Spec, parse_spec

if TYPE_CHECKING:
    from parity.baseline import Facts, Stored
    from parity.dump import Dump
    from parity.runs.engine_diff import Ask
    from parity.runs.run import Run, Side
    from parity.tree import Tree

_SHORTEST = 12  # digits of a digest that --accepted takes


def run_save(
    typed: str,
    name: str,
    side: str,
    store: Path,
    trust: Trust,
    options: Mapping[str, Any],
    given: Mapping[str, Any],
) -> int:
    """Run ``parity baseline save``. ``options``: those of a run; ``given``: those that were typed.

    Raises InputError, with nothing written, for whatever is not to be accepted.
    """
    from parity.baseline import require_new, save_dump
    from parity.store import Store

    kept = Store(store)
    require_new(kept, name)
    kept.require_writable()
    spec = _side_spec(side)
    named = dict(options)
    name_model(named, spec)
    with Progress() as progress:
        dump, facts = _result(typed, spec, named, given, trust, progress)
        entry = save_dump(kept, name, dump, facts)
    write_lines(accepted_lines(entry), STDOUT)
    return 0


def run_promote(
    typed: str,
    name: str,
    side: str | None,
    store: Path,
    trust: Trust,
    given: Mapping[str, Any],
) -> int:
    """Run ``parity baseline promote``: ``side``, or the recorded one, in the place of what was
    accepted last. ``given``: options of the run that were typed. Raises InputError, with nothing
    written, unless it is stable and green."""
    from parity.baseline import load, promote_dump
    from parity.store import Store

    kept = Store(store)
    before = load(kept, name)
    kept.require_writable()
    spec = _side_spec(side or _recorded_spec(before))
    tensors = trust.tensors or sorted(before.tensors)
    held = Trust(trust.ref, trust.report, tensors, trust.runs)
    settings = checked_settings(f"baseline {name!r}", before.record["settings"], given)
    with Progress() as progress:
        if not isinstance(spec, FileSpec):
            _require_run(before, settings, spec)
        dump, facts = _result(typed, spec, settings, given, held, progress)
        entry, _ = promote_dump(kept, name, dump, facts, before)
    write_lines(accepted_lines(entry), STDOUT)
    return 0


def run_check(
    typed: str,
    name: str,
    *,
    engine: str | None,
    store: Path,
    accepted: str | None,
    given: Mapping[str, Any],
    quiet: bool,
    **options: Any,
) -> int:
    """Run ``parity baseline check``; returns the exit status. Writes nothing to the store."""
    from parity.baseline import load
    from parity.runs.engine_diff import Ask
    from parity.runs.stopped import DiffStopped
    from parity.store import Store

    reports = report_paths(options)
    named = None if engine is None else _side_spec(engine)
    inputs = [named.path] if isinstance(named, FileSpec) else []
    require_writable_reports(*reports.values(), inputs=inputs)
    require_outside(store, *reports.values())
    stored = load(Store(store), name)
    _require_accepted(stored, accepted)
    settings = checked_settings(f"baseline {name!r}", stored.record["settings"], given)
    require_writable_reports(*reports.values(), inputs=input_files(**(settings or {})))
    chosen = engine or _recorded_spec(stored)
    spec, reproduce = named or parse_spec(chosen, plugins(ENGINES)), rerun(typed)
    seed = (settings or {}).get("seed", 0)
    with Progress(quiet=quiet) as progress:
        try:
            ask = Ask(reproduce=reproduce, seed=seed)
            tree = _judge(stored, settings, spec, ask, progress)
        except NotRunError as error:
            write_not_run(error, (f"baseline {name}", chosen), reproduce, reports)
            raise
        except DiffStopped as stop:
            progress.close()
            write_reports(stop.tree, reports, quiet=quiet)
            raise
    return write_reports(tree, reports, quiet=quiet)


# --- what is accepted -----------------------------------------------------------------------------


def _side_spec(text: str) -> Spec:
    """An engine, a program in line mode, or a dump file."""
    from parity.dumps.tensor_files import is_tensor_path

    spec = parse_spec(text, plugins(ENGINES))
    if isinstance(spec, FileSpec) and is_tensor_path(spec.path):
        raise InputError(f"{text}: a tensor file says nothing of its run", "give a dump")
    return spec


def _result(
    typed: str,
    spec: Spec,
    options: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    trust: Trust,
    progress: Progress,
) -> tuple[Dump, Facts]:
    """The dump of ``spec`` and all that a record says of it, once it is found to be trusted."""
    if isinstance(spec, FileSpec):
        return _file_result(typed, spec, given, trust, progress)
    return _engine_result(typed, spec, dict(options or {}), trust, progress)


def _engine_result(
    typed: str, spec: Runnable, settings: dict[str, Any], trust: Trust, progress: Progress
) -> tuple[Dump, Facts]:
    from parity.baseline import RUN, Facts
    from parity.baseline.runs import FEWEST_RUNS, capture, measure, wanted_keys
    from parity.runs.engine_diff import start_of

    if trust.runs < FEWEST_RUNS:
        raise InputError(
            f"--runs {trust.runs}: too few",
            f"give {FEWEST_RUNS} or more: two by one engine, the last by one opened anew",
        )
    (recorded, tokens_from, run), seed = settled(settings, spec), int(settings["seed"])
    require_other_engine(spec, trust.ref)
    made = measure(_opener("engine", spec, run, progress), run, trust.runs, seed=seed)
    dump = made.done.dump
    wanted = wanted_keys(dump, trust.tensors)
    tensors = capture(start_of(made.side, run, made.done), dump, wanted)
    facts = Facts(
        command=typed,
        spec=spec.text,
        source=RUN,
        settings=recorded,
        tokens_from=tokens_from,
        run=made.done,
        tensors=tensors,
        stability=made.stability,
        evidence=evidence_of(spec, dump, run, trust, seed, progress),
    )
    return dump, facts


def _file_result(
    typed: str,
    spec: FileSpec,
    given: Mapping[str, Any],
    trust: Trust,
    progress: Progress,
) -> tuple[Dump, Facts]:
    from parity.baseline import Facts, require_whole
    from parity.dumps.reader import read_dump

    if trust.tensors:
        raise InputError(f"--tensors: {spec.text} holds no values", "save an engine's run")
    dump = read_dump(spec.path, partial=True)  # a partial one is refused by name below
    require_whole(dump)
    settings = header_settings(dump, given.get("model"))
    require_options(spec.text, settings, given)
    run = None if settings is None else make_run(**settings)
    seed = 0 if settings is None else int(settings["seed"])
    evidence = evidence_of(spec, dump, run, trust, seed, progress)
    file = f"the header of {spec.text}"
    return dump, Facts(typed, spec.text, settings=settings, tokens_from=file, evidence=evidence)


# --- checking -------------------------------------------------------------------------------------


def _judge(
    stored: Stored, settings: dict[str, Any] | None, spec: Spec, ask: Ask, progress: Progress
) -> Tree:
    from parity.baseline import judge_written, require_same_input
    from parity.baseline.runs import judge_run, require_same_run
    from parity.runs.sides import dump_of

    if isinstance(spec, EngineSpec) or (isinstance(spec, ProgramSpec) and _talks(spec)):
        run = _require_run(stored, settings, spec)
        return judge_run(stored, _opener("dut", spec, run, progress), run, ask)
    if isinstance(spec, ProgramSpec):
        run = _require_run(stored, settings, spec)
        require_same_run(stored, run)
        tokens = stored.dump.header["tokens"].split(",")[run.start :]
        dump = dump_of(spec, run, [int(token) for token in tokens])
    else:
        from parity.dumps.reader import read_dump

        dump = read_dump(spec.path)
    require_same_input(stored, dump)
    return judge_written(stored, dump, ask)


def _talks(spec: ProgramSpec) -> bool:
    """Whether a program has line mode; one that has not may still write a dump."""
    from parity.program.engine import program_engine

    try:
        program_engine(spec)
    except NotRunError:
        return False
    return True


def _opener(role: str, spec: Runnable, run: Run, progress: Progress) -> Callable[[], Side]:
    from parity.runs.sides import open_side

    return partial(open_side, role, spec, run, progress)


def _recorded_spec(stored: Stored) -> str:
    """The engine of the record; InputError where it holds none."""
    from parity.baseline import ARRAYS, RUN

    record, where = stored.record, f"baseline {stored.entry.name!r}"
    if record["kind"] == ARRAYS:
        raise InputError(f"{where}: holds arrays, no run", "check it where they are made")
    if record["kind"] != RUN:
        raise InputError(f"{where}: saved from a dump file", "give --engine SIDE")
    return str(record["spec"])


def _require_run(stored: Stored, settings: Mapping[str, Any] | None, side: Spec) -> Run:
    """The recorded run, for ``side``; InputError where no options make it."""
    if settings is None:
        raise InputError(
            f"baseline {stored.entry.name!r}: its header names no run that the options can make",
            "give --engine a dump file",
        )
    return make_run(sides=(side,), **settings)


def _require_accepted(stored: Stored, accepted: str | None) -> None:
    if accepted is None:
        return
    if len(accepted) < _SHORTEST or not stored.entry.digest.startswith(accepted):
        entry = stored.entry
        raise InputError(
            f"baseline {entry.name!r}: the entry on hand is {entry.digest[:_SHORTEST]} "
            f"({entry.seq}), not {accepted or 'nothing'}",
            f"give {_SHORTEST} digits or more of the entry last accepted, or bring that one back",
        )
