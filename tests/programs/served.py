"""An engine class as a program: ``served.py MODULE:CLASS``, so that both can be compared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "engines")]

from parity.model.model import synthetic  # noqa: E402
from parity.model.opening import open_model  # noqa: E402
from parity.program.serving import Tap, serve  # noqa: E402
from parity.protocol import EngineSettings, Plan  # noqa: E402
from parity.registry import foreign_engine_class  # noqa: E402


class Adapter:
    """The members that ``serve`` asks for, by those of the Engine Protocol."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.name, self.version = engine, f"served-{engine.name}", engine.version
        self.header = dict(engine.describe())
        self.reset, self.mark, self.rollback = engine.reset, engine.mark, engine.rollback
        self.state, self.set_state = engine.read_state, engine.write_state
        self.counters, self.weights = engine.counters, engine.weights

    def load(self, model: str, positions: int) -> None:
        name, _, seed = model.partition(" seed ")
        made = synthetic(name, int(seed)) if seed else open_model(model, seed=0)
        self.engine.load(made, positions)

    def step(self, token: int, tap: Tap) -> np.ndarray:
        return self._told([self.engine.step(token, self._plan(tap))], tap)[0]

    def rows(self, tokens: list[int], tap: Tap) -> list[np.ndarray]:
        return self._told(self.engine.step_rows(tokens, self._plan(tap)), tap)

    def _plan(self, tap: Tap) -> Plan | None:
        return Plan(tap.fields, basis=tap.basis) if tap.fields else None

    def _told(self, steps: list[Any], tap: Tap) -> list[np.ndarray]:
        tap.entries += [entry for step in steps for entry in step.entries]
        return [step.logits for step in steps]


if __name__ == "__main__":
    serve(Adapter(foreign_engine_class(sys.argv[1])(EngineSettings())))
