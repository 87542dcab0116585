"""Weights on the device: the stored bytes, uploaded as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parity.dump import TensorType
from parity.model.loading import load_tensors
from parity.model.model import Model
from parity_cuda.backend import Backend, Buffer
from parity_cuda.ops import Ops
from parity_cuda.tap import JOB, RESULT

DTYPE_NAMES = {"float32": "f32", "uint16": "f16", "uint8": "u8"}


@dataclass(frozen=True)
class Q4:
    """A Q4_0 matrix: d uint16 (f16 bits) [..., rows, nb], qs uint8 [..., rows, nb * 16]."""

    d: Buffer
    qs: Buffer


@dataclass(frozen=True)
class Floats:
    """An f32 matrix: w float32 [..., rows, cols]."""

    w: Buffer


Matrix = Q4 | Floats


@dataclass(frozen=True)
class Attention:
    """Full attention (contract 2, 3.1); a hybrid's q_proj gives [q, gate] per head."""

    q_proj: Matrix
    k_proj: Matrix
    v_proj: Matrix
    q_norm: Buffer
    k_norm: Buffer
    o_proj: Matrix


@dataclass(frozen=True)
class Gdn:
    """Gated DeltaNet (contract 3.2). ``rates`` is nA, made from a_log at load."""

    qkv_proj: Matrix
    z_proj: Matrix
    a_proj: Matrix
    b_proj: Matrix
    conv: Buffer
    rates: Buffer
    dt_bias: Buffer
    norm: Buffer
    out_proj: Matrix


@dataclass(frozen=True)
class Ffn:
    """Experts behind a router, or dense without one (contract 2, 3.3)."""

    router: Buffer | None
    gate: Matrix
    up: Matrix
    down: Matrix


@dataclass(frozen=True)
class Layer:
    """One layer's weights."""

    attn_norm: Buffer
    mixer: Attention | Gdn
    ffn_norm: Buffer
    ffn: Ffn


Tensors = Mapping[str, Buffer]


def upload_tensors(backend: Backend, model: Model) -> dict[str, Buffer]:
    """Every tensor by name; non-finite weights are refused before they are uploaded."""
    return {name: backend.upload(array) for name, array in load_tensors(model)}


def weight_digests(
    backend: Backend, tensors: Tensors, basis: int
) -> dict[str, tuple[TensorType, int]]:
    """Type and FNV-1a-64 of every tensor, hashed where it lies."""
    jobs = np.zeros(len(tensors), JOB)
    jobs["data"] = [backend.address(buffer) for buffer in tensors.values()]
    jobs["bytes"] = [buffer.nbytes for buffer in tensors.values()]
    results = backend.empty((len(tensors) * RESULT.itemsize,), np.uint8)
    table = backend.upload(jobs.view(np.uint8))
    args = [results, table, np.uint64(basis), np.int32(len(tensors))]
    backend.launch("digest", (len(tensors),), 1, args)
    hashes = backend.download(results).view(RESULT)["hash"]
    kinds = (TensorType(DTYPE_NAMES[str(b.dtype)], tuple(b.shape)) for b in tensors.values())
    return {
        name: (kind, int(value)) for name, kind, value in zip(tensors, kinds, hashes, strict=True)
    }


def matrix(tensors: Tensors, name: str) -> Matrix:
    """The arrays of one matrix, by its storage."""
    if name in tensors:
        return Floats(tensors[name])
    return Q4(tensors[f"{name}.d"], tensors[f"{name}.qs"])


def layer(ops: Ops, tensors: Tensors, number: int) -> Layer:
    """The weights of layer ``number``."""
    at = f"layers.{number}"
    gdn = f"{at}.a_log" in tensors
    return Layer(
        attn_norm=tensors[f"{at}.attn_norm"],
        mixer=_gdn(ops, tensors, at) if gdn else _attention(tensors, at),
        ffn_norm=tensors[f"{at}.ffn_norm"],
        ffn=_ffn(tensors, at),
    )


def _attention(tensors: Tensors, at: str) -> Attention:
    return Attention(
        q_proj=matrix(tensors, f"{at}.q_proj"),
        k_proj=matrix(tensors, f"{at}.k_proj"),
        v_proj=matrix(tensors, f"{at}.v_proj"),
        q_norm=tensors[f"{at}.q_norm"],
        k_norm=tensors[f"{at}.k_norm"],
        o_proj=matrix(tensors, f"{at}.o_proj"),
    )


def _gdn(ops: Ops, tensors: Tensors, at: str) -> Gdn:
    a_log = tensors[f"{at}.a_log"]
    rates = ops.backend.empty(a_log.shape, np.float32)
    ops.decay_rates(rates, a_log)
    return Gdn(
        qkv_proj=matrix(tensors, f"{at}.qkv_proj"),
        z_proj=matrix(tensors, f"{at}.z_proj"),
        a_proj=matrix(tensors, f"{at}.a_proj"),
        b_proj=matrix(tensors, f"{at}.b_proj"),
        conv=tensors[f"{at}.conv"],
        rates=rates,
        dt_bias=tensors[f"{at}.dt_bias"],
        norm=tensors[f"{at}.gdn_norm"],
        out_proj=matrix(tensors, f"{at}.out_proj"),
    )


def _ffn(tensors: Tensors, at: str) -> Ffn:
    router = tensors.get(f"{at}.router")
    ffn = f"{at}.mlp" if router is None else f"{at}.experts"
    return Ffn(
        router=router,
        gate=matrix(tensors, f"{ffn}.gate"),
        up=matrix(tensors, f"{ffn}.up"),
        down=matrix(tensors, f"{ffn}.down"),
    )
