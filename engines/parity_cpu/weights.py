"""Weights as the CPU engine holds them: the stored arrays, named as the ops take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.model.checks import check_finite
from parity.model.model import Model


@dataclass(frozen=True)
class Q4:
    """A Q4_0 matrix: d uint16 (f16 bits) [..., rows, nb], qs uint8 [..., rows, nb * 16]."""

    d: np.ndarray
    qs: np.ndarray


@dataclass(frozen=True)
class Floats:
    """An f32 matrix: w float32 [..., rows, cols]."""

    w: np.ndarray


Matrix = Q4 | Floats


@dataclass(frozen=True)
class Layer:
    """One layer's weights (contract section 2); a dense layer has no router."""

    attn_norm: np.ndarray
    q_proj: Matrix
    k_proj: Matrix
    v_proj: Matrix
    q_norm: np.ndarray
    k_norm: np.ndarray
    o_proj: Matrix
    ffn_norm: np.ndarray
    router: np.ndarray | None
    gate: Matrix
    up: Matrix
    down: Matrix


def load_tensors(model: Model) -> dict[str, np.ndarray]:
    """Every tensor by name; refuses non-finite weights before anything is kept."""
    tensors = {}
    for name in model.names():
        array = np.ascontiguousarray(model.tensor(name))
        check_finite(name, array)
        tensors[name] = array
    return tensors


def matrix(tensors: dict[str, np.ndarray], name: str) -> Matrix:
    """The arrays of one matrix, by its storage."""
    if name in tensors:
        return Floats(tensors[name])
    return Q4(tensors[f"{name}.d"], tensors[f"{name}.qs"])


def layer(tensors: dict[str, np.ndarray], number: int) -> Layer:
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
