"""``parity ladder``: how many greedy tokens each tier and variant shares with the ref."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from parity.cli.options import make_run
from parity.cli.reporting import require_writable_reports, write_lines
from parity.errors import InputError
from parity.presenting import STDOUT, printable
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.spec import EngineSpec, parse_spec
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.runs.ladder import Ladder, Rung

HEAD = ("rung", "tokens", "fed", "first flip", "first key", "differ")
NUMBERS = (1, 2, 5)  # columns that stand to the right


def run_ladder(
    typed: str, *, ref: str, engine: str, model: str, seed: int, n: int, json_path: str | None
) -> int:
    """Run ``parity ladder``; 0 when the exact rung has every key and token of the ref."""
    from parity.runs.ladder import climb
    from parity.runs.sides import open_side

    require_writable_reports(*([json_path] if json_path else []))
    trusted, _ = _engine("--ref", ref), _plain_engine(engine)
    run = make_run(
        model=model,
        weights="q4",
        seed=seed,
        tokens=None,
        n=n,
        fields="",
        dump_prefill=True,
        hash_name="fnv1a64",
    )
    with Progress() as progress:
        opened = open_side("ref", trusted, run, progress)
        ladder = climb(
            opened,
            lambda name: open_side("dut", _rung_spec(engine, name), run, progress),
            run,
            seed,
        )
    if json_path:
        write_lines(ladder.to_json(typed).splitlines(), json_path)
    if json_path != STDOUT:
        write_lines(ladder_lines(ladder, typed), STDOUT)
    return int(ladder.status)


def ladder_lines(ladder: Ladder, reproduce: str) -> list[str]:
    """The table as text: a verdict on the exact rung, one line a rung, what the columns say."""
    first, last = ladder.run["positions"].split(":")
    exact = ladder.exact
    rows = [HEAD, *map(_cells, ladder.rungs)]
    lines = [_verdict(exact), "", *_aligned(rows), ""]
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


def _verdict(exact: Rung) -> str:
    tree, counts = exact.tree, exact.tree.counts
    if tree.verdict is Verdict.SAME and exact.flip is None:
        keys = f"{counts.same:,} of {counts.total:,} keys"
        return f"SAME  exact: {keys} equal, {exact.equal} of {exact.tokens} tokens"
    if tree.verdict is Verdict.NOT_RUN:
        return f"NOT RUN  exact: {printable(tree.reason)}"
    if tree.first is not None:
        return f"DIVERGED  exact: first at {tree.first}"
    flip = f"another token at t{exact.flip[0]}" if exact.flip else ""
    return f"DIVERGED  exact: {printable(tree.reason) or flip}"


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
