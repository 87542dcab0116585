"""The sentences and table rows of an isolation: guilty variants, ladder, placements, transplants.

Every row says where the first difference is then, and N of how many keys differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parity.tree import Isolation, Placement, Transplant, Tree, Trial
from parity_reports import wording

PLACEMENT = "placement"
NONE = "none"  # in place of a first difference
NOTHING = "nothing"  # was removed: the run as it was
FIRST, DIFFER = "first difference", "keys differ"
CELL = 30  # columns that a list of names takes where a row must stay one line
Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """What was tried of one kind: ``heads`` and one row a trial, in the order they were tried;
    ``shares``: of its keys that differ, in percent."""

    name: str
    heads: tuple[str, ...]
    rows: Sequence[Row]
    shares: Sequence[float] = ()

    def split(self) -> tuple[Sequence[Row], str]:
        """The rows in which anything differs, and the others by name: ``norm, o: none, 0 of 2,120
        each``."""
        differing = [row for row in self.rows if row[-2] != NONE]
        equal = [row for row in self.rows if row[-2] == NONE]
        if not equal:
            return differing, ""
        each = " each" if len(equal) > 1 else ""
        return differing, f"{', '.join(row[0] for row in equal)}: {NONE}, {equal[0][-1]}{each}"


def guilty_sentence(tree: Tree) -> str:
    """``variant libm_exp: without it 2,120 of 2,120 equal``; why there is none; empty where no
    variants were tried."""
    found = tree.isolation
    if found is None:
        return ""
    if not found.guilty:
        return f"no variants are guilty: {found.reason}" if found.reason else ""
    several = len(found.guilty) > 1
    verb = "differ" if several else "differs"
    text = f"variant{'s' if several else ''} {_all(found.guilty)}"
    proof = next(
        (trial for trial in _tried(found) if set(trial.removed) == set(found.guilty)), None
    )
    if proof is not None:
        equal = wording.of(proof.total - proof.differ, proof.total)
        text += f": without {'them' if several else 'it'} {equal} equal"
        text += ", the prompt's keys too" if proof.total > tree.counts.total else ""
    if found.needed:
        text += f"; {verb} only together with {_all(found.needed)}"
    return f"{text}; {found.reason}" if found.reason else text


def runs_sentence(found: Isolation) -> str:
    """``4 runs after the red one; variants fma, libm_exp``, and how many trials took no run; empty
    where none was made."""
    if not found.trials and not found.runs:
        return ""
    text = f"{wording.counted(found.runs, 'run')} after the red one"
    cached = sum(trial.cached for trial in found.trials)
    text += f"; {wording.counted(cached, 'trial')} known before" if cached else ""
    return f"{text}; variants {', '.join(found.variants)}" if found.variants else text


def notes(tree: Tree) -> list[str]:
    """What isolation remarks upon."""
    return [] if tree.isolation is None else tree.isolation.notes


def tables(tree: Tree, every: bool = False) -> list[Table]:
    """The tables that have rows. ``every``: all trials stand among them, with what was kept, and
    every name; else trials stand for a ladder that is not there, and long lists are counted."""
    found = tree.isolation
    if found is None:
        return []
    rungs = _ladder(tree, found)
    as_run = [_share(tree.counts.total - tree.counts.same, tree.counts.total)]
    steps = [*as_run[: len(rungs) - len(found.ladder)], *_shares(found.ladder)]
    made = [Table("ladder", ("without", FIRST, DIFFER), rungs, steps)]
    if every:
        rows = [(_names(t.removed, NOTHING), _names(t.kept), *_result(t)) for t in found.trials]
        heads = ("without", "kept", FIRST, DIFFER)
        made.append(Table("trials", heads, rows, _shares(found.trials)))
    elif not found.ladder:
        short = [(_counted(t.removed, found.variants), *_result(t)) for t in found.trials]
        made.append(Table("trials", ("without", FIRST, DIFFER), short))
    placed = [(p.group, " ".join(p.fields), *_result(p)) for p in found.placements]
    heads = ("placed", "fields", "first", DIFFER)
    made.append(Table(PLACEMENT, heads, placed, _shares(found.placements)))
    told = _on_top([moved.keys for moved in found.transplants], short=not every)
    moved = [(name, *_result(m)) for name, m in zip(told, found.transplants, strict=True)]
    shares = _shares(found.transplants)
    made.append(Table("transplants", ("transplanted", FIRST, DIFFER), moved, shares))
    return [table for table in made if table.rows]


def _ladder(tree: Tree, found: Isolation) -> Sequence[Row]:
    """The run as it was, then with one variant less each time."""
    told = _on_top([trial.removed for trial in found.ladder])
    rows = [(name, *_result(trial)) for name, trial in zip(told, found.ladder, strict=True)]
    if not rows or not found.ladder[0].removed:
        return rows
    counts = tree.counts
    as_run = wording.of(counts.total - counts.same, counts.total)
    return [(NOTHING, tree.first or NONE, as_run), *rows]


def _on_top(lists: Sequence[Sequence[str]], *, short: bool = False) -> list[str]:
    """The names of each list, those of the list before as ``and``: they are not said again.
    ``short``: long lists are counted."""
    shown = _counted if short else _names
    texts: list[str] = []
    before: Sequence[str] = ()
    for names in lists:
        more = names[len(before) :]
        grown = bool(before) and bool(more) and list(names[: len(before)]) == list(before)
        texts.append(f"and {shown(more)}" if grown else shown(names) if names else NOTHING)
        before = names
    return texts


def _all(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _names(names: Sequence[str], empty: str = NONE) -> str:
    return ", ".join(names) or empty


def _counted(names: Sequence[str], everything: Sequence[str] = ()) -> str:
    """``fma, rsqrt``; of a long list ``fma and 5 more``, or ``all 11``."""
    text = _names(names, NOTHING)
    if len(names) < 2 or len(text) <= CELL:
        return text
    return (
        f"all {len(names)}"
        if len(names) == len(everything)
        else f"{names[0]} and {len(names) - 1} more"
    )


def _result(tried: Trial | Placement | Transplant) -> tuple[str, str]:
    return tried.first or NONE, wording.of(tried.differ, tried.total)


def _shares(tried: Sequence[Trial | Placement | Transplant]) -> list[float]:
    return [_share(one.differ, one.total) for one in tried]


def _share(differ: int, total: int) -> float:
    return round(100 * differ / total, 2) if total else 0.0


def _tried(found: Isolation) -> Sequence[Trial]:
    return [*found.trials, *found.ladder]
