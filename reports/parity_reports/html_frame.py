"""The shell of the pages that have no map: verdict first, then their sections (frame.html.j2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parity import __version__
from parity_reports.html_shell import asset, content_policy, joined_assets, page

STYLES = ("report.css", "panels.css")
# What a page may leave empty; the rest it must give.
_EMPTY: Mapping[str, Any] = {"at": "", "nav": (), "steps": (), "facts": (), "about": (), "held": ""}


def framed(
    template: str, context: Mapping[str, Any], json_path: str, styles: Sequence[str] = ()
) -> str:
    """A page as ASCII text. ``context``: ``who``, ``title``, ``word``, ``kind``, ``place`` and
    ``reproduce``, and what ``template`` shows below; ``json_path``: where all of it stands;
    ``styles``: sheets of this page alone."""
    from markupsafe import Markup

    css, js = joined_assets(*STYLES, *styles), asset("report.js")
    dress = {
        "policy": content_policy(css, js),
        "css": Markup(css),
        "js": Markup(js),
        "version": __version__,
        "whole": f"in {json_path}" if json_path else "what --json FILE writes",
    }
    return page(template, {**_EMPTY, **context, **dress})
