"""Engines whose prefill leaves another state than it should: ``tests.red.start_faults:NAME``.

Their decode steps are exact, so that a comparison that blames one has walked into Kestrel's trap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.inject import move_element
from parity.keys import Key
from parity.model.model import Model
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity.variants import variant_mask
from parity_cpu.engine import Engine
from parity_cuda.backend import Backend
from parity_cuda.engine import EmuEngine

OPTIONS = ("variant", "begin", "key", "part")


class Trap(Engine):
    """Prefills with the variant ``@variant=NAME`` from position ``@begin=N`` on, and decodes
    exactly."""

    options = OPTIONS

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        begin = max(0, int(self.settings.options.get("begin", 0)) - self.length)
        steps = super().prefill(tokens[:begin], plan) if begin else []
        self._decoder.variants = variant_mask([self.settings.options["variant"]])
        steps += super().prefill(tokens[begin:], plan) if tokens[begin:] else []
        self._decoder.variants = 0
        return steps if plan is not None else steps[-1:]


class TrapAndFault(Trap):
    """Moves one element behind ``@key=TAG`` while it decodes, too."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.inject is None:
            plan = replace(plan, inject=Injection(Key.parse(self.settings.options["key"]), 0))
        return super().step(token, plan)


class EmuTrap(EmuEngine):
    """The trap on the emulated kernels."""

    def open(self, settings: EngineSettings) -> Backend:
        return super().open(replace(settings, options={}))

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        self._decoder.variants = variant_mask([self.settings.options["variant"]])
        steps = super().prefill(tokens, plan)
        self._decoder.variants = 0
        return steps


class MovedPart(Engine):
    """The last element of the state part ``@part=NAME`` is off by 1 ULP after the prefill."""

    options = OPTIONS

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        steps = super().prefill(tokens, plan)
        state = self.read_state()
        part = state[self.settings.options["part"]]
        move_element(part, part.size - 1)
        self.write_state(state)
        return steps


class OtherToken(Engine):
    """Prefills another token at position ``@begin=N``."""

    options = OPTIONS

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        at, fed = int(self.settings.options["begin"]) - self.length, list(tokens)
        if 0 <= at < len(fed):
            fed[at] ^= 1
        return super().prefill(fed, plan)


class WideTrap(Trap):
    """Its prefill of several tokens at once has the variant on, that of one token has not."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return (super() if len(tokens) > 1 else super(Trap, self)).prefill(tokens, plan)


class LostToken(Engine):
    """A prefill of several tokens leaves out the last one."""

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return super().prefill(tokens[:-1] if len(tokens) > 1 else tokens, plan)


class NoHist(Engine):
    """Does not give the history of its first convolution out: a part is missing."""

    def read_state(self) -> dict[str, Any]:
        return {name: part for name, part in super().read_state().items() if name != "l0_hist"}

    def write_state(self, state: Any) -> None:
        super().write_state({"l0_hist": np.zeros_like(self._state.layers[0]["hist"]), **state})


class OtherShape(Engine):
    """Gives its first K rows out in another shape than the ref, and takes only that one back."""

    def read_state(self) -> dict[str, Any]:
        state = super().read_state()
        rows, heads, dim = state["l0_k"].shape
        return {**state, "l0_k": state["l0_k"].reshape(rows, heads * dim)}

    def write_state(self, state: Any) -> None:
        own = super().read_state()["l0_k"]
        rows = state["l0_k"].reshape(-1, *own.shape[1:])
        if state["l0_k"].ndim != 2:
            raise ValueError("l0_k has another shape")
        super().write_state({**state, "l0_k": rows})


class OtherEmbedding(Engine):
    """Its embedding has other values in one column of every row."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        scales = self._tensors["embed.d"].view(np.float16)
        scales[:, 1] *= np.float16(1.25)


class OtherEmbeddingAlone(OtherEmbedding):
    """The same, and nothing can be replayed."""

    capabilities = Engine.capabilities - {"replay"}


class OtherEmbeddingUntold(OtherEmbeddingAlone):
    """The same, and it cannot tell what it embeds a token as."""

    embedded = None  # type: ignore[assignment]


class OtherNormUntold(OtherEmbeddingUntold):
    """Its embedding is right, the norm's weights of layer 0 are not; it tells no more."""

    def load(self, model: Model, positions: int) -> None:
        Engine.load(self, model, positions)
        self._tensors["layers.0.attn_norm"][3] *= np.float32(1.25)
