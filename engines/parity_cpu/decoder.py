"""All families on the CPU: the order of the layers in one forward of M rows. Contract 2, 3, 6."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity.model.config import ModelConfig
from parity.model.layers import Gdn, head, layer, matrix
from parity_cpu.attention_layer import attention_layer
from parity_cpu.calls import Calls
from parity_cpu.ffn_layer import ffn_layer
from parity_cpu.gdn_layer import gdn_layer
from parity_cpu.ops.add import add
from parity_cpu.products import embedding
from parity_cpu.rows import Rows, f32
from parity_cpu.state import State
from parity_cpu.tap import Tap
from parity_cpu.weights import Tensors, rates


class Decoder:
    """Forward passes over loaded tensors.

    ``variants``: mask of ``parity.variants.variant_mask``; 0 is the exact tier.
    """

    def __init__(self, config: ModelConfig, tensors: Tensors, variants: int) -> None:
        self.config, self.variants = config, variants
        self.call = Calls()
        self.inv_freq = tensors["inv_freq"]
        self.embed = matrix(tensors, "embed")
        self.layers = [layer(tensors, number, rates) for number in range(config.layers)]
        self.final_norm = tensors["final_norm"]
        self.lm_head = head(tensors, config.tied)

    def embedded(self, token: int) -> np.ndarray:
        """What a token is embedded as, float32[hidden]: the row that the first layer reads."""
        row = f32(1, self.config.hidden)
        embedding(self.call, row, self.embed, np.array([token], np.int32))
        return row[0]

    def forward(self, tokens: Sequence[int], pos: int, state: State, tap: Tap) -> np.ndarray:
        """M tokens at pos .. pos + M - 1; advances ``state``. Returns logits (M, vocab)."""
        config = self.config
        rows = Rows(config, self.variants, self.call, tap, pos, len(tokens))
        x = f32(len(tokens), config.hidden)
        embedding(self.call, x, self.embed, np.array(tokens, np.int32))
        for number, weights in enumerate(self.layers):
            nrm = rows.norm(x, weights.attn_norm)
            rows.show(number, "nrm", nrm)
            parts = state.layers[number]
            if isinstance(weights.mixer, Gdn):
                mixed = gdn_layer(rows, number, weights.mixer, nrm, parts)
            else:
                mixed = attention_layer(rows, number, weights.mixer, nrm, parts, self.inv_freq)
            ores = np.empty_like(x)
            self.call(add, ores, x, mixed)
            rows.show(number, "ores", ores)
            fnrm = rows.norm(ores, weights.ffn_norm)
            rows.show(number, "fnrm", fnrm)
            x = ffn_layer(rows, number, weights.ffn, ores, fnrm)
            rows.show(number, "x", x)
        normed = rows.norm(x, self.final_norm)
        rows.show(None, "final_normed", normed)
        logits = rows.matvec(self.lm_head, normed, config.vocab)
        rows.show(None, "logits", logits)
        return logits
