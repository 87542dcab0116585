"""comparison/impossible.py: keys that share a hash are remarked upon, unless they may be equal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parity.comparison.impossible import one_hash_notes, shared_hashes
from parity.dump import MAIN, Dump, Entry
from parity.explain.dataflow import step_keys
from parity.families import every_field, field_type
from parity.keys import Key
from parity.model.config import PRESETS, preset
from parity.runs.run import Run, run_side
from tests.red.birth_pairs import opened, run_of

CONFIG = preset("moe-tiny")
FIELDS = every_field(CONFIG)
STALE = 0x1234567890ABCDEF


def dump(tokens: str = "1,2,3,4", typed: bool = True) -> Dump:
    """Four positions of moe-tiny with a hash of its own for every key."""
    keys = [key for pos in range(4) for key in step_keys(CONFIG, pos, FIELDS)]
    entries = [
        Entry(key, 7919 * at + 1, field_type(CONFIG, key.field) if typed else None)
        for at, key in enumerate(keys)
    ]
    return Dump({"tokens": tokens}, {MAIN: entries}, "made")


def stale(made: Dump, *tags: str) -> Dump:
    """The dump with one hash for some of its keys."""
    entries = [
        replace(entry, digest=STALE) if entry.key.tag in tags else entry for entry in made.entries
    ]
    return replace(made, segments={MAIN: entries})


def test_every_key_with_its_own_hash_is_no_remark() -> None:
    assert one_hash_notes(dump(), dump()) == []
    assert shared_hashes(Dump()) == []


def test_dead_tap_is_remarked_upon_by_side() -> None:
    dead = replace(
        dump(), segments={MAIN: [replace(entry, digest=STALE) for entry in dump().entries]}
    )
    (note,) = one_hash_notes(dump(), dead)
    assert len(dead.entries) == 312
    assert note == (
        "312 keys of the dut have one hash, 1234567890abcdef (t0_l0_nrm, t0_l0_kraw, "
        "t0_l0_knorm, ...): a dead tap, a stale buffer or zeros"
    )
    assert [note[:24] for note in one_hash_notes(dead, dump())] == ["312 keys of the ref have"]


@pytest.mark.parametrize(
    ("tags", "count"),
    [
        (("t0_l0_nrm", "t0_l1_ores", "t2_l0_x"), 3),  # three fields
        (("t0_l0_attn", "t1_l2_attn", "t3_l3_attn"), 3),  # one field in three layers
        (("t0_l2_attn", "t1_l2_attn", "t3_l2_attn"), 3),  # three positions, other tokens
        (("t0_logits", "t1_logits", "t2_logits", "t3_logits"), 4),
    ],
)
def test_red_shared_hash(tags: tuple[str, ...], count: int) -> None:
    (found,) = shared_hashes(stale(dump(), *tags))
    assert (found.count, found.first, found.digest) == (count, list(tags[:3]), STALE)
    assert shared_hashes(stale(dump(), *tags[:2])) == []


@pytest.mark.parametrize(
    ("tokens", "tags"),
    [
        ("1,2,3,4", ("t0_l0_topk", "t0_l1_topk", "t0_l2_topk", "t3_l2_topk")),  # few ids
        ("1,2,3,4", ("t0_l0_ks", "t1_l1_ks", "t2_l2_ks")),
        ("1,2,3,4", ("t0_l0_knorm", "t0_l0_k")),  # RoPE by the angle 0
        ("5,5,5,5", ("t0_l0_nrm", "t1_l0_nrm", "t2_l0_nrm", "t3_l0_nrm")),  # one token
        ("", ("t0_l0_nrm", "t1_l0_nrm", "t2_l0_nrm", "t3_l0_nrm")),  # tokens not known
    ],
)
def test_equal_values_that_may_be(tokens: str, tags: tuple[str, ...]) -> None:
    assert shared_hashes(stale(dump(tokens), *tags)) == []


def test_untyped_dump_goes_by_the_field() -> None:
    small, large = ("t0_l0_topk", "t0_l1_topk", "t0_l2_topk"), ("t0_l0_x", "t0_l1_x", "t0_l2_x")
    assert shared_hashes(stale(dump(typed=False), *small)) == []
    assert len(shared_hashes(stale(dump(typed=False), *large))) == 1


def test_names_of_a_tensor_file_do_not_count() -> None:
    entries = [Entry(Key(-1, None, name), STALE) for name in ("bias_a", "bias_b", "bias_c", "d")]
    assert shared_hashes(Dump({}, {MAIN: entries})) == []


def test_several_hashes_are_counted() -> None:
    entries = [
        replace(entry, digest=STALE + entry.key.layer) if entry.key.layer is not None else entry
        for entry in dump().entries
    ]
    notes = one_hash_notes(replace(dump(), segments={MAIN: entries}), dump())
    assert len(notes) == 1
    assert notes[0].endswith("more keys share 3 such hashes")


SMALL = [name for name in PRESETS if name.endswith(("tiny", "48", "64"))]


@pytest.mark.parametrize("name", SMALL)
def test_green_runs_of_the_presets_have_no_remark(name: str) -> None:
    run: Run = run_of(name, n=2, fields="+ffn,+s", prefill="own", tokens="4,4,4,9", seed=1)
    whole = replace(run, dump_prefill=True)
    assert shared_hashes(run_side(opened("ref", "cpu", whole), whole).dump) == []
