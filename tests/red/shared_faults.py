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
            """  float ffn = 0.0f;
  for (int r = 0; r < ranks; ++r) {
    const long long row = (long long)m * ranks + r;
    float term = down[row * hidden + j];
    if (!(variants & FOLD_P)) term = __fmul_rn(probs[row], term);
    ffn = __fadd_rn(ffn, term);
  }
  const long long at = (long long)m * hidden + j;
  // step 2: ffn = ffn + gs * sh, after the chosen experts
  ffn = __fadd_rn(ffn, __fmul_rn(gs[m], sh[at]));
""",
            """  const long long at = (long long)m * hidden + j;
  float ffn = __fadd_rn(0.0f, __fmul_rn(gs[m], sh[at]));
  for (int r = 0; r < ranks; ++r) {
    const long long row = (long long)m * ranks + r;
    float term = down[row * hidden + j];
    if (!(variants & FOLD_P)) term = __fmul_rn(probs[row], term);
    ffn = __fadd_rn(ffn, term);
  }
""",
        ),
        "ungated": ("combine_shared.cu", "__fmul_rn(gs[m], sh[at])", "sh[at]"),
        "after_residual": (
            "combine_shared.cu",
            """  ffn = __fadd_rn(ffn, __fmul_rn(gs[m], sh[at]));
  // step 3: x = ores + ffn
  out[at] = __fadd_rn(ores[at], ffn);
""",
            "  out[at] = __fadd_rn(__fadd_rn(ores[at], ffn), __fmul_rn(gs[m], sh[at]));\n",
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
