"""Accepted dumps and arrays: what may be accepted, what a check says, what a promote lists."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity import baseline
from parity.baseline import Facts, check_arrays, check_dump, load, save_arrays, save_dump
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.errors import InputError
from parity.keys import Key
from parity.runs.run import SideRun
from parity.status import Verdict
from parity.store import Store
from tests.core.store_samples import content

F32 = TensorType("f32", (4,))
HEADER = {
    **{"format": "parity-dump 1", "hash": "fnv1a64", "engine": "mine", "version": "2"},
    **{"tier": "exact", "variants": "none", "model": "moe-tiny seed 7", "weights": "ab" * 8},
    **{"tokens": "1,2,3,4", "prefill": "3 own", "greedy": "2:4,3:9", "driver": "12"},
}
TAGS = ("t3_l0_nrm", "t3_l0_q", "t3_l1_nrm", "t3_logits")
FACTS = Facts("parity baseline save x run.dump", "run.dump")


def dump(**changes: str | None) -> Dump:
    """A dump of one step; a header that is None is left out."""
    header = {**HEADER, **changes}
    entries = [Entry(Key.parse(tag), at + 1, F32) for at, tag in enumerate(TAGS)]
    kept = {name: value for name, value in header.items() if value is not None}
    return Dump(kept, {MAIN: entries}, "run.dump")


def changed(made: Dump, tag: str) -> Dump:
    """``made`` with another digest at ``tag``."""
    return replace(
        made,
        segments={
            MAIN: [
                replace(entry, digest=77) if entry.key.tag == tag else entry
                for entry in made.entries
            ]
        },
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def states(value: float) -> SideRun:
    """A run that left one row of K."""
    start = {"lengths": np.array([3], np.int32), "l0_k": np.zeros((3, 4), np.float32)}
    end = {name: part.copy() for name, part in start.items()}
    end["l0_k"][2, 1] = value
    return SideRun(Dump(), [], {}, start, end)


# --- what may be accepted -------------------------------------------------------------------------


def test_a_record_holds_everything(store: Store) -> None:
    entry = save_dump(store, "x", dump(), replace(FACTS, run=states(1.0)))
    record = load(store, "x").record
    assert record["header"] == HEADER
    assert record["command"] == "parity baseline save x run.dump"
    assert (record["format"], record["version"], record["kind"]) == (
        "parity-record",
        1,
        "dump file",
    )
    assert record["input"]["tokens"] == "1,2,3,4"
    assert len(record["input"]["digest"]) == 64
    assert record["keys"] == 4
    assert record["stability"] is None
    assert record["packages"].startswith("parity=")
    assert record["objects"].keys() == {"dump", "states", "tensors"}
    assert entry.action == "save"
    assert load(store, "x").dump.entries == dump().entries


@pytest.mark.parametrize("name", baseline.NEEDED)
def test_a_header_that_a_record_needs(store: Store, name: str) -> None:
    with pytest.raises(InputError, match=rf"run\.dump: its header does not name {name}"):
        save_dump(store, "x", dump(**{name: None}), FACTS)
    assert not store.path.exists()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (dump(partial="interrupted at t4"), "a partial dump: interrupted at t4"),
        (dump(stopped="t3_l1_nrm"), "its run was stopped: t3_l1_nrm"),
        (replace(dump(), segments={}), "nothing compared: no keys in ref and dut"),
        (replace(dump(), segments={MAIN: [*dump().entries] * 2}), "twice"),
        (
            replace(dump(), segments={MAIN: [replace(dump().entries[0], nonfinite=(1, 0))]}),
            "not finite with the same bytes: t3_l0_nrm",
        ),
    ],
    ids=["partial", "stopped", "zero keys", "a key twice", "not finite"],
)
def test_a_run_that_is_not_whole(store: Store, made: Dump, said: str) -> None:
    with pytest.raises(InputError, match=said):
        save_dump(store, "x", made, FACTS)
    assert not store.path.exists()


def test_saved_once(store: Store) -> None:
    save_dump(store, "x", dump(), FACTS)
    before = content(store.path)
    with pytest.raises(InputError, match="baseline 'x' exists already: entry 1"):
        save_dump(store, "x", changed(dump(), TAGS[0]), FACTS)
    assert content(store.path) == before


# --- what a check says ----------------------------------------------------------------------------


def test_the_same_dump(store: Store) -> None:
    save_dump(store, "x", dump(), replace(FACTS, run=states(1.0)))
    tree = check_dump(store, "x", dump(), replace(FACTS, run=states(1.0)))
    assert (tree.verdict, tree.counts.same) == (Verdict.SAME, 4)
    assert tree.control is not None
    assert tree.control.fired
    assert [state.equal for state in tree.states] == [True, True]


@pytest.mark.parametrize("tag", TAGS)
def test_the_first_key_that_differs(store: Store, tag: str) -> None:
    save_dump(store, "x", dump(), FACTS)
    tree = check_dump(store, "x", changed(dump(), tag))
    assert (tree.verdict, tree.first, tree.counts.differ) == (Verdict.DIVERGED, tag, 1)


def test_a_state_alone_that_differs(store: Store) -> None:
    save_dump(store, "x", dump(), replace(FACTS, run=states(1.0)))
    tree = check_dump(store, "x", dump(), replace(FACTS, run=states(-0.0)))
    assert tree.verdict is Verdict.DIVERGED
    assert tree.reason == "end state differs, first at l0_k row 2 (position 2)"


def test_a_zero_of_the_other_sign_is_another_state(store: Store) -> None:
    save_dump(store, "x", dump(), replace(FACTS, run=states(0.0)))
    assert check_dump(store, "x", dump(), replace(FACTS, run=states(-0.0))).verdict == "diverged"
    assert check_dump(store, "x", dump(), replace(FACTS, run=states(0.0))).verdict == "same"


def test_a_state_of_another_dtype_is_another_state(store: Store) -> None:
    save_dump(store, "x", dump(), replace(FACTS, run=states(0.0)))
    run = states(0.0)
    assert run.end is not None
    run.end["l0_k"] = run.end["l0_k"].view(np.int32)
    tree = check_dump(store, "x", dump(), replace(FACTS, run=run))
    assert tree.reason == "end state differs, first at l0_k row 0 (position 0)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "moe-tiny seed 8"}, "model moe-tiny seed 7 recorded, moe-tiny seed 8 given"),
        ({"weights": "cd" * 8}, "weights abababababababab recorded, cdcdcdcdcdcdcdcd given"),
        ({"tokens": "1,9,3,4"}, "tokens 1,2,3 recorded, 1,9,3 given"),
        ({"tokens": "1,2,3,4,5"}, "steps 1 recorded, 2 given"),
        ({"prefill": "2 own"}, "prefill 3 own recorded, 2 own given"),
        ({"fields": "ffn"}, "fields default recorded, ffn given"),
        ({"hash": "kestrel-fnv"}, "hash fnv1a64 recorded, kestrel-fnv given"),
        ({"model": None}, "model moe-tiny seed 7 recorded, nothing given"),
        ({"weights": None}, "weights abababababababab recorded, nothing given"),
    ],
    ids=["model", "weights", "prompt", "steps", "prefill", "fields", "hash", "no model", "none"],
)
def test_another_run_is_refused(store: Store, changes: dict[str, str | None], said: str) -> None:
    save_dump(store, "x", dump(), FACTS)
    with pytest.raises(InputError, match=f"baseline 'x' is of another run: {said}"):
        check_dump(store, "x", dump(**changes))


def test_what_changed_around_the_numbers_is_a_note(store: Store) -> None:
    save_dump(store, "x", dump(), FACTS)
    tree = check_dump(store, "x", dump(version="3", driver=None, compiled="0123456789abcdef"))
    assert tree.verdict is Verdict.SAME
    assert [note for note in tree.notes if "since it was accepted" in note] == [
        "version changed since it was accepted: 2, now 3",
        "driver changed since it was accepted: 12, now not recorded",
        "compiled changed since it was accepted: not recorded, now 0123456789abcdef",
    ]


def test_a_choice_that_differs_at_equal_keys(store: Store) -> None:
    save_dump(store, "x", dump(), FACTS)
    tree = check_dump(store, "x", dump(greedy="2:4,3:8"))
    assert (tree.verdict, tree.first) == (Verdict.DIVERGED, "t3_logits")


def test_an_altered_object_is_refused_before_anything_is_compared(store: Store) -> None:
    entry = save_dump(store, "x", dump(), FACTS)
    address = entry.record["objects"]["dump"]
    path = store.path / "objects" / address[:2] / address
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"0000000000000002", b"0000000000000003"))
    with pytest.raises(InputError, match=rf"{address}: altered: its SHA-256 is not its name"):
        check_dump(store, "x", dump())


def test_an_altered_object_of_an_older_entry(store: Store) -> None:
    old = save_dump(store, "x", dump(), FACTS)
    baseline.promote_dump(store, "x", changed(dump(), TAGS[1]), FACTS, load(store, "x"))
    address = old.record["objects"]["dump"]
    (store.path / "objects" / address[:2] / address).unlink()
    with pytest.raises(InputError, match=f"{address}: missing"):
        check_dump(store, "x", dump())


def test_a_record_of_a_later_version(store: Store) -> None:
    record = {"format": "parity-record", "version": 2, "objects": {}}
    store.append("baseline", "x", record, action="save", expected=None)
    with pytest.raises(InputError, match="its record is no parity-record 1"):
        load(store, "x")


# --- what a promote lists -------------------------------------------------------------------------


def test_a_promote_lists_what_changed(store: Store) -> None:
    save_dump(store, "x", dump(), replace(FACTS, run=states(1.0)))
    new = changed(dump(version="3", greedy="2:4,3:8", driver=None), TAGS[1])
    facts = replace(FACTS, spec="other.dump", run=states(2.0))
    entry, lines = baseline.promote_dump(store, "x", new, facts, load(store, "x"))
    assert lines == [
        "keys: 1 of 4 differ, first t3_l0_q",
        "end state: differs, first at l0_k row 2 (position 2)",
        "spec: run.dump -> other.dump",
        "greedy: 2:4,3:9 -> 2:4,3:8",
        "version: 2 -> 3",
        "driver: 12 -> not recorded",
    ]
    assert (entry.seq, entry.action, entry.record["changed"]) == (2, "promote", lines)
    assert check_dump(store, "x", new, facts).verdict is Verdict.SAME
    assert check_dump(store, "x", dump()).first == "t3_l0_q"


def test_keys_that_come_and_go(store: Store) -> None:
    save_dump(store, "x", dump(), FACTS)
    first, *rest = dump().entries
    new = replace(dump(), segments={MAIN: [replace(first, key=Key.parse("t3_l0_k")), *rest]})
    _, lines = baseline.promote_dump(store, "x", new, FACTS, load(store, "x"))
    assert lines == ["keys: 0 of 5 differ, 1 missing, 1 new, first t3_l0_nrm"]


def test_a_promote_of_nothing(store: Store) -> None:
    save_dump(store, "x", dump(), FACTS)
    before = content(store.path)
    with pytest.raises(InputError, match="baseline 'x': nothing changed"):
        baseline.promote_dump(store, "x", dump(), FACTS, load(store, "x"))
    assert content(store.path) == before


def test_a_promote_of_another_run(store: Store) -> None:
    save_dump(store, "x", dump(), FACTS)
    with pytest.raises(InputError, match="is of another run: weights"):
        baseline.promote_dump(store, "x", dump(weights="cd" * 8), FACTS, load(store, "x"))


def test_a_promote_after_somebody_elses(store: Store) -> None:
    save_dump(store, "x", dump(), FACTS)
    before = load(store, "x")
    baseline.promote_dump(store, "x", changed(dump(), TAGS[0]), FACTS, before)
    with pytest.raises(InputError, match="baseline 'x' was moved on to entry 2 meanwhile"):
        baseline.promote_dump(store, "x", changed(dump(), TAGS[1]), FACTS, before)
    assert len(store.history("baseline", "x")) == 2


# --- arrays ---------------------------------------------------------------------------------------


def arrays() -> dict[str, np.ndarray]:
    """Names and dtypes of every sort."""
    rng = np.random.default_rng(7)
    return {
        "t3_l0_q": rng.standard_normal((2, 3)).astype(np.float32),
        "layers.10/weight": rng.standard_normal(5).astype(np.float16),
        "file": np.array([1, -2], np.int64),
        "a": np.array(2.5),
        "a.npy": np.zeros((0, 3), np.uint8),
        "with blank": np.array([True, False]),
        "nan": np.array([np.nan, -0.0], np.float32),
        "columns": np.asfortranarray(rng.integers(0, 9, (3, 2))),
    }


def test_arrays_are_kept_as_they_are(store: Store) -> None:
    entry = save_arrays(store, "x", arrays(), command="pytest", runs=2)
    stored = load(store, "x")
    assert stored.tensors.keys() == arrays().keys()
    for name, array in arrays().items():
        kept = stored.tensors[name]
        assert (kept.dtype, kept.shape, kept.tobytes()) == (
            array.dtype,
            array.shape,
            array.tobytes("C"),
        )
    assert entry.record["stability"] == {"runs": 2}
    assert entry.record["tensors"]["t3_l0_q"] == "f32[2,3]"
    tree = check_arrays(store, "x", arrays())
    assert (tree.verdict, tree.counts.same) == (Verdict.SAME, 8)
    assert tree.control is not None
    assert tree.control.fired


def test_the_same_arrays_have_one_address(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    made = [
        save_arrays(kept, "x", arrays()).record["objects"]["tensors"] for kept in (store, other)
    ]
    assert made[0] == made[1]
    with np.load(io.BytesIO(store.get(made[0]))) as archive:
        assert archive["t3_l0_q"].tobytes() == arrays()["t3_l0_q"].tobytes()


@pytest.mark.parametrize("name", sorted(set(arrays()) - {"a.npy"}))
def test_an_array_with_one_bit_changed(store: Store, name: str) -> None:
    save_arrays(store, "x", arrays())
    new = arrays()
    new[name] = np.ascontiguousarray(new[name])
    new[name].reshape(-1).view(np.uint8)[0] ^= 1
    tree = check_arrays(store, "x", new)
    assert (tree.verdict, tree.first, tree.counts.differ) == (Verdict.DIVERGED, name, 1)
    assert tree.elements is not None
    assert (tree.elements.key, tree.elements.differ) == (name, 1)


def test_arrays_of_another_dtype_shape_or_name(store: Store) -> None:
    save_arrays(store, "x", {"a": np.zeros(4, np.float32), "b": np.ones(2)})
    others = {
        "dtype": ({"a": np.zeros(4, np.int32), "b": np.ones(2)}, "a"),
        "shape": ({"a": np.zeros((2, 2), np.float32), "b": np.ones(2)}, "a"),
        "missing": ({"a": np.zeros(4, np.float32)}, "b"),
        "extra": ({"a": np.zeros(4, np.float32), "b": np.ones(2), "c": np.ones(1)}, "c"),
        "nothing": ({}, None),
    }
    for what, (made, first) in others.items():
        tree = check_arrays(store, "x", made)
        verdict = Verdict.DIVERGED if made else Verdict.NOT_RUN
        assert (tree.verdict, tree.first) == (verdict, first), what


def test_arrays_that_cannot_be_kept(store: Store) -> None:
    for made, said in (
        ({}, "nothing compared"),
        ({"a": np.array(["text"])}, "cannot be compared"),
        ({"a": np.zeros(2, np.complex64)}, "cannot be compared"),
        ({"a\nb": np.zeros(2)}, "bad array name"),
    ):
        with pytest.raises(InputError, match=said):
            save_arrays(store, "x", made)
    assert not store.path.exists()


def test_bfloat16_is_kept_under_its_own_name(store: Store) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    made = {"a": np.array([1.0, 2.0], ml_dtypes.bfloat16)}
    save_arrays(store, "x", made)
    assert check_arrays(store, "x", made).verdict is Verdict.SAME
    other = {"a": made["a"].view(np.uint16)}
    assert check_arrays(store, "x", other).first == "a"  # another dtype
    new = {"a": np.array([1.0, -2.0], ml_dtypes.bfloat16)}
    tree = check_arrays(store, "x", new)
    assert tree.elements is not None
    assert tree.elements.rows[0].ref_value.startswith("+2.0")


def test_arrays_are_promoted(store: Store) -> None:
    save_arrays(store, "x", arrays())
    with pytest.raises(InputError, match="nothing changed"):
        baseline.promote_arrays(store, "x", arrays())
    new = {**arrays(), "a": np.array(3.5)}
    _, lines = baseline.promote_arrays(store, "x", new, command="pytest", runs=2)
    assert lines == ["keys: 1 of 8 differ, first a"]
    assert check_arrays(store, "x", new).verdict is Verdict.SAME
    assert check_arrays(store, "x", arrays()).first == "a"
