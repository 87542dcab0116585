"""Small dumps for the tests of digest trees, and random edits of them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from hypothesis import strategies as st

from parity.digests.file import from_text, to_text
from parity.digests.tree import DigestTree
from parity.dump import Dump, Entry, TensorType
from parity.keys import Key

F32, F64 = TensorType("f32", (4,)), TensorType("f64", (4,))
FIELDS = ("nrm", "k", "mine", "x")  # one of them no schema knows
Edit = tuple[str, int, int]


def keys_of(positions: int, layers: int = 3) -> list[Key]:
    """Keys in dataflow order, with fields before, in and after the layers."""
    found = []
    for pos in range(positions):
        found.append(Key(pos, None, "embed"))
        found += [Key(pos, layer, name) for layer in range(layers) for name in FIELDS]
        found += [Key(pos, None, "final_normed"), Key(pos, None, "logits")]
    return found


def dump_of(entries: list[Entry], cut: int = 1 << 60, **header: str) -> Dump:
    """Entries before position ``cut`` in the unnamed segment, the others in segment B."""
    parts = {
        "": [entry for entry in entries if entry.key.pos < cut],
        "B": [entry for entry in entries if entry.key.pos >= cut],
    }
    return Dump(header, {name: part for name, part in parts.items() if part}, "made")


def small(positions: int = 4, seed: int = 1) -> list[Entry]:
    rng = random.Random(seed)
    return [Entry(key, rng.getrandbits(64), F32) for key in keys_of(positions)]


def bound(keys: int) -> int:
    return math.ceil(math.log2(keys)) + 1 if keys else 0


def edited(entries: list[Entry], edits: list[Edit]) -> list[Entry]:
    """Change, retype, delete, insert or swap; a number beyond the end wraps around."""
    entries = list(entries)
    for kind, number, other in edits:
        if not entries:
            break
        at, to = number % len(entries), other % len(entries)
        entry = entries[at]
        if kind == "change":
            entries[at] = replace(entry, digest=entry.digest ^ 1 << other % 64)
        elif kind == "type":
            entries[at] = replace(entry, type=F64)
        elif kind == "delete":
            del entries[at]
        elif kind == "insert":
            new = entry.key._replace(field=f"new{number % 3}")
            if all(held.key != new for held in entries):
                entries.insert(at + 1, Entry(new, other, F32))
        else:
            entries[at] = replace(entry, digest=entries[to].digest)
            entries[to] = replace(entries[to], digest=entry.digest)
    return entries


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["change", "type", "delete", "insert", "swap"]),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    max_size=4,
)


def through_file(tree: DigestTree) -> DigestTree:
    return from_text(to_text(tree), "made")
