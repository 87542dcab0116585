"""``parity mathfn``: two implementations of one elementary function, or Kestrel's table."""

from __future__ import annotations

import difflib
import math
import os
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from parity.cli.reporting import require_writable_reports
from parity.errors import InputError
from parity.presenting import STDOUT, Options, write_out, write_text
from parity.progress import Progress
from parity.registry import FUNCTION_REPORTS, PROBES, find

if TYPE_CHECKING:
    from parity.elementary.mathfn import Ask, FunctionPresenter, FunctionProbe, Sweep, Table

MOST_SAMPLES = 100_000_000  # held in memory with both sides' results
BYTES = 24  # of memory for each of them: the draw in float64, and what is made of it
LARGEST_CHUNK = 1 << 31
LARGEST_FLOAT = 3.4028234663852886e38
EXAMPLE = "write --domain -100:0"
LEFT_OUT = ("--json", "--html", "--chunk", "--state")


def run_mathfn(
    typed: str,
    function: str | None,
    *,
    table: bool,
    quiet: bool,
    json_path: str | None,
    html_path: str | None,
    **options: Any,
) -> int:
    """Run ``parity mathfn``; 0 when nothing differs, or every row of the table is as expected."""
    paths = {"json": json_path, "html": html_path}
    reports = {name: path for name, path in paths.items() if path is not None}
    state = options["state"]
    require_writable_reports(*reports.values(), *([state] if state else []))
    if table:
        _require_plain_table(function, options)
        found: Sweep | Table = _table(options["seed"], rerun(typed), quiet)
    else:
        ask = make_ask(typed, function, **options)
        found = _sweep(ask, options["ref"] or "ucrt", options["dut"], quiet)
    _write(found, reports, quiet)
    if state:
        with suppress(FileNotFoundError):
            os.unlink(state)  # the sweep is done and its result stands
    return int(found.verdict.exit_status)


def make_ask(
    typed: str,
    function: str | None,
    *,
    ref: str | None,
    dut: str | None,
    domain: str | None,
    samples: int | None,
    seed: int,
    exhaustive: bool,
    chunk: int | None,
    state: str | None,
    special: bool,
    positions: bool | None,
) -> Ask:
    """What the options ask for; InputError and UsageError for what makes no sense."""
    from parity.elementary.mathfn import DOMAINS, SAMPLES, Ask

    name = _known_function(function)
    if not dut:
        raise click.UsageError("give --dut: an implementation to compare with --ref")
    _require_one_kind(exhaustive, domain, samples, chunk, state)
    if samples is not None and not 1 <= samples <= MOST_SAMPLES:
        raise InputError(
            f"--n {samples}: not between 1 and {MOST_SAMPLES:,}",
            "--exhaustive takes every float32 there is",
        )
    if chunk is not None and not 1 <= chunk <= LARGEST_CHUNK:
        raise InputError(f"--chunk {chunk}: not between 1 and {LARGEST_CHUNK:,}", "leave it out")
    if seed < 0:
        raise InputError(f"--seed {seed}: below 0", "write --seed 7")
    return Ask(
        function=name,
        samples=SAMPLES if samples is None else samples,
        domain=DOMAINS[name] if domain is None else parse_domain(domain),
        seed=seed,
        exhaustive=exhaustive,
        chunk=chunk or 0,
        special=special,
        positions=not exhaustive if positions is None else positions,
        state=state or "",
        reproduce=rerun(typed),
        typed=typed,
    )


def rerun(typed: str) -> str:
    """The command as typed, without what a rerun does not need: reports, chunks, the state."""
    kept: list[str] = []
    words = iter(shlex.split(typed))
    for word in words:
        if word in LEFT_OUT:
            next(words, None)
        elif word not in ("-q", "--quiet") and word.partition("=")[0] not in LEFT_OUT:
            kept.append(word)
    return shlex.join(kept)


def parse_domain(text: str) -> tuple[float, float]:
    """``lo:hi`` as two numbers, lo <= hi, both within float32."""
    low_text, colon, high_text = text.partition(":")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise InputError(f"--domain: {text!r} is not two numbers lo:hi", EXAMPLE) from None
    if not colon or not (math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"--domain {text}: both ends must be finite numbers", EXAMPLE)
    if max(-low, high, low, -high) > LARGEST_FLOAT:
        raise InputError(f"--domain {text}: beyond the largest float32", EXAMPLE)
    if low > high:
        raise InputError(f"--domain {text}: {low:g} is above {high:g}", EXAMPLE)
    return low, high


def _known_function(function: str | None) -> str:
    from parity.elementary.functions import FUNCTIONS

    known = ", ".join(FUNCTIONS)
    if function is None:
        raise click.UsageError(f"give a function ({known}) or --table")
    if function not in FUNCTIONS:
        near = difflib.get_close_matches(function, FUNCTIONS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"no function {function!r}", f"{hint}known: {known}")
    return function


def _require_one_kind(
    exhaustive: bool, domain: str | None, samples: int | None, chunk: int | None, state: str | None
) -> None:
    """Samples or every float: options of the one make no sense with the other."""
    sampling = {"--n": samples, "--domain": domain}
    sweeping = {"--chunk": chunk, "--state": state}
    for option, value in (sampling if exhaustive else sweeping).items():
        if value is None:
            continue
        if exhaustive:
            raise click.UsageError(f"{option} with --exhaustive: every float32 is an input")
        raise click.UsageError(f"{option} is for --exhaustive")


def _require_plain_table(function: str | None, options: dict[str, Any]) -> None:
    given = [] if function is None else [function]
    left_out = {"special": True, "positions": None, "exhaustive": False}
    for name, value in options.items():
        if name != "seed" and value != left_out.get(name):
            option = {"samples": "n"}.get(name, name)
            given.append(f"--no-{option}" if value is False else f"--{option}")
    if given:
        raise click.UsageError(f"--table compares what it compares: give it without {given[0]}")


def _sweep(ask: Ask, ref: str, dut: str, quiet: bool) -> Sweep:
    from parity.elementary.functions import open_implementation, require_function

    sides = [open_implementation(spec) for spec in (ref, dut)]
    for side in sides:
        require_function(side, ask.function)
    try:
        with Progress(quiet=quiet) as progress:
            return _probe().run(ask, sides[0], sides[1], progress)
    except MemoryError as error:
        raise _too_large(ask) from error


def _too_large(ask: Ask) -> InputError:
    if ask.exhaustive:
        return InputError("not enough memory for a chunk of inputs", "a smaller --chunk: 1000000")
    need = f"{ask.samples * BYTES / 1e6:,.0f} MB"
    return InputError(
        f"not enough memory for --n {ask.samples:,}: about {need} are needed",
        "a smaller --n, or --exhaustive, which goes in chunks",
    )


def _table(seed: int, typed: str, quiet: bool) -> Table:
    with Progress(quiet=quiet) as progress:
        return _probe().table(seed, typed, progress)


def _probe() -> FunctionProbe:
    found: FunctionProbe = find(PROBES, "mathfn").load()()
    return found


def _write(found: Sweep | Table, reports: dict[str, str], quiet: bool) -> None:
    """The reports asked for, then the console, unless one of them has taken stdout."""
    options = Options(quiet=quiet, json_path=reports.get("json", ""))
    for name, path in reports.items():
        write_result(found, name, path, options)
    if STDOUT not in reports.values():
        write_result(found, "console", STDOUT, options)


def write_result(found: Sweep | Table, name: str, path: str, options: Options) -> None:
    """One report of a result; InputError for a format that there is not."""
    if name == "json":
        write_out(path, lambda stream: write_text(stream, found.to_json()))
        return
    presenter: FunctionPresenter = find(FUNCTION_REPORTS, name).load()()
    write_out(path, lambda stream: presenter.write(found, stream, options))
