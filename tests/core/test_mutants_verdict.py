"""What mutation testing found unseen in the control, in reruns of a side and in read-back trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from parity.dump import MAIN, PARTIAL, Dump, Entry, TensorType
from parity.errors import InputError
from parity.keys import Key
from parity.kinds import misfit
from parity.protocol import Injection
from parity.runs import control, stability
from parity.runs.control import dump_control, inject_control
from parity.runs.run import SideRun
from parity.runs.stability import (
    call_unstable,
    confirm,
    entries_tree,
    unlike_entries,
    unlike_run,
    unlike_state,
)
from parity.status import Level, Verdict
from parity.tree import Control, Counts, Stability, Tree

F32, I8 = TensorType("f32", (2, 3)), TensorType("int8", (4,))
SEEDS = range(120)


def dump(
    positions: Sequence[int] = (0, 1, 2), kind: TensorType | None = F32, **header: str
) -> Dump:
    """One key a position."""
    entries = [Entry(Key(pos, 0, "x"), 0x1000 + pos, kind) for pos in positions]
    return Dump(dict(header), {MAIN: entries}, "made")


# --- the control ----------------------------------------------------------------------------------


@dataclass
class FakeStart:
    """Stands for drill.Start: repeats a step and changes the key behind the injection."""

    dut: Dump
    start: int = 0
    run: Any = None
    asked: list[tuple[int, Injection]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = self

    def step_at(self, pos: int, inject: Injection) -> Any:
        self.asked.append((pos, inject))
        entries = [entry for entry in self.dut.entries if entry.key.pos == pos]
        self.entries = [
            replace(entry, digest=entry.digest ^ 5) if entry.key == inject.key else entry
            for entry in entries
        ]
        return self


@pytest.mark.parametrize(("kind", "unit"), [(F32, "ULP"), (I8, "step"), (None, "ULP")])
def test_injection_is_told_as_it_was_planted(kind: TensorType | None, unit: str) -> None:
    start, elements = FakeStart(dump(kind=kind)), set()
    for seed in SEEDS:
        found = inject_control(start, dump(kind=kind), start.dut, seed)  # type: ignore[arg-type]
        pos, inject = start.asked[-1]
        assert inject.key == Key(pos, 0, "x")
        assert found == Control("inject", True, inject.key.tag, found.key, inject.index, unit)
        elements.add(inject.index)
    assert elements == set(range(16 if kind is None else np.prod(kind.shape)))


@pytest.mark.parametrize(("begin", "hit"), [(0, {0, 1, 2}), (1, {1, 2}), (2, {2}), (3, {0, 1, 2})])
def test_injection_is_planted_where_the_run_decodes(begin: int, hit: set[int]) -> None:
    start = FakeStart(dump(), begin)
    for seed in SEEDS:
        inject_control(start, dump(), start.dut, seed)  # type: ignore[arg-type]
    assert {pos for pos, _ in start.asked} == hit


def test_control_names_both_sides_in_an_error() -> None:
    start = FakeStart(replace(dump(hash="fnv1a64"), source="mine"))
    with pytest.raises(InputError, match="made has xxh64, mine has fnv1a64"):
        inject_control(start, dump(hash="xxh64"), start.dut, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (1, 1)])
def test_a_single_value_has_the_element_0(shape: tuple[int, ...]) -> None:
    made = dump(kind=TensorType("f32", shape))
    start = FakeStart(made)
    assert {
        inject_control(start, made, made, seed).element  # type: ignore[arg-type]
        for seed in SEEDS
    } == {0}


@pytest.mark.parametrize(
    "kind", [None, TensorType("f32", (4, 5)), F32], ids=["untyped", "large", "small"]
)
def test_dump_control_changes_exactly_one_digit(
    monkeypatch: pytest.MonkeyPatch, kind: TensorType | None
) -> None:
    segments = {name: dump((0, 1), kind).entries for name in (MAIN, "more", "last")}
    made, planted = Dump({}, segments), set()
    plain = control.compare_dumps

    def seen(ref: Dump, dut: Dump, **options: Any) -> Tree:
        for name, entries in segments.items():
            pairs = zip(entries, dut.segments[name], strict=True)
            planted.update(
                (name, at.key.pos, at.digest ^ to.digest) for at, to in pairs if at != to
            )
        return plain(ref, dut, **options)

    monkeypatch.setattr(control, "compare_dumps", seen)
    for seed in range(600):
        before = len(planted)
        assert dump_control(made, made, seed).fired
        assert len(planted) <= before + 1
    digits = 6 if kind is F32 else 16
    assert {change for _, _, change in planted} == {1 << 4 * at for at in range(digits)}
    assert {place[:2] for place in planted} == {(name, at) for name in segments for at in (0, 1)}


def test_dump_control_of_a_partial_dump() -> None:
    made = dump(**{PARTIAL: "interrupted at t3"})
    assert dump_control(made, made, 3).fired


def test_draw_of_the_control_stays_what_it_was() -> None:
    """A line that reproduces a control names its seed: the draw is part of the format."""
    made = dump(range(100), TensorType("f32", (1000,)))
    start = FakeStart(made)
    found = inject_control(start, made, made, 7)  # type: ignore[arg-type]
    assert (found.key, found.element) == ("t42_l0_x", 486)


# --- a side against itself ------------------------------------------------------------------------


def side_run(digest: int = 1, start: int = 0, end: int = 0) -> SideRun:
    """A run of two keys, with a state before and after."""
    entries = [Entry(Key(0, 0, "x"), 1), Entry(Key(1, 0, "x"), digest)]
    states = ({"l0_k": np.array([[value]])} for value in (start, end))
    return SideRun(Dump({}, {MAIN: entries}, "run"), [4, 5], {}, *states)


@pytest.mark.parametrize(
    ("again", "where"),
    [
        (side_run(), ""),
        (side_run(2, 1, 1), "l0_k row 0 (position 0)"),
        (side_run(2, 0, 1), "t1_l0_x"),
        (side_run(1, 0, 1), "l0_k row 0 (position 0)"),
        (replace(side_run(1, 1, 1), start=None), "l0_k row 0 (position 0)"),
    ],
    ids=["same", "start", "key", "end", "no start"],
)
def test_where_a_second_run_differs(again: SideRun, where: str) -> None:
    assert unlike_run(side_run(), again) == where


def test_states_that_one_run_has_not_are_not_compared() -> None:
    state = {"l0_k": np.zeros((1, 1))}
    assert unlike_state(None, state) == unlike_state(state, None) == unlike_state(None, None) == ""
    assert unlike_state(state, dict(state)) == ""


def test_first_key_that_two_runs_do_not_tell_alike() -> None:
    """In dataflow order, a field outside the schema where the runs have it."""
    tags = ("t0_l0_nrm", "t0_l0_mine", "t0_l0_x", "t0_l10_x", "t0_l2_x")
    first = [Entry(Key.parse(tag), 1) for tag in tags]
    assert unlike_entries(first, first[::-1]) is None
    late = [*first[:1], *(replace(entry, digest=2) for entry in first[1:])]
    found = unlike_entries(first, late)
    assert found is not None
    assert found.tag == "t0_l0_mine"
    for sides in ((first, first[:3]), (first[:3], first)):
        found = unlike_entries(*sides)
        assert found is not None
        assert found.tag == "t0_l2_x"


def test_first_key_is_that_of_the_dataflow_not_of_the_alphabet() -> None:
    tags = ("t0_l0_nrm", "t0_l0_attn", "t0_logits")
    first, again = ([Entry(Key.parse(tag), digest) for tag in tags] for digest in (1, 2))
    found = unlike_entries(first, again)
    assert found is not None
    assert found.tag == "t0_l0_nrm"


@pytest.mark.parametrize("own", [0, 1], ids=["first", "again"])
def test_field_of_one_run_alone_keeps_its_place(own: int) -> None:
    plain = [Entry(Key.parse(tag), 1) for tag in ("t0_l0_nrm", "t0_l0_x")]
    more = [plain[0], Entry(Key.parse("t0_l0_mine"), 1), replace(plain[1], digest=2)]
    found = unlike_entries(*((more, plain) if own == 0 else (plain, more)))
    assert found is not None
    assert found.tag == "t0_l0_mine"


def empty_tree() -> Tree:
    return Tree(Verdict.DIVERGED, "t0_l0_x", Counts(1, 1, 0, 1, 0, 0), Level.BIT, Level.BIT, {}, {})


@pytest.mark.parametrize(
    ("where", "first", "what"),
    [("t0_l0_x", "t0_l0_x", "digest"), ("l0_k row 0 (position 0)", None, "state")],
)
def test_unstable_side_is_named(where: str, first: str | None, what: str) -> None:
    tree, found = empty_tree(), Stability(2, "dut", where, 2)
    call_unstable(tree, found)
    assert (tree.verdict, tree.level, tree.first) == (Verdict.UNSTABLE, Level.NONE, first)
    assert tree.stability is found
    assert tree.reason == f"dut differs from itself at {where}: a rerun gave another {what}"


@pytest.mark.parametrize("digest", [1, 2])
def test_rerun_of_the_only_engine(monkeypatch: pytest.MonkeyPatch, digest: int) -> None:
    side, run, asked = Role(), object(), []

    def again(*given: object, fed: object = None) -> SideRun:
        asked.append((*given, fed))
        return side_run(digest)

    monkeypatch.setattr(stability, "run_side", again)
    tree, first = empty_tree(), side_run()
    confirm(tree, side, run, first)  # type: ignore[arg-type]
    assert asked == [(side, run, first.fed)]
    if digest == 1:
        assert (tree.verdict, tree.stability) == (Verdict.DIVERGED, None)
        return
    found = tree.stability
    assert found is not None
    assert (found.runs, found.side, found.key, found.run) == (2, "dut", "t1_l0_x", 2)
    assert found.tree is not None
    assert (found.tree.first, found.tree.counts.same) == ("t1_l0_x", 1)


class Role:
    """A side, as far as it is told."""

    role = "dut"


def test_rerun_from_a_position_on_is_compared_from_there() -> None:
    first = replace(dump(hash="xxh64", greedy="1:2"), source="spec")
    tree = entries_tree(first, first.entries[1:], 1)
    assert (tree.verdict, tree.counts.same, tree.counts.total) == (Verdict.SAME, 2, 2)
    assert tree.ref == tree.dut == {"hash": "xxh64", "greedy": "1:2", "spec": "spec"}


# --- what a tree read from a file holds -----------------------------------------------------------


@dataclass
class Inner:
    """A field of each plain kind."""

    size: int = 1
    part: float = 0.5


@dataclass
class Outer:
    """Every kind that trees are made of."""

    inner: Inner = field(default_factory=Inner)
    named: dict[str, int] = field(default_factory=dict)
    listed: list[Inner] = field(default_factory=list)
    pair: tuple[int, str] = (1, "")
    many: tuple[int, ...] = ()
    one: tuple[int] = (1,)
    maybe: Inner | None = None
    either: list[int] | int = 0


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({}, None),
        ({"inner": Inner(1, 2)}, None),
        ({"maybe": Inner(), "either": [1], "many": (1, 2, 3)}, None),
        ({"inner": Inner(part="x")}, "inner.part"),  # type: ignore[arg-type]
        ({"inner": Inner(True)}, "inner.size"),
        ({"inner": 3}, "inner"),
        ({"named": {"a": 1, "b": "x"}}, "named['b']"),
        ({"named": {1: 1}}, "named"),
        ({"named": []}, "named"),
        ({"listed": [Inner(), Inner(0.5)]}, "listed[1].size"),  # type: ignore[arg-type]
        ({"pair": (1, 2)}, "pair[1]"),
        ({"pair": (1, "", 2)}, "pair"),
        ({"many": (1, 2, "x")}, "many[2]"),
        ({"one": ("x",)}, "one[0]"),
        ({"maybe": 3}, "maybe"),
        ({"maybe": Inner(part="x")}, "maybe"),  # type: ignore[arg-type]
        ({"either": ["x"]}, "either"),
        ({"either": "x"}, "either"),
    ],
)
def test_place_of_a_value_of_another_kind(change: dict[str, Any], where: str | None) -> None:
    assert misfit(Outer(**change), Outer) == where
    tree = None if where is None else f"tree.{where}"
    assert misfit(Outer(**change), Outer, "tree") == tree


def test_place_of_the_whole_value_is_empty() -> None:
    assert misfit(1, str) == ""
    assert misfit(Inner(), Outer) == ""
    assert misfit(["x"], list[int]) == "[0]"
