"""The controls that the probes share, on a small engine, to the letter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.dump import Entry, TensorType
from parity.keys import Key
from parity.protocol import Injection, Step
from parity.runs.run import Side
from parity_probes import blocks
from parity_probes.blocks import (
    Fired,
    compare_steps,
    control,
    injection,
    plan_for,
    read_state,
    run_singles,
    state_control,
    write_over,
)
from tests.probes.small_engine import small_config, small_model, small_side
from tests.probes.small_steps import SEEDS, TOKENS, plan, singles


@pytest.mark.parametrize(
    ("kind", "unit", "size"),
    [
        (TensorType("f32", (2, 3)), "1 ULP", 6),
        (TensorType("int8", (4,)), "1 step", 4),
        (TensorType("int32", ()), "1 step", 1),
        (None, "1 ULP", 1),
    ],
)
def test_injection_is_drawn_from_keys_and_elements(
    kind: TensorType | None, unit: str, size: int
) -> None:
    entries = [Entry(Key(at, 0, "x"), 1, kind) for at in range(5)]
    drawn = [injection(entries, seed) for seed in SEEDS]
    assert {fault.key for fault, _ in drawn} == {entry.key for entry in entries}
    assert {fault.index for fault, _ in drawn} == set(range(size))
    for fault, told in drawn:
        assert told == f"{unit} at {fault.key} element {fault.index}"


def test_draw_of_the_injection_stays_what_it_was() -> None:
    entries = [Entry(Key(at, 0, "x"), 1, TensorType("f32", (1000,))) for at in range(100)]
    assert injection(entries, 7)[1] == "1 ULP at t42_l0_x element 486"


def rows_again(side: Side, state: Any, shift: int = 0) -> Any:
    """The dut of a control: rows with the injection, or with one ``shift`` positions on."""

    def again(fault: Injection | None) -> list[Step]:
        if fault is not None:
            fault = replace(fault, key=fault.key._replace(pos=fault.key.pos + shift))
        engine: Any = side.engine
        write_over(side, state, 8)
        made: list[Step] = engine.step_rows(
            TOKENS[2:5], plan_for(small_config("moe-tiny"), inject=fault)
        )
        return made

    return again


@pytest.mark.parametrize("seed", range(6))
def test_control_fires_at_exactly_its_key(seed: int) -> None:
    side = small_side()
    made = singles(side, (2,))
    ref = made.steps[2:5]
    found = control(side, ref, seed, rows_again(side, made.state(2)))
    told = injection([entry for step in ref for entry in step.entries], seed)[1]
    assert found == Fired(True, f"fired: {told}, found at that key")
    bare = small_side(lacks=("inject",))
    found = control(bare, ref, seed, rows_again(bare, made.state(2)))
    key = told.split(" at ")[1].split(" ")[0]
    assert found == Fired(True, f"fired: dump level: one digit of {key}, found at that key")


def test_control_that_is_found_elsewhere_or_nowhere() -> None:
    side = small_side()
    made = singles(side, (2,))
    ref = made.steps[2:5]
    seed = next(
        s for s in SEEDS if injection([e for st in ref for e in st.entries], s)[0].key.pos == 2
    )
    told = injection([entry for step in ref for entry in step.entries], seed)
    elsewhere = told[0].key._replace(pos=3)
    found = control(side, ref, seed, rows_again(side, made.state(2), 1))
    assert found == Fired(False, f"did not fire: {told[1]}, found at {elsewhere}")
    dead = small_side(("dead tap",))
    found = control(dead, ref, seed, rows_again(dead, made.state(2)))
    assert found == Fired(False, f"did not fire: {told[1]}, found at nothing")


def test_digit_that_is_changed_is_the_last_bit_of_one_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side = small_side(lacks=("inject",))
    made = singles(side, (2,))
    seen: list[Any] = []

    def compared(ref: list[Step], dut: list[Step]) -> Any:
        seen.append((ref, dut))
        return compare_steps(ref, dut)

    monkeypatch.setattr(blocks, "compare_steps", compared)
    control(side, made.steps[2:5], 3, rows_again(side, made.state(2)))
    ((ref, dut),) = seen
    pairs = [
        (a, b)
        for one, other in zip(ref, dut, strict=True)
        for a, b in zip(one.entries, other.entries, strict=True)
    ]
    changed = [(a, b) for a, b in pairs if a != b]
    assert [(a.key == b.key, a.digest ^ b.digest) for a, b in changed] == [(True, 1)]
    assert all(np.array_equal(a.logits, b.logits) for a, b in zip(ref, dut, strict=True))


@pytest.mark.parametrize("kind", ["moe-tiny", "hybrid-tiny"])
def test_state_control_names_part_and_row(kind: str) -> None:
    side = small_side(model=small_model(kind))
    run_singles(side, TOKENS[:3], plan(kind))
    ref = read_state(side)
    places = set()
    for seed in SEEDS:
        side.write_state(ref)
        found = state_control(side, ref, seed)
        assert found.fired
        unit, _, where = found.text.partition(" in ")
        name, _, row, _, element = where.removesuffix(", found there").split(" ")
        dtype = ref[name].dtype
        assert unit == ("1 ULP" if dtype == np.float32 else "1 step")
        changed = read_state(side)[name].reshape(-1) != ref[name].reshape(-1)
        index = int(row) * ref[name][0].size + int(element)
        assert np.flatnonzero(changed).tolist() == [index]
        places.add(name)
    assert places == {name for name in ref if name != "lengths"}


def test_draw_of_the_state_control_stays_what_it_was() -> None:
    side = small_side()
    run_singles(side, TOKENS, plan())
    text = state_control(side, read_state(side), 7).text
    assert text == "1 step in l0_v row 2 element 1, found there"


def test_state_control_of_a_state_that_tells_more_or_nothing() -> None:
    side = small_side()
    run_singles(side, TOKENS[:3], plan())
    ref = read_state(side)
    told = state_control(side, ref, 1).text.removesuffix(", found there")
    side.write_state(ref)
    off = {**ref, "lengths": ref["lengths"] + 1}
    found = state_control(side, off, 1)
    assert found == Fired(False, f"did not fire: {told}, found at lengths")
    side.write_state(ref)
    other = {**ref, "l1_vs": ref["l1_vs"].copy()}
    other["l1_vs"][2] += 1
    assert not state_control(side, other, 1).fired
    frozen = small_side()
    run_singles(frozen, TOKENS[:3], plan())
    engine: Any = frozen.engine
    engine.write_state = lambda state: setattr(engine, "length", 3)
    engine.reset = lambda: None
    found = state_control(frozen, ref, 1)
    assert found == Fired(False, f"did not fire: {told}, found at nothing")
