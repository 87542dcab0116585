"""The weights of one layer by name, whatever kind of array an engine holds them in.

The names are those of ``parity.model.model``; an engine's ops take these fields as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Array = TypeVar("Array")


@dataclass(frozen=True)
class Q4(Generic[Array]):
    """A Q4_0 matrix: d uint16 (f16 bits) [..., rows, nb], qs uint8 [..., rows, nb * 16]."""

    d: Array
    qs: Array


@dataclass(frozen=True)
class Floats(Generic[Array]):
    """An f32 matrix: w float32 [..., rows, cols]."""

    w: Array


Matrix = Q4[Array] | Floats[Array]


@dataclass(frozen=True)
class Attention(Generic[Array]):
    """Full attention (contract 2, 3.1); a hybrid's q_proj gives [q, gate] per head."""

    q_proj: Matrix[Array]
    k_proj: Matrix[Array]
    v_proj: Matrix[Array]
    q_norm: Array
    k_norm: Array
    o_proj: Matrix[Array]


@dataclass(frozen=True)
class Gdn(Generic[Array]):
    """Gated DeltaNet (contract 3.2). ``rates`` is nA, made from a_log at load or as stored."""

    qkv_proj: Matrix[Array]
    z_proj: Matrix[Array]
    a_proj: Matrix[Array]
    b_proj: Matrix[Array]
    conv: Array
    rates: Array
    dt_bias: Array
    norm: Array
    out_proj: Matrix[Array]


@dataclass(frozen=True)
class Dense(Generic[Array]):
    """A dense FFN, or a shared expert (contract 2, 3.3)."""

    gate: Matrix[Array]
    up: Matrix[Array]
    down: Matrix[Array]


@dataclass(frozen=True)
class Experts(Generic[Array]):
    """Experts behind a router, matrices [E, rows, cols]; ``shared_gate`` f32[1, hidden] stands
    before the shared expert, both None without one (contract 2)."""

    router: Array
    gate: Matrix[Array]
    up: Matrix[Array]
    down: Matrix[Array]
    shared_gate: Array | None
    shared: Dense[Array] | None


@dataclass(frozen=True)
class Layer(Generic[Array]):
    """One layer's weights."""

    attn_norm: Array
    mixer: Attention[Array] | Gdn[Array]
    ffn_norm: Array
    ffn: Experts[Array] | Dense[Array]


def matrix(tensors: Mapping[str, Array], name: str) -> Matrix[Array]:
    """The arrays of one matrix, by its storage."""
    if name in tensors:
        return Floats(tensors[name])
    return Q4(tensors[f"{name}.d"], tensors[f"{name}.qs"])


def head(tensors: Mapping[str, Array], tied: bool) -> Matrix[Array]:
    """The output matrix: lm_head, or the embedding's stored bytes (contract 1.0)."""
    return matrix(tensors, "embed" if tied else "lm_head")


def layer(
    tensors: Mapping[str, Array], number: int, rates: Callable[[Array], Array]
) -> Layer[Array]:
    """The weights of layer ``number``; ``rates`` makes nA of a_log (contract 3.2)."""
    at = f"layers.{number}"
    gdn = f"{at}.conv" in tensors
    return Layer(
        attn_norm=tensors[f"{at}.attn_norm"],
        mixer=_gdn(tensors, at, rates) if gdn else _attention(tensors, at),
        ffn_norm=tensors[f"{at}.ffn_norm"],
        ffn=_ffn(tensors, at),
    )


def _attention(tensors: Mapping[str, Array], at: str) -> Attention[Array]:
    return Attention(
        q_proj=matrix(tensors, f"{at}.q_proj"),
        k_proj=matrix(tensors, f"{at}.k_proj"),
        v_proj=matrix(tensors, f"{at}.v_proj"),
        q_norm=tensors[f"{at}.q_norm"],
        k_norm=tensors[f"{at}.k_norm"],
        o_proj=matrix(tensors, f"{at}.o_proj"),
    )


def _gdn(tensors: Mapping[str, Array], at: str, rates: Callable[[Array], Array]) -> Gdn[Array]:
    stored = f"{at}.rates"
    return Gdn(
        qkv_proj=matrix(tensors, f"{at}.qkv_proj"),
        z_proj=matrix(tensors, f"{at}.z_proj"),
        a_proj=matrix(tensors, f"{at}.a_proj"),
        b_proj=matrix(tensors, f"{at}.b_proj"),
        conv=tensors[f"{at}.conv"],
        rates=tensors[stored] if stored in tensors else rates(tensors[f"{at}.a_log"]),
        dt_bias=tensors[f"{at}.dt_bias"],
        norm=tensors[f"{at}.gdn_norm"],
        out_proj=matrix(tensors, f"{at}.out_proj"),
    )


def _ffn(tensors: Mapping[str, Array], at: str) -> Experts[Array] | Dense[Array]:
    router = tensors.get(f"{at}.router")
    if router is None:
        return _dense(tensors, f"{at}.mlp")
    shared_gate = tensors.get(f"{at}.shared_gate")
    return Experts(
        router=router,
        gate=matrix(tensors, f"{at}.experts.gate"),
        up=matrix(tensors, f"{at}.experts.up"),
        down=matrix(tensors, f"{at}.experts.down"),
        shared_gate=shared_gate,
        shared=None if shared_gate is None else _dense(tensors, f"{at}.shared"),
    )


def _dense(tensors: Mapping[str, Array], ffn: str) -> Dense[Array]:
    return Dense(
        gate=matrix(tensors, f"{ffn}.gate"),
        up=matrix(tensors, f"{ffn}.up"),
        down=matrix(tensors, f"{ffn}.down"),
    )
