"""Tiny hybrid GGUF files with the weights in loaded order beside them (contract 1.11).

The file's order is made as the format's converter makes it, by reshaping and swapping axes; the
reader works with index arrays, so that neither can repeat a mistake of the other.
"""

from __future__ import annotations

import numpy as np

from tests.core.gguf_files import HEAD_DIM, HIDDEN, INTER, VOCAB, Content, f32

KEY_HEADS, VALUE_HEADS, KEY_WIDTH, VALUE_WIDTH = 2, 6, 16, 32
RATIO = VALUE_HEADS // KEY_HEADS
Q_AND_K = 2 * KEY_HEADS * KEY_WIDTH
VALUES = VALUE_HEADS * VALUE_WIDTH
EXPERTS, SHARED = 3, 64
Weights = dict[str, np.ndarray]


def loaded_weights(experts: bool) -> Weights:
    """Our names and order; layer 0 is a Gated DeltaNet layer, layer 1 has full attention."""
    rng = np.random.default_rng(11)
    shapes: dict[str, tuple[int, ...]] = {
        "layers.0.qkv_proj": (Q_AND_K + VALUES, HIDDEN),
        "layers.0.z_proj": (VALUES, HIDDEN),
        "layers.0.a_proj": (VALUE_HEADS, HIDDEN),
        "layers.0.b_proj": (VALUE_HEADS, HIDDEN),
        "layers.0.conv": (Q_AND_K + VALUES, 4),
        "layers.0.rates": (VALUE_HEADS,),
        "layers.0.dt_bias": (VALUE_HEADS,),
        "layers.0.gdn_norm": (VALUE_WIDTH,),
        "layers.0.out_proj": (HIDDEN, VALUES),
        "layers.1.q_proj": (2 * 2 * HEAD_DIM, HIDDEN),
        "layers.1.k_proj": (HEAD_DIM, HIDDEN),
        "layers.1.v_proj": (HEAD_DIM, HIDDEN),
        "layers.1.q_norm": (HEAD_DIM,),
        "layers.1.k_norm": (HEAD_DIM,),
        "layers.1.o_proj": (HIDDEN, 2 * HEAD_DIM),
        "embed": (VOCAB, HIDDEN),
        "final_norm": (HIDDEN,),
        "lm_head": (VOCAB, HIDDEN),
    }
    for layer in range(2):
        at = f"layers.{layer}."
        shapes |= {f"{at}attn_norm": (HIDDEN,), f"{at}ffn_norm": (HIDDEN,)}
        dense = {"gate": (INTER, HIDDEN), "up": (INTER, HIDDEN), "down": (HIDDEN, INTER)}
        if not experts:
            shapes |= {f"{at}mlp.{part}": shape for part, shape in dense.items()}
            continue
        shapes |= {f"{at}router": (EXPERTS, HIDDEN), f"{at}shared_gate": (1, HIDDEN)}
        shapes |= {f"{at}experts.{part}": (EXPERTS, *shape) for part, shape in dense.items()}
        shapes |= {f"{at}shared.gate": (SHARED, HIDDEN), f"{at}shared.up": (SHARED, HIDDEN)}
        shapes |= {f"{at}shared.down": (HIDDEN, SHARED)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def tile(array: np.ndarray, axis: int, width: int) -> np.ndarray:
    """Value heads of ``width`` along ``axis``: grouped by key head to tiled over the key heads."""
    before, after = array.shape[:axis], array.shape[axis + 1 :]
    grouped = array.reshape(*before, KEY_HEADS, RATIO, width, *after)
    return np.swapaxes(grouped, axis, axis + 1).reshape(array.shape)


def below(array: np.ndarray) -> np.ndarray:
    """``tile`` of the V rows, which stand below those of Q and K."""
    return np.concatenate((array[:Q_AND_K], tile(array[Q_AND_K:], 0, VALUE_WIDTH)))


def interleave(parts: list[np.ndarray]) -> np.ndarray:
    """Rows of each key head together: (kh * n_i, hidden) each to (kh * sum n_i, hidden)."""
    by_head = [part.reshape(KEY_HEADS, -1, HIDDEN) for part in parts]
    return np.concatenate(by_head, axis=1).reshape(-1, HIDDEN)


def gdn_tensors(weights: Weights, architecture: str, old: bool) -> Weights:
    """The file's tensors of layer 0's mixer."""
    at = "layers.0."
    qkv, z = weights[f"{at}qkv_proj"], weights[f"{at}z_proj"]
    a, b = weights[f"{at}a_proj"], weights[f"{at}b_proj"]
    vectors = {"ssm_a": weights[f"{at}rates"], "ssm_dt.bias": weights[f"{at}dt_bias"]}
    conv, out = weights[f"{at}conv"], weights[f"{at}out_proj"]
    made = {"ssm_norm.weight": weights[f"{at}gdn_norm"]}
    if architecture != "qwen3next":
        made |= {"attn_qkv.weight": below(qkv), "attn_gate.weight": tile(z, 0, VALUE_WIDTH)}
        made |= {"ssm_alpha.weight": tile(a, 0, 1), "ssm_beta.weight": tile(b, 0, 1)}
        made |= {"ssm_conv1d.weight": below(conv), "ssm_out.weight": tile(out, 1, VALUE_WIDTH)}
        return made | {name: tile(vector, 0, 1) for name, vector in vectors.items()}
    made |= {"ssm_ba.weight": interleave([b, a]), "ssm_conv1d.weight": conv}
    made |= {"ssm_out.weight": out, **vectors}
    if not old:
        return made | {"attn_qkv.weight": qkv, "attn_gate.weight": z}
    keys = KEY_HEADS * KEY_WIDTH
    q, k, v = qkv[:keys], qkv[keys:Q_AND_K], qkv[Q_AND_K:]
    return made | {"ssm_in.weight": interleave([q, k, v, z])}


NAMES = {
    **{"attn_norm": "attn_norm", "ffn_norm": "post_attention_norm", "q_proj": "attn_q"},
    **{"k_proj": "attn_k", "v_proj": "attn_v", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"},
    **{"o_proj": "attn_output", "router": "ffn_gate_inp", "shared_gate": "ffn_gate_inp_shexp"},
    **{f"mlp.{part}": f"ffn_{part}" for part in ("gate", "up", "down")},
    **{f"experts.{part}": f"ffn_{part}_exps" for part in ("gate", "up", "down")},
    **{f"shared.{part}": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
}
MODEL = {"embed": "token_embd", "final_norm": "output_norm", "lm_head": "output"}


def hybrid_content(
    architecture: str, *, old: bool = False, fused: bool = False
) -> tuple[Content, Weights]:
    """A whole model in F32, and its weights as they are to be loaded. ``old``: qwen3next with
    ssm_in; ``fused``: gate and up of the experts in one tensor."""
    weights = loaded_weights(experts=architecture != "qwen35")
    tensors = {f"blk.0.{name}": it for name, it in gdn_tensors(weights, architecture, old).items()}
    for name, array in weights.items():
        layer, _, own = name.removeprefix("layers.").partition(".")
        if not own:
            tensors[f"{MODEL[name]}.weight"] = array
        elif own in NAMES:
            flat = array[0] if own == "shared_gate" else array
            tensors[f"blk.{layer}.{NAMES[own]}.weight"] = flat
    if fused:
        for layer in range(2):
            at = f"blk.{layer}.ffn_"
            both = [tensors.pop(f"{at}{part}_exps.weight") for part in ("gate", "up")]
            tensors[f"{at}gate_up_exps.weight"] = np.concatenate(both, axis=1)
    return Content(_values(architecture), {name: f32(it) for name, it in tensors.items()}), weights


def _values(architecture: str) -> dict[str, object]:
    values: dict[str, object] = {
        **{"block_count": 2, "context_length": 64, "embedding_length": HIDDEN},
        **{"attention.head_count": 2, "attention.head_count_kv": 1},
        **{"attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM},
        **{"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e7},
        **{"rope.dimension_count": 8, "rope.dimension_sections": [2, 1, 1, 0]},
        **{"full_attention_interval": 2, "ssm.conv_kernel": 4, "ssm.state_size": KEY_WIDTH},
        **{"ssm.group_count": KEY_HEADS, "ssm.time_step_rank": VALUE_HEADS},
        **{"ssm.inner_size": VALUES},
    }
    if architecture == "qwen35":
        values["feed_forward_length"] = INTER
    else:
        values |= {"expert_count": EXPERTS, "expert_used_count": 2}
        values |= {"expert_feed_forward_length": INTER}
        values |= {"expert_shared_feed_forward_length": SHARED}
    named = {f"{architecture}.{key}": value for key, value in values.items()}
    return {"general.architecture": architecture, "general.name": "tiny", **named}
