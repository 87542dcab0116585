"""A second, vectorised writing of the matrix ops, with named faults to plant.

Without a fault each function must give the oracle's bytes; with one it must not. Arrays run over
tokens and rows, the chains of additions stay serial.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.rounding import fma32

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
Fault = str | None

FAULTS = {
    "embed": (
        "nibbles in neighbouring pairs",
        "nibbles in two's complement",
        "offset subtracted after scaling",
        "subnormal scales flushed",
        "token index one too high",
    ),
    "q4_matvec": (
        "unpaired",
        "zero point out of the sum",
        "fused",
        "four partial sums",
        "weights scaled first",
        "blocks descending",
        "starts from the first term",
        "nibbles in neighbouring pairs",
        "subnormal scales flushed",
        "results flushed",
        "summed in binary64",
        "first token for all",
    ),
    "f32_matvec": (
        "descending",
        "fused",
        "four partial sums",
        "starts from the first term",
        "results flushed",
        "summed in binary64",
    ),
    "expert_matvec": (
        "scales multiplied first",
        "activation scale first",
        "blocks descending",
        "starts from the first term",
        "rank taken for the id",
        "first input for all ranks",
        "nibbles in neighbouring pairs",
        "subnormal scales flushed",
        "results flushed",
        "fused",
    ),
    "combine": (
        "starts from ores",
        "ranks descending",
        "fused",
        "ffn starts from the first term",
        "neighbouring ranks summed first",
        "results flushed",
        "probabilities left out",
    ),
    "embed_f32": (
        "token index one too high",
        "first token for all",
        "subnormals flushed",
        "minus zero lost",
    ),
    "expert_f32_matvec": (
        "descending",
        "fused",
        "four partial sums",
        "starts from the first term",
        "results flushed",
        "summed in binary64",
        "rank taken for the id",
        "first input for all ranks",
    ),
    "router_tree": (
        "strictly ascending",
        "tree of neighbours",
        "products not rounded",
        "summed in binary64",
        "results flushed",
    ),
}
_fused = np.frompyfunc(fma32, 3, 1)


def fused(a: Array, b: Array, c: Array) -> Array:
    """fma32 elementwise, with broadcasting."""
    return np.asarray(_fused(a, b, c)).astype(F)


def flush(x: Array) -> Array:
    """Subnormals become zeros of their sign, as a device in flush-to-zero mode has it."""
    return np.where(np.abs(x) < np.finfo(F).smallest_normal, np.copysign(F(0.0), x), x).astype(F)


def weights(qs: Array, fault: Fault) -> Array:
    """f32[..., nb, 32] of packed nibbles u8[..., nb * 16]."""
    packed = qs.reshape(*qs.shape[:-1], -1, 16)
    low, high = packed & 15, packed >> 4
    codes = np.concatenate([low, high], axis=-1).astype(np.int8)
    if fault == "nibbles in neighbouring pairs":
        codes = np.stack([low, high], axis=-1).reshape(codes.shape).astype(np.int8)
    if fault == "nibbles in two's complement":
        return np.where(codes > 7, codes - 16, codes).astype(F)
    return (codes - 8).astype(F)


def scales(d_bits: Array, fault: Fault) -> Array:
    """The binary16 scales, widened."""
    d = d_bits.view(np.float16).astype(F)
    if fault == "subnormal scales flushed":
        return np.where(np.abs(d) < F(2.0**-14), np.copysign(F(0.0), d), d).astype(F)
    return d


def embed(d_bits: Array, qs: Array, tokens: Array, fault: Fault = None) -> Array:
    """Contract 1.0."""
    if fault == "token index one too high":
        tokens = (tokens + 1) % d_bits.shape[0]
    d = scales(d_bits[tokens], fault)[..., None]
    w = weights(qs[tokens], fault)
    out = d * (w + F(8.0)) - d * F(8.0) if fault == "offset subtracted after scaling" else d * w
    return out.reshape(tokens.shape[0], -1)


def _chain(terms: list[Array], fault: Fault) -> Array:
    """Terms added one after another, from +0.0 unless the fault says otherwise."""
    if fault in ("descending", "blocks descending"):
        terms = terms[::-1]
    if fault == "summed in binary64":
        return np.sum(np.stack(terms).astype(np.float64), axis=0).astype(F)
    if fault == "four partial sums":
        terms = [_chain(terms[lane::4], None) for lane in range(min(4, len(terms)))]
    acc = terms[0] if fault == "starts from the first term" else F(0.0) + terms[0]
    for term in terms[1:]:
        acc = acc + term
    return flush(acc) if fault == "results flushed" else acc


def _block_products(w: Array, x: Array, fault: Fault) -> list[Array]:
    """The 16 addends of one block's s (32 when unpaired), each [M, rows]."""
    products = [w[None, :, e] * x[:, None, e] for e in range(32)]
    if fault == "unpaired":
        return products
    return [products[e] + products[e + 16] for e in range(16)]


def _block_without_zero(w: Array, x: Array) -> Array:
    """The nibbles' sum, less 8 times the inputs' own; both ascending."""
    products = [(w[None, :, e] + F(8.0)) * x[:, None, e] for e in range(32)]
    inputs = [x[:, None, e] for e in range(32)]
    return _chain(products, None) - F(8.0) * _chain(inputs, None)


def _fused_block(w: Array, x: Array) -> Array:
    s = np.zeros((x.shape[0], w.shape[0]), F)
    for e in range(16):
        high = w[None, :, e + 16] * x[:, None, e + 16]
        s = s + fused(w[None, :, e], x[:, None, e], high)
    return s


def q4_matvec(d_bits: Array, qs: Array, x: Array, fault: Fault = None) -> Array:
    """Contract 1.3."""
    if fault == "first token for all":
        x = np.broadcast_to(x[:1], x.shape)
    w, d = weights(qs, fault), scales(d_bits, fault)
    terms = []
    fused_acc = np.zeros((x.shape[0], d.shape[0]), F)
    for b in range(d.shape[1]):
        part = x[:, b * 32 : (b + 1) * 32]
        if fault == "fused":
            fused_acc = fused(d[None, :, b], _fused_block(w[:, b], part), fused_acc)
        elif fault == "weights scaled first":
            scaled = d[:, b, None] * w[:, b]
            terms.append(_chain(_block_products(scaled, part, fault), None))
        elif fault == "zero point out of the sum":
            terms.append(d[None, :, b] * _block_without_zero(w[:, b], part))
        else:
            s = _chain(_block_products(w[:, b], part, fault), None)
            terms.append(d[None, :, b] * s)
    return fused_acc if fault == "fused" else _chain(terms, fault)


def f32_matvec(w: Array, x: Array, fault: Fault = None) -> Array:
    """Contract 1.5."""
    if fault == "fused":
        acc = np.zeros((x.shape[0], w.shape[0]), F)
        for j in range(w.shape[1]):
            acc = fused(w[None, :, j], x[:, None, j], acc)
        return acc
    return _chain([w[None, :, j] * x[:, None, j] for j in range(w.shape[1])], fault)


def embed_f32(w: Array, tokens: Array, fault: Fault = None) -> Array:
    """Contract 1.0, stored rows."""
    if fault == "token index one too high":
        tokens = (tokens + 1) % w.shape[0]
    if fault == "first token for all":
        tokens = np.broadcast_to(tokens[:1], tokens.shape)
    out = w[tokens]
    if fault == "minus zero lost":
        return out + F(0.0)
    return flush(out) if fault == "subnormals flushed" else out


def expert_f32_matvec(w: Array, ids: Array, x: Array, fault: Fault = None) -> Array:
    """Contract 1.5 for chosen experts."""
    tokens, k = ids.shape
    out = np.zeros((tokens, k, w.shape[1]), F)
    for m in range(tokens):
        for rank in range(k):
            expert = rank if fault == "rank taken for the id" else ids[m, rank]
            g = rank if x.shape[1] == k and fault != "first input for all ranks" else 0
            out[m, rank] = f32_matvec(w[expert], x[m, g][None], fault)[0]
    return out


def router_tree(w: Array, x: Array, fault: Fault = None) -> Array:
    """Contract 5: the router's products summed by halving."""
    if fault in ("strictly ascending", "summed in binary64"):
        return f32_matvec(w, x, fault)
    products = w[None] * x[:, None]
    if fault == "products not rounded":
        products = w[None].astype(np.float64) * x[:, None]
    length = 1 << (w.shape[1] - 1).bit_length()
    terms = np.pad(products, ((0, 0), (0, 0), (0, length - w.shape[1])))
    while terms.shape[2] > 1:
        half = terms.shape[2] // 2
        if fault == "tree of neighbours":
            terms = terms[:, :, 0::2] + terms[:, :, 1::2]
        else:
            terms = terms[:, :, :half] + terms[:, :, half:]
        if fault == "products not rounded":
            terms = terms.astype(F)
    out = terms[:, :, 0].astype(F)
    return flush(out) if fault == "results flushed" else out


def _expert_terms(d: Array, w: Array, q: Array, s_a: Array, fault: Fault) -> list[Array]:
    """d [rows, nb], w [rows, nb, 32], q [nb, 32], s_a [nb]: one term a block, each [rows]."""
    dots = np.einsum("rbe,be->rb", w.astype(np.int32), q.astype(np.int32)).astype(F)
    terms = []
    for b in range(d.shape[1]):
        if fault == "scales multiplied first":
            terms.append((d[:, b] * s_a[b]) * dots[:, b])
        elif fault == "activation scale first":
            terms.append((dots[:, b] * s_a[b]) * d[:, b])
        else:
            terms.append((dots[:, b] * d[:, b]) * s_a[b])
    return terms


def _fused_expert(d: Array, w: Array, q: Array, s_a: Array) -> Array:
    acc = np.zeros(d.shape[0], F)
    dots = np.einsum("rbe,be->rb", w.astype(np.int32), q.astype(np.int32)).astype(F)
    for b in range(d.shape[1]):
        acc = fused(dots[:, b] * d[:, b], s_a[b], acc)
    return acc


def expert_matvec(
    d_bits: Array, qs: Array, ids: Array, q: Array, s_a: Array, fault: Fault = None
) -> Array:
    """Contract 1.4."""
    w, d = weights(qs, fault), scales(d_bits, fault)
    tokens, k = ids.shape
    out = np.zeros((tokens, k, d.shape[1]), F)
    for m in range(tokens):
        for rank in range(k):
            expert = rank if fault == "rank taken for the id" else ids[m, rank]
            g = rank if q.shape[1] == k and fault != "first input for all ranks" else 0
            codes = q[m, g].reshape(-1, 32)
            if fault == "fused":
                out[m, rank] = _fused_expert(d[expert], w[expert], codes, s_a[m, g])
                continue
            terms = _expert_terms(d[expert], w[expert], codes, s_a[m, g], fault)
            out[m, rank] = _chain(terms, fault)
    return out


def combine(ores: Array, down: Array, probs: Array, fault: Fault = None) -> Array:
    """Contract 2: the sum over experts in rank order, then the residual."""
    products = [probs[:, rank, None] * down[:, rank] for rank in range(probs.shape[1])]
    if fault == "probabilities left out":
        products = [down[:, rank] for rank in range(probs.shape[1])]
    if fault == "ranks descending":
        products = products[::-1]
    if fault == "neighbouring ranks summed first" and len(products) % 2 == 0:
        products = [products[i] + products[i + 1] for i in range(0, len(products), 2)]
    if fault == "fused":
        ffn = np.zeros(ores.shape, F)
        for rank in range(probs.shape[1]):
            ffn = fused(probs[:, rank, None], down[:, rank], ffn)
        return ores + ffn
    ffn = products[0] if fault == "ffn starts from the first term" else F(0.0) + products[0]
    if fault == "starts from ores":
        ffn = ores + products[0]
    for product in products[1:]:
        ffn = ffn + product
    out = ffn if fault == "starts from ores" else ores + ffn
    return flush(out) if fault == "results flushed" else out
