"""The panels of an HTML report that say why: births, near-ties, and what isolation tried.

As every panel: what the tree holds, in the words of the console; None where it holds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from parity.status import Verdict
from parity.tree import CONTAMINATED, Birth, FunctionDiff, KeyState, Margin, Tree
from parity_reports import isolating, why, wording
from parity_reports.axes import leading_axis
from parity_reports.html_elements import LISTED
from parity_reports.html_panels import Fact, run_facts
from parity_reports.states import sourced_name
from parity_reports.values import Value, parse_value


@dataclass(frozen=True)
class BirthView:
    """One birth: its inputs in the run, what is special of it, how much differs on the ref's
    inputs, and what ran."""

    key: str
    op: str
    inputs: str
    remark: str
    ref: Value
    dut: Value
    elements: str
    largest: str
    functions: list[str]
    ran: str
    first: bool

    @property
    def type(self) -> str:
        """Dtype and shape where both sides have the same."""
        return self.ref.type if self.ref.type == self.dut.type else ""


@dataclass(frozen=True)
class BirthsView:
    """All births: a sentence an op, one row each, and the functions that differ."""

    sentences: list[str]
    incomplete: str
    cost: str
    rows: list[BirthView]
    total: int
    functions: list[tuple[str, FunctionDiff]]  # (key, function)


@dataclass(frozen=True)
class IsolationView:
    """What isolation tried, and what it says about it."""

    guilty: str
    runs: str
    tables: list[isolating.Table]
    remarks: list[str]


def cause_line(tree: Tree) -> str:
    """``t33_l7_attn: born here; variant libm_exp; 37 of 128 elements, at most 1 ULP``: the first
    key, what became of it, the guilty variants and how much differs, as far as each is known."""
    shown = wording.compared(tree)[0]
    row = wording.first_row(shown)
    if row is None or tree.verdict is Verdict.NOT_RUN or wording.starts_apart(tree):
        return ""
    parts = [sourced_name(row)]
    guilty = tree.isolation.guilty if tree.isolation is not None else []
    if guilty:
        parts.append(f"variant{'s' if len(guilty) > 1 else ''} {', '.join(guilty)}")
    found = shown.elements
    if found is not None and found.total and found.key == row.key:
        parts.append(f"{wording.of(found.differ, found.total)} elements")
        if found.max_ulp is not None:
            parts[-1] += f", at most {wording.counted(found.max_ulp, found.unit)}"
    # That it differs is the verdict line's; a line of its own has to say more.
    return "" if parts == [KeyState.DIFFERS] else f"{row.key}: {'; '.join(parts)}"


def reasons(tree: Tree) -> list[Fact]:
    """The lines under the verdict: what is known of the cause, or what was run."""
    agreed = tree.verdict is Verdict.SAME and tree.profile is not None and tree.profile.judged
    if agreed or tree.verdict is Verdict.NOT_RUN:
        return []
    if tree.verdict is Verdict.SAME and tree.first is None:
        facts = run_facts(tree)
    else:
        guilty = isolating.guilty_sentence(tree)
        facts = [Fact("cause", guilty)]
        if tree.reason == CONTAMINATED:
            facts += _start(tree)
        else:
            facts += _causes(tree, "op" if guilty else "cause")
        if tree.elements is not None:
            axis = leading_axis(tree.elements)
            facts.append(Fact("elements", wording.elements_sentence(tree.elements, axis)))
            facts.append(Fact("note", tree.elements.note))
    return [fact for fact in facts if fact.text]


def _causes(tree: Tree, label: str = "cause") -> list[Fact]:
    birth = why.leading_birth(tree)
    if birth is not None:
        functions = [Fact("function", why.function_sentence(each)) for each in birth.functions]
        said = Fact("explained", why.explained_sentence(birth))
        ran = Fact("kernels", why.kernels_sentence(birth))
        return [Fact(label, why.cause_sentence(tree)), *functions, said, ran]
    shown = wording.compared(tree)[0]
    return [Fact("op", "" if wording.starts_apart(tree) else why.op_sentence(shown))]


def _start(tree: Tree) -> list[Fact]:
    start = next((state for state in tree.states if state.when == "start"), None)
    facts = [Fact("start", "" if start is None else wording.parts_sentence(start))]
    news = why.news(tree)
    facts += _causes(tree) if news == why.ALL else [Fact("births", news)]
    if tree.decode is not None:
        cause = _causes(tree.decode)[0]  # its panel has the rest
        facts.append(Fact("decode", wording.decode_sentence(tree.decode)))
        facts.append(Fact("", f"{cause.label}: {cause.text}" if cause.text else ""))
    return facts


def births_view(tree: Tree) -> BirthsView | None:
    """The births of ``tree``; None where nobody asked for them, and where the decoding from one
    state has the same."""
    births = tree.births
    if births is None or (tree.reason == CONTAMINATED and why.news(tree) != why.ALL):
        return None
    held = births.found[:LISTED]
    first = why.leading_birth(tree)
    return BirthsView(
        sentences=[why.group_sentence(group) for group in why.groups(births.found)],
        incomplete=why.incomplete_sentence(births),
        cost=why.cost_sentence(births),
        rows=[_birth(birth, birth is first) for birth in held],
        total=len(births.found),
        functions=[(birth.key, each) for birth in held for each in birth.functions],
    )


def _birth(birth: Birth, first: bool) -> BirthView:
    counts = birth.elements
    largest = None if counts is None else counts.max_ulp
    return BirthView(
        key=birth.key,
        op=birth.op,
        inputs=why.inputs_word(birth),
        remark=why.marks_sentence(birth),
        ref=parse_value(birth.ref),
        dut=parse_value(birth.dut),
        elements="" if counts is None else wording.of(counts.differ, counts.total),
        largest="" if largest is None or counts is None else wording.counted(largest, counts.unit),
        functions=[each.function for each in birth.functions],
        ran=why.kernels_sentence(birth).removeprefix("ran "),
        first=first,
    )


def margins(tree: Tree) -> list[Margin]:
    """The flips whose margin is known, at most LISTED."""
    return tree.margins[:LISTED]


def isolation_view(tree: Tree) -> IsolationView | None:
    """What isolation tried; None where it was not asked for."""
    found = tree.isolation
    if found is None:
        return None
    return IsolationView(
        guilty=isolating.guilty_sentence(tree),
        runs=isolating.runs_sentence(found),
        tables=isolating.tables(tree, every=True),
        remarks=[*found.interactions, *found.notes],
    )
