"""Placement: one group of ops at a time computed by the dut inside the ref's run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from parity.comparison.compare import compare_dumps
from parity.comparison.states import compare_states
from parity.dump import MAIN, Dump, Entry
from parity.errors import NotRunError
from parity.families import every_field
from parity.isolate.lockstep import step_together
from parity.keys import Key
from parity.model.config import ModelConfig
from parity.model.generator import words
from parity.protocol import Injection
from parity.runs.run import Run, Side, State
from parity.tree import Placement, Tree

# Which ops are tried together, by the field each leaves: a field is what can be exchanged.
GROUPS = {
    "norm": ("nrm", "knorm", "fnrm", "final_normed"),
    "qkv": ("kraw", "qkv", "z"),
    "rope": ("qrope",),
    "kvquant": ("k", "ks", "v", "vs"),
    "attn": ("attn", "gated"),
    "conv": ("conv", "hist"),
    "delta": ("qn", "kn", "s", "o"),
    "gate": ("beta", "g", "gn"),
    "o": ("ores",),
    "ffn": ("rlogits", "topk", "topp", "gate", "up", "act", "down", "gs", "sh", "x"),
    "lm_head": ("logits",),
}
# Ops of another kind in a group, with a field that shows it: no value lies between to exchange.
MIXED = {
    "rope": ("qrope", "the Q projection and its head norm"),
    "kvquant": ("k", "K's RoPE and the V projection"),
    "attn": ("gated", "the gate's half of the Q projection"),
    "gate": ("beta", "the projections a and b and the norm of o"),
}


@dataclass(frozen=True)
class Decode:
    """The ref's decoded part of a run: where it starts, what it was fed and what it gave."""

    ref: Side
    dut: Side
    run: Run
    start: State
    fed: Sequence[int]
    dump: Dump


@dataclass
class Placed:
    """One placement: ``tree`` holds the mixed run against the plain ref run."""

    tree: Tree
    states: str | None  # where the two engines' states part at the end, or None


@dataclass
class Placements:
    """All groups, and what is to be said of them."""

    rows: list[Placement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def place_groups(decode: Decode) -> Placements:
    """Each group of the model alone on the dut, then a planted fault where none differs.

    Both sides need the capabilities state and replay. Raises NotRunError where they do not make the
    same values in one order, or where the planted fault is not found.
    """
    made = Placements()
    for group, fields in groups_of(decode.run.model.config).items():
        decode.dut.progress(f"placement {group}", 0, len(decode.dump.entries))
        placed = place(decode, fields)
        made.rows.append(_row(group, fields, placed))
        if placed.states is not None:
            made.notes.append(f"placement {group}: the states part at the end, {placed.states}")
    made.notes += mixed_notes(decode.run.model.config)
    if not any(row.differ for row in made.rows):
        made.notes.append(_control(decode))
    return made


def groups_of(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """The groups of this model with its fields; a field of no group is one by itself."""
    present = every_field(config)
    grouped = {group: tuple(f for f in fields if f in present) for group, fields in GROUPS.items()}
    told = {name for fields in grouped.values() for name in fields}
    alone = {name: (name,) for name in present if name not in told}
    return {group: fields for group, fields in {**grouped, **alone}.items() if fields}


def mixed_notes(config: ModelConfig) -> list[str]:
    """One line that says which groups hold an op of another kind."""
    groups = groups_of(config)
    told = [
        f"{group} holds {ops} too"
        for group, (name, ops) in MIXED.items()
        if name in groups.get(group, ())
    ]
    return [f"{', '.join(told)}: no value lies between to be exchanged"] if told else []


def place(decode: Decode, fields: Collection[str], inject: Injection | None = None) -> Placed:
    """The ref's run with the values of ``fields`` computed by the dut, on the mixed run's inputs.

    ``inject``: a fault planted in the dut.
    """
    ref, dut = decode.ref, decode.dut
    for side in (ref, dut):
        side.take_over(decode.start)
    plan = decode.run.plan()
    entries: list[Entry] = []
    for token in decode.fed:
        steps = step_together(
            ref, dut, token, (plan, replace(plan, inject=inject)), lambda key: key.field in fields
        )
        told = [{entry.key: entry for entry in step.entries} for step in steps]
        entries += (told[key.field in fields].get(key, entry) for key, entry in told[0].items())
        if any(entry.nonfinite for entry in entries):
            break
    mixed = Dump(dict(decode.dump.header), {MAIN: entries}, f"{ref.spec} with {dut.spec}")
    end = compare_states("end", ref.read_state() or {}, dut.read_state() or {})
    return Placed(compare_dumps(decode.dump, mixed), end.first)


def _row(group: str, fields: Sequence[str], placed: Placed) -> Placement:
    counts = placed.tree.counts
    differ = counts.total - counts.same
    return Placement(group, list(fields), placed.tree.first, differ, counts.total)


def _control(decode: Decode) -> str:
    """Plant a fault in the dut and place that field: found, it shows that the zeros mean something.

    Raises NotRunError when it is not found.
    """
    if not decode.dut.has("inject"):
        return f"placement has no control: {decode.dut.spec} lacks the capability 'inject'"
    key = _drawn(decode.dump.entries)
    found = place(decode, (key.field,), Injection(key, 0)).tree.first
    if found != key.tag:
        raise NotRunError(
            f"placement: a fault planted in the dut at {key} was found at {found or 'no key'}",
            f"the tap of {decode.dut.spec} does not show what it computes: parity doctor",
        )
    return f"placement control: an element moved in the dut at {key} was found at that key"


def _drawn(entries: Sequence[Entry]) -> Key:
    draw = next(int(word) for word in words(0, "placement", 0, 1))
    return entries[draw % len(entries)].key
