"""Run a probe on an engine without the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.model.model import Model, synthetic
from parity.protocol import Engine, EngineSettings
from parity.runs.probe import Ask, Found, Probe
from parity.runs.run import Side
from parity.variants import resolve
from parity_cpu.engine import Engine as CpuEngine
from parity_cuda.engine import EmuEngine

ENGINES: dict[str, type[Engine]] = {"cpu": CpuEngine, "emu": EmuEngine}
KINDS = {
    "moe-tiny": ("moe-tiny", ""),
    "dense-tiny": ("dense-tiny", ""),
    "hybrid-tiny": ("hybrid-tiny", ""),
    "next-tiny": ("next-tiny", ""),
    "gdn": ("hybrid-tiny", "gdn"),
    "attn": ("hybrid-tiny", "attn"),
}


def model_of(kind: str, seed: int = 7, weights: str = "q4") -> Model:
    """A preset by its name, or a hybrid with one kind of layer: ``gdn`` or ``attn``."""
    name, only = KINDS[kind]
    return synthetic(name, seed, weights, only)


def opened(
    engine: str | type[Engine],
    model: Model,
    positions: int,
    *,
    tier: str = "exact",
    options: Mapping[str, str] | None = None,
) -> Any:
    """An engine with the model loaded; Any: the tests look inside."""
    kind = ENGINES[engine] if isinstance(engine, str) else engine
    variants = resolve(tier, frozenset(), frozenset(), "") if tier != "exact" else frozenset()
    made: Any = kind(EngineSettings(tier, variants, options or {}))  # type: ignore[call-arg]
    made.load(model, positions)
    return made


def run_probe(probe: type[Probe], engine: str | type[Engine], ask: Ask, **settings: Any) -> Found:
    """What the probe found."""

    def open_side(model: Model, positions: int) -> Side:
        return Side("engine", str(engine), opened(engine, model, positions, **settings))

    return probe().run(open_side, ask)


def ask_for(
    kind: str,
    sizes: tuple[int, ...],
    starts: tuple[int, ...] = (3,),
    *,
    seeds: tuple[int, ...] = (7,),
    weights: str = "q4",
    **more: Any,
) -> Ask:
    """Settings of a short run."""
    models = tuple(model_of(kind, seed, weights) for seed in seeds)
    return Ask(sizes, starts, models, **{"more": 2, **more})
