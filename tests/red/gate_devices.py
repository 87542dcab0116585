"""Device candidates for ``parity gate``: ``tests.red.gate_devices:EmuUntapped``, ``CudaUntapped``.

Right in single steps and wherever a tap looks; from five rows on and without a tap, a product is
added in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

from parity.protocol import Plan, Step
from parity.variants import variant_mask
from parity_cuda.engine import CudaEngine, DeviceEngine, EmuEngine


class _Untapped(DeviceEngine):
    def _forward(
        self, tokens: Sequence[int], plan: Plan | None, *, fuse: bool = True
    ) -> list[Step]:
        if plan is None and len(tokens) >= 5:
            self._decoder.variants = variant_mask([*self.settings.variants, "split_k"])
        try:
            return super()._forward(tokens, plan, fuse=fuse)
        finally:
            self._decoder.variants = variant_mask(self.settings.variants)


class EmuUntapped(_Untapped, EmuEngine):
    """On the CPU."""


class CudaUntapped(_Untapped, CudaEngine):
    """On a device."""
