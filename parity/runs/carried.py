"""Models that sides carry: ``hf:MODEL`` names the model of a run as ``--model`` does.

An engine whose class has ``open_model`` opens what its library reads; everything else is opened
by parity itself. Of two sides the ref's model is the run's; a dut that names another one loads its
own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parity.errors import InputError
from parity.model.config import DEFAULT_PRESET, MODULES
from parity.model.file_model import FileModel
from parity.model.model import check_seed
from parity.model.opening import models_of, open_model, path_of
from parity.spec import EngineSpec, Spec

if TYPE_CHECKING:
    from parity.model.model import Model
    from parity.runs.run import Run


def model_text(sides: Iterable[Spec], typed: str, default: str = DEFAULT_PRESET) -> str:
    """What names the run's model: a side (the ref's first), else ``typed``, else ``default``.

    Raises InputError where a side names one and another is typed.
    """
    named = [side for side in sides if isinstance(side, EngineSpec) and side.model]
    other = next((side for side in named if typed and side.model != typed), None)
    if other is not None:
        raise InputError(
            f"--model {typed} with {other.text}: two models", "name it once, or leave --model out"
        )
    return named[0].model if named else typed or default


def open_for(
    sides: Sequence[Spec], text: str, *, seed: int, weights: str | None, only: str = ""
) -> Model:
    """The model called ``text`` (``model_text``), opened by the first side that opens models.

    Raises InputError for a model that a side has no arithmetic for.
    """
    opener = next((side for side in sides if _opens(side)), None)
    if opener is None or only:
        held = weights or ("f32" if opener is not None else None)
        return open_model(text, seed=seed, weights=held, only=only)
    made = _open(opener, text, seed, weights)
    _refuse_modules(sides, made)
    return made


def models_for(
    sides: Sequence[Spec], text: str, seeds: Sequence[int], *, weights: str | None, only: str = ""
) -> tuple[Model, ...]:
    """One model a seed, as ``parity.model.opening.models_of``."""
    if not any(map(_opens, sides)):
        return models_of(text, seeds, weights=weights, only=only)
    ask = {"weights": weights, "only": only}
    first = open_for(sides, text, seed=seeds[0], **ask)  # type: ignore[arg-type]
    if isinstance(first, FileModel):
        return (first, *(replace(first, seed=check_seed(seed)) for seed in seeds[1:]))
    others = (open_for(sides, text, seed=seed, **ask) for seed in seeds[1:])  # type: ignore[arg-type]
    return (first, *others)


def own_model(side: Spec, run: Run) -> Model:
    """What ``side`` loads: the run's model, or the other one that it names itself."""
    if not isinstance(side, EngineSpec) or not side.model or _is_called(run.model, side.model):
        return run.model
    return _open(side, side.model, getattr(run.model, "seed", 0), None)


def _is_called(model: Model, text: str) -> bool:
    """Whether ``text`` names ``model``: its preset, or the folder or file that it lies in."""
    path = path_of(model)
    if path is None:
        return model.config.name == text
    return os.path.abspath(path) == os.path.abspath(text)


def _opens(side: Spec) -> bool:
    """Whether the engine of ``side`` opens models by itself."""
    from parity.runs.sides import class_of

    return isinstance(side, EngineSpec) and hasattr(class_of(side), "open_model")


def _open(side: Spec, text: str, seed: int, weights: str | None) -> Model:
    from parity.runs.sides import class_of

    assert isinstance(side, EngineSpec)
    engine = class_of(side)
    made: Model = engine.open_model(  # type: ignore[attr-defined]
        text, seed=seed, weights=weights, options=side.options
    )
    return made


def _refuse_modules(sides: Sequence[Spec], model: Model) -> None:
    """Refuse an engine that cannot run a model of its library alone. A program runs its own."""
    if model.config.family != MODULES:
        return
    other = next((s for s in sides if isinstance(s, EngineSpec) and not _opens(s)), None)
    if other is not None:
        raise InputError(
            f"{other.text} cannot run {model.label}: parity has no arithmetic for "
            f"{model.config.name}",
            "give both sides as hf:MODEL",
        )
