"""``parity ladder``: how many greedy tokens each tier and variant shares with the ref."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parity.cli.options import input_files, make_run
from parity.cli.reporting import (
    CHECK_REPORTS,
    report_paths,
    require_writable_reports,
    write_check_reports,
    write_checks_not_run,
    write_lines,
)
from parity.cli.rerunning import rerun
from parity.errors import InputError, NotRunError
from parity.presenting import STDOUT, printable
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.runs.checks import Check, CheckRun
from parity.spec import EngineSpec, parse_spec
from parity.status import ExitStatus, Verdict

if TYPE_CHECKING:
    from parity.runs.ladder import Ladder, Rung
    from parity.runs.run import Run

NAME = "ladder"
MODEL = "moe-48"  # unless another is asked for: a model where every rung but exact flips a token
HEAD = ("rung", "tokens", "fed", "first flip", "first key", "differ")
NUMBERS = (1, 2, 5)  # columns that stand to the right


def run_ladder(typed: str, *, ref: str, engine: str, seed: int, quiet: bool, **options: Any) -> int:
    """Run ``parity ladder``; 0 when the exact rung has every key and token of the ref."""
    from parity.runs.carried import model_text

    json_path = options.pop("json_path")
    reports = report_paths(options, CHECK_REPORTS)
    trusted, climbed = _engine("--ref", ref), _plain_engine(engine)
    sides = (trusted, climbed)
    options["model"] = model_text(sides, options["model"], MODEL)
    require_writable_reports(json_path, *reports.values(), inputs=input_files(**options))
    run = make_run(seed=seed, fields="", dump_prefill=True, sides=sides, **options)
    try:
        ladder = _climbed(trusted, engine, run, seed, quiet)
    except NotRunError as error:
        write_checks_not_run(error, NAME, rerun(typed), reports)
        raise
    if json_path is not None:
        write_lines(ladder.to_json(typed).splitlines(), json_path)
    checks = checks_of(ladder.record(typed))
    if STDOUT not in (json_path, *reports.values()):
        lines = [_headline(checks)] if quiet else ladder_lines(ladder, typed)
        write_lines(lines, STDOUT)
    write_check_reports(checks, reports, json_path or "")
    return int(ladder.status)


def _climbed(trusted: EngineSpec, engine: str, run: Run, seed: int, quiet: bool) -> Ladder:
    from parity.runs.ladder import RUNGS, climb
    from parity.runs.sides import load_side, open_pair, open_side

    with Progress(quiet=quiet) as progress:
        pair = (trusted, _rung_spec(engine, RUNGS[0]))
        opened, _ = open_pair(pair, run, progress)
        return climb(
            load_side("ref", trusted, opened, run, progress),
            lambda name: open_side("dut", _rung_spec(engine, name), run, progress),
            run,
            seed,
        )


def checks_of(record: Mapping[str, Any]) -> CheckRun:
    """What the exact rung gave, which decides, as every report is told; ``record``: of the JSON
    file."""
    exact, again = record["rungs"][-1], rerun(record["reproduce"])
    verdict = Verdict(exact["verdict"])
    if verdict is Verdict.SAME and record["status"] == ExitStatus.DIVERGED:
        verdict = Verdict.DIVERGED  # another token, though every key fed the ref's is equal
    said = f"exact: {_said(exact)}"
    compared = exact["keys"]["total"]
    check = Check("exact", verdict, said, (), exact["first"], compared, again)
    facts = {"model": record["run"]["model"]}
    return CheckRun(
        *(NAME, verdict, said, (check,), again, facts, record["seconds"]), records=(record,)
    )


def ladder_lines(ladder: Ladder, reproduce: str) -> list[str]:
    """The table as text: a verdict on the exact rung, one line a rung, what the columns say."""
    first, last = ladder.run["positions"].split(":")
    exact = ladder.exact
    rows = [HEAD, *map(_cells, ladder.rungs)]
    lines = [_headline(checks_of(ladder.record(reproduce))), "", *_aligned(rows), ""]
    lines += [
        f"  tokens   the ref's choice at t{first} to t{last}, each side following its own",
        "  fed      the same, both sides fed the ref's tokens",
        "  differ   keys from t0 on, both sides fed the ref's tokens",
        f"  model    {ladder.run['model']}, {ladder.run['tokens']} tokens of prompt",
        f"  ref      {_side(exact.tree.ref)}",
        f"  dut      {_side(exact.tree.dut)}",
    ]
    if exact.tree.dut.get("emulated") == "yes":
        lines.append("  emulated rsqrt, libm_exp and libm_sincos are stand-ins: not a GPU's bits")
    if exact.tree.control is not None:
        control = exact.tree.control
        found = "found at that key" if control.fired else f"found at {control.found or 'no key'}"
        lines.append(f"  control  1 {control.unit} at {control.key}, {found}")
    return [*lines, f"  time     {ladder.seconds:,.1f} s", "", f"  {reproduce}"]


def _headline(checks: CheckRun) -> str:
    return f"{checks.called}  {checks.said}"


def _said(exact: Mapping[str, Any]) -> str:
    """What is said of the exact rung, as it stands in the JSON file."""
    keys, tokens, flip = exact["keys"], exact["tokens"], exact["flip"]
    if exact["verdict"] == Verdict.SAME and flip is None:
        equal = f"{keys['same']:,} of {keys['total']:,} keys equal"
        return f"{equal}, {tokens['equal']} of {tokens['total']} tokens"
    if exact["verdict"] == Verdict.NOT_RUN:
        return printable(exact["reason"])
    if exact["first"] is not None:
        return f"first at {exact['first']}"
    return printable(exact["reason"]) or (f"another token at t{flip['pos']}" if flip else "")


def _cells(rung: Rung) -> tuple[str, ...]:
    flip = "none"
    if rung.flip is not None:
        pos, ref, dut = rung.flip
        flip = f"t{pos} ref {ref} dut {dut}"
    tree = rung.tree
    differing = tree.counts.total - tree.counts.same
    tokens = f"{rung.equal} of {rung.tokens}"
    return rung.name, tokens, str(rung.fed), flip, tree.first or "none", f"{differing:,}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns two blanks apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place in NUMBERS else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(["", *cells]).rstrip())
    return lines


def _side(header: dict[str, str]) -> str:
    facts = [f"{header['engine']} {header['version']}", header.get("device", "")]
    return ", ".join(printable(fact) for fact in facts if fact)


def _engine(option: str, text: str) -> EngineSpec:
    spec = parse_spec(text, plugins(ENGINES))
    if not isinstance(spec, EngineSpec):
        raise InputError(f"{option} {text}: not an engine", "parity engines lists them")
    return spec


def _plain_engine(text: str) -> EngineSpec:
    """An engine without tier and variants, which the rungs set."""
    spec = _engine("--engine", text)
    if spec.tier or spec.plus or spec.minus:
        raise InputError(
            f"--engine {text}: the ladder sets tier and variants itself",
            f"write --engine {spec.name}",
        )
    return spec


def _rung_spec(engine: str, rung: str) -> EngineSpec:
    """``cuda@NAME=VALUE`` and ``exact+fma`` as ``cuda:exact+fma@NAME=VALUE``."""
    name, mark, options = engine.partition("@")
    return _engine("--engine", f"{name}:{rung}{mark}{options}")
