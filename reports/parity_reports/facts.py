"""The labelled facts of a report for people, in the order in which it tells them.

Console and Markdown show the same facts; only how much of each stands there is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parity.status import Verdict
from parity.tree import CONTAMINATED, Birth, Tree
from parity_reports import isolating, profiling, why, wording
from parity_reports.layout import measure
from parity_reports.summing import order_sentence


@dataclass(frozen=True)
class Limits:
    """How much is told. ``groups``: of births, flips and functions that are named; ``elements``:
    of the first key; ``rows``: of a table; ``layers``: lines of a profile, 0 for its first sentence
    alone; ``asides``: what the reproduce line says too, and what qualifies nothing."""

    groups: int = 4
    elements: int = 4
    rows: int = 12
    asides: bool = True
    layers: int = 12


FULL = Limits()
# What is told less of, one step after the other, until the report fits.
STEPS = (
    FULL,
    Limits(asides=False),
    Limits(groups=2, rows=6, asides=False, layers=6),
    Limits(groups=1, rows=4, asides=False, layers=4),
    Limits(groups=1, elements=2, rows=4, asides=False, layers=3),
    Limits(groups=1, elements=1, rows=4, asides=False, layers=2),
    Limits(groups=1, elements=1, rows=4, asides=False, layers=0),
)


@dataclass(frozen=True)
class Fact:
    """One fact; without ``label`` it goes on with the one before. ``foldable``: not a command."""

    label: str
    text: str
    foldable: bool = True


def facts(tree: Tree, limits: Limits = FULL) -> list[Fact]:
    """What stands between the verdict line and the panels."""
    told = _green(tree) if tree.verdict is Verdict.SAME else _red(tree, limits)
    return [fact for fact in told if fact.text]


def closing(tree: Tree, limits: Limits = FULL) -> list[Fact]:
    """What stands at the end: the time it took, and remarks; many of an isolation are counted."""
    remarks = isolating.notes(tree)
    if len(remarks) > limits.groups == 1:
        remarks = [f"{len(remarks)} remarks on how it was tried, in the JSON and HTML reports"]
    notes = [Fact("note", note) for note in (*tree.notes, *remarks)]
    return [fact for fact in (Fact("time", why.time_sentence(tree)), *notes) if fact.text]


def _green(tree: Tree) -> Iterator[Fact]:
    yield from _sides(tree)
    yield Fact("model", wording.model_sentence(tree) if tree.run.get("model") else "")
    yield Fact("run", wording.run_sentence(tree.run))
    yield Fact("states", wording.states_sentence(tree.states))
    judged = tree.profile is not None and tree.profile.judged
    yield Fact("level", _level(tree) + (f"; {wording.greedy_sentence(tree)}" if judged else ""))
    yield from _profile(tree, FULL)
    yield from _tried(tree)
    yield from _checks(tree)


def _red(tree: Tree, limits: Limits) -> Iterator[Fact]:
    not_run = tree.verdict is Verdict.NOT_RUN
    for number, step in enumerate(wording.reason_lines(tree)[1:] if not_run else []):
        yield Fact("" if number else "next", step, foldable=False)
    guilty = isolating.guilty_sentence(tree)
    yield Fact("cause", guilty)
    if tree.reason == CONTAMINATED:
        yield from _start(tree, limits)
    else:
        if not wording.starts_apart(tree):
            yield from _cause(wording.compared(tree)[0], "op" if guilty else "cause", limits)
        if not all(state.equal for state in tree.states):
            yield Fact("states", wording.states_sentence(tree.states))
    yield Fact("keys", wording.compared_sentence(tree))
    if not not_run:
        same_tokens = tree.greedy and not wording.flips(tree)
        also = f"; {wording.greedy_sentence(tree)}" if same_tokens else ""
        yield Fact("level", _level(tree) + also)
        yield from _labelled("greedy", _flips(tree, limits))
    yield from _profile(tree, limits)
    if limits.asides:
        yield Fact("stable", wording.stability_sentence(tree))
    yield from _tried(tree)
    yield from _checks(tree)
    if limits.asides:
        yield from _sides(tree)


def _profile(tree: Tree, limits: Limits) -> Iterator[Fact]:
    said = profiling.sentences(tree)
    return _labelled("profile", said if limits.layers else said[:1])


def _start(tree: Tree, limits: Limits) -> Iterator[Fact]:
    """How the start states differ, why, and what decoding from one state gives."""
    start = next((state for state in tree.states if state.when == "start"), None)
    yield Fact("start", "" if start is None else wording.parts_sentence(start))
    news = why.news(tree)
    if news == why.ALL:
        yield from _cause(tree, "cause", limits)
    else:
        yield Fact("births", news)
    if tree.decode is None:
        return
    yield Fact("decode", wording.decode_sentence(tree.decode))
    for fact in _cause(tree.decode, "cause", limits, ran=limits.asides):
        if fact.text and (limits.groups > 1 or fact.label == "cause"):
            yield Fact("", f"{fact.label}: {fact.text}" if fact.label else fact.text)
    for number, text in enumerate(_flips(tree.decode, limits)):
        yield Fact("", text if number else f"greedy: {text}")


def _cause(tree: Tree, label: str, limits: Limits, ran: bool = True) -> Iterator[Fact]:
    """The op behind the first key, what of it differs, and every op that gives birth. ``ran``:
    with what its calls gave."""
    birth = why.leading_birth(tree)
    if birth is not None:
        yield Fact(label, why.cause_sentence(tree))
        if tree.isolation is None and ran:
            yield Fact("", _ran(birth, limits))
    elif tree.reason != CONTAMINATED:  # there the first key is a false lead
        yield Fact("op", why.op_sentence(tree))
    told = tree.isolation is not None and limits.groups == 1  # the tables tell more than births
    if tree.births is not None and not why.only_birth(tree) and not told:
        yield from _labelled("births", why.births_sentences(tree.births, limits.groups))
    yield Fact("order", order_sentence(tree))


def _ran(birth: Birth, limits: Limits) -> str:
    functions = [why.function_sentence(function) for function in birth.functions[: limits.groups]]
    left = len(birth.functions) - limits.groups
    functions += [wording.counted(left, "more function")] if left > 0 else []
    same = birth.ref_kernels == birth.dut_kernels
    kernels = "" if same and not limits.asides else why.kernels_sentence(birth)
    last = (why.explained_sentence(birth), kernels)
    return "; ".join(text for text in (*functions, *last) if text)


def _level(tree: Tree) -> str:
    return f"{tree.level} (asked for: {tree.level_asked})"


def _flips(tree: Tree, limits: Limits) -> list[str]:
    """Positions with another token, and what is known of the margin there."""
    if not wording.flips(tree):
        return []
    return [wording.greedy_sentence(tree), *why.margins_sentences(tree.margins, limits.groups)]


def _checks(tree: Tree) -> Iterator[Fact]:
    if tree.control is not None:
        yield Fact("control", wording.control_sentence(tree.control))
    if tree.search is not None:
        yield Fact("search", wording.search_sentence(tree.search))


def _sides(tree: Tree) -> Iterator[Fact]:
    """Each side: what it is asked for by, then in a column of its own what its header says."""
    sides = wording.sides(tree)
    specs = {name: header.get("spec", "") for name, header in sides.items()}
    column = max(measure(spec) for spec in specs.values()) + 4
    for name, header in sides.items():
        spec, said = specs[name], wording.side_facts(header)
        gap = " " * (column - measure(spec)) if spec and said else ""
        yield Fact(name, f"{spec}{gap}{said}")


def _tried(tree: Tree) -> Iterator[Fact]:
    """How many runs isolation took, and which variants act on each other."""
    if tree.isolation is not None:
        yield Fact("tried", isolating.runs_sentence(tree.isolation))
        for text in tree.isolation.interactions:
            yield Fact("", text)


def _labelled(label: str, texts: list[str]) -> Iterator[Fact]:
    for number, text in enumerate(texts):
        yield Fact("" if number else label, text)
