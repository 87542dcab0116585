"""The sections of an HTML report around map and key: each a function of the tree, None where the
tree holds nothing for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parity.tree import CONTAMINATED, Tree
from parity_reports import html_panels as panels
from parity_reports import html_why, wording
from parity_reports.html_elements import LISTED
from parity_reports.html_key import key_panel
from parity_reports.html_shell import fragment
from parity_reports.summing import HEADS, order_rows

if TYPE_CHECKING:
    from markupsafe import Markup

ORDERS_LEAD = "Revealed by probes of each side's own op; what no probe reaches is said so."


def evidence(tree: Tree) -> Markup | None:
    """What makes a green run count."""
    checks = panels.evidence(tree)
    return _made("evidence_table", checks) if checks else None


def decoding(tree: Tree) -> Markup | None:
    """What decoding from the ref's state gave, after a contaminated start."""
    decode = tree.decode
    if decode is None:
        return None
    word, kind = panels.WORDS[decode.verdict]
    view = {
        "word": word,
        "kind": kind,
        "text": wording.decode_sentence(decode),
        "panel": key_panel(decode),
        "births": html_why.births_view(decode),
        "margins": html_why.margins(decode),
        "margins_total": len(decode.margins),
        "unequal": panels.unequal(decode),
    }
    return _made("decoding", view, panels.SHOWN)


def first_state(tree: Tree) -> Markup | None:
    """The states, before the map where the run did not start from one state."""
    return _states(tree) if tree.reason == CONTAMINATED else None


def states(tree: Tree) -> Markup | None:
    """The compared states, part by part."""
    return _states(tree) if tree.reason != CONTAMINATED else None


def births(tree: Tree) -> Markup | None:
    """Where differences begin."""
    view = html_why.births_view(tree)
    return None if view is None else _made("births_panel", view, "birthplaces", panels.SHOWN)


def births_lead(tree: Tree) -> str:
    """What naming them cost."""
    view = html_why.births_view(tree)
    return "" if view is None else view.cost


def orders(tree: Tree) -> Markup | None:
    """Both sides' trees of the sums behind the births."""
    rows = order_rows(tree)
    return _made("orders_table", HEADS, rows) if rows else None


def isolation(tree: Tree) -> Markup | None:
    """What isolation tried."""
    view = html_why.isolation_view(tree)
    return None if view is None else _made("isolation_panel", view, panels.SHOWN)


def isolation_lead(tree: Tree) -> str:
    """How many runs that took."""
    view = html_why.isolation_view(tree)
    return "" if view is None else view.runs


def search(tree: Tree) -> Markup | None:
    """What a bisection cost."""
    return None if tree.search is None else _made("sentence", wording.search_sentence(tree.search))


def greedy(tree: Tree) -> Markup | None:
    """Whether the greedy choices agree, and the near-ties among them."""
    if not tree.greedy:
        return None
    rows, found = tree.greedy[:LISTED], html_why.margins(tree)
    names = wording.compared(tree)[1]
    totals = len(tree.greedy), len(tree.margins)
    return _made("greedy_panel", names, rows, found, totals, panels.SHOWN)


def greedy_lead(tree: Tree) -> str:
    """The choices in a sentence."""
    return wording.greedy_sentence(tree) if tree.greedy else ""


def provenance(tree: Tree) -> Markup | None:
    """Every header of both sides, and the settings of the run; collapsed."""
    headers, run = panels.provenance(tree), list(tree.run.items())
    return _made("provenance_panel", headers, run) if headers or run else None


def _states(tree: Tree) -> Markup | None:
    views = panels.states(tree)
    return _made("states_tables", views, LISTED, panels.SHOWN) if views else None


def _made(name: str, *values: Any) -> Markup:
    return fragment(name, *values)
