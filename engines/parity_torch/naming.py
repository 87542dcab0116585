"""What makes the value behind a key, in the words of the published map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parity.families import field_op
from parity_torch.maps import OUTER, blocks_of, fields_of, is_mapped

if TYPE_CHECKING:
    from torch import nn

    from parity.keys import Key


def made_by(module: nn.Module, key: Key) -> str:
    """``K projection, output of self_attn.k_proj``; of a generic field the module's own name."""
    if not is_mapped(module):
        return f"output of {key.field}"
    words = OUTER if key.layer is None else fields_of(blocks_of(module.model.layers[key.layer]))  # type: ignore[union-attr, index, unused-ignore]
    op = field_op(key.field).partition(" (contract")[0]
    return f"{op}, {words.get(key.field, 'not in the map').replace('`', '')}"
