"""The HTML report: one self-contained page, from the verdict down to every header.

No network, no inline handler, no inline style. The policy in the head admits the one style sheet
and the one script by their digests, so nothing that data could bring in would run. The page is
ASCII whatever the data: other characters are written as references.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, TextIO

from parity import __version__
from parity.presenting import Options, printable, require_consistent, write_text
from parity.status import Verdict
from parity.tree import CONTAMINATED, KeyRow, KeyState, Tree
from parity_reports import html_panels as panels
from parity_reports import wording
from parity_reports.html_map import (
    COLUMN,
    FIRST,
    KEYS_LIMIT,
    LINES_LIMIT,
    WORST,
    Map,
    build_map,
    cells,
    first_index,
    segment_names,
    worst_of,
)

if TYPE_CHECKING:
    from jinja2 import Environment

_STATES = list(panels.STATES)  # the script numbers states so
_LEGEND = (
    (KeyState.SAME, "same", "M2 6h22"),
    (FIRST, "first", "M1 6h24"),
    (KeyState.DIFFERS, "differs", "M2 6h22"),
    (KeyState.MISSING, "missing", "M4 6h4M18 6h4"),
    (KeyState.NOT_COMPARABLE, "nc", "M3 6h4M11 6h4M19 6h4"),
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
    page = _environment().get_template("report.html.j2").render(**_context(tree, json_path))
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def content_policy(css: str, js: str) -> str:
    """Nothing is loaded and nothing runs but exactly this style sheet and this script."""
    style, script = (_digest(text) for text in (css, js))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; "
        "base-uri 'none'; form-action 'none'"
    )


def data_block(data: object) -> str:
    """JSON that can stand inside a script element: no ``<`` and no ``&`` in it."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return (resources.files("parity_reports") / "templates" / name).read_text(encoding="ascii")


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    names = ("report.html.j2", "macros.html.j2")
    environment = Environment(
        loader=DictLoader({name: _asset(name) for name in names}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["hex_groups"] = panels.hex_groups
    return environment


def _shown(value: Any) -> Any:
    """Control characters and lone surrogates of data as escapes; markup of ours as it is."""
    return printable(value) if type(value) is str else value


def _context(tree: Tree, json_path: str) -> dict[str, Any]:
    from markupsafe import Markup

    css, js = _asset("report.css"), _asset("report.js")
    chart = build_map(tree)
    context = {**_verdict(tree), **_details(tree), **_keys(tree, chart), **_limits(json_path)}
    context |= {
        "policy": content_policy(css, js),
        "css": Markup(css),
        "js": Markup(js),
        "data": None if chart is None else Markup(data_block(script_data(tree, chart))),
    }
    return context | {"nav": _navigation(context)}


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
        "first": tree.first,
        "place": place,
        "at": next((text for text, role in place if role == "key"), tree.first or ""),
        "why": panels.why(tree),
        "steps": wording.reason_lines(tree)[1:] if not_run else [],
        "reproduce": tree.reproduce,
        "facts": panels.count_facts(tree),
        "level": tree.level,
        "level_asked": tree.level_asked,
        "levels": panels.levels(tree),
        "control": control
        and panels.Check("Control", control.fired, wording.control_sentence(control)),
        "about": panels.about(tree),
        "evidence": panels.evidence(tree),
    }


def _details(tree: Tree) -> dict[str, Any]:
    return {
        "contaminated": tree.reason == CONTAMINATED,
        "states": panels.states(tree),
        "decode": None if tree.decode is None else _decode(tree.decode),
        "panel": panels.key_panel(tree),
        "search": "" if tree.search is None else wording.search_sentence(tree.search),
        "greedy": tree.greedy[: panels.LISTED],
        "greedy_total": len(tree.greedy),
        "greedy_text": wording.greedy_sentence(tree) if tree.greedy else "",
        "provenance": panels.provenance(tree),
        "run": list(tree.run.items()),
    }


def _decode(tree: Tree) -> dict[str, Any]:
    word, kind = panels.WORDS[tree.verdict]
    text = wording.decode_sentence(tree)
    return {
        "word": word,
        "kind": kind,
        "text": text,
        "panel": panels.key_panel(tree),
        "unequal": panels.unequal(tree),
    }


def _keys(tree: Tree, chart: Map | None) -> dict[str, Any]:
    """The map with its table, or the list of keys that have no place on a map."""
    positions = panels.by_position(tree)
    context: dict[str, Any] = {
        "map": chart,
        "keys_text": wording.keys_sentence(tree) if tree.counts.total else "",
        "unlisted": tree.counts.total - len(tree.keys),
        "unequal": panels.unequal(tree),
        "listing": panels.every_key(tree),
        "positions": positions[: panels.LISTED],
        "positions_total": len(positions),
        "state_names": _STATES,
        "classes": {**{state: panels.STATES[state][0] for state in WORST}, FIRST: "first"},
    }
    if chart is not None:
        first = first_index(tree)
        context |= {
            "legend": _legend(tree),
            "map_size": _map_size(chart),
            "segments": _segments(chart),
            "rows_class": _rows_class(chart),
            "column_share": round(100 * COLUMN / chart.width, 3),
            "map_label": f"Map of keys. {wording.quiet_line(tree)}",
            "read": _read(tree, first),
        }
    return context


def _legend(tree: Tree) -> list[tuple[str, str, str, int | None]]:
    """(name, class, shape, count); missing and extra share one, the first is one of the others."""
    counts = tree.counts
    found: dict[str, tuple[str, int | None]] = {
        KeyState.SAME: ("same", counts.same),
        KeyState.DIFFERS: ("differs", counts.differ),
        KeyState.MISSING: ("missing or extra", counts.missing + counts.extra),
        KeyState.NOT_COMPARABLE: ("not comparable", counts.not_comparable),
    }
    if first_index(tree) is not None:
        found[FIRST] = ("first", None)
    return [
        (found[state][0], cls, d, found[state][1]) for state, cls, d in _LEGEND if state in found
    ]


def _map_size(chart: Map) -> str:
    """Few columns are not stretched over the page."""
    return "small" if len(chart.cols) <= 8 else "middle" if len(chart.cols) <= 20 else "large"


def _rows_class(chart: Map) -> str:
    """Room for the labels of the rows."""
    longest = max(len(label.text) for label in chart.row_labels)
    return "narrow" if longest <= 6 else "middle" if longest <= 12 else "wide"


def _segments(chart: Map) -> list[tuple[str, str]]:
    """(number, name) of segments whose names are too long for the axis."""
    names = segment_names(chart.rows)
    return [(alias, name) for name, alias in names.items() if alias != name]


def _read(tree: Tree, first: int | None) -> str:
    """The line under the map before any script: the first key with both sides."""
    if first is None:
        return f"{tree.control.key}: the control's key" if tree.control else ""
    row = tree.keys[first]
    return f"{row.key}  {row.state}, first  ref {row.ref or 'absent'}  dut {row.dut or 'absent'}"


def _limits(json_path: str) -> dict[str, Any]:
    where = f"all are in {json_path}" if json_path else "--json FILE writes all"
    whole = f"The whole tree is in {json_path}." if json_path else "--json FILE writes all of it."
    return {
        "version": __version__,
        "keys_limit": KEYS_LIMIT,
        "lines_limit": LINES_LIMIT,
        "listed": panels.LISTED,
        "shown": panels.SHOWN,
        "elsewhere": where,
        "whole": whole,
    }


def _navigation(context: dict[str, Any]) -> list[tuple[str, str]]:
    chart = context["map"]
    sections = (
        ("evidence", "Evidence", context["evidence"]),
        ("decode", "Decoding", context["decode"]),
        ("map", "Map", chart),
        ("keys", "Keys", not chart and context["listing"].total),
        ("key", "First key", context["panel"]),
        ("states", "State", context["states"]),
        ("search", "Search", context["search"]),
        ("greedy", "Greedy choice", context["greedy"]),
        ("provenance", "Provenance", context["provenance"] or context["run"]),
    )
    return [(id_, name) for id_, name, there in sections if there]


def script_data(tree: Tree, chart: Map) -> dict[str, Any]:
    """What the script needs to follow a pointer: where each mark stands and what it holds."""
    first = first_index(tree)
    planted = tree.control.key if tree.control else None
    control = next((i for i, row in enumerate(tree.keys) if row.key == planted), None)
    start = first if first is not None else control
    types: dict[str, int] = {}
    marks: list[list[Any]] = []
    at: dict[int | None, int] = {}
    for place, indices in cells(chart.spots).items():
        rows = [tree.keys[index] for index in indices]
        mark = _cell(rows) if chart.by_layer else _sides(rows[0], types)
        if mark is not None:
            at |= dict.fromkeys(indices, len(marks))
            marks.append([*place, *mark])
    return {
        "marks": marks,
        "types": [printable(text) for text in types],
        "first": at.get(first),
        "start": at.get(start),
        "states": [[state, *panels.STATES[state]] for state in _STATES],
        "rows": [[printable(segment), label] for segment, label in chart.rows],
        "cols": [[col.label, col.layer, col.fields] for col in chart.cols],
        "names": [_column_name(col.label, col.layer) for col in chart.cols],
        "edges": chart.edges,
        "by_layer": chart.by_layer,
        **{name: getattr(chart, name) for name in ("pitch", "slot", "gap", "width")},
    }


def _sides(row: KeyRow, types: dict[str, int]) -> list[Any]:
    """State, hash and type of the ref; of the dut only where it says anything else."""
    mark: list[Any] = [_STATES.index(row.state)]
    for text in (row.ref,) if row.ref == row.dut else (row.ref, row.dut):
        digest, _, rest = (text or "").partition(" ")
        mark += [digest, types.setdefault(rest, len(types))]
    return mark


def _cell(rows: list[KeyRow]) -> list[Any] | None:
    """Worst state, keys that are not the same and the first of them; None where all are."""
    found = [row for row in rows if row.state != KeyState.SAME]
    if not found:
        return None
    worst = worst_of([row.state for row in found])
    return [_STATES.index(worst), len(found), found[0].key]


def _column_name(label: str, layer: int | None) -> str:
    if layer is not None:
        return f"{'layers' if ' ' in label else 'layer'} {label}"
    return "after the last layer" if label == "final" else "before the layers"
