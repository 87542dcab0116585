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
from parity.tree import CONTAMINATED, Cause, KeyRow, KeyState, Tree
from parity_reports import html_panels as panels
from parity_reports import html_why, why, wording
from parity_reports.html_map import (
    COLUMN,
    FIRST,
    KEYS_LIMIT,
    LINES_LIMIT,
    Map,
    build_map,
    cells,
    first_index,
    segment_names,
)
from parity_reports.states import (
    BORN_EQUAL,
    CAUSES,
    LOOKS,
    is_born,
    sourced_name,
    state_name,
    tally,
    worst_of,
)

if TYPE_CHECKING:
    from jinja2 import Environment

_STATES = list(LOOKS)  # the script numbers states so
_ALWAYS = (Cause.BORN, Cause.INHERITED, Cause.MASKED)  # in the legend once any cause is known
_CAPTIONS = {
    "ladder": "Ladder: where the first difference moves as variants are left out",
    "trials": "Every set of variants that was tried",
    "placement": "Placement: only this op group computed by the dut, on the same inputs",
    "transplants": "Transplants: the ref's tensors put in place, then the run went on",
}
_BAR = "M2 6h22"
_SHAPES = {
    FIRST: "M1 6h24",
    Cause.BORN: "M1 6h24",
    BORN_EQUAL: "M1 6h24",
    Cause.MASKED: "M2 4.6h22v2.8h-22z",
    KeyState.MISSING: "M4 6h4M18 6h4",
    KeyState.NOT_COMPARABLE: "M3 6h4M11 6h4M19 6h4",
}


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
        "why": html_why.reasons(tree),
        "steps": wording.reason_lines(tree)[1:] if not_run else [],
        "reproduce": tree.reproduce,
        "replay": wording.replay_command(tree),
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
        "births": html_why.births_view(tree),
        "isolation": html_why.isolation_view(tree),
        "search": "" if tree.search is None else wording.search_sentence(tree.search),
        "greedy": tree.greedy[: panels.LISTED],
        "greedy_total": len(tree.greedy),
        "greedy_text": wording.greedy_sentence(tree) if tree.greedy else "",
        "margins": html_why.margins(tree),
        "margins_total": len(tree.margins),
        "margin_sentence": why.margin_sentence,
        "captions": _CAPTIONS,
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
        "births": html_why.births_view(tree),
        "margins": html_why.margins(tree),
        "margins_total": len(tree.margins),
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
        "state_names": panels.state_columns(tree),
        "classes": {**{name: shown.kind for name, shown in LOOKS.items()}, FIRST: FIRST},
    }
    if chart is not None:
        first = first_index(tree)
        context |= {
            "legend": _legend(tree),
            "born": any(map(is_born, tree.keys)),
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
    counts, found = tree.counts, tally(tree.keys)
    equal = counts.same - sum(found.get(name, 0) for name in (Cause.MASKED, BORN_EQUAL))
    rows: list[tuple[str, str, int | None]] = [(KeyState.SAME, KeyState.SAME, equal)]
    known = any(name in found for name in CAUSES)
    rows += [(name, name, found.get(name, 0)) for name in CAUSES if known and name in _ALWAYS]
    if BORN_EQUAL in found:
        rows.append((BORN_EQUAL, BORN_EQUAL, found[BORN_EQUAL]))
    first = wording.first_row(tree)
    if first is not None and state_name(first) == KeyState.DIFFERS:
        rows.append((FIRST, FIRST, None))
    if not known or KeyState.DIFFERS in found:
        left = found.get(KeyState.DIFFERS, 0) if known else counts.differ
        rows.append((KeyState.DIFFERS, KeyState.DIFFERS, left))
    rows.append(("missing or extra", KeyState.MISSING, counts.missing + counts.extra))
    rows.append((KeyState.NOT_COMPARABLE, KeyState.NOT_COMPARABLE, counts.not_comparable))
    classes = {name: shown.kind for name, shown in LOOKS.items()} | {FIRST: FIRST}
    return [(text, classes[name], _SHAPES.get(name, _BAR), number) for text, name, number in rows]


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
    sides = f"ref {row.ref or 'absent'}  dut {row.dut or 'absent'}"
    return f"{row.key}  {sourced_name(row)}, first  {sides}"


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
        ("births", "Births", context["births"]),
        ("isolation", "Isolation", context["isolation"]),
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
    sources: dict[str, int] = {}
    marks: list[list[Any]] = []
    sourced: list[int] = []
    born: list[int] = []
    at: dict[int | None, int] = {}
    for place, indices in cells(chart.spots).items():
        rows = [tree.keys[index] for index in indices]
        mark = _cell(rows) if chart.by_layer else _sides(rows[0], types)
        if mark is not None:
            at |= dict.fromkeys(indices, len(marks))
            born += [len(marks)] if any(map(is_born, rows)) else []
            source = "" if chart.by_layer or rows[0].source == rows[0].key else rows[0].source
            sourced.append(sources.setdefault(source, len(sources)) if source else -1)
            marks.append([*place, *mark])
    return {
        "marks": marks,
        "types": [printable(text) for text in types],
        "sources": [printable(text) for text in sources],
        "from": sourced if sources else [],
        "born": born,
        "first": at.get(first),
        "start": at.get(start),
        "states": [[name, shown.kind, shown.word] for name, shown in LOOKS.items()],
        "rows": [[printable(segment), label] for segment, label in chart.rows],
        "cols": [[col.label, col.layer, col.fields] for col in chart.cols],
        "names": [_column_name(col.label, col.layer) for col in chart.cols],
        "edges": chart.edges,
        "by_layer": chart.by_layer,
        **{name: getattr(chart, name) for name in ("pitch", "slot", "gap", "width")},
    }


def _sides(row: KeyRow, types: dict[str, int]) -> list[Any]:
    """State, hash and type of the ref; of the dut only where it says anything else."""
    mark: list[Any] = [_STATES.index(state_name(row))]
    for text in (row.ref,) if row.ref == row.dut else (row.ref, row.dut):
        digest, _, rest = (text or "").partition(" ")
        mark += [digest, types.setdefault(rest, len(types))]
    return mark


def _cell(rows: list[KeyRow]) -> list[Any] | None:
    """Worst state, keys that are not the same and the first of these, or of the masked ones where
    all are equal; None where nothing but equal keys lies under the mark."""
    found = [row for row in rows if state_name(row) != KeyState.SAME]
    if not found:
        return None
    unequal = [row for row in found if row.state != KeyState.SAME]
    worst = worst_of([state_name(row) for row in found])
    return [_STATES.index(worst), len(unequal), (unequal or found)[0].key]


def _column_name(label: str, layer: int | None) -> str:
    if layer is not None:
        return f"{'layers' if ' ' in label else 'layer'} {label}"
    return "after the last layer" if label == "final" else "before the layers"
