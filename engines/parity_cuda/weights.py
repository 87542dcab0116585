"""Weights on the device: the stored bytes, uploaded as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parity.dump import TensorType
from parity.model.checks import check_finite
from parity.model.model import Model
from parity_cuda.backend import Backend, Buffer
from parity_cuda.tap import JOB, RESULT

DTYPE_NAMES = {"float32": "f32", "uint16": "f16", "uint8": "u8"}


@dataclass(frozen=True)
class Q4:
    """A Q4_0 matrix on the device: d uint16 [..., rows, nb], qs uint8 [..., rows, nb * 16]."""

    d: Buffer
    qs: Buffer


@dataclass(frozen=True)
class Floats:
    """An f32 matrix on the device: w float32 [..., rows, cols]."""

    w: Buffer


Matrix = Q4 | Floats


@dataclass(frozen=True)
class Layer:
    """One layer's weights (contract section 2); a dense layer has no router."""

    attn_norm: Buffer
    q_proj: Matrix
    k_proj: Matrix
    v_proj: Matrix
    q_norm: Buffer
    k_norm: Buffer
    o_proj: Matrix
    ffn_norm: Buffer
    router: Buffer | None
    gate: Matrix
    up: Matrix
    down: Matrix


def upload_tensors(backend: Backend, model: Model) -> dict[str, Buffer]:
    """Every tensor by name; non-finite weights are refused before they are uploaded."""
    tensors = {}
    for name in model.names():
        array = model.tensor(name)
        check_finite(name, array)
        tensors[name] = backend.upload(array)
    return tensors


def weight_digests(
    backend: Backend, tensors: Mapping[str, Buffer], basis: int
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


def matrix(tensors: Mapping[str, Buffer], name: str) -> Matrix:
    """The arrays of one matrix, by its storage."""
    if name in tensors:
        return Floats(tensors[name])
    return Q4(tensors[f"{name}.d"], tensors[f"{name}.qs"])


def layer(tensors: Mapping[str, Buffer], number: int) -> Layer:
    """The weights of layer ``number``."""
    at = f"layers.{number}"
    router = tensors.get(f"{at}.router")
    ffn = f"{at}.mlp" if router is None else f"{at}.experts"
    return Layer(
        attn_norm=tensors[f"{at}.attn_norm"],
        q_proj=matrix(tensors, f"{at}.q_proj"),
        k_proj=matrix(tensors, f"{at}.k_proj"),
        v_proj=matrix(tensors, f"{at}.v_proj"),
        q_norm=tensors[f"{at}.q_norm"],
        k_norm=tensors[f"{at}.k_norm"],
        o_proj=matrix(tensors, f"{at}.o_proj"),
        ffn_norm=tensors[f"{at}.ffn_norm"],
        router=router,
        gate=matrix(tensors, f"{ffn}.gate"),
        up=matrix(tensors, f"{ffn}.up"),
        down=matrix(tensors, f"{ffn}.down"),
    )
