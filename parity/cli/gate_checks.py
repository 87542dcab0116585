"""A gate's two claims, equal and faster, for the reports that have one case a claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.cli.gate_text import gate_headline
from parity.gate.verdict import GateVerdict
from parity.runs.checks import Check, CheckRun
from parity.status import Verdict

NAME = "gate"
_VERDICTS = {
    GateVerdict.DEFAULT: Verdict.SAME,
    GateVerdict.OPT_IN: Verdict.DIVERGED,
    GateVerdict.REFUSED: Verdict.DIVERGED,
    GateVerdict.UNDECIDED: Verdict.NOT_RUN,
}


def gate_checks(record: Mapping[str, Any], reproduce: str) -> CheckRun:
    """What a gate found. Of one that is refused nobody asked whether it is faster: not run."""
    found = GateVerdict(record["verdict"])
    verdict, said = _VERDICTS[found], gate_headline(record)
    equal = _equal(record, said)
    faster = Verdict.NOT_RUN if found is GateVerdict.REFUSED else verdict
    checks = (equal, Check("faster", faster, said, reproduce=reproduce))
    line = equal.reproduce or reproduce
    word = str(found).upper()
    return CheckRun(NAME, verdict, said, checks, line, {}, record["seconds"], word)


def _equal(record: Mapping[str, Any], said: str) -> Check:
    compared = sum(seed["single_steps"]["counts"]["ref"] for seed in record["equality"])
    problem = record["problem"]
    if not problem:
        return Check("equal", Verdict.SAME, "equal on every seed and M", compared=compared)
    line, first = problem["reproduce"], record["first"]
    return Check("equal", Verdict.DIVERGED, said, (), first, compared, line)
