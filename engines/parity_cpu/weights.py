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
class Layer:
    """One layer's weights (contract section 2)."""

    attn_norm: np.ndarray
    q_proj: Q4
    k_proj: Q4
    v_proj: Q4
    q_norm: np.ndarray
    k_norm: np.ndarray
    o_proj: Q4
    ffn_norm: np.ndarray
    router: np.ndarray
    gate: Q4
    up: Q4
    down: Q4


def load_tensors(model: Model) -> dict[str, np.ndarray]:
    """Every tensor by name; refuses non-finite weights before anything is kept."""
    tensors = {}
    for name in model.names():
        array = np.ascontiguousarray(model.tensor(name))
        check_finite(name, array)
        tensors[name] = array
    return tensors


def q4(tensors: dict[str, np.ndarray], name: str) -> Q4:
    """The two arrays of one Q4_0 matrix."""
    return Q4(tensors[f"{name}.d"], tensors[f"{name}.qs"])


def layer(tensors: dict[str, np.ndarray], number: int) -> Layer:
    """The weights of layer ``number``."""
    at = f"layers.{number}"
    norms = {n: tensors[f"{at}.{n}"] for n in ("attn_norm", "q_norm", "k_norm", "ffn_norm")}
    dense = {n: q4(tensors, f"{at}.{n}") for n in ("q_proj", "k_proj", "v_proj", "o_proj")}
    experts = {n: q4(tensors, f"{at}.experts.{n}") for n in ("gate", "up", "down")}
    return Layer(router=tensors[f"{at}.router"], **norms, **dense, **experts)
