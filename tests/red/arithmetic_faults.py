"""Engines that add in an order of their own, as a library does, and some that are wrong besides:
``tests.red.arithmetic_faults:NAME:fast``. Each tells the weights it was given, whatever it did
then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from parity.dump import TensorType
from parity.keys import Key
from parity.model.config import ModelConfig
from parity.model.model import Around, Model
from parity.protocol import CONTRACT, LIBRARY, Injection, Plan, Step
from parity_cpu.engine import Engine

LAYER = 2  # where a fault of one layer is planted


class Library(Engine):
    """The reference's ops added up in another order: right, with other bits."""

    order = LIBRARY

    def config(self, config: ModelConfig) -> ModelConfig:
        """The configuration to compute with."""
        return config

    def spoil(self, tensors: dict[str, np.ndarray]) -> None:
        """Change the weights in place."""

    def load(self, model: Model, positions: int) -> None:
        super().load(_Other(model, self.config(model.config)), positions)
        self._told = dict(super().weights())
        self.spoil(self._tensors)

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        return self._told


class _Other(Around):
    """A model with another configuration."""

    def __init__(self, model: Model, config: ModelConfig) -> None:
        super().__init__(model)
        self._config = config

    @property
    def config(self) -> ModelConfig:
        return self._config

    def tensor(self, name: str) -> np.ndarray:
        return self.model.tensor(name)


class Scaled(Library):
    """The K projection of one layer is larger by a thousandth."""

    def spoil(self, tensors: dict[str, np.ndarray]) -> None:
        tensors[f"layers.{LAYER}.k_proj"] *= np.float32(1.001)


class OtherEps(Library):
    """Every norm has another epsilon, 1e-5 in the place of 1e-6."""

    def config(self, config: ModelConfig) -> ModelConfig:
        return replace(config, eps=10 * config.eps)


class OtherTheta(Library):
    """The rope turns with another base: a tenth of the model's."""

    def spoil(self, tensors: dict[str, np.ndarray]) -> None:
        half = len(tensors["inv_freq"])
        tensors["inv_freq"] *= np.float32(10.0) ** (np.arange(half, dtype=np.float32) / half)


class HeadsSwapped(Library):
    """Query heads 0 and 1 of one layer change places."""

    def spoil(self, tensors: dict[str, np.ndarray]) -> None:
        rows = tensors[f"layers.{LAYER}.q_proj"]
        size = self._model.config.head_dim
        rows[: 2 * size] = np.concatenate([rows[size : 2 * size], rows[:size]])


class LayersSwapped(Library):
    """Layers 1 and 2 change places."""

    def spoil(self, tensors: dict[str, np.ndarray]) -> None:
        for name in [name for name in tensors if name.startswith("layers.1.")]:
            other = name.replace("layers.1.", "layers.2.")
            kept = tensors[name].copy()
            tensors[name][...] = tensors[other]
            tensors[other][...] = kept


class OtherWeights(Library):
    """Every matrix is drawn anew, and the digests are told as they were."""

    def spoil(self, tensors: dict[str, np.ndarray]) -> None:
        draw = np.random.default_rng(1)
        for name, values in tensors.items():
            if name.endswith("_proj"):
                values[...] = draw.permuted(values, axis=-1)


class Honest(Scaled):
    """Scaled, and the digests tell so."""

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        return Engine.weights(self)


class OwnTable(Library):
    """The rotary table is off by an ULP, as f32 powers make it, and the digests tell so."""

    def spoil(self, tensors: dict[str, np.ndarray]) -> None:
        table = tensors["inv_freq"]
        table[1::2] = np.nextafter(table[1::2], np.float32(0))

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        return Engine.weights(self)


class OwnTheta(OtherTheta):
    """OtherTheta, and the digests tell so."""

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        return Engine.weights(self)


class OwnTableAndTold(OwnTable):
    """OwnTable, and another digest of one tensor."""

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        told = dict(super().weights())
        kind, digest = told["embed"]
        return {**told, "embed": (kind, digest ^ 1)}


class _Moved(Library):
    """Moves one value of its own step."""

    key = Key(33, None, "logits")

    def change(self, values: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.inject is None:
            plan = replace(plan, inject=Injection(self.key, 0, self.change))
        return super().step(token, plan)


class Below(_Moved):
    """The runner-up of position 33 stands just below the best: a ref, in the contract's order."""

    order = CONTRACT
    towards = np.float32(-np.inf)

    def change(self, values: np.ndarray) -> np.ndarray:
        best, other = np.argsort(values)[[-1, -2]]
        changed = values.copy()
        changed[other] = np.nextafter(changed[best], self.towards)
        return changed


class Above(Below):
    """It stands just above: another choice, within any bound."""

    order = LIBRARY
    towards = np.float32(np.inf)


class NotFinite(_Moved):
    """One element of one field is not a number."""

    key = Key(34, 1, "attn")

    def change(self, values: np.ndarray) -> np.ndarray:
        changed = values.copy()
        changed.reshape(-1)[5] = np.nan
        return changed


class Lacking(Library):
    """Never tells two fields, as a library that keeps them in a fused kernel."""

    absent: tuple[str, ...] = ("knorm", "ores")
    only_at: int | None = None

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        kept = [entry for entry in step.entries if not self._hides(entry.key)]
        return replace(step, entries=kept)

    def _hides(self, key: Key) -> bool:
        return key.field in self.absent and self.only_at in (None, key.pos)


class LosesOne(Lacking):
    """Leaves a field out at one position, and tells it at the others."""

    absent, only_at = ("attn",), 34


class LosesLogits(Lacking):
    """Its logits never reach the dump."""

    absent = ("logits",)


class Restless(Library):
    """Another last bit in every run."""

    runs = 0

    def reset(self) -> None:
        super().reset()
        self.runs += 1

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.inject is None and self.length == 34:
            plan = replace(plan, inject=Injection(Key(34, 3, "x"), self.runs))
        return super().step(token, plan)


class GivesNoValues(Library):
    """Tells every key and keeps the values of one field to itself."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        kept = {key: value for key, value in step.tensors.items() if key.field != "v"}
        return replace(step, tensors=kept)


class IgnoresInject(Library):
    """Ignores what is planted: its tap tells what it always told."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None:
            plan = replace(plan, inject=None)
        return super().step(token, plan)


class NoCapture(Library):
    """Cannot give values."""

    capabilities = Engine.capabilities - {"capture"}


class NoInject(Library):
    """Cannot be given values."""

    capabilities = Engine.capabilities - {"inject"}


class Told(Library):
    """Computes with the right weights and tells another digest of one."""

    def weights(self) -> Mapping[str, tuple[TensorType, int]]:
        told = dict(super().weights())
        kind, digest = told["embed"]
        return {**told, "embed": (kind, digest ^ 1)}
