"""Weights as the CPU engine holds them: the stored arrays, named as the ops take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity_cpu.ops.decay_rates import decay_rates


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
class Attention:
    """Full attention (contract 2, 3.1); a hybrid's q_proj gives [q, gate] per head."""

    q_proj: Matrix
    k_proj: Matrix
    v_proj: Matrix
    q_norm: np.ndarray
    k_norm: np.ndarray
    o_proj: Matrix


@dataclass(frozen=True)
class Gdn:
    """Gated DeltaNet (contract 3.2). ``rates`` is nA, made from a_log at load."""

    qkv_proj: Matrix
    z_proj: Matrix
    a_proj: Matrix
    b_proj: Matrix
    conv: np.ndarray
    rates: np.ndarray
    dt_bias: np.ndarray
    norm: np.ndarray
    out_proj: Matrix


@dataclass(frozen=True)
class Ffn:
    """Experts behind a router, or dense without one (contract 2, 3.3)."""

    router: np.ndarray | None
    gate: Matrix
    up: Matrix
    down: Matrix


@dataclass(frozen=True)
class Layer:
    """One layer's weights."""

    attn_norm: np.ndarray
    mixer: Attention | Gdn
    ffn_norm: np.ndarray
    ffn: Ffn


Tensors = dict[str, np.ndarray]


def matrix(tensors: Tensors, name: str) -> Matrix:
    """The arrays of one matrix, by its storage."""
    if name in tensors:
        return Floats(tensors[name])
    return Q4(tensors[f"{name}.d"], tensors[f"{name}.qs"])


def layer(tensors: Tensors, number: int) -> Layer:
    """The weights of layer ``number``."""
    at = f"layers.{number}"
    gdn = f"{at}.a_log" in tensors
    return Layer(
        attn_norm=tensors[f"{at}.attn_norm"],
        mixer=_gdn(tensors, at) if gdn else _attention(tensors, at),
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


def _gdn(tensors: Tensors, at: str) -> Gdn:
    a_log = tensors[f"{at}.a_log"]
    rates = np.empty_like(a_log)
    decay_rates(rates, a_log)
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
