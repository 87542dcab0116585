"""The ladder: how long one engine's tiers and variants choose the ref's tokens (contract 5, 7).

Each rung runs twice. By itself, following its own greedy choices: how many tokens are the ref's,
and where the first other one is chosen. And fed the ref's tokens, every key dumped from position
0 on: the first key that differs is where its arithmetic parts from the ref's, and no prefill of
another arithmetic stands before it. The exact rung decides; the others show what it is worth.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.comparison.compare import compare_dumps, exit_status
from parity.runs.engine_diff import add_states, add_weights, check_control, run_facts, start_of
from parity.runs.run import Run, Side, SideRun, greedy, run_side
from parity.status import ExitStatus, Verdict
from parity.tree import Tree

FORMAT = "parity-ladder"
VERSION = 1
RUNGS = ("fast", "exact+libm_exp", "exact+exp_via_double", "exact")
Opener = Callable[[str], Side]


@dataclass(frozen=True)
class Rung:
    """One tier or variant. ``flip``: (position, ref, dut) of the first other choice, or None.

    ``equal``: of the ``tokens`` choices at the decoded positions, how many are the ref's at that
    position, the side following its own. ``fed``: the same, the side fed the ref's tokens.
    ``tree``: the keys, both sides fed the ref's tokens.
    """

    name: str
    equal: int
    fed: int
    tokens: int
    flip: tuple[int, int, int] | None
    tree: Tree


@dataclass
class Ladder:
    """All rungs, the exact one last. ``run``: settings as reports show them."""

    run: dict[str, str]
    rungs: list[Rung] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def exact(self) -> Rung:
        """The rung that decides."""
        return self.rungs[-1]

    @property
    def status(self) -> ExitStatus:
        """SAME when the exact rung has every key and every token of the ref."""
        status = exit_status(self.exact.tree)
        if status is ExitStatus.SAME and self.exact.flip is not None:
            return ExitStatus.DIVERGED
        return status

    def record(self, reproduce: str) -> dict[str, Any]:
        """The object of the JSON file."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "status": int(self.status),
            "run": self.run,
            "ref": self.exact.tree.ref,
            "rungs": [_plain(rung) for rung in self.rungs],
            "reproduce": reproduce,
            "seconds": self.seconds,
        }

    def to_json(self, reproduce: str) -> str:
        """Versioned JSON text of this ladder (UTF-8, one object)."""
        return json.dumps(self.record(reproduce), indent=1) + "\n"


def climb(ref: Side, open_rung: Opener, run: Run, seed: int) -> Ladder:
    """Every rung against ``ref``. ``open_rung`` opens the dut for a name of RUNGS.

    ``run.dump_prefill`` must be set. ``seed`` draws the control of the exact rung.
    """
    began = time.monotonic()
    ref_run = run_side(ref, run)
    ladder = Ladder(run_facts(run, ref_run.fed))
    for name in RUNGS:
        ladder.rungs.append(_rung(name, (ref, ref_run), open_rung(name), run, seed))
    ladder.seconds = time.monotonic() - began
    return ladder


def follow(side: Side, run: Run) -> dict[int, int]:
    """The choice at each position from P - 1 on, each fed back to the side that made it."""
    side.engine.reset()
    logits = side.engine.prefill(run.prompt)[-1].logits
    real_ids = run.model.config.real_ids
    choices = {run.start - 1: greedy(logits, real_ids)}
    for pos in range(run.start, run.positions):
        choices[pos] = greedy(side.engine.step(choices[pos - 1]).logits, real_ids)
    return choices


def first_flip(ref: Mapping[int, int], dut: Mapping[int, int]) -> tuple[int, int, int] | None:
    """(position, ref, dut) of the first other choice at a position that both have."""
    common = sorted(ref.keys() & dut.keys())
    return next(((pos, ref[pos], dut[pos]) for pos in common if ref[pos] != dut[pos]), None)


def _rung(name: str, trusted: tuple[Side, SideRun], dut: Side, run: Run, seed: int) -> Rung:
    ref, ref_run = trusted
    own = follow(dut, run)
    fed = run_side(dut, run, fed=ref_run.fed)
    tree = compare_dumps(ref_run.dump, fed.dump)
    if tree.verdict is Verdict.SAME:
        add_states(tree, ref_run, fed)
        add_weights(tree, ref, dut)
    if tree.verdict is Verdict.SAME:
        check_control(tree, start_of(dut, run, fed), ref_run.dump, fed.dump, seed)
    choices = ref_run.choices
    equal, fed_equal = _equal(run, choices, own), _equal(run, choices, fed.choices)
    return Rung(name, equal, fed_equal, run.n, first_flip(choices, own), tree)


def _equal(run: Run, ref: Mapping[int, int], dut: Mapping[int, int]) -> int:
    """Decoded positions with the same choice on both sides."""
    decoded = range(run.start, run.positions)
    return sum(pos in ref and pos in dut and ref[pos] == dut[pos] for pos in decoded)


def _plain(rung: Rung) -> dict[str, Any]:
    tree = rung.tree
    flip = None if rung.flip is None else dict(zip(("pos", "ref", "dut"), rung.flip, strict=True))
    counts = {"same": tree.counts.same, "differ": tree.counts.differ, "total": tree.counts.total}
    control = tree.control
    return {
        "name": rung.name,
        "dut": tree.dut,
        "tokens": {"equal": rung.equal, "fed_equal": rung.fed, "total": rung.tokens},
        "flip": flip,
        "first": tree.first,
        "keys": counts,
        "verdict": str(tree.verdict),
        "level": str(tree.level),
        "reason": tree.reason,
        "control": None if control is None else {"key": control.key, "fired": control.fired},
    }
