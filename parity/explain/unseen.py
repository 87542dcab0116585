"""What an op reads that no key shows: the token's embedding, its weights, values a side leaves out.

An op is told as a birthplace on equal inputs. Of inputs that nothing looked at that is not known:
then the report names all that may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from parity.comparison.elements import compare_tensors
from parity.dtypes import dtype_name
from parity.explain.drill import Start
from parity.families import field_op
from parity.keys import Key
from parity.tree import EMBEDDED, EMBEDDING, NOT_SEEN

# What is said of the rows that both sides embed a token as: "" where they are the same bytes, None
# where a side cannot tell.
Embedded = Callable[[int], str | None]
# Weights that the op of a field reads, within their layer (parity.model.layers), experts' too.
_WEIGHTS: Mapping[str, tuple[str, ...]] = {
    "nrm": ("attn_norm",),
    "kraw": ("k_proj",),
    "knorm": ("k_norm",),
    "v": ("v_proj",),
    "vs": ("v_proj",),
    "qrope": ("q_proj", "q_norm"),
    "gated": ("q_proj",),
    "qkv": ("qkv_proj",),
    "z": ("z_proj",),
    "conv": ("conv",),
    "beta": ("b_proj",),
    "g": ("a_proj", "a_log", "rates", "dt_bias"),
    "gn": ("gdn_norm",),
    "ores": ("o_proj", "out_proj"),
    "fnrm": ("ffn_norm",),
    "rlogits": ("router",),
    **{name: (f"mlp.{name}", f"experts.{name}") for name in ("gate", "up", "down")},
    "gs": ("shared_gate",),
    "sh": ("shared.gate", "shared.up", "shared.down"),
}
_WHOLE: Mapping[str, tuple[str, ...]] = {
    "k": ("inv_freq",),
    "ks": ("inv_freq",),
    "qrope": ("inv_freq",),
    "final_normed": ("final_norm",),
    "logits": ("lm_head", "embed"),  # a tied head is the embedding's bytes
}


def weights_of(key: Key, names: Collection[str], op: str = "", *, tied: bool) -> list[str]:
    """Of the weights ``names``, those that the op of ``key`` reads. ``op``: what is told as wrong
    there, where that is the embedding, or may be. ``tied``: the head is the embedding."""
    own = [f"layers.{key.layer}.{name}" for name in _WEIGHTS.get(key.field, ())]
    wanted = {*own, *(name for name in _WHOLE.get(key.field, ()) if tied or name != "embed")}
    if op in (EMBEDDED, EMBEDDING):
        wanted = {"embed"}
    elif op == embedding_or(key.field):
        wanted.add("embed")
    return [name for name in names if name in wanted or name.rpartition(".")[0] in wanted]


def ask_rows(starts: tuple[Start, Start]) -> Embedded:
    """Asks both engines, where they can tell, what they embed a token as; once a token."""
    tell = [getattr(start.side.engine, "embedded", None) for start in starts]

    @cache
    def said(token: int) -> str | None:
        if None in tell:
            return None
        ref, dut = (np.asarray(ask(token)) for ask in tell)  # type: ignore[misc]
        return _unlike_rows(token, ref, dut)

    return said


def _unlike_rows(token: int, ref: np.ndarray, dut: np.ndarray) -> str:
    """``token 5 is embedded as another row: 120 of 128 elements differ``; "" for the same bytes."""
    head = f"token {token} is embedded as another row"
    if (ref.dtype, ref.shape) != (dut.dtype, dut.shape):
        forms = [f"{dtype_name(row.dtype)}[{','.join(map(str, row.shape))}]" for row in (ref, dut)]
        return f"{head}: ref {forms[0]}, dut {forms[1]}"
    if ref.tobytes() == dut.tobytes():
        return ""
    found = compare_tensors("", ref, dut)
    return f"{head}: {found.differ:,} of {found.total:,} elements differ"


def embedding_or(field: str) -> str:
    """What to call a birthplace that may be the embedding's or the op's own."""
    return f"{EMBEDDED} or {field_op(field)}"


def untold(key: Key, ref: Mapping[Key, Any], feeding: Callable[[Key], Sequence[Key]]) -> list[Key]:
    """What the ref did not tell of all that feeds ``key`` through such values alone: part of its
    op, in dataflow order. ``feeding``: the keys that feed a key."""
    found: dict[Key, None] = {}
    waiting = [key]
    while waiting:
        for feed in feeding(waiting.pop()):
            if feed not in ref and feed not in found:
                found[feed] = None
                waiting.append(feed)
    return list(found)


def spanning(key: Key, unseen: Sequence[Key]) -> tuple[str, str]:
    """The op of a key that others went into unseen, and what to say of its inputs.
    ``unseen``: in dataflow order."""
    first = field_op(unseen[0].field)
    fields = ", ".join(each.field for each in unseen)
    return f"{first} to {field_op(key.field)}", f"{NOT_SEEN}: {fields}"
