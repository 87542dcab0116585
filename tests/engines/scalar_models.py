"""Whole models for the scalar oracle: who runs them, what is compared, rows at the edges of f32."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.dump import Entry
from parity.families import dumped_fields
from parity.keys import Key
from parity.model.config import ModelConfig
from parity.model.model import Model, SyntheticModel, synthetic
from parity.protocol import EngineSettings, Plan
from tests.oracle import scalar
from tests.oracle.model import Fields, Ops, OracleModel

Array = np.ndarray[Any, np.dtype[Any]]
SEED = 7


@dataclass(frozen=True)
class Held:
    """A model whose tensors are given."""

    config: ModelConfig
    tensors: Mapping[str, Array]
    label: str = "held"

    def names(self) -> Iterator[str]:
        """Names in the order given."""
        return iter(self.tensors)

    def tensor(self, name: str) -> Array:
        """The values of one tensor."""
        return self.tensors[name]


def tensors_of(model: Model) -> dict[str, Array]:
    """Every tensor by name."""
    return {name: model.tensor(name) for name in model.names()}


def by_oracle(model: Model, tokens: Sequence[int], ops: Ops | None = None) -> Fields:
    """Every field of every position by the scalar oracle, or with the ops given."""
    given = {} if ops is None else {"ops": ops}
    oracle = OracleModel(model.config, tensors_of(model), **given)
    out: Fields = OrderedDict()
    for token in tokens:
        out.update(oracle.step(token))
    return out


def by_engine(
    engine: Any,
    model: Model,
    tokens: Sequence[int],
    settings: EngineSettings | None = None,
    **changes: Any,
) -> tuple[Fields, list[Entry]]:
    """The same by an engine's own tap: tensors in the order of its entries, and the entries."""
    fields = dumped_fields(model.config, ("ffn",))
    places: list[int | None] = [*range(model.config.layers), None]
    keys = [
        Key(pos, layer, name) for pos in range(len(tokens)) for layer in places for name in fields
    ]
    side = engine(settings or EngineSettings())
    side.load(model, len(tokens))
    steps = side.prefill(tokens, Plan(fields, tensors=frozenset(keys), **changes))
    entries = [entry for step in steps for entry in step.entries]
    tensors = {key: value for step in steps for key, value in step.tensors.items()}
    assert set(tensors) == {entry.key for entry in entries}
    return OrderedDict((entry.key.tag, tensors[entry.key]) for entry in entries), entries


def first_difference(ref: Fields, dut: Fields) -> str | None:
    """The first key whose dtype, shape or bytes differ, or where the order of keys parts."""
    for ref_key, dut_key in zip(ref, dut, strict=False):
        one, other = ref[ref_key], dut[dut_key]
        same = (one.dtype, one.shape) == (other.dtype, other.shape)
        if ref_key != dut_key or not same or one.tobytes() != other.tobytes():
            return ref_key
    return None if len(ref) == len(dut) else f"{len(ref)} keys, then {len(dut)}"


def wrong_digests(entries: Sequence[Entry], ref: Fields) -> list[str]:
    """Keys whose digest is not FNV-1a-64 of the oracle's bytes."""
    pairs = ((entry, ref[entry.key.tag]) for entry in entries)
    return [e.key.tag for e, value in pairs if e.digest != scalar.fnv1a64(value.tobytes())]


# --- rows at the edges ---------------------------------------------------------------------------

# Sizes of the embedding rows of tokens 0, 1, ...: zero; the smallest subnormal; rows whose V has
# scale 0 or a subnormal one, or whose experts' activations have; rows whose square sum overflows.
ROW_SIZES = (0.0, 2.0**-149, 1e-42, 1e-38, 1e-27, 1e-24, 1e18, 1e30)
EDGES = ("zero", "scale 0", "subnormal scale", "clamped", "huge")


def edge_rows() -> Held:
    """Q4_0 matrices on an f32 embedding with rows of all sizes; layer 1 shrinks, layer 2 grows.

    An f16 scale cannot make such rows (2^-24 to 65504: ``q4_edge_rows``), an f32 embedding can;
    storage decides the arithmetic matrix by matrix (contract 1.0).
    """
    model = SyntheticModel(replace(synthetic("moe-tiny", SEED).config, layers=3), SEED)
    tensors = tensors_of(model)
    tokens = np.arange(len(ROW_SIZES), dtype=np.int32)
    rows = scalar.embed(tensors.pop("embed.d"), tensors.pop("embed.qs"), tokens)
    tensors["embed"] = np.zeros((model.config.vocab, model.config.hidden), np.float32)
    tensors["embed"][tokens] = rows.astype(np.float64) * np.array(ROW_SIZES)[:, None]
    for name, power in (
        ("layers.1.attn_norm", -20),
        ("layers.1.k_norm", -14),
        ("layers.2.attn_norm", 70),
        ("layers.2.k_norm", 30),
        ("layers.2.q_norm", -30),
        ("layers.2.ffn_norm", 40),
    ):
        tensors[name] = np.ldexp(tensors[name], power).astype(np.float32)
    return Held(model.config, tensors, "edge rows")


def q4_edge_rows() -> Held:
    """Embedding scales 0, -0, the smallest and the largest f16, on tokens 0 to 3."""
    model = SyntheticModel(replace(synthetic("moe-tiny", SEED).config, layers=2), SEED)
    tensors = tensors_of(model)
    for token, bits in enumerate((0x0000, 0x8000, 0x0001, 0x7BFF)):
        tensors["embed.d"][token] = bits
    return Held(model.config, tensors, "q4 edge rows")


def edges_met(op_name: str, x: Array, scale: Array) -> set[str]:
    """Which edges of 1.4 (quant16) or 1.6 (quant8) the inputs and scales of one call meet."""
    size, limit = (x.shape[-1], 127.0) if op_name == "quant8" else (32, 32767.0)
    groups, s = x.reshape(-1, size).astype(np.float64), scale.reshape(-1).astype(np.float64)
    amax = np.abs(groups).max(axis=1)
    # Beyond the limit even after rounding: only a subnormal scale is coarse enough.
    beyond = np.rint(amax / np.where(s > 0, s, np.inf)) > limit
    met = {
        "zero": amax == 0,
        "scale 0": (amax > 0) & (s == 0),
        "subnormal scale": (s > 0) & (s < 2.0**-126),
        "clamped": beyond,
        # Its square overflows.
        "huge": amax > 2.0**64,
    }
    return {name for name, mask in met.items() if mask.any()}
