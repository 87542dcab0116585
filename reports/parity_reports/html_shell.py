"""What every page of ours is made with: policy, templates, style and script as files of their own.

No network, no inline handler, no inline style. The policy in the head admits the one style sheet
and the one script by their digests, so nothing that data could bring in would run. A page is ASCII
whatever the data: other characters are written as references.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from parity.presenting import printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

GROUP = 4  # hex digits that stand together
Told = TypeVar("Told")  # what a page tells of: a tree, or a run of checks


def _nothing(told: Any) -> str:
    return ""


@dataclass(frozen=True)
class Panel(Generic[Told]):
    """One section of the page: ``make`` gives what stands in it, None where there is nothing
    for it; then the section is absent, and the navigation does not name it. ``lead``: the sentence
    beside the title; ``above``: it stands before the map."""

    id: str
    title: str
    make: Callable[[Told], Markup | None]
    lead: Callable[[Told], str] = _nothing
    above: bool = False


@dataclass(frozen=True)
class Section:
    """A panel that has something to show."""

    id: str
    title: str
    lead: str
    body: Markup


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


def page(template: str, context: dict[str, Any]) -> str:
    """A whole page as ASCII text."""
    text = environment().get_template(template).render(**context)
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def fragment(name: str, *values: Any, template: str = "macros.html.j2") -> Markup:
    """What the macro ``name`` of a template makes of ``values``; they are escaped there."""
    made: Markup = getattr(environment().get_template(template).module, name)(*values)
    return made


def joined_assets(*names: str) -> str:
    """Files of ``templates/``, one after the other."""
    return "".join(asset(name) for name in names)


@cache
def asset(name: str) -> str:
    """A file of ``templates/``."""
    return (resources.files("parity_reports") / "templates" / name).read_text(encoding="ascii")


@cache
def environment() -> Environment:
    """The templates: everything is escaped, control characters are shown as escapes."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["hex_groups"] = hex_groups
    return made


def hex_groups(text: str, size: int = GROUP) -> list[str]:
    """Digits in groups; the page parts them by margins, so that a copy is unbroken."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def _shown(value: Any) -> Any:
    """Control characters and lone surrogates of data as escapes; markup of ours as it is."""
    return printable(value) if type(value) is str else value


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
