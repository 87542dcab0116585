"""What tests of the probes expect to the letter on ``tests.probes.small_engine``."""

from __future__ import annotations

from parity.runs.probe import Found
from parity.status import Verdict

BOTH = ("moe-tiny", "hybrid-tiny")
RED = ("control", "not needed: the run is red by itself")
PATH_2 = ("path", "4 calls for one forward of 2 rows, 6 for 2 single steps; row by row: whole")
PATH_3 = ("path", "5 calls for one forward of 3 rows, 9 for 3 single steps; row by row: whole")
ATTENTION = "attention (contract 1.8)"
NORM = "RMSNorm (contract 1.1)"
EVERY = "every key before it is equal"


def said(found: Found) -> tuple[Verdict, str, str | None, str, int]:
    """Everything but facts, lines, table and costs; the brief line is checked apart."""
    assert found.name in ("isodiff", "chunks", "rollback")
    return found.verdict, found.headline, found.first, found.failing, found.compared


def text_of(*facts: tuple[str, str]) -> list[tuple[str, str]]:
    return list(facts)
