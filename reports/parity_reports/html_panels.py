"""The panels of an HTML report as data: what the template shows, in the words of ``wording``.

A panel is built from what the tree holds and is empty or None where the tree holds nothing. No
panel judges: verdict, states, counts and distances are the tree's.
"""

from __future__ import annotations

from dataclasses import dataclass

from parity.status import Level, Verdict
from parity.tree import CONTAMINATED, Cause, KeyRow, KeyState, StatePart, Tree
from parity_reports import profiling, wording
from parity_reports.html_elements import LISTED
from parity_reports.html_grid import first_index
from parity_reports.states import BORN_EQUAL, CAUSES, LOOKS, PLAIN, look, sourced_name, tally
from parity_reports.values import Value, parse_key, parse_value

SHOWN = 12  # rows before the button
EQUAL = {Cause.MASKED: "Masked, equal again", BORN_EQUAL: "Born here, equal again"}
WORDS = {
    Verdict.SAME: ("Same", "good"),
    Verdict.DIVERGED: ("Diverged", "bad"),
    Verdict.UNSTABLE: ("Unstable", "bad"),
    Verdict.NOT_RUN: ("Not run", "warn"),
}


@dataclass(frozen=True)
class Fact:
    """A labelled fact; ``strong``: in bold, before ``text``; ``part``: of the fact above it."""

    label: str
    text: str
    strong: str = ""
    part: bool = False


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
class StateView:
    """One compared state; ``parts`` lists only those that differ."""

    when: str
    equal: int
    total: int
    rows: int
    first: str
    parts: list[StatePart]


def count_facts(tree: Tree) -> list[Fact]:
    """N of N, and what stands beside it."""
    counts, facts = tree.counts, []
    total = f"of {counts.total:,}"
    if counts.total:
        noun = wording.noun(tree).capitalize()
        named = tally(tree.keys)
        causes = [name for name in CAUSES if name in named]
        parts = {
            name: Fact(EQUAL.get(name, name.capitalize()), total, f"{named[name]:,}", part=True)
            for name in causes
        }
        differ = [Fact(f"{noun} that differ", total, f"{counts.differ:,}")]
        differ += [parts[name] for name in causes if name not in EQUAL]
        equal = [Fact(f"{noun} equal", total, f"{counts.same:,}")]
        equal += [parts[name] for name in causes if name in EQUAL]
        green = tree.verdict is Verdict.SAME
        facts += [*equal, *differ] if green else [*differ, *equal]
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
    if tree.reason != CONTAMINATED:  # its states stand right below
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
    judged = tree.profile is not None and tree.profile.judged
    seen = f"{wording.of(counts.same, counts.total)} {noun} equal"
    left = (counts.missing, counts.extra, counts.not_comparable)
    seen += "; {:,} missing, {:,} extra, {:,} not comparable".format(*left)
    checks = [Check(f"All {noun} compared", not any(left), seen)]
    if judged:
        said = profiling.summary_sentence(tree)
        checks = [Check("Every field within its bound", True, said)]
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
    if ref and dut and (ref == dut or not judged):
        both = f"digest {ref} on both sides" if ref == dut else f"ref {ref} dut {dut}"
        checks.append(Check("Weights", ref == dut, both))
    if tree.greedy:
        agree = all(ref == dut for _, ref, dut in tree.greedy)
        checks.append(Check("Greedy choice", agree, wording.greedy_sentence(tree)))
    return checks


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


def provenance(tree: Tree) -> list[tuple[str, str, str]]:
    """Every header of both sides: (name, ref, dut), the ref's order first."""
    names = dict.fromkeys([*tree.ref, *tree.dut])
    return [(name, tree.ref.get(name, ""), tree.dut.get(name, "")) for name in names]


def state_columns(tree: Tree) -> list[str]:
    """Names of states that a table has a column for: causes where any is known."""
    found = tally(tree.keys)
    causes = [name for name in CAUSES if name in found]
    plain = [name for name in PLAIN if name != KeyState.DIFFERS or name in found or not causes]
    return [name for name in LOOKS if name in causes or name in plain]
