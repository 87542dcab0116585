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
class Layer:
    """One layer's weights (contract section 2)."""

    attn_norm: Buffer
    q_proj: Q4
    k_proj: Q4
    v_proj: Q4
    q_norm: Buffer
    k_norm: Buffer
    o_proj: Q4
    ffn_norm: Buffer
    router: Buffer
    gate: Q4
    up: Q4
    down: Q4


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


def q4(tensors: Mapping[str, Buffer], name: str) -> Q4:
    """The two arrays of one Q4_0 matrix."""
    return Q4(tensors[f"{name}.d"], tensors[f"{name}.qs"])


def layer(tensors: Mapping[str, Buffer], number: int) -> Layer:
    """The weights of layer ``number``."""
    at = f"layers.{number}"
    norms = {n: tensors[f"{at}.{n}"] for n in ("attn_norm", "q_norm", "k_norm", "ffn_norm")}
    dense = {n: q4(tensors, f"{at}.{n}") for n in ("q_proj", "k_proj", "v_proj", "o_proj")}
    experts = {n: q4(tensors, f"{at}.experts.{n}") for n in ("gate", "up", "down")}
    return Layer(router=tensors[f"{at}.router"], **norms, **dense, **experts)
