"""All families on the device: the layers in one forward of M rows. Contract 2, 3, 6."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from parity.model.checks import MOST_ROWS
from parity.model.config import ModelConfig
from parity.model.layers import Gdn, head, layer, matrix
from parity_cuda.attention_layer import attention_layer
from parity_cuda.backend import Backend, Buffer
from parity_cuda.ffn_layer import ffn_layer
from parity_cuda.fused import layers as fused_layers
from parity_cuda.gdn_layer import gdn_layer
from parity_cuda.ops import Ops
from parity_cuda.pool import Pool
from parity_cuda.products import embedding, matvec
from parity_cuda.rows import Rows
from parity_cuda.state import Parts, State
from parity_cuda.tap import Tap
from parity_cuda.tuning import kept_tuning
from parity_cuda.weights import Layer, Tensors, rates


class Decoder:
    """Forward passes over uploaded tensors.

    ``variants``: mask of ``parity.variants.variant_mask``; 0 is the exact tier.
    """

    def __init__(
        self,
        backend: Backend,
        config: ModelConfig,
        tensors: Tensors,
        positions: int,
        variants: int,
    ) -> None:
        self.backend, self.config, self.variants = backend, config, variants
        self.positions = positions
        self.ops = Ops(backend, kept_tuning(backend.info()["device"], backend.processors))
        self.one = Pool(backend, 1)
        self.many = Pool(backend, MOST_ROWS)
        self.given = backend.empty((1 + MOST_ROWS,), np.int32)  # the position, then token ids
        self.inv_freq = tensors["inv_freq"]
        self.embed = matrix(tensors, "embed")
        self.layers = [
            layer(tensors, number, partial(rates, self.ops)) for number in range(config.layers)
        ]
        self.final_norm = tensors["final_norm"]
        self.lm_head = head(tensors, config.tied)

    def feed(self, tokens: Sequence[int], pos: int) -> None:
        """Hand over the tokens of the next forward, and the position of the first."""
        self.backend.write(self.given[: 1 + len(tokens)], np.array([pos, *tokens], np.int32))

    def embedded(self, token: int) -> np.ndarray:
        """What a token is embedded as, float32[hidden]: the row that the first layer reads."""
        row = self.backend.empty((1, self.config.hidden), np.float32)
        self.feed([token], 0)
        embedding(self.ops, row, self.embed, self.given[1:2])
        found: np.ndarray = self.backend.download(row)[0]
        return found

    def forward(
        self, count: int, pos: int, state: State, tap: Tap, logits: Buffer, fused: bool
    ) -> None:
        """``count`` rows at pos .. pos + count - 1, the tokens that ``feed`` was given; advances
        ``state`` and writes logits (count, vocab). ``pos`` names what the tap is offered; kernels
        read it on the device. ``fused``: as few launches, of one row (``parity_cuda.fused``)."""
        config, place = self.config, self.given[:1]
        pool = self.one if count == 1 else self.many
        rows = Rows(config, self.variants, self.ops, pool, tap, pos, place, count, self.positions)
        x = rows.f32("x", config.hidden)
        embedding(self.ops, x, self.embed, self.given[1 : 1 + count])
        for number in range(config.layers):
            pool.layer = number
            x = self._layer(rows, number, x, state.layers[number], fused)
        pool.layer = None
        self._head(rows, x, logits, fused)

    def _head(self, rows: Rows, x: Buffer, logits: Buffer, fused: bool) -> None:
        if fused:
            normed = rows.f32("nrm", self.config.hidden)
            fused_layers.output_head(rows, self.final_norm, self.lm_head, x, normed, logits)
            rows.show(None, "final_normed", normed)
        else:
            normed = rows.norm("nrm", x, self.final_norm)
            rows.show(None, "final_normed", normed)  # which may put another value in its place
            matvec(self.ops, logits, self.lm_head, normed, self.variants)
        rows.show(None, "logits", logits)

    def _layer(self, rows: Rows, number: int, x: Buffer, parts: Parts, fused: bool) -> Buffer:
        """Fused where that is asked for and known, half by half; else op by op."""
        weights, ores, out = self.layers[number], None, None
        if fused:
            ores = fused_layers.mixer_layer(rows, number, weights, x, parts, self.inv_freq)
        if ores is None:
            ores = self._mixer(rows, number, weights, x, parts)
        if fused:
            out = fused_layers.ffn_layer(rows, number, weights, ores)
        return self._ffn(rows, number, weights, ores) if out is None else out

    def _mixer(self, rows: Rows, number: int, weights: Layer, x: Buffer, parts: Parts) -> Buffer:
        nrm = rows.norm("nrm", x, weights.attn_norm)
        rows.show(number, "nrm", nrm)
        if isinstance(weights.mixer, Gdn):
            mixed = gdn_layer(rows, number, weights.mixer, nrm, parts)
        else:
            mixed = attention_layer(rows, number, weights.mixer, nrm, parts, self.inv_freq)
        ores = rows.f32("ores", self.config.hidden)
        self.ops.add(ores, x, mixed)
        rows.show(number, "ores", ores)
        return ores

    def _ffn(self, rows: Rows, number: int, weights: Layer, ores: Buffer) -> Buffer:
        fnrm = rows.norm("fnrm", ores, weights.ffn_norm)
        rows.show(number, "fnrm", fnrm)
        x = ffn_layer(rows, number, weights.ffn, ores, fnrm)
        rows.show(number, "x", x)
        return x
