"""Device buffers of one forward of one row, reused by every layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parity.model.config import ModelConfig
from parity.variants import variant_mask
from parity_cuda.backend import Backend, Buffer
from parity_cuda.ops import padded
from parity_cuda.products import ExpertInput


class Scratch:
    """Named as in the CPU twin's forward."""

    def __init__(
        self, backend: Backend, config: ModelConfig, positions: int, variants: int
    ) -> None:
        def f32(*shape: int) -> Buffer:
            return backend.empty(shape, np.float32)

        hidden, hd = config.hidden, config.head_dim
        q_shape, kv_shape = (1, config.n_q, hd), (1, config.n_kv, hd)
        self.token = backend.empty((1,), np.int32)
        self.x, self.nrm, self.out, self.ores, self.fnrm = (f32(1, hidden) for _ in range(5))
        self.kraw, self.knorm, self.kturned, self.value = (f32(*kv_shape) for _ in range(4))
        self.query, self.qnorm, self.qturned, self.attn = (f32(*q_shape) for _ in range(4))
        self.q8, self.q_scale = backend.empty(q_shape, np.int8), f32(1, config.n_q)
        # two_pass alone needs the scores of all keys at once.
        keys = padded(positions) if variants & variant_mask(["two_pass"]) else 1
        self.scores = f32(config.n_q, 2 * keys)
        self._ffn(backend, config, f32)

    def _ffn(self, backend: Backend, config: ModelConfig, f32: Callable[..., Buffer]) -> None:
        hidden, inter = config.hidden, config.inter
        if config.family == "dense":
            self.gate, self.up, self.act = (f32(1, inter) for _ in range(3))
            self.down = f32(1, hidden)
            return
        ranks = config.top_k
        self.rlogits = f32(1, config.experts)
        self.ids, self.probs = backend.empty((1, ranks), np.int32), f32(1, ranks)
        self.gate, self.up, self.act = (f32(1, ranks, inter) for _ in range(3))
        self.down = f32(1, ranks, hidden)
        shapes = ((self.fnrm.reshape(1, 1, hidden), hidden), (self.act, inter))
        self.given, self.made = (
            ExpertInput(
                x,
                backend.empty(x.shape, np.int16),
                f32(*x.shape[:2], -(-width // 32)),
            )
            for x, width in shapes
        )
