"""The panels of an HTML report as data: what the template shows, in the words of ``wording``.

A panel is built from what the tree holds and is empty or None where the tree holds nothing. No
panel judges: verdict, states, counts and distances are the tree's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parity.status import Level, Verdict
from parity.tree import (
    ElementRow,
    Elements,
    KeyRow,
    KeyState,
    StatePart,
    Tree,
)
from parity_reports import wording
from parity_reports.axes import axis_names, leading_axis
from parity_reports.html_map import first_index
from parity_reports.states import CAUSES, LOOKS, PLAIN, look, sourced_name, state_name, tally
from parity_reports.values import Value, parse_key, parse_value

LISTED = 200  # rows of one list in the file
SHOWN = 12  # rows before the button
NAMED = {name: name.capitalize() for name in CAUSES}
WORDS = {
    Verdict.SAME: ("Same", "good"),
    Verdict.DIVERGED: ("Diverged", "bad"),
    Verdict.UNSTABLE: ("Unstable", "bad"),
    Verdict.NOT_RUN: ("Not run", "warn"),
}
Digits = list[list[tuple[str, bool]]]  # groups of runs of hex digits, and whether they changed


@dataclass(frozen=True)
class Fact:
    """A labelled fact; ``strong`` is the part in bold, before ``text``."""

    label: str
    text: str
    strong: str = ""


@dataclass(frozen=True)
class Check:
    """One line of a green run's evidence."""

    name: str
    ok: bool
    seen: str


@dataclass(frozen=True)
class KeyView:
    """A key's row: its state by class, by the word of strips and by name with the birthplace it
    comes from, and both sides taken apart."""

    key: str
    segment: str
    field: str
    kind: str
    word: str
    name: str
    ref: Value
    dut: Value
    first: bool

    @property
    def type(self) -> str:
        """Dtype and shape where both sides have the same, or only one side has the key."""
        types = {value.type for value in (self.ref, self.dut) if value.digest}
        return types.pop() if len(types) == 1 else ""


@dataclass(frozen=True)
class Listing:
    """The first rows of a list; ``total`` says how many there are."""

    rows: list[KeyView]
    total: int


@dataclass(frozen=True)
class Bar:
    """One line of a histogram; ``share`` in % of the longest bar."""

    label: str
    count: int
    share: float
    kind: str = "differs"


@dataclass(frozen=True)
class ElementView:
    """One differing element."""

    index: str
    ref: Digits
    dut: Digits
    row: ElementRow
    distance: str


@dataclass(frozen=True)
class ElementsView:
    """Elements of one key: sentence, table and both histograms."""

    key: str
    sentence: str
    note: str
    head: str
    unit: str
    kinds: bool  # whether any row is more than a plain value
    rows: list[ElementView]
    total: int
    differ: int
    bars: list[Bar]
    axis: str
    groups: list[Bar]
    groups_total: int


@dataclass(frozen=True)
class KeyPanel:
    """What is known of the first key: its layer's strip, itself, its inputs, its elements.
    ``names``: what the sides are called."""

    names: tuple[str, str]
    place: str
    strip: list[KeyView]
    key: KeyView | None
    inputs: list[KeyView]
    inputs_text: str
    elements: ElementsView | None


@dataclass(frozen=True)
class StateView:
    """One compared state; ``parts`` lists only those that differ."""

    when: str
    equal: int
    total: int
    rows: int
    first: str
    parts: list[StatePart]


def verdict_class(tree: Tree) -> str:
    """good, bad or warn."""
    return WORDS[tree.verdict][1]


def count_facts(tree: Tree) -> list[Fact]:
    """N of N, and what stands beside it."""
    counts, facts = tree.counts, []
    total = f"of {counts.total:,}"
    if counts.total:
        noun = wording.noun(tree).capitalize()
        named = tally(tree.keys)
        causes = [Fact(NAMED[name], total, f"{named[name]:,}") for name in CAUSES if name in named]
        first = Fact(f"{noun} that differ", total, f"{counts.differ:,}")
        second = Fact(f"{noun} equal", total, f"{counts.same:,}")
        green = tree.verdict is Verdict.SAME
        facts += [second, first, *causes] if green else [first, *causes, second]
    rest = {
        "Missing in the dut": counts.missing,
        "Not in the ref": counts.extra,
        "Not comparable": counts.not_comparable,
    }
    facts += [Fact(name, total, f"{number:,}") for name, number in rest.items() if number]
    if tree.elements is not None and tree.elements.total:
        found = tree.elements
        facts.append(Fact("Elements in the first key", f"of {found.total:,}", f"{found.differ:,}"))
        if found.max_ulp is not None:
            facts.append(Fact("Largest difference", wording.counted(found.max_ulp, found.unit)))
    facts.append(Fact("Time", wording.time_sentence(tree.seconds)))
    return [fact for fact in facts if fact.text]


def levels(tree: Tree) -> list[tuple[str, bool]]:
    """Each level and whether the runs agree that far."""
    if tree.verdict is Verdict.NOT_RUN:
        return []
    return [(str(level), tree.level.satisfies(level)) for level in Level if level != Level.NONE]


def about(tree: Tree) -> list[Fact]:
    """The two sides, the run, the states and the notes, labelled as on the console."""
    heads = wording.sides(tree).items()
    facts = [Fact(name, wording.side_facts(head), head.get("spec", "")) for name, head in heads]
    if not (tree.verdict is Verdict.SAME and tree.first is None):
        facts += run_facts(tree)
    facts.append(Fact("states", wording.states_sentence(tree.states)))
    facts.append(Fact("stable", wording.stability_sentence(tree)))
    facts += [Fact("note", note) for note in tree.notes]
    return [fact for fact in facts if fact.text or fact.strong]


def run_facts(tree: Tree) -> list[Fact]:
    """The model and the run, as far as they are known."""
    model = wording.model_sentence(tree) if tree.run.get("model") else ""
    facts = (Fact("model", model), Fact("run", wording.run_sentence(tree.run)))
    return [fact for fact in facts if fact.text]


def evidence(tree: Tree) -> list[Check]:
    """What makes a green run count. Only what was checked stands here."""
    if tree.verdict is not Verdict.SAME:
        return []
    counts, noun = tree.counts, wording.noun(tree)
    seen = f"{wording.of(counts.same, counts.total)} {noun} equal"
    left = (counts.missing, counts.extra, counts.not_comparable)
    seen += "; {:,} missing, {:,} extra, {:,} not comparable".format(*left)
    checks = [Check(f"All {noun} compared", not any(left), seen)]
    if tree.stability is not None and wording.repeatable(tree):
        runs = wording.counted(tree.stability.runs, "run")
        checks.append(Check("Repeatable", True, f"{runs}, each with the bytes of the first"))
    if tree.control is not None:
        said = wording.control_sentence(tree.control)
        checks.append(Check("Control", tree.control.fired, said))
    if tree.search is not None:
        checks.append(Check("Search", True, wording.search_sentence(tree.search)))
    for view in states(tree):
        text = f"{wording.of(view.equal, view.total)} parts equal, {view.rows:,} rows in all"
        checks.append(Check(f"State {view.when}", view.equal == view.total, text))
    ref, dut = tree.ref.get("weights"), tree.dut.get("weights")
    if ref and dut:
        both = f"digest {ref} on both sides" if ref == dut else f"ref {ref} dut {dut}"
        checks.append(Check("Weights", ref == dut, both))
    if tree.greedy:
        agree = all(ref == dut for _, ref, dut in tree.greedy)
        checks.append(Check("Greedy choice", agree, wording.greedy_sentence(tree)))
    return checks


def key_panel(whole: Tree) -> KeyPanel | None:
    """The first key's panel; None where there is no such key and no elements."""
    tree, names = wording.compared(whole)
    row = wording.first_row(tree)
    if row is None and tree.elements is None:
        return None
    return KeyPanel(
        names=names,
        place="" if row is None else _place(row),
        strip=[] if row is None else _strip(tree, row),
        key=None if row is None else key_view(row, first=True),
        inputs=[key_view(feed) for feed in tree.inputs],
        inputs_text=wording.inputs_sentence(tree) if tree.inputs else "",
        elements=None if tree.elements is None else elements_view(tree.elements),
    )


def key_view(row: KeyRow, first: bool = False) -> KeyView:
    """One row for the template."""
    key = parse_key(row.key)
    shown = look(row)
    values = parse_value(row.ref), parse_value(row.dut)
    field = row.key if key is None else key.field
    words = shown.kind, shown.word, sourced_name(row)
    return KeyView(row.key, row.segment, field, *words, *values, first)


def unequal(tree: Tree) -> Listing:
    """Keys that are not the same, in dataflow order."""
    rows = [row for row in tree.keys if row.state != KeyState.SAME]
    first = first_index(tree)
    head = tree.keys[first] if first is not None else None
    return Listing([key_view(row, row is head) for row in rows[:LISTED]], len(rows))


def every_key(tree: Tree) -> Listing:
    """All keys: for files of tensors, which have no map."""
    first = first_index(tree)
    rows = [key_view(row, i == first) for i, row in enumerate(tree.keys[:LISTED])]
    return Listing(rows, len(tree.keys))


def states(tree: Tree) -> list[StateView]:
    """The compared states, named as ``states_sentence`` names them."""
    when = {"start": "before", "end": "after"}
    views = []
    for state in tree.states:
        parts = [part for part in state.parts if part.differ]
        views.append(
            StateView(
                when=when.get(state.when, state.when),
                equal=len(state.parts) - len(parts),
                total=len(state.parts),
                rows=sum(part.rows for part in state.parts),
                first=state.first or "",
                parts=parts,
            )
        )
    return views


def elements_view(elements: Elements) -> ElementsView:
    """Element table and histograms of one key."""
    axis = leading_axis(elements)
    bars = [(label, count, "differs") for label, count in elements.histogram]
    if elements.total:
        # With the equal ones the bars add up to the tensor.
        bars.append(("equal", elements.total - elements.differ, "same"))
    return ElementsView(
        key=elements.key,
        sentence=wording.elements_sentence(elements, axis, bins=True),
        note=elements.note,
        head=f"[{','.join(axis_names(elements))}]",
        unit=elements.unit,
        kinds=any(row.kind != "value" for row in elements.rows),
        rows=[_element(row) for row in elements.rows[:LISTED]],
        total=elements.total,
        differ=elements.differ,
        bars=_bars(bars),
        axis=axis,
        groups=_bars([(f"{axis} {index}", n, "differs") for index, n in elements.groups[:LISTED]]),
        groups_total=len(elements.groups),
    )


def provenance(tree: Tree) -> list[tuple[str, str, str]]:
    """Every header of both sides: (name, ref, dut), the ref's order first."""
    names = dict.fromkeys([*tree.ref, *tree.dut])
    return [(name, tree.ref.get(name, ""), tree.dut.get(name, "")) for name in names]


def hex_groups(text: str, size: int = 4) -> list[str]:
    """Digits in groups; the page parts them by margins, so that a copy is unbroken."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def _place(row: KeyRow) -> str:
    key = parse_key(row.key)
    if key is None:
        return ""
    where = "after the last layer" if key.layer is None else f"layer {key.layer}"
    return f"t{key.pos} {where}" + (f" in segment {row.segment}" if row.segment else "")


def _strip(tree: Tree, first: KeyRow) -> list[KeyView]:
    """The fields of the layer that holds the first key, in dataflow order."""
    place = parse_key(first.key)
    if place is None:
        return []
    found = []
    for row in tree.keys:
        key = parse_key(row.key) if row.segment == first.segment else None
        if key is not None and (key.pos, key.layer) == (place.pos, place.layer):
            found.append(key_view(row, row is first))
    return found


def _element(row: ElementRow) -> ElementView:
    return ElementView(
        index=f"[{', '.join(map(str, row.index))}]",
        ref=changed_digits(row.ref_hex, row.dut_hex),
        dut=changed_digits(row.dut_hex, row.ref_hex),
        row=row,
        distance="" if row.ulp is None else f"{row.ulp:+,}",
    )


def changed_digits(own: str, other: str) -> Digits:
    """``own`` in groups of 4, each a list of runs; nothing is marked where the lengths differ."""
    marks = [a != b for a, b in zip(own, other, strict=True)] if len(own) == len(other) else []
    groups: Digits = []
    for at, digit in enumerate(own):
        changed = bool(marks) and marks[at]
        if at % 4 == 0:
            groups.append([])
        runs = groups[-1]
        if runs and runs[-1][1] == changed:
            runs[-1] = (runs[-1][0] + digit, changed)
        else:
            runs.append((digit, changed))
    return groups


def _bars(found: Sequence[tuple[str, int, str]]) -> list[Bar]:
    longest = max((count for _, count, _ in found), default=0) or 1
    return [Bar(label, n, round(100 * n / longest, 2), kind) for label, n, kind in found]


def by_position(tree: Tree) -> list[tuple[str, dict[str, int], str]]:
    """Per (segment and) position: its name, keys by the name of their state, and the first key not
    the same."""
    rows: dict[str, tuple[dict[str, int], list[str]]] = {}
    for row in tree.keys:
        key = parse_key(row.key)
        if key is None:
            continue
        name = f"{row.segment} t{key.pos}" if row.segment else f"t{key.pos}"
        counts, first = rows.setdefault(name, (dict.fromkeys(LOOKS, 0), []))
        counts[state_name(row)] += 1
        if row.state != KeyState.SAME and not first:
            first.append(row.key)
    return [(name, counts, "".join(first)) for name, (counts, first) in rows.items()]


def state_columns(tree: Tree) -> list[str]:
    """Names of states that a table has a column for: causes where any is known."""
    found = tally(tree.keys)
    causes = [name for name in CAUSES if name in found]
    plain = [name for name in PLAIN if name != KeyState.DIFFERS or name in found or not causes]
    return [name for name in LOOKS if name in causes or name in plain]
