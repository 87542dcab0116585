"""JUnit XML: test cases to one suite, with counts that add up."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parity.presenting import printable

PASSED, FAILED, SKIPPED = "passed", "failure", "skipped"
RUN = "parity.run"  # group of the cases about the run as a whole


@dataclass(frozen=True)
class Case:
    """One test case. ``text`` holds the details; a passed case may have some too."""

    group: str
    name: str
    outcome: str = PASSED
    kind: str = ""
    message: str = ""
    text: str = ""
    compared: int = 0  # keys or rows behind it


def document(cases: Iterable[Case], properties: Mapping[str, str], seconds: float) -> str:
    """One suite as ASCII text. A property without a value is left out."""
    found = list(cases)
    totals = {
        "tests": len(found),
        "failures": sum(case.outcome == FAILED for case in found),
        "errors": 0,
        "skipped": sum(case.outcome == SKIPPED for case in found),
    }
    counts = {name: str(number) for name, number in totals.items()}
    counts["time"] = f"{seconds:.3f}"
    # The common schemas know no ``skipped`` of all suites together.
    whole = {name: number for name, number in counts.items() if name != "skipped"}
    root = ET.Element("testsuites", {"name": "parity", **whole})
    suite = ET.SubElement(root, "testsuite", {"name": "parity", **counts})
    _add_properties(suite, properties)
    for case in found:
        _add_case(suite, case)
    ET.indent(root, " ")
    body: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return body.decode("ascii") + "\n"


def _add_properties(suite: ET.Element, facts: Mapping[str, str]) -> None:
    properties = ET.SubElement(suite, "properties")
    for name, text in facts.items():
        if text:
            pair = {"name": printable(name), "value": printable(text)}
            ET.SubElement(properties, "property", pair)


def _add_case(suite: ET.Element, case: Case) -> None:
    names = {"classname": printable(case.group), "name": printable(case.name)}
    element = ET.SubElement(suite, "testcase", names)
    text = "\n".join(printable(line) for line in case.text.split("\n"))
    said: tuple[str, ...] = ()
    if case.outcome != PASSED:
        told = {"type": printable(case.kind), "message": printable(case.message)}
        ET.SubElement(element, case.outcome, told).text = text
    else:
        said = (printable(case.message), text)
    # The common schema has no attribute for how much stands behind a case.
    count = f"compared: {case.compared}" if case.compared else ""
    out = "\n".join(part for part in (*said, count) if part)
    if out:
        ET.SubElement(element, "system-out").text = out
