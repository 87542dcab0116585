"""The engine that the conformance checks are held against: a class, a factory or a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from parity.errors import InputError
from parity.program.codec import Hello
from parity.program.engine import program_engine
from parity.protocol import Engine, EngineSettings
from parity.registry import open_engine
from parity.runs.sides import chosen_variants
from parity.spec import ProgramSpec, runnable

Make = Callable[[EngineSettings], Engine]
# A class, a function that gives a fresh engine (with the settings or without), or a spec.
Given = type[Engine] | Callable[..., Any] | str


@dataclass(frozen=True)
class Candidate:
    """How a fresh engine is made, with which settings, and where its members are read from.

    ``members``: the class, or of a factory one engine that it gave. ``program``: what a program
    told of itself; None for an engine. A program may run a model of its own: its weights, fields
    and number of logits are then its own too.
    """

    make: Make
    members: Any
    settings: EngineSettings
    program: Hello | None = None

    @property
    def tells_weights(self) -> bool:
        """Whether it holds the weights that it is given, and tells their digests."""
        told = self.program
        return told is None or ("weights" in told.capabilities and "model" not in told.header)


def candidate(given: Given, settings: EngineSettings | None) -> Candidate:
    """What ``given`` stands for; a spec says itself how the engine is opened.

    Raises InputError for a spec that is no engine, one with ``settings`` beside it, and anything
    that cannot be called.
    """
    if isinstance(given, str):
        return _of_spec(given, settings)
    if isinstance(given, type):
        chosen = settings or EngineSettings(tier=(getattr(given, "tiers", None) or ("exact",))[0])
        return Candidate(given, given, chosen)
    if not callable(given):
        raise InputError(
            f"{type(given).__name__}: neither an engine class, nor a factory, nor a spec",
            "give the class, a function that returns a fresh engine, or text such as 'cpu'",
        )
    chosen = settings or EngineSettings()
    takes_settings = _takes_settings(given)

    def make(asked: EngineSettings) -> Engine:
        made: Engine = given(asked) if takes_settings else given()
        return made

    return Candidate(make, make(chosen), chosen)


def _of_spec(text: str, settings: EngineSettings | None) -> Candidate:
    if settings is not None:
        raise InputError(f"{text}: settings beside a spec", "write them into the spec")
    spec = runnable(text, "conformance")
    if isinstance(spec, ProgramSpec):
        program = program_engine(spec)
        own = EngineSettings(program.tiers[0])
        return Candidate(program, program, own, program.hello)  # type: ignore[attr-defined]
    found, tier, variants = chosen_variants(spec)
    chosen = EngineSettings(tier, variants, spec.options)
    return Candidate(lambda asked: open_engine(found, asked, text), found, chosen)


def _takes_settings(factory: Callable[..., Engine]) -> bool:
    """Whether ``factory`` can be called with one argument."""
    try:
        inspect.signature(factory).bind(None)
    except (TypeError, ValueError):
        return False
    return True
