"""A small profile, built by hand: what the presenters are tested on. Data invented."""

from __future__ import annotations

from dataclasses import replace

from parity.keys import Key
from parity.profiles import LoneField, Profile, ProfileRow

UNIT = 2.0**-24


def profile_row(layer: int | None, field: str, largest: float = 3e-7) -> ProfileRow:
    """One field of four keys that lies within its bound."""
    key = Key(34, layer, field).tag
    size, unit = (64, "f32") if field != "topk" else (2, "step")
    return ProfileRow(
        *(layer, field, "f32", "f32", 4, 0, 4 * size, 3 * size, unit, 8_192, largest, 0.5),
        *(largest / 0.5, key, (17,)),
        bound=128 * UNIT * (1 + (9 if layer is None else layer)) ** 0.5,
    )


def profile(layers: tuple[int, ...] = (6, 7, 8)) -> Profile:
    """Three fields of three layers and what follows them; a field that the ref alone has."""
    fields = ("nrm", "attn", "x")
    rows = [
        profile_row(layer, field, 1e-7 * (layer + 2 + at))
        for layer in layers
        for at, field in enumerate(fields)
    ]
    rows += [profile_row(None, field, 1.4e-6) for field in ("final_normed", "logits")]
    rows[0] = replace(rows[0], equal=4, differ=0, max_ulp=None, max_diff=0.0, relative=0.0, key="")
    rows[0] = replace(rows[0], element=())
    lone = [LoneField("ref", "l7_ores", 4)]
    return Profile(4, rows, lone, judged=True, arithmetic="f32", worst="logits")


def profile_beyond(key: str, name: str) -> Profile:
    """The same with the row ``name`` beyond its bound, at ``key``."""
    found = profile()
    at = next(at for at, row in enumerate(found.rows) if row.name == name)
    changed = replace(found.rows[at], max_diff=2e-3, relative=4e-3, outside=key, key=key)
    rows = [*found.rows[:at], changed, *found.rows[at + 1 :]]
    return replace(found, rows=rows, worst=name, outside=key)
