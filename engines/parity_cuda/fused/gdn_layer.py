"""Gated DeltaNet of one row as fused launches: from x to ores. Contract 2, 3.2."""

from __future__ import annotations

import numpy as np

from parity_cuda.backend import Buffer
from parity_cuda.fused import delta
from parity_cuda.fused.project import Norm, project
from parity_cuda.rows import Rows
from parity_cuda.state import Parts
from parity_cuda.weights import Gdn


def knows(weights: Gdn, variants: int) -> bool:
    """Whether these weights under this mask can be run so: all can."""
    del weights, variants
    return True


def gdn_layer(
    rows: Rows, number: int, norm: Buffer, weights: Gdn, x: Buffer, parts: Parts
) -> Buffer:
    """Advances s and hist of ``parts``; norm: (hidden,) f32, of the norm before the layer. Returns
    ores (1, hidden)."""
    given = _projected(rows, number, norm, weights, x)
    gn = recurrence(rows, number, given, weights, parts).reshape(1, -1)
    mixed, ores = (rows.f32(name, rows.config.hidden) for name in ("mixed", "ores"))
    project(rows.ops, gn, [(mixed, weights.out_proj)], rows.variants, total=(ores, x))
    rows.show(number, "ores", ores)
    return ores


def _projected(rows: Rows, number: int, norm: Buffer, weights: Gdn, x: Buffer) -> delta.Projected:
    """nrm and the four projections of it, in one launch."""
    config = rows.config
    _, heads, _, width = config.gdn
    nrm, qkv = rows.f32("nrm", config.hidden), rows.f32("qkv", config.conv_dim)
    z, a, b = rows.f32("z", heads * width), rows.f32("a", heads), rows.f32("b", heads)
    outs = [(qkv, weights.qkv_proj), (z, weights.z_proj), (a, weights.a_proj), (b, weights.b_proj)]
    project(rows.ops, x, outs, rows.variants, norm=Norm(nrm, norm, np.float32(config.eps)))
    for field, values in (("nrm", nrm), ("qkv", qkv), ("z", z)):
        rows.show(number, field, values)
    return delta.Projected(qkv, z.reshape(1, heads, width), a, b)


def recurrence(
    rows: Rows,
    number: int,
    given: delta.Projected,
    weights: Gdn,
    parts: Parts,
    seen: Buffer | None = None,
) -> Buffer:
    """gn (M, vh, vd) of what was projected, in two launches for all rows. seen: (3 + M, conv_dim)
    f32, the history before the first row and then qkv: where there is more than one row, its hist
    is there."""
    config = rows.config
    key_heads, heads, key_width, width = config.gdn
    q, k = (rows.f32(name, key_heads, key_width) for name in ("qn", "kn"))
    beta, g = (rows.f32(name, heads) for name in ("beta", "g"))
    read = delta.Read(q, k, rows.f32("conv", config.conv_dim), beta, g)
    delta.inputs(rows.ops, read, parts["hist"], given, weights, rows.variants)
    rows.show(number, "conv", read.conv)
    for m in range(rows.count):
        hist = parts["hist"] if seen is None else seen[m + 1 : m + 4]
        rows.tap(rows.pos + m, number, "hist", hist)
    for field, values in (("qn", q), ("kn", k), ("beta", beta), ("g", g)):
        rows.show(number, field, values)
    o, gn = (rows.f32(name, heads, width) for name in ("o", "gn"))
    norm = (weights.norm, np.float32(config.eps))
    delta.step(rows.ops, o, gn, parts["s"], read, given.z, norm, rows.variants)
    rows.tap(rows.pos, number, "s", parts["s"])
    rows.show(number, "o", o)
    rows.show(number, "gn", gn)
    return gn
