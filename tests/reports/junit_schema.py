"""Whether a JUnit report holds to the schema that its readers share (junit.xsd)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import xmlschema


@cache
def _schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def faults(xml: str) -> list[str]:
    """Each breach of the schema: where, and what is wrong; none for a valid report."""
    return [f"{error.path}: {error.reason}" for error in _schema().iter_errors(xml)]
