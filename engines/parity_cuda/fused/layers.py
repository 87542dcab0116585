"""Which fused layer takes which weights, and the head. Contract 2, 3.

A layer that cannot run its weights under the mask gives None: the decoder then goes op by op.
"""

from __future__ import annotations

import numpy as np

from parity.model import layers
from parity_cuda.backend import Buffer
from parity_cuda.fused import attention_layer as attention
from parity_cuda.fused import dense_layer as dense
from parity_cuda.fused import gdn_layer as gdn
from parity_cuda.fused import moe_layer as moe
from parity_cuda.fused.project import Norm, project
from parity_cuda.rows import Rows
from parity_cuda.state import Parts
from parity_cuda.weights import Layer, Matrix


def mixer_layer(
    rows: Rows, number: int, weights: Layer, x: Buffer, parts: Parts, freq: Buffer
) -> Buffer | None:
    """ores (1, hidden) of x (1, hidden); advances ``parts`` by a row."""
    given = (rows, number, weights.attn_norm)
    mixer = weights.mixer
    if isinstance(mixer, layers.Attention) and attention.knows(mixer, rows.variants):
        return attention.attention_layer(*given, mixer, x, parts, freq)
    if isinstance(mixer, layers.Gdn) and gdn.knows(mixer, rows.variants):
        return gdn.gdn_layer(*given, mixer, x, parts)
    return None


def ffn_layer(rows: Rows, number: int, weights: Layer, ores: Buffer) -> Buffer | None:
    """x (1, hidden) of ores (1, hidden)."""
    ffn = weights.ffn
    if isinstance(ffn, layers.Dense) and dense.knows(ffn, rows.variants):
        return dense.dense_layer(rows, number, weights.ffn_norm, ffn, ores)
    if isinstance(ffn, layers.Experts) and moe.knows(ffn, rows.variants, rows.config.top_k):
        return moe.moe_layer(rows, number, weights.ffn_norm, ffn, ores)
    return None


def output_head(
    rows: Rows, norm: Buffer, head: Matrix, x: Buffer, normed: Buffer, logits: Buffer
) -> None:
    """normed (1, hidden) and logits (1, vocab) of x (1, hidden). norm: (hidden,) f32."""
    made = Norm(normed, norm, np.float32(rows.config.eps))
    project(rows.ops, x, [(logits, head)], rows.variants, norm=made)
