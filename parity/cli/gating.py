"""``parity gate``: options to settings, the run, the evidence, what is printed."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.baseline_listing import require_outside
from parity.cli.gate_checks import NAME, gate_checks
from parity.cli.gate_text import gate_line, gate_lines
from parity.cli.options import input_files, name_model
from parity.cli.probing import parse_sizes
from parity.cli.reporting import (
    CHECK_REPORTS,
    Reports,
    report_paths,
    require_writable_reports,
    write_check_reports,
    write_checks_not_run,
    write_lines,
)
from parity.cli.rerunning import rerun
from parity.errors import InputError, NotRunError, ParityError
from parity.presenting import STDOUT
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.spec import EngineSpec, Runnable, Spec, runnable

if TYPE_CHECKING:
    from parity.gate.evidence import Record
    from parity.gate.running import Gate
    from parity.gate.settings import Settings
    from parity.model.model import Model
    from parity.runs.run import Run
    from parity.store import Entry, Store

Specs = tuple[Runnable, Runnable]
LEAST_DRAWN = 8  # ids of its seed at the end of a prompt that was given
CHOSEN = "no CUDA device works here: the base is emu (--engine cuda says why)"


@dataclass(frozen=True)
class Wanted:
    """What is to be reported where. ``reproduce``: the line that makes the gate again."""

    reproduce: str
    json_path: str | None
    reports: Reports
    quiet: bool


def run_gate_command(
    typed: str,
    *,
    fast: str | None,
    base: str | None,
    folder: Path | None,
    name: str,
    show: str | None,
    json_path: str | None,
    quiet: bool,
    **options: Any,
) -> int:
    """Run ``parity gate``; returns the exit status of the verdict."""
    from parity.store import DEFAULT_FOLDER, Store

    reports = report_paths(options, CHECK_REPORTS)
    require_writable_reports(json_path, *reports.values(), inputs=input_files(**options))
    store = Store(folder or Path(DEFAULT_FOLDER))
    for path in (json_path, *reports.values()):
        require_outside(store.path, path)
    wanted = Wanted(rerun(typed), json_path, reports, quiet)
    if show is not None:
        return _show(store, show, fast, wanted)
    if fast is None:
        raise InputError("nothing to try: --fast is missing", "name variants or an engine")
    specs, notes = _specs(fast, base)
    return _run(typed, specs, notes, store, name, wanted, options)


def _show(store: Store, name: str, fast: str | None, wanted: Wanted) -> int:
    """What a gate found before, from verified bytes; the status is that of its verdict."""
    from parity.gate.evidence import KIND, check_record

    if fast is not None:
        raise InputError("--show with --fast: one shows, the other runs", "leave one out")
    entry = store.latest(KIND, name)
    return _report(check_record(entry), entry, store, wanted)


def _specs(fast: str, base: str | None) -> tuple[Specs, tuple[str, ...]]:
    """Base and candidate, and what is to be said of their choice."""
    from parity.gate.settings import candidate_spec
    from parity.runs.side_diff import FALLBACK, default_dut
    from parity.runs.sides import chosen_variants, class_of

    installed = plugins(ENGINES)
    chosen = base or default_dut()
    spec = runnable(chosen, "--engine")
    own = class_of(spec).variants if isinstance(spec, EngineSpec) else ()
    candidate = candidate_spec(fast, spec, installed, own)
    for side in (spec, candidate):
        if isinstance(side, EngineSpec):
            chosen_variants(side)  # variants that exclude each other are refused here
    fell_back = base is None and chosen == FALLBACK
    return (spec, candidate), (CHOSEN,) if fell_back else ()


def make_settings(
    *,
    model: str,
    weights: str | None,
    seed: int,
    seeds: int,
    sizes: str,
    n: int,
    rounds: int,
    confidence: float,
    sides: Sequence[Spec] = (),
    **prompt: Any,
) -> Settings:
    """Settings of the gate from the options; refuses what cannot be run before anything is.
    ``prompt``: the options of a prompt, with which each seed's begins."""
    from parity.gate.settings import Settings
    from parity.runs.carried import models_for

    if seeds < 1:
        raise InputError(f"--seeds {seeds}: nothing to run", "give --seeds 3 or more")
    drawn = range(seed, seed + seeds)
    models = models_for(sides, model, drawn, weights=weights)
    runs = tuple(_run_of(one, own, n, **prompt) for one, own in zip(models, drawn, strict=True))
    if not math.isfinite(confidence):
        raise InputError(f"--confidence {confidence}: not a number", "leave it out for 0.95")
    return Settings(runs, parse_sizes(sizes, "--m"), rounds, Fraction(str(confidence)))


def _run_of(
    model: Model,
    seed: int,
    n: int,
    *,
    tokens: str | None = None,
    prompt: str | None = None,
    prompt_file: Path | None = None,
    tokenizer: Path | None = None,
) -> Run:
    """The run of one seed. Its prompt begins with what was given, and ends with ids of the seed, so
    that the seeds of a file differ too."""
    from parity.model.generator import prompt_tokens
    from parity.runs.prompts import read_prompt
    from parity.runs.settings import PROMPT_LENGTH, parse_tokens, run_settings

    ids = None if tokens is None else parse_tokens(tokens)
    read = read_prompt(model, tokens=ids, text=prompt, file=prompt_file, tokenizer=tokenizer)
    if read is None:
        return run_settings(model=model, seed=seed, n=n, dump_prefill=True)
    count = max(PROMPT_LENGTH - len(read.ids), LEAST_DRAWN)
    fed = [*read.ids, *prompt_tokens(seed, count, model.config.ids)]
    made = run_settings(model=model, seed=seed, n=n, dump_prefill=True, tokens=fed)
    return replace(made, tokenizer=read.tokenizer)


def _run(
    typed: str,
    specs: Specs,
    notes: tuple[str, ...],
    store: Store,
    name: str,
    wanted: Wanted,
    options: dict[str, Any],
) -> int:
    from parity.gate.evidence import Asked, default_name, keep, record_of, require_name
    from parity.model.opening import source_of

    name_model(options, *specs)
    settings = make_settings(sides=specs, **options)
    model, called = settings.runs[0].model, options["model"]
    if source_of(model) is not None:
        called = model.label
        notes += (f"all seeds have the weights of {called}: they draw the prompts alone",)
    name = name or default_name(specs[0].text, specs[1].text, called)
    require_name(store, name)
    store.require_writable()
    began = time.monotonic()
    try:
        with Progress(quiet=wanted.quiet) as progress:
            gate = _gate(settings, specs, progress)
    except NotRunError as error:
        _write_not_run(error, typed, wanted.json_path)
        write_checks_not_run(error, NAME, wanted.reproduce, wanted.reports)
        raise
    seconds = time.monotonic() - began
    asked = Asked(typed, options["model"], seconds, notes, options["weights"])
    record = record_of(gate, settings, asked)
    try:
        entry = keep(store, name, record)
    except ParityError:
        _report(record, None, store, wanted)  # what was found is not lost with the store
        raise
    return _report(record, entry, store, wanted)


def _gate(settings: Settings, specs: Specs, progress: Progress) -> Gate:
    from parity.gate.running import run_gate
    from parity.runs.run import Side
    from parity.runs.sides import open_sides

    def open_pair(run: Run) -> tuple[Side, Side]:
        return open_sides(specs, run, progress)

    def told(number: int) -> None:
        progress.update("timing", f"round {number}", number - 1, settings.rounds, "rounds")

    return run_gate(settings, open_pair, told)


def _write_not_run(error: NotRunError, typed: str, json_path: str | None) -> None:
    """Leave a record of a gate that gave no verdict, in a file that is new; nothing is kept."""
    from parity.gate.evidence import not_run_record

    if json_path is None or json_path == STDOUT or os.path.exists(json_path):
        return
    record = not_run_record(error, typed)
    write_lines(json.dumps(record, indent=1).splitlines(), json_path)


def _report(record: Record, entry: Entry | None, store: Store, wanted: Wanted) -> int:
    kept = None if entry is None else f"{store.path}: {entry.name}, entry {entry.seq}"
    told = {**record, "evidence": _place(entry)}
    if wanted.json_path is not None:
        write_lines(json.dumps(told, indent=1).splitlines(), wanted.json_path)
    if STDOUT not in (wanted.json_path, *wanted.reports.values()):
        address = entry.address if entry else ""
        lines = [gate_line(record)] if wanted.quiet else gate_lines(record, kept, address)
        write_lines(lines, STDOUT)
    checks = gate_checks(told, wanted.reproduce)
    write_check_reports(checks, wanted.reports, wanted.json_path or "")
    return int(record["exit_status"])


def _place(entry: Entry | None) -> dict[str, Any] | None:
    """Where the evidence is kept: not part of it, for it names its own digest."""
    if entry is None:
        return None
    names = ("name", "seq", "address", "digest", "created")
    return {name: getattr(entry, name) for name in names}
