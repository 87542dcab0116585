"""Engines with one planted fault each, given on the command line as ``tests.red.faults:NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from parity.keys import Key
from parity.model.model import Model
from parity.protocol import EngineSettings, Injection, Plan, Step
from parity_cpu.engine import Engine
from parity_cuda.backend import Backend
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.engine import EmuEngine
from parity_cuda.sources import kernel_sources


class FlippedWeight(Engine):
    """One bit of one weight of layer 2's q_proj is flipped after the load."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self._tensors["layers.2.q_proj.qs"][7, 3] ^= np.uint8(0x04)


class UnusedWeight(Engine):
    """One bit of the embedding of a token that never occurs: no key can show it."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        self._tensors["embed.qs"][UNUSED_TOKEN, 0] ^= np.uint8(0x01)


UNUSED_TOKEN = 3  # neither in the prompt of seed 7 nor among the choices


class Moved(Engine):
    """One element of the value behind ``@key=TAG`` is moved by 1 ULP, then used."""

    options = ("key",)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        if plan is not None and plan.inject is None:
            key = Key.parse(self.settings.options["key"])
            plan = replace(plan, inject=Injection(key, 0))
        return super().step(token, plan)


class Shaky(Engine):
    """Moves the first layer's x in its first 36 steps and never again: no rerun confirms it."""

    count = 0

    def step(self, token: int, plan: Plan | None = None) -> Step:
        self.count += 1
        if plan is not None and self.count <= 36:
            plan = replace(plan, inject=Injection(Key(self.length, 0, "x"), 0))
        return super().step(token, plan)


class LostRow(Engine):
    """The K row of layer 1 at position 5 is a stale copy of its neighbour, after the prefill."""

    def prefill(self, tokens, plan=None):  # type: ignore[no-untyped-def]
        steps = super().prefill(tokens, plan)
        keys = self._state.layers[1]["k"]
        keys[5] = keys[4]
        return steps


class LateRow(Engine):
    """Row 2 of V in the last layer is overwritten after the last step: only the end state shows."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if self.length == 36:
            self._state.layers[-1]["v"][2, 0, 0] += np.int8(1)
        return step


class Patched(EmuEngine):
    """``emu`` with one piece of an op's text replaced, op by op: ``@fault=NAME`` of ``patches``."""

    fuse: ClassVar[str] = "off"

    # name: (file, text, text in its place)
    patches: ClassVar[Mapping[str, tuple[str, str, str]]] = {
        "rmsnorm_product": (
            "rmsnorm.cu",
            "__fmul_rn(__fmul_rn(x[j], r), w[j])",
            "__fmul_rn(x[j], __fmul_rn(r, w[j]))",
        ),
        "headnorm_descending": (
            "headnorm.cu",
            "part[j] = __fmul_rn(x[j], x[j]);",
            "part[hd - 1 - j] = __fmul_rn(x[j], x[j]);",
        ),
        "unpaired": (
            "q4_row.cuh",
            "__fadd_rn(__fmaf_rn(low, x.scaled[e], x.minus8(e)), second);\n"
            "        s = begins ? made",
            "__fmaf_rn(low, x.scaled[e], x.minus8(e));\n"
            "        s = begins ? __fadd_rn(made, second)"
            "\n : __fadd_rn(__fadd_rn(s, made), second); if (false) s = begins ? made",
        ),
        "wrong_position": ("rope.cu", "angle_of(pos[0] + m,", "angle_of(pos[0] + m + 1,"),
        "visible_length": (
            "attention_int8.cu",
            "scratch, pos[0], count",
            "scratch, max(pos[0] - 1, 0), count",
        ),
        "rank_order": (
            "ranks.cuh",
            "for (int r = 0; r < ranks; ++r)",
            "for (int r = ranks - 1; r >= 0; --r)",
        ),
        "scale_order": (
            "variants.cuh",
            "__fmul_rn(__fmul_rn((float)dot, s_w), s_a)",
            "__fmul_rn((float)dot, __fmul_rn(s_w, s_a))",
        ),
        "residual": ("add.cu", "__fadd_rn(a[j], b[j])", "__fadd_rn(a[j], -b[j])"),
        "router_descending": (
            "chain.cuh",
            "acc = add_sixteen(acc, ready);",
            "for (int i = 3; i >= 0; --i) acc = add_four(acc, ready.four[i]);",
        ),
        "contracted": ("q4_row.cuh", "const float made = FUSED ?", "const float made = true ?"),
    }

    def open(self, settings: EngineSettings) -> Backend:
        file, old, new = self.patches[settings.options["fault"]]
        sources = kernel_sources()
        assert old in sources[file], f"{file} no longer holds the text to patch"
        sources[file] = sources[file].replace(old, new)
        return EmuBackend(replace(settings, options={"fuse": self.fuse}), sources)
