"""The control group: pairs that are equal, of which none may be called different."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.comparison.compare import exit_status
from parity.model.model import SyntheticModel
from parity.protocol import EngineSettings
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.probe import Ask as ProbeAsk
from parity.runs.run import Run, Side
from parity.status import Verdict
from parity.variants import TIERS
from parity_cpu.engine import Engine
from parity_cuda.engine import EmuEngine
from parity_probes.isodiff import Isodiff
from parity_probes.rollback import Rollback
from tests.study import oracle
from tests.study.cases import MORE, Pairs
from tests.study.draw import Draw, Edited, draw_model, draw_run
from tests.study.kinds import overflowing

# Both engines of a pair, and the tier: pairs with the same bits.
PAIRS = (
    ("cpu", "cpu", "exact"),
    ("cpu", "emu", "exact"),
    ("cpu", "emu@shuffled", "exact"),
    ("cpu", "emu@descending", "exact"),
    ("emu", "emu@threads", "exact"),
    ("cpu", "cpu", "fast"),
    ("emu", "emu@shuffled", "fast"),
)
KEPT = 20  # pairs whose tensors other tools are given too


@dataclass
class Equal:
    """One pair. ``equal``: by the oracle (and with a NaN, where one is meant); ``wanted``: the
    verdict it must get."""

    number: int
    what: str
    equal: bool = True
    wanted: str = Verdict.SAME
    verdict: str = ""
    found: str = ""
    seconds: float = 0.0
    pairs: Pairs = field(default_factory=list)

    @property
    def alarm(self) -> bool:
        """Whether ``parity`` calls it anything but what it is."""
        return self.verdict != self.wanted


def opened(name: str, tier: str, draw: Draw) -> Engine | EmuEngine:
    """The engine called ``name``: ``emu@shuffled`` with a seed of its own."""
    engine, _, option = name.partition("@")
    values = {"shuffled": str(draw.below(1000)), "descending": "", "threads": "2"}
    options = {option: values[option]} if option else {}
    settings = EngineSettings(tier, frozenset(TIERS[tier]), options)
    return Engine(settings) if engine == "cpu" else EmuEngine(settings)


def judge_pair(number: int, keep: bool = False) -> Equal:
    """Draw a pair from its number and compare it: two engines, or one with itself in M rows."""
    draw = Draw(number, "pair")
    model = draw_model(draw)
    if draw.once_in(10):
        return _probed(draw, model)
    run = draw_run(draw, model, n=1)
    ref, dut, tier = draw.pick(PAIRS)
    found = Equal(number, f"{ref} and {dut}, {tier}, {model.label}")
    sides = [opened(name, tier, draw) for name in (ref, dut)]
    return _compared(found, run, sides, keep)


def judge_nan_pair(number: int) -> Equal:
    """A pair with the same NaN in both: nothing after it can be compared, so it is not run."""
    draw = Draw(number, "NaN pair")
    model = overflowing(draw)
    run = draw_run(draw, model, n=1, dump_prefill=False, extra_fields=("ffn", "s"))
    found = Equal(number, f"cpu and cpu, {model.label}", wanted=Verdict.NOT_RUN)
    _compared(found, run, [Engine(EngineSettings()) for _ in range(2)], True)
    found.equal = found.equal and _has_nan(found)
    return found


def _compared(found: Equal, run: Run, sides: list[Any], keep: bool) -> Equal:
    for engine in sides:
        engine.load(run.model, run.positions)
    ref = oracle.watch(sides[0], run)
    handed = ref.start if run.prefill == "ref" else None
    dut = oracle.watch(sides[1], run, ref.fed, handed)
    tensors = [oracle.only(seen.tensors, run.fields) for seen in (ref, dut)]
    states = oracle.parts_changed(ref.start, dut.start) + oracle.parts_changed(ref.end, dut.end)
    found.equal = not oracle.changed(*tensors) and not states
    if keep:
        found.pairs = list(oracle.pairs_of(list(tensors[0]), *tensors))
    _time(found, lambda: _diffed(found, run, sides))
    return found


def _diffed(found: Equal, run: Run, sides: list[Any]) -> None:
    ref, dut = (Side(role, role, one) for role, one in zip(("ref", "dut"), sides, strict=True))
    tree = diff_engines(ref, dut, run, Ask(seed=found.number))
    found.verdict, found.found = str(tree.verdict), tree.first or tree.reason
    if found.wanted == Verdict.SAME and int(exit_status(tree)) != 0:
        found.verdict = f"exit {int(exit_status(tree))}"


def _probed(draw: Draw, model: SyntheticModel | Edited) -> Equal:
    """Isodiff or rollback of a right engine."""
    probe: Any = draw.pick((Isodiff, Rollback))()
    name, size, start = draw.pick(("cpu", "cpu", "emu")), 2 + draw.below(3), draw.below(6)
    found = Equal(draw.number, f"{probe.name} of {name}, M {size} at {start}, {model.label}")
    ask = ProbeAsk((size,), (start,), (model,), MORE)  # type: ignore[arg-type]

    def open_side(wanted: Any, positions: int) -> Side:
        engine = opened(name, "exact", draw)
        engine.load(wanted, positions)
        return Side("dut", name, engine)

    def probed() -> None:
        answer = probe.run(open_side, ask)
        found.verdict, found.found = str(answer.verdict), answer.headline

    _time(found, probed)
    return found


def _time(found: Equal, compare: Callable[[], None]) -> None:
    began = time.perf_counter()
    try:
        compare()
    except Exception as error:  # an internal error is no verdict
        found.verdict = f"error: {type(error).__name__}: {error}"
    found.seconds = time.perf_counter() - began


def _has_nan(found: Equal) -> bool:
    values = [ref for ref, _ in found.pairs if ref.dtype == np.float32]
    return any(bool(np.isnan(value).any()) for value in values)
