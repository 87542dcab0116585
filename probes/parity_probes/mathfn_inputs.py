"""Which inputs a function is compared at: seeded samples, and the special values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from parity.elementary.mathfn import Ask

Bits = npt.NDArray[np.uint32]

NEAR_ZERO = 20.0  # half_near_zero draws down to -e^-20

# Bit patterns without a sign; each is taken with both signs.
_SPECIAL = (
    0x00000000,  # zero
    0x00000001,  # the smallest subnormal
    0x007FFFFF,  # the largest subnormal
    0x00800000,  # the smallest normal number
    0x38FFFFFF,  # below 2^-13, where cosf is 1 and sinf its argument
    0x39000000,
    0x3BFFFFFF,  # around 2^-7, where their two-term branch ends
    0x3C000000,
    0x3F490FDA,  # around pi/4
    0x3F490FDB,
    0x3F6FFFFF,  # 0.9375 and 1.0625: between them logf is a series
    0x3F700000,
    0x3F87FFFF,
    0x3F880000,
    0x3F7FFFFF,  # 1 and its neighbours
    0x3F800000,
    0x3F800001,
    0x3FC90FDB,  # pi/2
    0x40490FDB,  # pi
    0x41A00000,  # 20, above which softplus is its argument
    0x41A00001,
    0x42200000,  # 40 and the six below it: positions that a rotary embedding reaches
    0x44FA0000,  # 2000
    0x473BA700,  # 48039
    0x47FFFF80,  # 131071
    0x48F42400,  # 500000
    0x4B801F96,  # 16793388
    0x501502F9,  # 1e10
    0x42AEAC4F,  # expf: with a minus the last normal result, then the first subnormal one
    0x42AEAC50,
    0x42B17217,  # expf: the last finite result and the first overflow
    0x42B17218,
    0x42CFF1B4,  # expf: with a minus the last result that is not zero
    0x42CFF1B5,
    0x4B800455,  # sinf and cosf: the last medium argument and the first huge one
    0x4B800456,
    0x4F490FDA,
    0x4F490FDB,
    0x50A3E87F,  # the float nearest to a multiple of pi/2
    0x73DAADEC,  # decided by the third piece of pi/2
    0x7F7FFFFF,  # the largest finite number
    0x7F800000,  # infinity
    0x7F800001,  # a signalling NaN
    0x7FBFFFFF,
    0x7FC00000,  # the quiet NaN
    0x7FC00001,  # with a payload
    0x7FFFFFFF,
)


def uniform(samples: int, domain: tuple[float, float], seed: int) -> Bits:
    """(samples,) bit patterns, drawn uniformly from lo to hi as numbers, each rounded to float32.

    The draw is PCG64's, in float64.
    """
    low, high = domain
    drawn = low + (high - low) * np.random.default_rng(seed).random(samples)
    return drawn.astype(np.float32).view(np.uint32)


def half_near_zero(samples: int, domain: tuple[float, float], seed: int) -> Bits:
    """(samples,) bit patterns: half of them uniform in ``domain``, the others -e^-u with u uniform
    from 0 to 20, where expf is near 1."""
    near = samples // 2
    far = uniform(samples - near, domain, seed)
    drawn = -np.exp(-NEAR_ZERO * np.random.default_rng(seed + 1).random(near))
    return np.concatenate([far, drawn.astype(np.float32).view(np.uint32)])


def special_values(domain: tuple[float, float]) -> Bits:
    """The special values of both signs, and the ends of the domain, each once."""
    plain = np.array(_SPECIAL, np.uint32)
    ends = np.array(domain, np.float32).view(np.uint32)
    every = np.concatenate([plain, plain | np.uint32(0x80000000), ends])
    return np.array(list(dict.fromkeys(every.tolist())), np.uint32)


def described(ask: Ask) -> dict[str, str]:
    """How the inputs were chosen, label to text."""
    if not ask.exhaustive:
        low, high = ask.domain
        return {
            "samples": f"{ask.samples:,}",
            "drawn": f"uniformly from {low:g} to {high:g}",
            "seed": str(ask.seed),
        }
    start, stop = ask.span
    every = "all" if (start, stop) == (0, 1 << 32) else f"{start:08x} to {stop - 1:08x} of all"
    return {"exhaustive": f"{every} float32 bit patterns"}
