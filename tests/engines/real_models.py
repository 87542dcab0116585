"""Small models with what published ones have: a shared expert, dense layers among experts, a tied
head, padded ids, nA instead of A_log, storage that differs from matrix to matrix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.families import dumped_fields, layer_fields
from parity.keys import Key
from parity.model.checks import stored_kv
from parity.model.config import preset
from parity.model.model import Model, SyntheticModel
from parity.protocol import EngineSettings, Plan
from tests.engines.scalar_models import Held, tensors_of
from tests.oracle import check, scalar, twin
from tests.oracle.hybrid_model import OPS, HybridModel
from tests.oracle.model import Fields, Ops, OracleModel

Array = np.ndarray[Any, np.dtype[Any]]
SEED = 7
POSITIONS = 3
# Nearly all of the time; tests/oracle holds both writings to the same bytes.
VECTORISED = ("q4_matvec", "f32_matvec", "expert_matvec", "expert_f32_matvec")


def changed(name: str, weights: str = "q4", **changes: Any) -> SyntheticModel:
    """A preset with other settings."""
    return SyntheticModel(replace(preset(name, weights), **changes), SEED)


def held(model: Model, tensors: Mapping[str, Array], **changes: Any) -> Held:
    """A model of a file: these tensors, KV storage by the contract's rule."""
    kv = stored_kv(model.config.family, tensors)
    config = replace(model.config, weights="file", kv_storage=kv, **changes)
    return Held(config, tensors, "held")


def mixed(model: SyntheticModel, plain: Collection[str]) -> Held:
    """The matrices whose last name is in ``plain`` (``experts.down``) as f32, the others Q4_0."""
    floats = SyntheticModel(replace(model.config, weights="f32"), model.seed)
    tensors: dict[str, Array] = {}
    for name in model.names():
        matrix = name.removesuffix(".qs").removesuffix(".d")
        short = matrix.split(".", 2)[-1] if matrix.startswith("layers.") else matrix
        if matrix != name and short in plain:
            tensors[matrix] = floats.tensor(matrix)
        else:
            tensors[name] = model.tensor(name)
    return held(model, tensors)


def with_rates(model: Model) -> Held:
    """nA in the place of A_log, as a GGUF file holds it: one bit off what A_log would give."""
    tensors = tensors_of(model)
    given: dict[str, Array] = {}
    for name, array in tensors.items():
        if name.endswith(".a_log"):
            rates = -np.exp(array.astype(np.float64)).astype(np.float32)
            given[f"{name.removesuffix('a_log')}rates"] = np.nextafter(rates, np.float32(0))
        else:
            given[name] = array
    return held(model, given)


SHARED_MOE = {"shared_inter": 160}
DENSE = {"dense_layers": (0, 2), "dense_inter": 224}
MODELS: dict[str, Callable[[], Model]] = {
    "next-tiny q4": lambda: changed("next-tiny"),
    "next-tiny f32": lambda: changed("next-tiny", "f32"),
    "shared moe q4": lambda: changed("moe-tiny", **SHARED_MOE),
    "shared moe f32": lambda: changed("moe-tiny", "f32", **SHARED_MOE),
    "dense layers q4": lambda: changed("moe-tiny", **DENSE),
    "dense layers, shared, f32": lambda: changed("moe-tiny", "f32", **DENSE, **SHARED_MOE),
    "hybrid with dense layers": lambda: changed("next-tiny", **DENSE),
    "listed full layers": lambda: changed("next-tiny", layers=4, full_layers=(0, 2)),
    "tied q4": lambda: changed("dense-tiny", tied=True),
    "tied f32": lambda: changed("moe-tiny", "f32", tied=True),
    "tied hybrid": lambda: changed("next-tiny", layers=4, tied=True),
    "rates": lambda: with_rates(changed("next-tiny", layers=4)),
    "f32 head": lambda: mixed(changed("moe-tiny"), ("lm_head", "experts.down")),
    "f32 embedding": lambda: mixed(changed("dense-tiny"), ("embed", "mlp.gate", "k_proj")),
    "mixed shared": lambda: mixed(
        changed("moe-tiny", **SHARED_MOE), ("experts.gate", "shared.down", "o_proj")
    ),
    "mixed hybrid": lambda: mixed(
        changed("next-tiny", layers=4), ("experts.up", "shared.gate", "z_proj", "lm_head")
    ),
    "all f32 of a file": lambda: held(
        changed("dense-tiny"), tensors_of(changed("dense-tiny", "f32"))
    ),
}


def quick(name: str, args: check.Args) -> check.Outputs:
    """The scalar oracle, products vectorised."""
    return twin.run(name, args) if name in VECTORISED else check.oracle(name, args)


def by_oracle(model: Model, tokens: Sequence[int], ops: Ops = quick) -> Fields:
    """Every field of every position by the scalar oracle, or with the ops given."""
    out: Fields = OrderedDict()
    tensors = tensors_of(model)
    oracle: Any
    if model.config.family == "hybrid":
        oracle = HybridModel(model.config, tensors, _table(ops))
    else:
        oracle = OracleModel(model.config, tensors, ops)
    for token in tokens:
        out.update(oracle.step(token))
    return out


def _table(ops: Ops) -> dict[str, Callable[..., Any]]:
    """The hybrid's own ops, and section 2's through ``ops``."""

    def through(name: str) -> Callable[..., Any]:
        def op(*args: Any) -> Any:
            outputs = ops(name, args)
            return outputs if len(outputs) > 1 else outputs[0]

        return op

    own = [name for name in OPS if name not in (*twin.FAULTS, "embed_f32")]
    return {name: OPS[name] if name in own else through(name) for name in OPS}


def by_engine(
    engine: Any, model: Model, tokens: Sequence[int], at_once: bool = False, **changes: Any
) -> Fields:
    """The same by an engine's own tap, token by token or as rows of one forward."""
    side = engine(EngineSettings())
    side.load(model, len(tokens))
    config = model.config
    fields = dumped_fields(config, ("s", "ffn"))
    keys = [
        Key(pos, layer, field)
        for pos in range(len(tokens))
        for layer in range(config.layers)
        for field in layer_fields(config, layer, fields)
    ]
    keys += [
        Key(pos, None, field) for pos in range(len(tokens)) for field in ("final_normed", "logits")
    ]
    plan = Plan(fields, tensors=frozenset(keys), **changes)
    steps = side.step_rows(tokens, plan) if at_once else [side.step(t, plan) for t in tokens]
    out: Fields = OrderedDict()
    for step in steps:
        for entry in step.entries:
            array = step.tensors[entry.key]
            assert entry.digest == scalar.fnv1a64(array.tobytes()), entry.key
            out[entry.key.tag] = array
    assert len(out) == len(keys)
    return out
