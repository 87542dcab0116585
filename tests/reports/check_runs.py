"""Small runs of probes, built by hand: what the presenters of checks are tested on."""

from __future__ import annotations

from dataclasses import replace

from parity.runs.checks import CheckRun, not_run, of_probes
from parity.runs.probe import Found
from parity.status import Verdict

KEY = "t33_l1_attn"
GREEN = Found(
    "rollback", Verdict.SAME, "M = 2: 9 of 9 checks", [("checks", "accept 0..M")], compared=40
)
RED = Found(
    "isodiff",
    Verdict.DIVERGED,
    "M = 3, pos 33; the keys are equal",
    [("cause", "attention, row 2 of 3")],
    lines=["[SPECTOP1] pos=33"],
    first=KEY,
    failing="--m 3",
    compared=92,
)
LINES = ("parity isodiff --m 3", "parity rollback")


def probes(*found: Found) -> CheckRun:
    return of_probes(found, LINES[: len(found)], "parity isodiff --rb", 1.5)


RUNS = {
    "green": probes(GREEN),
    "red and green": probes(RED, GREEN),
    "not run and green": probes(replace(RED, verdict=Verdict.NOT_RUN), GREEN),
    "unstable": probes(replace(RED, verdict=Verdict.UNSTABLE)),
    "no device": not_run("isodiff", ["no device", "use emu"], "parity isodiff"),
}
