"""Reads an HTML report as a browser would, and names what must not be in one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br", "hr", "img", "link", "input"}
BLOCKS = {"td", "th", "dt", "dd", "p", "li", "h1", "h2", "h3", "caption", "span", "a"}
POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; "
    "base-uri 'none'; form-action 'none'"
)
LOADING = {"src", "srcset", "poster", "action", "data", "formaction", "background", "xlink:href"}


@dataclass
class Element:
    """One start tag, with the text directly inside it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page:
    """The elements in order, the visible text, and what was wrong with the nesting."""

    elements: list[Element] = field(default_factory=list)
    text: str = ""
    nesting: list[str] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """The elements of that name."""
        return [element for element in self.elements if element.tag == tag]

    def by_id(self, name: str) -> Element | None:
        """The element with that id."""
        found = (e for e in self.elements if e.attributes.get("id") == name)
        return next(found, None)

    @property
    def data(self) -> Any:
        """The JSON block, read; None where there is none."""
        block = self.by_id("data")
        return None if block is None else json.loads(block.text)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self._open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.page.nesting.append(f"attribute given twice in <{tag}>")
        self.page.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1].tag != tag:
            open_tag = self._open[-1].tag if self._open else "nothing"
            self.page.nesting.append(f"</{tag}> closes <{open_tag}>")
            return
        self._open.pop()
        if tag in BLOCKS:  # each stands apart on the page
            self.page.text += " "

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].text += data
        if not any(element.tag in ("script", "style") for element in self._open):
            self.page.text += data

    def close(self) -> None:
        super().close()
        self.page.nesting += [f"<{element.tag}> is never closed" for element in self._open]


def read(html: str) -> Page:
    """Parse ``html``."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.page


def digest(text: str) -> str:
    """The form in which a content policy names a text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def problems(html: str) -> list[str]:
    """What is wrong with a report's page: nesting, policy, handlers, styles, references."""
    page = read(html)
    found = list(page.nesting)
    found += _policy_problems(page)
    for element in page.elements:
        found += _element_problems(element)
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    found += [f"id {name} given twice" for name in sorted(set(ids)) if ids.count(name) > 1]
    found += [f"no id {name} for a link" for name in sorted(_targets(page) - set(ids))]
    found += [] if html.isascii() else ["a character that is not ASCII"]
    return found


def _policy_problems(page: Page) -> list[str]:
    tags = [element.tag for element in page.elements[:3]]
    policy = page.elements[2].attributes if tags == ["html", "head", "meta"] else {}
    if policy.get("http-equiv") != "Content-Security-Policy":
        return ["the policy is not the first thing in the head"]
    styles = [digest(element.text) for element in page.all("style")]
    blocks = page.all("script")
    scripts = [digest(e.text) for e in blocks if e.attributes.get("type") != "application/json"]
    if len(styles) != 1 or len(scripts) != 1:
        return [f"{len(styles)} styles and {len(scripts)} scripts, one of each wanted"]
    if policy["content"] != POLICY.format(style=styles[0], script=scripts[0]):
        return ["the policy does not name the style and the script that stand here"]
    return []


def _element_problems(element: Element) -> list[str]:
    found = []
    for name, value in element.attributes.items():
        if name == "style" or re.fullmatch("on[a-z]+", name):
            found.append(f"inline {name} in <{element.tag}>")
        if name in LOADING or (name == "href" and not value.startswith("#")):
            found.append(f"reference {value} in <{element.tag}>")
    if element.tag in ("iframe", "object", "embed", "base", "link", "img", "form", "foreignobject"):
        found.append(f"element <{element.tag}>")
    if element.tag in ("style", "script") and element.attributes.get("type") is None:
        code = element.text
        loads = re.findall(r"https?:|url\(|@import|fetch\(|XMLHttp|innerHTML|eval\(", code)
        found += [f"{word} in <{element.tag}>" for word in loads]
    return found


def _targets(page: Page) -> set[str]:
    links = {e.attributes["href"][1:] for e in page.all("a") if e.attributes["href"][:1] == "#"}
    for name in ("aria-labelledby", "aria-describedby", "data-copy", "data-all"):
        links |= {e.attributes[name] for e in page.elements if name in e.attributes}
    return links


def listed_keys(page: Page) -> dict[str, tuple[str, str, str]]:
    """(state, ref, dut) by segment and key, as the page's script reads them; keys whose hashes the
    file does not hold have empty ones."""
    data = page.data
    tags = _tags(data)
    states = [
        data["looks"][state][0] if state < len(data["looks"]) else "" for state in _states(data)
    ]
    found = {tag: (state, "", "") for tag, state in zip(tags, states, strict=True) if state}
    stride = len(data["typed"])
    others = {index: pair for index, *pair in data["others"]}
    for index, place in enumerate(_held(data)):
        ref, _, dut = data["hashes"][index].partition(" ")
        types = others.get(index, [data["typed"][place % stride]] * 2)
        sides = [
            "" if digest == "-" else f"{digest} {data['types'][kind]}".strip()
            for digest, kind in zip((ref, dut or ref), types, strict=True)
        ]
        found[tags[place]] = (states[place], sides[0], sides[1])
    return found


def _tags(data: Any) -> list[str]:
    """By place, ``segment/key``."""
    rows = [(seg, first + at) for seg, first, number in data["rows"] for at in range(number)]
    cells = [
        (f"l{label}_" if name.startswith("layer ") else "") + field
        for label, name, fields in data["cols"]
        for field in fields
    ]
    return [f"{segment}/t{pos}_{cell}" for segment, pos in rows for cell in cells]


def _states(data: Any) -> list[int]:
    runs = data["states"]
    return [state for at in range(0, len(runs), 2) for state in [runs[at]] * runs[at + 1]]


def _held(data: Any) -> list[int]:
    places, at = [], 0
    for run in range(0, len(data["held"]), 2):
        at += data["held"][run]
        places += range(at, at + data["held"][run + 1])
        at += data["held"][run + 1]
    return places


def sources(page: Page) -> dict[str, str]:
    """By key, the birthplace it comes from, of the keys that the file holds with one."""
    data, tags = page.data, _tags(page.data)
    runs, told = data["from"], []
    for run in range(0, len(runs), 2):
        told += [runs[run]] * runs[run + 1]
    pairs = zip(_held(data), told, strict=False)
    return {tags[at].partition("/")[2]: data["sources"][n] for at, n in pairs if n >= 0}
