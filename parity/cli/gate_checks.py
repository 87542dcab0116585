"""A gate's two claims, equal and faster, for the reports that have one case a claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parity.gate.told import headline
from parity.gate.verdict import GateVerdict
from parity.runs.checks import Check, CheckRun, not_run
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
    if record["verdict"] == Verdict.NOT_RUN:
        told = not_run(NAME, [record["reason"], *record["next"].splitlines()], reproduce)
        return replace(told, records=(record,))
    found = GateVerdict(record["verdict"])
    verdict, said = _VERDICTS[found], headline(record)
    equal = _equal(record, said)
    faster = Check("faster", verdict, said, reproduce=reproduce)
    if found is GateVerdict.REFUSED:
        asked = "nobody asked: the candidate is refused"
        faster = replace(faster, verdict=Verdict.NOT_RUN, said=asked)
    checks = (equal, faster)
    line = equal.reproduce or reproduce
    word = str(found).upper()
    return CheckRun(NAME, verdict, said, checks, line, {}, record["seconds"], word, (record,))


def _equal(record: Mapping[str, Any], said: str) -> Check:
    compared = sum(seed["single_steps"]["counts"]["ref"] for seed in record["equality"])
    problem = record["problem"]
    if not problem:
        return Check("equal", Verdict.SAME, "equal on every seed and M", compared=compared)
    line, first = problem["reproduce"], record["first"]
    return Check("equal", Verdict.DIVERGED, said, (), first, compared, line)
