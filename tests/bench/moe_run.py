"""The fused launches of an MoE FFN on random weights, for kernels.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parity.model.layers import Q4
from parity_cuda.backend import Buffer
from parity_cuda.fused import experts as moe_launches
from parity_cuda.ops import Ops

F = np.float32
MoeShape = tuple[int, int, int, int]  # experts, ranks, inter, hidden


class MoeRun:
    """Weights of one layer and its launches by name; ``x``: what the last one makes."""

    def __init__(self, ops: Ops, data: Any, shape: MoeShape, tier: int) -> None:
        experts, ranks, inter, hidden = shape

        def q4(rows: int, cols: int) -> Q4[Buffer]:
            nb = cols // 32
            return Q4(data.halves(experts, rows, nb), data.bytes(experts, rows, nb * 16))

        def int16(groups: int, width: int) -> tuple[Buffer, Buffer]:
            q = data.bytes(1, groups, width, dtype=np.int16)
            return q, data.empty(1, groups, width // 32)

        router, norm = data.floats(experts, hidden), data.floats(hidden)
        matrices = (q4(inter, hidden), q4(inter, hidden), q4(hidden, inter))
        weights, ores = moe_launches.Weights(router, *matrices), data.floats(1, hidden)
        guess = data.empty(1, experts) if moe_launches.guesses(tier) else None
        fnrm, rlogits = data.empty(1, hidden), data.empty(1, experts)
        routing = moe_launches.Routing(fnrm, *int16(1, hidden), rlogits, guess)
        gate, up, act = (data.empty(1, ranks, inter) for _ in range(3))
        acts = moe_launches.Acts(gate, up, act, *int16(ranks, inter))
        self.x = data.empty(1, hidden)
        ids, probs = data.bytes(1, ranks, dtype=np.int32), data.empty(1, ranks)
        outs = (self.x, data.empty(1, ranks, hidden), ids, probs)
        down = (ores, acts, routing, weights, None, True, tier)
        self.launches: dict[str, Callable[[], None]] = {
            "route": lambda: moe_launches.route(ops, routing, ores, norm, router, F(1e-6), tier),
            "gate_up": lambda: moe_launches.gate_up(ops, acts, routing, weights, None, tier),
            "down": lambda: moe_launches.down(ops, outs, *down),
        }

    def run(self, names: Sequence[str]) -> None:
        """These launches."""
        for name in names:
            self.launches[name]()
