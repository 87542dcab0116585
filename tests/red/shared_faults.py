"""Engines whose shared expert is wrong on purpose: ``tests.red.shared_faults:NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from parity.model.model import Model
from parity_cpu.engine import Engine
from tests.red.faults import Patched


class PatchedShared(Patched):
    """``emu`` with a fault in the shared expert: ``@fault=NAME``."""

    options = ("fault",)
    patches: ClassVar[Mapping[str, tuple[str, str, str]]] = {
        "first": (
            "combine_shared.cu",
            "  float ffn = ranks_sum(down + row * hidden + j, hidden, probs + row, ranks, "
            """variants);
  // step 2: ffn = ffn + gs * sh, after the chosen experts
  ffn = with_shared(ffn, gs[m], sh[at]);
""",
            """  float ffn = with_shared(0.0f, gs[m], sh[at]);
  for (int r = 0; r < ranks; ++r)
    ffn = __fadd_rn(ffn, __fmul_rn(probs[row + r], down[(row + r) * hidden + j]));
""",
        ),
        "ungated": ("ranks.cuh", "__fmul_rn(gs, sh)", "sh"),
        "after_residual": (
            "combine_shared.cu",
            """  ffn = with_shared(ffn, gs[m], sh[at]);
  // step 3: x = ores + ffn
  out[at] = __fadd_rn(ores[at], ffn);
""",
            "  out[at] = with_shared(__fadd_rn(ores[at], ffn), gs[m], sh[at]);\n",
        ),
        "unsquashed": ("shared_gate.cu", "any_sigmoid(x[j], variants)", "x[j]"),
        # Right with one row, wrong with more.
        "gate_of_row_0": ("combine_shared.cu", "gs[m]", "gs[0]"),
    }


class NarrowShared(Engine):
    """The shared expert of every layer is 96 wide instead of 224: the rest of down is 0."""

    def load(self, model: Model, positions: int) -> None:
        super().load(model, positions)
        for layer in range(model.config.layers):
            self._tensors[f"layers.{layer}.shared.down.d"][:, 3:] = np.uint16(0)
