"""The HTML report: one self-contained page, from the verdict down to every header.

The order is that of the questions: verdict, first key, cause and how to see it again before the
first scroll; then where (map), what (key), why, whether it matters, and of what. A new panel is one
line of PANELS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TextIO

from parity import __version__
from parity.presenting import Options, require_consistent, write_text
from parity.status import Verdict
from parity.tree import Tree
from parity_reports import (
    html_data,
    html_key,
    html_map,
    html_profile,
    html_repeats,
    html_why,
    wording,
)
from parity_reports import html_panels as panels
from parity_reports import html_sections as sections
from parity_reports.html_elements import LISTED
from parity_reports.html_grid import Grid, build_grid
from parity_reports.html_shell import (
    Panel,
    Section,
    asset,
    content_policy,
    data_block,
    joined_assets,
    page,
)

SCRIPTS = ("map_data.js", "map_canvas.js", "map_key.js", "map.js")
STYLES = ("report.css", "map.css", "panels.css")


def _said(text: str) -> Any:
    return lambda tree: text


# In the order of the page. Every function is asked with the tree; None leaves the section out.
PANELS: tuple[Panel[Tree], ...] = (
    Panel(
        "evidence",
        "Evidence",
        sections.evidence,
        _said("What was checked, and what was seen."),
        above=True,
    ),
    Panel(
        "profile",
        "Profile",
        html_profile.profile,
        html_profile.profile_lead,
        above=True,
    ),
    Panel("repeats", "Repeats", html_repeats.repeats, html_repeats.repeats_lead, above=True),
    Panel(
        "states",
        "State",
        sections.first_state,
        _said("Compared part by part, row by row, as bytes."),
        above=True,
    ),
    Panel(
        "decode",
        "Decoding from the ref's state",
        sections.decoding,
        _said("The start states differ; decoded again from one state, this is what is left."),
        above=True,
    ),
    Panel("key", "Key", html_key.key_section, html_key.key_lead),
    Panel("births", "Births", sections.births, sections.births_lead),
    Panel("orders", "Order of the sums", sections.orders, _said(sections.ORDERS_LEAD)),
    Panel("isolation", "Isolation", sections.isolation, sections.isolation_lead),
    Panel(
        "states",
        "State",
        sections.states,
        _said("Compared part by part, row by row, as bytes."),
    ),
    Panel("search", "Search", sections.search),
    Panel("greedy", "Greedy choice", sections.greedy, sections.greedy_lead),
    Panel("baseline", "Baseline", html_repeats.baseline, html_repeats.baseline_lead),
    Panel("provenance", "Provenance", sections.provenance, _said("Of what this report is.")),
)


class HtmlReport:
    """Presenter ``html``."""

    name = "html"

    def write(self, tree: Tree, stream: TextIO, options: Options) -> None:
        """Write the page; of the options only ``json_path`` matters, as the place of the rest."""
        write_text(stream, render(tree, options.json_path))


def render(tree: Tree, json_path: str = "") -> str:
    """The page as ASCII text. Raises ParityBug when the tree contradicts itself."""
    require_consistent(tree)
    return page("report.html.j2", _context(tree, json_path))


def _context(tree: Tree, json_path: str) -> dict[str, Any]:
    from markupsafe import Markup

    css = joined_assets(*STYLES)
    shown, names = wording.compared(tree)
    grid = build_grid(shown)
    js = asset("report.js")
    if grid is not None:
        js += "(() => {\n" + joined_assets(*SCRIPTS) + "})();\n"
    context = {
        **_verdict(tree),
        **_map(tree, grid),
        **_limits(json_path),
        "policy": content_policy(css, js),
        "css": Markup(css),
        "js": Markup(js),
        "data": None
        if grid is None
        else Markup(data_block(html_data.script_data(shown, grid, names))),
        "above": _made(tree, above=True),
        "below": _made(tree, above=False),
    }
    return context | {"nav": _navigation(context)}


def _made(tree: Tree, above: bool) -> list[Section]:
    """The panels that have something to show, made."""
    found = []
    for panel in PANELS:
        body = panel.make(tree) if panel.above is above else None
        if body is not None:
            found.append(Section(panel.id, panel.title, panel.lead(tree), body))
    return found


def _verdict(tree: Tree) -> dict[str, Any]:
    """What stands before the first scroll."""
    word, kind = panels.WORDS[tree.verdict]
    place = wording.verdict_spans(tree)[2:]
    control = tree.control
    not_run = tree.verdict is Verdict.NOT_RUN
    return {
        "title": wording.quiet_line(tree),
        "word": word,
        "kind": kind,
        "place": place,
        "at": next((text for text, role in place if role == "key"), tree.first or ""),
        "cause": html_why.cause_line(tree),
        "why": html_why.reasons(tree),
        "steps": wording.reason_lines(tree)[1:] if not_run else [],
        "reproduce": tree.reproduce,
        "replay": wording.replay_command(tree),
        "facts": panels.count_facts(replace(wording.compared(tree)[0], seconds=tree.seconds)),
        "level": tree.level,
        "level_asked": tree.level_asked,
        "levels": panels.levels(tree),
        "control": control
        and panels.Check("Control", control.fired, wording.control_sentence(control)),
        "about": panels.about(tree),
    }


def _map(tree: Tree, grid: Grid | None) -> dict[str, Any]:
    """The map with its tables, or the list of keys that have no place on a map; of two runs where a
    side is not repeatable."""
    shown, names = wording.compared(tree)
    said = wording.quiet_line(tree)
    context: dict[str, Any] = {
        "keys_text": wording.compared_sentence(tree),
        "unequal": panels.unequal(shown),
        "listing": panels.every_key(shown),
        "shown": panels.SHOWN,
        "classes": html_map.CLASSES,
        "map": grid and html_map.map_view(shown, grid, said, names),
    }
    return context


def _limits(json_path: str) -> dict[str, Any]:
    whole = f"The whole tree is in {json_path}." if json_path else "--json FILE writes all of it."
    return {
        "version": __version__,
        "whole": whole,
        "limits": {
            "marks": html_map.MARKS_LIMIT,
            "hashes": html_data.HELD_LIMIT,
            "rows": LISTED,
        },
    }


def _navigation(context: dict[str, Any]) -> list[tuple[str, str]]:
    above = [(made.id, made.title) for made in context["above"]]
    below = [(made.id, made.title) for made in context["below"]]
    where = [("map", "Map")] if context["map"] else []
    where += [("keys", "Keys")] if not where and context["listing"].total else []
    return [*above, *where, *below]
