"""Every planted break of a promise of parity.testing, and what must be said of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.dump import Entry, TensorType
from parity.keys import Key
from parity.protocol import Plan
from tests.engines.broken_capabilities import (
    FirstMarkStays,
    ForgetsScales,
    HashedOnly,
    KeepsGiven,
    LiveCounters,
    LosesARow,
    NoRowsAreFine,
    RefusesLate,
    RememberedByLoad,
    RememberedByReset,
    RollsBackTwice,
    RowsHalfFed,
    SharedState,
    SharedTensors,
    Shrugs,
    StartsOver,
    StaysWhereItIs,
    TakesTooMuch,
    Ungrateful,
    any_position,
    flat,
    flipped,
    next_element,
    one_layer_late,
    one_position,
    split_by_rows,
    unmoved_logits,
    with_counters,
    with_rows,
    with_state,
    with_tensors,
    without_first,
    without_inject,
)
from tests.engines.broken_engines import (
    CountsFirst,
    DisturbedState,
    FedBack,
    FeedsThenRefuses,
    FillsThenRefuses,
    LastOnly,
    LoadKeeps,
    Misspelt,
    NoReadState,
    NoStep,
    NoTier,
    OddPrefill,
    Overwrites,
    ReusedLogits,
    RoundedPrefill,
    StaleReset,
    TakesAnyToken,
    WholePrefill,
    WrongError,
    described,
    disturbed,
    doubled,
    entry_at,
    narrowed,
    read_only,
    renamed,
    swapped,
    with_entries,
    with_plan,
    with_step,
    with_weights,
)


@dataclass(frozen=True)
class Broken:
    """One planted fault: what it is, the promise it breaks, and a part of what must be said."""

    what: str
    promise: str
    engine: type[Any]
    said: str


BROKEN = (
    Broken("a required member is missing", "members", NoStep, "lacks step(self, token"),
    Broken("a capability lacks its member", "members", NoReadState, "lacks read_state"),
    Broken("an unknown capability", "members", Misspelt, "unknown capabilities ['captures']"),
    Broken("no tier", "members", NoTier, "tiers is empty"),
    Broken("no device named", "members", described(device=""), "describe()['device'] is None"),
    Broken("two lines", "members", described(driver="a\nb"), "not one line of text"),
    Broken("emulated?", "members", described(emulated="maybe"), "neither yes nor no"),
    Broken(
        "a tensor without digest",
        "weights",
        with_weights(lambda told: dict([*told.items()][:-1])),
        "no digest of inv_freq",
    ),
    Broken(
        "digests in another order",
        "weights",
        with_weights(lambda told: dict(reversed(told.items()))),
        "another order",
    ),
    Broken(
        "one wrong digest",
        "weights",
        with_weights(lambda told: {**told, "final_norm": (told["final_norm"][0], 1)}),
        "final_norm: not the digest",
    ),
    Broken(
        "one wrong type",
        "weights",
        with_weights(lambda told: {**told, "inv_freq": (TensorType("f16", (16,)), 0)}),
        "told as f16[16]",
    ),
    Broken(
        "float64 logits",
        "shapes",
        with_step(lambda step, plan: replace(step, logits=step.logits.astype(np.float64))),
        "logits are float64[48], not float32[48]",
    ),
    Broken(
        "logits with a row axis",
        "shapes",
        with_step(lambda step, plan: replace(step, logits=step.logits[None])),
        "logits are float32[1, 48]",
    ),
    Broken(
        "logits that are a list",
        "shapes",
        with_step(lambda step, plan: replace(step, logits=step.logits.tolist())),
        "logits are <class 'list'>",
    ),
    Broken("prefill gives all steps", "shapes", WholePrefill, "gave 2 steps, not the last"),
    Broken("prefill gives the last alone", "shapes", LastOnly, "with a plan gave 1 steps"),
    Broken(
        "entries that nobody asked for",
        "shapes",
        with_step(lambda step, plan: replace(step, entries=[Entry(Key(0, None, "logits"), 0)])),
        "without a plan",
    ),
    Broken("logits in one buffer", "logits_are_a_copy", ReusedLogits, "the next step wrote into"),
    Broken("logits read back", "logits_are_a_copy", FedBack, "after the caller wrote into them"),
    Broken("read-only logits", "logits_are_a_copy", with_step(read_only), "cannot be written"),
    Broken(
        "prefill rounds a scale", "prefill_equals_steps", RoundedPrefill, "prefill of 4, step 4"
    ),
    Broken("prefill of 3 is odd", "prefill_equals_steps", OddPrefill, "other logits than 4 steps"),
    Broken("reset keeps a sum", "reset_forgets", StaleReset, "after reset, step 0: other logits"),
    Broken("load keeps the position", "reset_forgets", LoadKeeps, "after load"),
    Broken(
        "a tap moves a logit",
        "tap_changes_nothing",
        with_step(disturbed),
        "with a tap on two fields, step 0 has other logits",
    ),
    Broken("a tap moves the state", "tap_changes_nothing", DisturbedState, "a tap on one place"),
    Broken(
        "a key is missing",
        "entries_are_typed",
        with_entries(lambda entries: entries[1:]),
        "1 keys are missing, first t0_l0_nrm",
    ),
    Broken("an unknown key", "entries_are_typed", with_entries(renamed), "t0_l0_norm is no key"),
    Broken(
        "a key twice", "entries_are_typed", with_entries(doubled), "t0_l0_nrm is reported twice"
    ),
    Broken(
        "keys out of order",
        "entries_are_typed",
        with_entries(swapped),
        "t0_l0_kraw stands where t0_l0_nrm belongs",
    ),
    Broken(
        "another dtype",
        "entries_are_typed",
        with_entries(entry_at(0, type=TensorType("f16", (32,)))),
        "t0_l0_nrm is f32[32], reported f16[32]",
    ),
    Broken(
        "no dtype",
        "entries_are_typed",
        with_entries(entry_at(-2, type=None)),
        "t0_final_normed is f32[32], reported None",
    ),
    Broken(
        "nonfinite where all is finite",
        "entries_are_typed",
        with_entries(entry_at(0, nonfinite=(1, 0))),
        "nonfinite (1, 0)",
    ),
    Broken(
        "a digest of something else",
        "entries_are_typed",
        with_entries(lambda entries: [*entries[:-1], replace(entries[-1], digest=1)]),
        "t0_logits is not the digest of the logits it gave",
    ),
    Broken(
        "the basis is not followed",
        "entries_are_typed",
        with_plan(lambda plan: replace(plan, basis=Plan(()).basis)),
        "t0_logits is not the digest",
    ),
    Broken(
        "the places are not followed",
        "entries_are_typed",
        with_plan(lambda plan: replace(plan, places=None)),
        "at a position that was not asked for",
    ),
    Broken(
        "a digest that depends on the plan",
        "entries_are_typed",
        with_entries(narrowed),
        "with fields and places: t1_l0_nrm was",
    ),
    Broken(
        "a tensor is missing",
        "capture_matches_digests",
        with_tensors(without_first),
        "not alike: ['t1_l0_nrm']",
    ),
    Broken("flat tensors", "capture_matches_digests", with_tensors(flat), "captured int8[32]"),
    Broken(
        "a tensor of other bytes",
        "capture_matches_digests",
        with_tensors(flipped),
        "t1_l0_nrm: the tensor does not have the digest",
    ),
    Broken("tensors that are no copies", "capture_matches_digests", SharedTensors, "the digest"),
    Broken(
        "a scale is not restored",
        "state_round_trip",
        ForgetsScales,
        "a fresh engine, read back: state part l1_ks differs",
    ),
    Broken("a state that is kept", "state_round_trip", KeepsGiven, "read back: state part l0_k"),
    Broken("a state that is shared", "state_round_trip", SharedState, "a step wrote into what"),
    Broken(
        "a length of 64 bits",
        "state_round_trip",
        with_state(lambda state: {**state, "lengths": state["lengths"].astype(np.int64)}),
        "lengths is int64[4], not int32[4]",
    ),
    Broken(
        "no length",
        "state_round_trip",
        with_state(lambda state: {n: a for n, a in state.items() if n != "lengths"}),
        "not int32[4]",
    ),
    Broken(
        "rows that were not written",
        "state_round_trip",
        with_state(lambda state: {**state, "l0_v": np.zeros((8, 1, 32), np.int8)}),
        "l0_v has 8 rows, 4 were written",
    ),
    Broken(
        "a part without layer",
        "state_round_trip",
        with_state(lambda state: {**state, "k": state["l0_k"]}),
        "a part is named 'k'",
    ),
    Broken("a longer state is cut", "state_round_trip", TakesTooMuch, "was not refused"),
    Broken("a longer state half taken", "state_round_trip", RefusesLate, "after the refusal"),
    Broken("a longer state, ValueError", "state_round_trip", Ungrateful, "raised ValueError, not"),
    Broken(
        "nothing is moved",
        "inject_moves_one_key",
        with_plan(without_inject),
        "moved t1_l0_nrm, and found nothing",
    ),
    Broken(
        "moved one layer late",
        "inject_moves_one_key",
        with_plan(one_layer_late),
        "moved t1_l0_nrm, and found t1_l1_nrm",
    ),
    Broken("moved for the digest alone", "inject_moves_one_key", HashedOnly, "it was not used"),
    Broken("unmoved logits", "inject_moves_one_key", with_step(unmoved_logits), "others were"),
    Broken(
        "moved at every position",
        "inject_moves_one_key",
        with_plan(any_position),
        "a key of another position",
    ),
    Broken(
        "another element is moved",
        "inject_moves_one_key",
        with_plan(next_element),
        "t1_l0_kraw: not the value with its element 1 moved",
    ),
    Broken(
        "the last row alone", "rows_equal_steps", with_rows(lambda s: s[-1:]), "2 steps instead"
    ),
    Broken(
        "rows under one position",
        "rows_equal_steps",
        with_rows(one_position),
        "1 step and 3 rows, step 2: t1_l0_nrm stands where t2_l0_nrm was",
    ),
    Broken(
        "rows with other bits",
        "rows_equal_steps",
        with_rows(split_by_rows),
        "1 step and 3 rows, step 3: other logits",
    ),
    Broken("a row that is lost", "rows_equal_steps", LosesARow, "5 rows in a cache of 8"),
    Broken("no rows are taken", "rows_equal_steps", NoRowsAreFine, "no rows was not refused"),
    Broken("rows half fed", "rows_equal_steps", RowsHalfFed, "position 8 is past"),
    Broken("nothing rolled back", "rollback_restores", StaysWhereItIs, "rollback to 0: state part"),
    Broken("rolled back twice", "rollback_restores", RollsBackTwice, "a second rollback was not"),
    Broken(
        "no mark needed", "rollback_restores", Shrugs, "rollback without a mark was not refused"
    ),
    Broken("refused, but moved", "rollback_restores", StartsOver, "after rollback to 2, step 0"),
    Broken("the first mark stays", "rollback_restores", FirstMarkStays, "after a second mark"),
    Broken("a mark outlives reset", "rollback_restores", RememberedByReset, "after reset was not"),
    Broken("a mark outlives load", "rollback_restores", RememberedByLoad, "after load was not"),
    Broken(
        "counters that stand still",
        "counters_count",
        with_counters(lambda told: dict.fromkeys(told, 1)),
        "a step counted nothing",
    ),
    Broken(
        "a counter that goes down",
        "counters_count",
        with_counters(lambda told: {**told, "down": -sum(told.values())}),
        "down went down",
    ),
    Broken(
        "counters that are not whole",
        "counters_count",
        with_counters(lambda told: {name: float(count) for name, count in told.items()}),
        "not a whole number by name",
    ),
    Broken("counters that go on", "counters_count", LiveCounters, "that were given before"),
    Broken("any token is taken", "bad_token_is_refused", TakesAnyToken, "step(-1) was not refused"),
    Broken("another error", "bad_token_is_refused", WrongError, "step(-1) raised IndexError"),
    Broken("refused too late", "bad_token_is_refused", CountsFirst, "after the refusals, step 0"),
    Broken("a prefill half fed", "bad_token_is_refused", FeedsThenRefuses, "after the refusals"),
    Broken("a ring", "full_cache_is_refused", Overwrites, "a step past the cache was not refused"),
    Broken("a prefill that fills", "full_cache_is_refused", FillsThenRefuses, "position 3 is past"),
)
