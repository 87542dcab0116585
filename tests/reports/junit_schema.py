"""What the common JUnit schemas (Jenkins', Ant's, the one that pytest keeps) allow together.

They differ in what is optional; a report that holds to this is read by all of them.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

_WHOLE, _SECONDS, _TEXT = r"\d+", r"\d+\.\d{3}", r"(?s).*"
_COUNTS = {"tests": _WHOLE, "failures": _WHOLE, "errors": _WHOLE, "time": _SECONDS}
# Element: attributes it must have, with what they hold, and the children in their order.
_ELEMENTS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "testsuites": ({"name": _TEXT, **_COUNTS}, ("testsuite",)),
    "testsuite": ({"name": _TEXT, **_COUNTS, "skipped": _WHOLE}, ("properties", "testcase")),
    "properties": ({}, ("property",)),
    "property": ({"name": r".+", "value": _TEXT}, ()),
    "testcase": (
        {"classname": r".+", "name": r".+", "assertions": _WHOLE},
        ("skipped", "error", "failure", "system-out", "system-err"),
    ),
    "skipped": ({"type": r".+", "message": _TEXT}, ()),
    "failure": ({"type": r".+", "message": _TEXT}, ()),
    "error": ({"type": r".+", "message": _TEXT}, ()),
    "system-out": ({}, ()),
    "system-err": ({}, ()),
}
_ONCE = ("properties", "skipped", "failure", "error", "system-out", "system-err")
_TEXTS = ("skipped", "failure", "error", "system-out", "system-err")  # these alone hold text


def faults(xml: str) -> list[str]:
    """Each breach of the schema, in document order; none for a valid report."""
    root = ET.fromstring(xml)
    found = [] if root.tag == "testsuites" else [f"the root is {root.tag}"]
    return [*found, *(line for element in root.iter() for line in _of(element))]


def _of(element: ET.Element) -> list[str]:
    if element.tag not in _ELEMENTS:
        return [f"unknown element {element.tag}"]
    attributes, children = _ELEMENTS[element.tag]
    found = [f"{element.tag} has {name}" for name in element.keys() - attributes.keys()]
    for name, form in attributes.items():
        value = element.get(name)
        if value is None or re.fullmatch(form, value) is None:
            found.append(f"{element.tag} {name} is {value!r}")
    tags = [child.tag for child in element]
    found += [f"{tag} in {element.tag}" for tag in tags if tag not in children]
    places = [children.index(tag) for tag in tags if tag in children]
    if places != sorted(places):
        found.append(f"children of {element.tag} out of order")
    found += [f"{tag} twice in {element.tag}" for tag in _ONCE if tags.count(tag) > 1]
    if element.tag not in _TEXTS and (element.text or "").strip():
        found.append(f"text in {element.tag}")
    return found
