"""ISODIFF: row m of a forward of M rows has the bits of M single steps.

Compared: full logits as uint32, every key, the state afterwards (KV rows, scales, S, hist,
lengths) and further steps from either state. It would break where a kernel's order depends on M,
where a row sees the wrong prefix, or where rows share what they must not. It does not show that
either is right: that is what ``diff`` against the reference is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from parity.elements import compare_tensors
from parity.families import field_op
from parity.keys import Key
from parity.model.generator import prompt_tokens, words
from parity.model.model import Model
from parity.probe import Ask, Found, OpenSide, counted
from parity.protocol import Injection
from parity.run import Side, greedy
from parity.status import Verdict
from parity_probes.blocks import (
    Outcome,
    compare_outcomes,
    compare_steps,
    differing_logits,
    plan_for,
    run_block,
    start_at,
)


@dataclass
class _Tally:
    """What all blocks together gave."""

    lines: list[str] = field(default_factory=list)
    columns: int = 0
    equal_columns: int = 0
    keys: int = 0
    equal_keys: int = 0
    logits: int = 0
    differing: int = 0
    further: int = 0
    problems: list[tuple[int, int, str, str | None]] = field(default_factory=list)
    state: str = ""
    launches: dict[int, tuple[int, int]] = field(default_factory=dict)


class Isodiff:
    """Probe ``isodiff``."""

    name = "isodiff"
    claim = "row m of a forward of M rows has the bits of M single steps"
    needs: Sequence[str] = ("rows", "state", "counters")

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Every M at every start and seed; then the control."""
        tally, control = _Tally(), ""
        for model in ask.models:
            longest = max(ask.starts) + max(ask.sizes) + ask.more
            side = open_side(model, longest)
            tokens = prompt_tokens(_seed(model), longest, model.config.vocab)
            for size in ask.sizes:
                for start in ask.starts:
                    _block(side, model, tokens, size, start, ask.more, tally)
            control = control or _control(side, model, tokens, ask)
        return _found(self.name, ask, tally, control)


def _block(
    side: Side, model: Model, tokens: list[int], size: int, start: int, more: int, tally: _Tally
) -> None:
    plan = plan_for(model.config)
    state = start_at(side, tokens[:start])
    block, further = tokens[start : start + size], tokens[start + size : start + size + more]
    ref = run_block(side, state, block, further, rows=False, plan=plan)
    dut = run_block(side, state, block, further, rows=True, plan=plan)
    tally.launches[size] = (counted(dut.counts), counted(ref.counts))
    _columns(ref, dut, start, tally)
    keys, states, rest = compare_outcomes(ref, dut)
    tally.keys += keys.counts.total
    tally.equal_keys += keys.counts.same
    tally.further = len(ref.further)
    if keys.verdict is not Verdict.SAME:
        tally.problems.append((size, start, f"first key {keys.first}", keys.first))
    elif not states.equal:
        tally.problems.append((size, start, f"state differs, first at {states.first}", None))
    elif rest is not None and rest.verdict is not Verdict.SAME:
        tally.problems.append((size, start, f"a further step differs at {rest.first}", rest.first))
    if not states.equal and not tally.state:
        tally.state = f"M = {size}, pos {start}: differs, first at {states.first}"


def _columns(ref: Outcome, dut: Outcome, start: int, tally: _Tally) -> None:
    """The published line of each column."""
    for col, (single, row) in enumerate(zip(ref.steps, dut.steps, strict=True)):
        where = differing_logits(single.logits, row.logits)
        line = (
            f"[SPECTOP1] pos={start} col={col} top1={greedy(row.logits)} "
            f"[ISOTOP1] col={col} {greedy(single.logits)} [ISODIFF] col={col} ndiff={len(where)}"
        )
        if len(where):
            at = int(where[0])
            line += _first_difference(single.logits, row.logits, at)
        tally.lines.append(line)
        tally.columns += 1
        tally.equal_columns += not len(where)
        tally.logits += single.logits.size
        tally.differing += len(where)


def _first_difference(ref: np.ndarray, dut: np.ndarray, at: int) -> str:
    element = compare_tensors("logits", ref[at : at + 1], dut[at : at + 1]).rows[0]
    ulp = "none" if element.ulp is None else str(abs(element.ulp))
    return f" first={at} ref={element.ref_hex} dut={element.dut_hex} ulp={ulp}"


def _control(side: Side, model: Model, tokens: list[int], ask: Ask) -> str:
    """Move one element in an M-row forward: the comparison must name exactly that key."""
    if not side.has("inject"):
        return "not possible: the engine lacks the capability 'inject'"
    size, start = max(ask.sizes), ask.starts[0]
    state = start_at(side, tokens[:start])
    block, plan = tokens[start : start + size], plan_for(model.config)
    ref = run_block(side, state, block, [], rows=False, plan=plan)
    entries = [entry for step in ref.steps for entry in step.entries]
    draw, place = (int(word) for word in words(_seed(model), "control", 0, 2))
    entry = entries[draw % len(entries)]
    elements = int(np.prod(entry.type.shape)) if entry.type else 1
    planted = plan_for(model.config, inject=Injection(entry.key, place % elements))
    dut = run_block(side, state, block, [], rows=True, plan=planted)
    found = compare_steps(ref.steps, dut.steps).first
    unit = "1 step" if entry.type and entry.type.dtype.startswith("int") else "1 ULP"
    where = f"{unit} at {entry.key} element {place % elements}"
    if found == entry.key.tag:
        return f"fired: {where}, found at that key"
    return f"did not fire: {where}, found at {found}"


def _found(name: str, ask: Ask, tally: _Tally, control: str) -> Found:
    sizes = _sizes(ask.sizes)
    unbatched = [size for size, (one, many) in tally.launches.items() if size > 1 and one >= many]
    verdict, first, failing = Verdict.SAME, None, ""
    headline = (
        f"M = {sizes}: {tally.equal_columns:,} of {tally.columns:,} columns, "
        f"{tally.equal_keys:,} of {tally.keys:,} keys"
    )
    facts = _facts(tally, control)
    if tally.problems:
        size, start, what, first = min(tally.problems)
        verdict, failing = Verdict.DIVERGED, f"--m {size} --pos {start}:{start}"
        headline = f"M = {size}, pos {start}; {what}"
        facts.insert(0, ("cause", _cause(first, start, size)))
        equal = [m for m in ask.sizes if m not in {problem[0] for problem in tally.problems}]
        note = f"{size} ({_sizes(tuple(equal))} equal)" if equal else str(size)
        facts.insert(1, ("smallest", f"failing M: {note}"))
    elif unbatched:
        verdict = Verdict.NOT_RUN
        headline = f"M = {_sizes(tuple(unbatched))}: as many calls as single steps: nothing batched"
    elif not control.startswith("fired"):
        verdict, headline = Verdict.NOT_RUN, f"the control {control}"
    return Found(name, verdict, headline, facts, tally.lines, first, failing, tally.keys)


def _facts(tally: _Tally, control: str) -> list[tuple[str, str]]:
    one, many = tally.launches[max(tally.launches)]
    size = max(tally.launches)
    state = tally.state or f"every part equal; {tally.further} further steps each compared"
    return [
        ("columns", f"{tally.equal_columns:,} of {tally.columns:,} equal"),
        ("logits", f"{tally.differing:,} of {tally.logits:,} differ, as uint32"),
        ("state", state),
        ("path", f"{one:,} calls for one forward of {size} rows, {many:,} for {size} single steps"),
        ("control", control),
    ]


def _cause(first: str | None, start: int, size: int) -> str:
    if first is None:
        return "the keys are equal, the state is not"
    key = Key.parse(first)
    row = key.pos - start
    where = f"row {row} of {size}" if 0 <= row < size else f"position {key.pos}, after the block"
    return f"{field_op(key.field)}, {where}; every key before it is equal"


def _sizes(sizes: tuple[int, ...]) -> str:
    if len(sizes) > 2 and list(sizes) == list(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]}..{sizes[-1]}"
    return ", ".join(map(str, sizes))


def _seed(model: Model) -> int:
    return int(getattr(model, "seed", 0))
