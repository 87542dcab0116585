"""The JUnit report, for continuous integration: one test case a (position, layer).

Its colours are those of the exit status: a suite without a failure is one that ended 0 or was not
run, and of a run that was not run every case is skipped. Beside the places stand one case for the
verdict, one for each compared state and one for the control, so that no red run is without a
failure. Nothing that is not comparable passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from parity.comparison.compare import exit_status
from parity.presenting import Options, require_consistent, write_text
from parity.status import ExitStatus, Verdict
from parity.tree import Births, KeyRow, KeyState, Tree
from parity_reports import isolating, profiling, why, wording
from parity_reports.junit_xml import FAILED, PASSED, RUN, SKIPPED, Case, document
from parity_reports.states import sourced_name, state_name
from parity_reports.values import parse_key


class JunitReport:
    """Presenter ``junit``."""

    name = "junit"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write one suite as ASCII XML; no option changes it."""
        write_text(stream, render(tree))


def render(tree: Tree) -> str:
    """The suite as text. Raises ParityBug when the tree contradicts itself."""
    require_consistent(tree)
    return document(cases(tree), _properties(tree), tree.seconds)


def cases(tree: Tree) -> Iterator[Case]:
    """The verdict, the control, the states, the decoding, then the places in dataflow order."""
    listed = [*_whole(tree), *_places(tree)]
    if tree.verdict is Verdict.NOT_RUN:
        reason = wording.reason_lines(tree)
        for case in listed:
            details = "\n".join(part for part in (case.text, *reason[1:]) if part)
            yield Case(case.group, case.name, SKIPPED, "not_run", reason[0], details, case.compared)
        return
    yield from listed


def _whole(tree: Tree) -> Iterator[Case]:
    """Cases about the run as a whole."""
    line = "".join(text for text, _ in wording.verdict_spans(tree))
    passed = exit_status(tree) is ExitStatus.SAME
    details = "\n".join(part for part in (tree.reproduce, *tree.notes) if part)
    outcome = PASSED if passed else FAILED
    yield Case(RUN, "verdict", outcome, str(tree.verdict), line, details, tree.counts.total)
    if tree.control is not None:
        said = wording.control_sentence(tree.control)
        outcome = PASSED if tree.control.fired else FAILED
        yield Case(RUN, "control", outcome, "control", said, compared=1)
    for state in tree.states:
        name, rows = f"{state.when} state", sum(part.rows for part in state.parts)
        if state.equal:
            yield Case(RUN, name, compared=rows)
        else:
            text = f"{wording.parts_sentence(state)}, first at {state.first}"
            yield Case(RUN, name, _differs(tree), "state", text, compared=rows)
    if tree.decode is not None:
        yield _decode(tree.decode, _differs(tree))


def _decode(tree: Tree, differs: str) -> Case:
    """``differs``: what a difference counts as at the level asked of the whole run."""
    outcomes = {Verdict.SAME: PASSED, Verdict.NOT_RUN: SKIPPED, Verdict.DIVERGED: differs}
    said = wording.decode_sentence(tree)
    outcome = outcomes.get(tree.verdict, FAILED)
    text = "\n".join(_line(row) for row in tree.keys if row.state != KeyState.SAME)
    total = tree.counts.total
    return Case(RUN, "decode", outcome, str(tree.verdict), said, text, total)


def _places(tree: Tree) -> Iterator[Case]:
    """One case a (segment, position, layer); one a key where the name holds no position."""
    places: dict[tuple[str, str], list[KeyRow]] = {}
    for row in tree.keys:
        places.setdefault(_place(row), []).append(row)
    for (group, name), rows in places.items():
        yield _place_case(tree, group, name, rows)


def _place_case(tree: Tree, group: str, name: str, rows: list[KeyRow]) -> Case:
    unequal = [row for row in rows if row.state != KeyState.SAME]
    faults = [row for row in unequal if row.state != KeyState.NOT_COMPARABLE]
    text = "\n".join(_line(row) for row in unequal)
    if faults:
        outcome, kind, message = _differs(tree), state_name(faults[0]), _line(faults[0])
    elif unequal:
        outcome, kind, message = SKIPPED, unequal[0].state, _line(unequal[0])
    else:
        outcome, kind, message = PASSED, "", ""
    return Case(group, name, outcome, kind, message, text, len(rows))


def _differs(tree: Tree) -> str:
    """A difference fails, unless the level asked for holds in spite of it."""
    return PASSED if exit_status(tree) is ExitStatus.SAME else FAILED


def _place(row: KeyRow) -> tuple[str, str]:
    key = parse_key(row.key)
    where = "keys" if key is None else f"t{key.pos}"
    group = ".".join(part for part in ("parity", row.segment, where) if part)
    if key is None:
        return group, row.key
    return group, where if key.layer is None else f"{where}_l{key.layer}"


def _line(row: KeyRow) -> str:
    """``t33_l7_attn differs: ref 007d... f32[4,32] dut 3ce1... f32[4,32]``; with its cause
    ``t33_l7_x differs, inherited from t33_l7_attn: ref ...``."""
    cause = f", {sourced_name(row)}" if state_name(row) != row.state else ""
    sides = f"ref {row.ref or 'absent'} dut {row.dut or 'absent'}"
    return f"{row.key} {row.state}{cause}: {sides}"


def _properties(tree: Tree) -> dict[str, str]:
    counts = tree.counts
    facts = {
        "verdict": str(tree.verdict),
        "first": tree.first or "",
        "keys": f"{counts.same} of {counts.total} equal",
        "keys_listed": f"{len(tree.keys)} of {counts.total}",
        "level": str(tree.level),
        "level_asked": str(tree.level_asked),
        "reason": " / ".join(line for line in tree.reason.split("\n") if line),
        "reproduce": tree.reproduce,
    }
    if tree.verdict is Verdict.NOT_RUN:
        facts["not_run"] = wording.reason_lines(tree)[0]
    facts |= _causes(tree)
    facts |= {f"run.{name}": text for name, text in tree.run.items()}
    facts |= {f"ref.{name}": text for name, text in tree.ref.items()}
    facts |= {f"dut.{name}": text for name, text in tree.dut.items()}
    return facts | {f"note.{number}": note for number, note in enumerate(tree.notes, 1)}


def _causes(tree: Tree) -> dict[str, str]:
    """Properties that say why; what is not known has none."""
    decode = tree.decode
    facts = {
        "guilty": isolating.guilty_sentence(tree),
        "cause": why.cause_sentence(tree),
        **_births("births", tree.births),
        "births.cost": why.cost_sentence(tree.births, None if decode is None else decode.births),
        "stability": wording.stability_sentence(tree),
        "repro": tree.repro,
        "profile": "; ".join(profiling.sentences(tree)),
    }
    if decode is not None:
        facts |= {"decode.cause": why.cause_sentence(decode)}
        facts |= _births("decode.births", decode.births)
    margins = (*tree.margins, *(() if decode is None else decode.margins))
    return facts | {f"margin.{m.pos}": why.margin_sentence(m) for m in margins}


def _births(name: str, births: Births | None) -> dict[str, str]:
    """``births.1``, ``births.2``: one property an op."""
    texts = why.births_sentences(births, len(births.found)) if births is not None else []
    return {f"{name}.{number}": text for number, text in enumerate(texts, 1)}
