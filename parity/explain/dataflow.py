"""Which keys and state parts feed a key: the edges of the dataflow (contract 2, 3 and 6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from parity.families import every_field, feeding_fields, layer_fields
from parity.keys import FINAL_FIELDS, Key
from parity.model.config import MODULES, OUTSIDE, ModelConfig

ROW_PARTS = ("k", "ks", "v", "vs")  # state parts with one row a position
WHOLE_PARTS = ("s", "hist")  # state parts that each position overwrites


@dataclass(frozen=True)
class Feeds:
    """What the op of a key reads. ``keys``: of the same position, in order; ``parts``: of the state
    that the position began with, as fields; ``token``: the embedding of the token fed."""

    keys: tuple[Key, ...]
    parts: tuple[str, ...]
    token: bool

    @property
    def known(self) -> bool:
        """Whether the schema knows the op."""
        return bool(self.keys or self.parts or self.token)


def step_keys(config: ModelConfig, pos: int, fields: Sequence[str]) -> list[Key]:
    """The keys of ``fields`` that one step has."""
    if config.family == MODULES:
        own = [(layer, field) for layer, field in config.own_keys if field in fields]
        return [Key(pos, None if layer == OUTSIDE else layer, field) for layer, field in own]
    inner = [
        Key(pos, layer, field)
        for layer in range(config.layers)
        for field in layer_fields(config, layer, fields)
    ]
    return [*inner, *(Key(pos, None, field) for field in FINAL_FIELDS if field in fields)]


def feeds_of(
    config: ModelConfig, key: Key, fields: Sequence[str], variants: Collection[str] = ()
) -> Feeds:
    """What feeds ``key``, keys of ``fields`` alone. ``variants``: those that run on either side."""
    keys: list[Key] = []
    parts: list[str] = []
    token = False
    every = every_field(config)
    for name in feeding_fields(key.field, variants):
        field, layer = name.rstrip("<^"), key.layer
        if name.endswith("<"):
            layer = config.layers - 1 if layer is None else layer - 1
        if layer is not None and layer < 0:
            token = True
        elif name.endswith("^") and _has(config, layer, field, every):
            parts.append(field)
        elif not name.endswith("^") and _has(config, layer, field, fields):
            keys.append(Key(key.pos, layer, field))
    if key.field == "ores" and _has(config, key.layer, "gated", every):
        keys = [feed for feed in keys if feed.field != "attn"]  # it reads the gated one
    return Feeds(tuple(keys), tuple(parts), token)


def _has(config: ModelConfig, layer: int | None, field: str, fields: Sequence[str]) -> bool:
    if layer is None:
        return field in FINAL_FIELDS and field in fields
    return field in layer_fields(config, layer, fields)
