"""Weights on the device: the stored bytes, uploaded as they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.dump import TensorType
from parity.model import layers
from parity.model.loading import load_tensors
from parity.model.model import Model
from parity_cuda.backend import Backend, Buffer
from parity_cuda.digests import digest_once
from parity_cuda.ops import Ops

DTYPE_NAMES = {"float32": "f32", "uint16": "f16", "uint8": "u8"}
Tensors = Mapping[str, Buffer]
Matrix = layers.Q4[Buffer] | layers.Floats[Buffer]
Attention = layers.Attention[Buffer]
Gdn = layers.Gdn[Buffer]
Dense = layers.Dense[Buffer]
Experts = layers.Experts[Buffer]
Layer = layers.Layer[Buffer]


def upload_tensors(backend: Backend, model: Model) -> dict[str, Buffer]:
    """Every tensor by name; non-finite weights are refused before they are uploaded."""
    return {name: backend.upload(array) for name, array in load_tensors(model)}


def weight_digests(
    backend: Backend, tensors: Tensors, basis: int
) -> dict[str, tuple[TensorType, int]]:
    """Type and FNV-1a-64 of every tensor, hashed where it lies."""
    hashes = digest_once(backend, list(tensors.values()), [False] * len(tensors), basis)["hash"]
    kinds = (TensorType(DTYPE_NAMES[str(b.dtype)], tuple(b.shape)) for b in tensors.values())
    return {
        name: (kind, int(value)) for name, kind, value in zip(tensors, kinds, hashes, strict=True)
    }


def rates(ops: Ops, a_log: Buffer) -> Buffer:
    """nA of a layer, (vh,) f32 (contract 3.2)."""
    made = ops.backend.empty(a_log.shape, np.float32)
    ops.decay_rates(made, a_log)
    return made
