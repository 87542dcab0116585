"""``parity isodiff`` and ``parity rollback``: probes of one engine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.reporting import require_writable_reports, write_lines
from parity.errors import InputError
from parity.presenting import STDOUT
from parity.progress import Progress
from parity.registry import ENGINES, PROBES, find, plugins, require
from parity.spec import EngineSpec, parse_spec
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.model.model import Model
    from parity.probe import Ask, Found, Probe
    from parity.run import Side

LABEL = 9  # width of the label column
WIDTH = 80


def run_probes(
    typed: str,
    names: tuple[str, ...],
    *,
    engine: str,
    quiet: bool,
    json_path: str | None,
    **options: Any,
) -> int:
    """Run the named probes one after the other; the exit status is the worst of theirs."""
    from parity.probe import worst

    require_writable_reports(json_path)
    spec = parse_spec(engine, plugins(ENGINES))
    if not isinstance(spec, EngineSpec):
        raise InputError(f"--engine {engine}: not an engine", "parity engines lists them")
    ask = make_ask(typed, **options)
    found = []
    for name in names:
        probe = find(PROBES, name).load()()
        began = time.monotonic()
        with Progress(quiet=quiet) as progress:
            found.append(_run(probe, spec, ask, progress))
        write_lines(_report(found[-1], ask, time.monotonic() - began, quiet), STDOUT)
    if json_path is not None:
        Path(json_path).write_text("".join(one.to_json() for one in found), encoding="utf-8")
    return int(worst([one.verdict for one in found]).exit_status)


def make_ask(
    typed: str,
    *,
    model: str,
    weights: str,
    synthetic_kind: str,
    seed: int,
    seeds: int,
    sizes: str,
    positions: str,
    chunks: str = "",
) -> Ask:
    """Settings of the probes from the options; ``--synthetic`` implies hybrid-tiny."""
    from parity.model.model import synthetic
    from parity.probe import Ask

    name = model or ("hybrid-tiny" if synthetic_kind else "moe-tiny")
    models = tuple(synthetic(name, seed + k, weights, synthetic_kind) for k in range(seeds))
    return Ask(
        sizes=parse_sizes(sizes, "--m"),
        starts=parse_positions(positions),
        models=models,
        chunks=parse_sizes(chunks, "--chunks") if chunks else (),
        reproduce=typed,
    )


def parse_sizes(text: str, option: str) -> tuple[int, ...]:
    """``4``, ``2,4,8`` or ``2..8`` as numbers; InputError shows the part that is none."""
    found: list[int] = []
    for part in text.split(","):
        low, dots, high = part.strip().partition("..")
        if not low.isdecimal() or (dots and not high.isdecimal()):
            raise InputError(f"{option}: {part!r} is not a number or a range", f"{option} 2..8")
        found += range(int(low), int(high or low) + 1)
    if not found or min(found) < 1:
        raise InputError(f"{option} {text}: nothing to run", f"write {option} 2..8")
    return tuple(dict.fromkeys(found))


def parse_positions(text: str) -> tuple[int, ...]:
    """``33:38`` or ``33`` as first positions of a block."""
    low, colon, high = text.partition(":")
    if not low.isdecimal() or (colon and not high.isdecimal()) or int(high or low) < int(low):
        raise InputError(f"--pos: {text!r} is not a range of positions", "write --pos 33:38")
    return tuple(range(int(low), int(high or low) + 1))


def _run(probe: Probe, spec: EngineSpec, ask: Ask, progress: Progress) -> Found:
    from parity.run import Run
    from parity.sides import open_side

    def opened(model: Model, positions: int) -> Side:
        run = Run(model=model, prompt=(0,) * positions, n=0)
        side = open_side("engine", spec, run, progress)
        for capability in probe.needs:
            require(side.engine, capability, probe.name)
        return side

    return probe.run(opened, ask)


def _report(found: Found, ask: Ask, seconds: float, quiet: bool) -> list[str]:
    word = found.verdict.replace("_", " ")
    if quiet:
        return [f"{word}: {found.name} {found.headline}"]
    lines = [*found.lines, f"{word.upper()}  {found.headline}", ""]
    lines += [line for label, text in found.facts for line in _fact(label, text)]
    if found.verdict is not Verdict.SAME:
        lines += ["", "  reproduce:", f"  {ask.reproduce} {found.failing}".rstrip()]
    return [*lines, *_fact("time", f"{seconds:,.1f} s")]


def _fact(label: str, text: str) -> list[str]:
    """One labelled fact, folded at blanks where it is wider than 80 columns."""
    lines, line = [], f"  {label:<{LABEL - 1}}"
    for word in text.split(" "):
        if len(line) + 1 + len(word) > WIDTH and line.strip():
            lines.append(line)
            line = " " * (LABEL + 1)
        line += f" {word}"
    return [*lines, line]
