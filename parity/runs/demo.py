"""``parity demo``: plant one ULP in a copy of an engine, find it, then show the clean run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from parity.keys import Key
from parity.progress import Progress
from parity.protocol import Engine, Injection, Plan, Step
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.run import Run, Side
from parity.runs.sides import open_side
from parity.spec import EngineSpec
from parity.status import Verdict
from parity.tree import Tree

ENGINE = "cpu"
PLANTED = Injection(Key(33, 2, "attn"), 5)


class PlantedEngine:
    """An engine that moves one element by 1 ULP in every run that dumps its key."""

    def __init__(self, engine: Engine, injection: Injection) -> None:
        self._engine, self._injection = engine, injection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """As the engine does: the fault stands in a decoded step."""
        return self._engine.prefill(tokens, plan)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        """A step with the fault in it, unless another one is planted already."""
        if plan is not None and plan.inject is None:
            plan = replace(plan, inject=self._injection)
        return self._engine.step(token, plan)


@dataclass(frozen=True)
class Demo:
    """The two comparisons: with the planted fault, and clean."""

    planted: Tree
    clean: Tree

    @property
    def proved(self) -> bool:
        """Whether the fault was found at exactly its key and the clean run is the same."""
        found = self.planted.first == PLANTED.key.tag and self.planted.elements is not None
        return (
            found
            and self.planted.verdict is Verdict.DIVERGED
            and self.clean.verdict is Verdict.SAME
        )


def run_demo(run: Run, progress: Progress) -> Demo:
    """Compare the CPU engine with a copy of itself, first with the fault, then without."""
    spec = EngineSpec(ENGINE, ENGINE)
    ref, dut = (open_side(role, spec, run, progress) for role in ("ref", "dut"))
    planted = cast(Engine, PlantedEngine(dut.engine, PLANTED))
    faulty = Side("dut", "cpu with a planted fault", planted)
    ask = Ask(reproduce="parity demo")
    return Demo(diff_engines(ref, faulty, run, ask), diff_engines(ref, dut, run, ask))
