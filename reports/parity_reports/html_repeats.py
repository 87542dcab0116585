"""The panels of a tree that tell of other runs: a side against itself, and an accepted baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parity.tree import Tree
from parity_reports.html_shell import fragment
from parity_reports.wording import counted, noun, of

if TYPE_CHECKING:
    from markupsafe import Markup

CHANGED = "changed"  # lines of their own


def repeats(tree: Tree) -> Markup | None:
    """Run by run whether a side repeats; where one does not, what differs. A side that was run
    again in passing, and is alike, stands among the facts of the run."""
    found = tree.stability
    if found is None or not (found.places or found.key):
        return None
    differ = ""
    if found.tree is not None:
        counts = found.tree.counts
        differ = f"{of(counts.total - counts.same, counts.total)} {noun(found.tree)} differ"
    return fragment("repeats", found, differ, template="panels.html.j2")


def repeats_lead(tree: Tree) -> str:
    """How many runs there were."""
    found = tree.stability
    if found is None:
        return ""
    which = "of one engine" if found.places else "of each side"
    return f"{counted(found.runs, 'run')} {which}, each held against run 1."


def baseline(tree: Tree) -> Markup | None:
    """What the ref was accepted as, and what of build and machine changed since."""
    told = tree.baseline
    if not told:
        return None
    facts = [(label, text) for label, text in told.items() if label != CHANGED]
    changed = [line for line in told.get(CHANGED, "").split("\n") if line]
    return fragment("baseline", facts, changed, template="panels.html.j2")


def baseline_lead(tree: Tree) -> str:
    """Why it is there."""
    return "What the ref is: accepted once, never overwritten, verified before this check."
