"""The fields of a layer computed again in plain torch, from what the taps say the op has read.

Written from the contract's formulas and the library's rounding points. Where the same torch
function runs on the same input the bytes must be the same (EXACT); where this module sums in
another way (the convolution, the delta rule, one expert at a time) they must be near.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional as F

EXACT, NEAR = True, False
Found = Iterator[tuple[str, Any, bool]]


class Past:
    """What a layer remembers: rows of k and v, raw columns of the convolution, the state."""

    def __init__(self) -> None:
        self.k: list[Any] = []
        self.v: list[Any] = []
        self.columns: Any = None
        self.state: Any = None


def norm(x: Any, module: Any) -> Any:
    """RMS norm of the last dimension; an offset weight where the architecture stores one."""
    eps = module.eps if hasattr(module, "eps") else module.variance_epsilon
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if hasattr(module, "eps"):
        return (wide * (1.0 + module.weight.float())).to(x.dtype)
    return module.weight * wide.to(x.dtype)


def rotated(x: Any, pos: Any, config: Any) -> Any:
    """x [T, heads, width] turned by its positions; a part of the width where the config says so."""
    width = int(x.shape[-1] * config.rope_parameters.get("partial_rotary_factor", 1.0))
    theta = config.rope_parameters["rope_theta"]
    steps = torch.arange(0, width, 2).float() / width
    angle = pos[:, None].float() * (1.0 / theta**steps).to(pos.device)
    cos = torch.cat((angle, angle), -1).cos()[:, None]
    sin = torch.cat((angle, angle), -1).sin()[:, None]
    turned, rest = x[..., :width], x[..., width:]
    half = torch.cat((-turned[..., width // 2 :], turned[..., : width // 2]), -1)
    return torch.cat((turned * cos + half * sin, rest), -1)


def layer(module: Any, x: Any, seen: dict[str, Any], past: Past, pos: Any) -> Found:
    """Every field of one decoder layer as (name, [T, ...], EXACT or NEAR); x [T, hidden] is the
    layer's input, ``seen`` what the taps gave, [T, ...] by field."""
    yield "nrm", norm(x, module.input_layernorm), EXACT
    if hasattr(module, "self_attn"):
        yield from attention(module.self_attn, seen, past, pos)
        mixed = seen["gated"] if "gated" in seen else seen["attn"]
        out = module.self_attn.o_proj(mixed.flatten(1))
    else:
        yield from delta(module.linear_attn, seen, past)
        out = module.linear_attn.out_proj(seen["gn"].flatten(1))
    yield "ores", x + out, EXACT
    yield "fnrm", norm(seen["ores"], module.post_attention_layernorm), EXACT
    yield from (experts if hasattr(module.mlp, "experts") else dense)(module.mlp, seen)


def attention(module: Any, seen: dict[str, Any], past: Past, pos: Any) -> Found:
    """Full attention, gated where q_proj gives a gate too."""
    nrm, shape = seen["nrm"], (len(pos), -1, module.head_dim)
    query = module.q_proj(nrm)
    gate = None
    if "gated" in seen:
        query, gate = query.view(len(pos), -1, 2 * module.head_dim).chunk(2, -1)
    query = query.reshape(shape)
    yield "kraw", module.k_proj(nrm).view(shape), EXACT
    key = seen["kraw"]
    if hasattr(module, "k_norm"):
        yield "knorm", norm(key, module.k_norm), EXACT
        query, key = norm(query, module.q_norm), seen["knorm"]
    yield "k", rotated(key, pos, module.config), EXACT
    yield "qrope", rotated(query, pos, module.config), EXACT
    yield "v", module.v_proj(nrm).view(shape), EXACT
    past.k.append(seen["k"])
    past.v.append(seen["v"])
    yield "attn", attended(seen["qrope"], torch.cat(past.k), torch.cat(past.v), pos), NEAR
    if gate is not None:
        wanted = seen["attn"].flatten(1) * torch.sigmoid(gate.reshape(len(pos), -1))
        yield "gated", wanted.view(shape), EXACT


def attended(query: Any, keys: Any, values: Any, pos: Any) -> Any:
    """query [T, heads, width] over the rows up to each token's own, in f64."""
    times = query.shape[1] // keys.shape[1]
    keys, values = (each.double().repeat_interleave(times, 1) for each in (keys, values))
    scores = torch.einsum("thw,shw->hts", query.double(), keys) / query.shape[-1] ** 0.5
    late = torch.arange(len(keys), device=pos.device) > pos[:, None]
    chances = scores.masked_fill(late, -torch.inf).softmax(-1)
    return torch.einsum("hts,shw->thw", chances, values).float()


def delta(module: Any, seen: dict[str, Any], past: Past) -> Found:
    """Gated DeltaNet: the recurrence token by token in f64."""
    nrm, heads = seen["nrm"], module.num_k_heads
    times, key, value = module.num_v_heads // heads, module.head_k_dim, module.head_v_dim
    if hasattr(module, "in_proj_qkvz"):
        parts = module.in_proj_qkvz(nrm).view(len(nrm), heads, -1)
        q, k, v, z = parts.split((key, key, times * value, times * value), -1)
        qkv = torch.cat([part.reshape(len(nrm), -1) for part in (q, k, v)], -1)
        b, a = module.in_proj_ba(nrm).view(len(nrm), heads, -1).split((times, times), -1)
        b, a = b.reshape(len(nrm), -1), a.reshape(len(nrm), -1)
    else:
        qkv, z = module.in_proj_qkv(nrm), module.in_proj_z(nrm)
        b, a = module.in_proj_b(nrm), module.in_proj_a(nrm)
    yield "qkv", qkv, EXACT
    yield "z", z.reshape(len(nrm), -1, value), EXACT
    before = qkv.new_zeros(3, qkv.shape[1]) if past.columns is None else past.columns
    columns = torch.cat((before, seen["qkv"]))
    past.columns = columns[-3:]
    windows = columns.unfold(0, 4, 1)  # [T, channels, 4]
    yield "conv", F.silu((windows * module.conv1d.weight[:, 0]).sum(-1)), NEAR
    yield "hist", windows[..., 1:].transpose(1, 2), EXACT
    q, k, v = seen["conv"].split((heads * key, heads * key, heads * times * value), -1)
    yield "qn", unit(q.reshape(len(nrm), heads, key)) / key**0.5, NEAR
    yield "kn", unit(k.reshape(len(nrm), heads, key)), EXACT
    yield "beta", b.sigmoid(), EXACT
    log = -module.A_log.float().exp() * F.softplus(a.float() + module.dt_bias)
    yield "g", log.exp(), EXACT
    state = past.state
    if state is None:
        state = nrm.new_zeros(heads * times, key, value, dtype=torch.float64)
    outs = []
    qs, ks = (seen[name].double().repeat_interleave(times, 1) for name in ("qn", "kn"))
    for t, each in enumerate(v.reshape(len(nrm), -1, value).double()):
        state = state * seen["g"][t].double()[:, None, None]
        error = each - torch.einsum("hkv,hk->hv", state, ks[t])
        state = state + torch.einsum("hk,hv->hkv", ks[t], error * seen["beta"][t].double()[:, None])
        outs.append(torch.einsum("hkv,hk->hv", state, qs[t]))
    past.state = state
    yield "s", state[None].float(), NEAR
    yield "o", torch.stack(outs).float(), NEAR
    gated = norm(seen["o"], module.norm) * F.silu(seen["z"].float())
    yield "gn", gated, EXACT


def unit(x: Any) -> Any:
    """x over its length, 1e-6 under the root."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def dense(module: Any, seen: dict[str, Any]) -> Found:
    """swiglu."""
    yield "gate", module.gate_proj(seen["fnrm"]), EXACT
    yield "up", module.up_proj(seen["fnrm"]), EXACT
    yield "act", F.silu(seen["gate"]) * seen["up"], EXACT
    yield "down", module.down_proj(seen["act"]), EXACT
    yield "x", seen["ores"] + seen["down"], EXACT


def experts(module: Any, seen: dict[str, Any]) -> Found:
    """The chosen experts one by one, in rank order, and the shared one."""
    router, own, fnrm = module.gate, module.experts, seen["fnrm"]
    yield "rlogits", F.linear(fnrm, router.weight), EXACT
    chances, ids = seen["rlogits"].float().softmax(-1).topk(router.top_k, -1)
    if getattr(router, "norm_topk_prob", True):
        chances = chances / chances.sum(-1, keepdim=True)
    yield "topk", ids.to(torch.int32), EXACT
    yield "topp", chances, EXACT
    products = own.gate_up_proj[ids] @ fnrm[:, None, :, None]
    gate, up = products[..., 0].chunk(2, -1)
    yield "gate", gate, NEAR
    yield "up", up, NEAR
    yield "act", F.silu(seen["gate"]) * seen["up"], NEAR  # exp of a half row is another loop
    yield "down", (own.down_proj[ids] @ seen["act"][..., None])[..., 0], NEAR
    out = (seen["down"] * seen["topp"][..., None]).sum(1)
    if "sh" in seen:
        yield "gs", module.shared_expert_gate(fnrm).sigmoid(), EXACT
        shared = module.shared_expert
        act = F.silu(shared.gate_proj(fnrm)) * shared.up_proj(fnrm)
        yield "sh", shared.down_proj(act), EXACT
        out = out + seen["gs"] * seen["sh"]
    yield "x", seen["ores"] + out, NEAR
