"""What mutation testing found unseen in births: how they are put into a tree, and the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.comparison.elements import compare_tensors
from parity.dump import Entry, TensorType
from parity.explain import births
from parity.explain.births import START, Born, Flow, layer_tag, name_births
from parity.explain.forcing import Detail
from parity.explain.rerun import Visit
from parity.explain.retrace import Found
from parity.fnv import fnv1a64_array
from parity.keys import Key
from parity.runs.run import Run
from parity.status import Level, Verdict
from parity.tree import EMBEDDING, Birth, Cause, Counts, FunctionDiff, KeyRow, KeyState, Tree
from tests.core.test_births_flow import HYBRID, MOE, causes, embedded, flowed, visit

WEIGHTS = {"layers.1.wq": (TensorType("f32", (2,)), 1)}
ONE, TWO = np.float32([1.0, 2.0]), np.float32([1.0, 3.0])


def start(run: Run, state: object = None, weights: object = None) -> Any:
    """One side, as far as births ask."""
    side = SimpleNamespace(
        weights=WEIGHTS if weights is None else weights, engine=SimpleNamespace()
    )
    return SimpleNamespace(run=run, state=state, side=side)


def found_of(*visits: Visit, lacking: Sequence[str] = (), **forcing: Any) -> Any:
    """What a retrace found, with nothing that forcing lacks; 3 replays, of which 2 are its own."""
    made: dict[str, Any] = {"lacking": "", "details": {}, "kernels": {}, "sources": {}}
    made |= {"replays": 3, **forcing}
    return Found(SimpleNamespace(**made), 1, visits=list(visits), lacking=list(lacking))  # type: ignore[arg-type]


def tree_of(*rows: tuple[str, str], first: str | None = "t3_l1_nrm", **variants: str) -> Tree:
    keys = [KeyRow(tag, state, "r", "d") for tag, state in rows]
    headers = [{"variants": variants.get(side, "none")} for side in ("ref", "dut")]
    counts = Counts(1, 1, 0, 1, 0, 0)
    return Tree(Verdict.DIVERGED, first, counts, Level.NONE, Level.BIT, *headers, keys=keys)


def detail_of(ref: np.ndarray = ONE, dut: np.ndarray = TWO) -> Detail:
    elements = compare_tensors("t3_l1_nrm", ref, dut)
    function = FunctionDiff.__new__(FunctionDiff)
    return Detail(elements, ["a"], ["b", "c"], [function], True)


# --- what is put into the tree --------------------------------------------------------------------


def test_births_are_put_into_the_tree() -> None:
    seen = visit(MOE, differ=("t3_l1_nrm", "t3_l1_kraw"), forced=("t3_l1_nrm",))
    tree = tree_of(
        ("t3_l1_nrm", KeyState.DIFFERS),
        ("t3_l1_knorm", KeyState.SAME),
        ("t3_l1_kraw", KeyState.DIFFERS),
        ("t3_l0_nrm", KeyState.SAME),
        ("t3_l1_v", KeyState.MISSING),
    )
    detail, kernels = detail_of(), {"nrm": (["a"], ["b"])}
    files = {"b": ("", "b.cu"), "a": ("a.py", "")}
    key = Key.parse("t3_l1_nrm")
    found = found_of(seen, details={key: detail}, kernels=kernels, sources=files)
    name_births(tree, found, (start(MOE),) * 2)
    assert tree.births is not None
    (birth,) = tree.births.found
    assert birth == Birth(
        key="t3_l1_nrm",
        op="RMSNorm (contract 1.1)",
        how="replay",
        dumped=True,
        state="differs",
        clean=True,
        ref=seen.ref[key].value_text(),
        dut=(seen.forced or {})[key].value_text(),
        ref_kernels=["a"],
        dut_kernels=["b", "c"],
        elements=detail.elements,
        functions=detail.functions,
        explained=True,
    )
    told = tree.births
    assert (told.complete, told.reason, told.reruns, told.replays) == (True, "", 2, 2)
    assert (told.kernels, told.kernels is kernels) == (kernels, False)
    assert list(told.sources.items()) == [("a", ("a.py", "")), ("b", ("", "b.cu"))]
    assert [(row.cause, row.source) for row in tree.keys] == [
        (Cause.BORN, ""),
        (Cause.MASKED, "t3_l1_nrm"),
        (Cause.INHERITED, "t3_l1_nrm"),
        ("", ""),
        ("", ""),
    ]
    assert [row.ref for row in tree.keys] == ["r"] * 5


def test_birth_by_its_inputs_has_what_the_dut_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no step was forced, the first birth's detail comes from the run itself."""
    seen = visit(MOE, differ=("t3_l1_nrm", "t3_l2_nrm"), forced=None)
    starts, asked = (start(MOE), start(MOE)), []

    def run_detail(key: Key, given: object) -> Detail:
        asked.append((key.tag, given))
        return replace(detail_of(), explained=None)

    monkeypatch.setattr(births, "run_detail", run_detail)
    tree = tree_of(("t3_l2_nrm", KeyState.DIFFERS))
    name_births(tree, found_of(seen), starts)
    assert asked == [("t3_l1_nrm", starts)]
    assert tree.births is not None
    one, other = tree.births.found
    assert (one.key, one.how, one.clean, one.explained) == ("t3_l1_nrm", "inputs", True, None)
    assert one.dut == seen.dut[Key.parse("t3_l1_nrm")].value_text()
    assert (one.dut_kernels, other.dut_kernels) == (["b", "c"], [])
    assert (other.key, other.elements, other.functions, other.explained) == (
        *("t3_l2_nrm", None, []),
        None,
    )
    assert (other.ref_kernels, other.state) == ([], "differs")


@pytest.mark.parametrize(
    ("tag", "differ", "dumped", "state"),
    [
        ("t3_l1_nrm", True, True, "differs"),
        ("t3_l1_kraw", False, True, "same"),
        ("t3_l1_gate", True, False, ""),
        ("t2_l1_nrm", True, False, ""),
    ],
    ids=["differs", "masked", "field", "prompt"],
)
def test_state_of_a_birth_without_a_row(tag: str, differ: bool, dumped: bool, state: str) -> None:
    pos, other = int(tag[1]), f"{tag[:2]}_l1_nrm"
    differ_in_run = {other, tag} if differ else {other}
    seen = visit(MOE, pos, differ=differ_in_run, forced={other, tag})
    for run, told in ((MOE, dumped), (replace(MOE, dump_prefill=True), tag != "t3_l1_gate")):
        tree = tree_of()
        found = found_of(seen, details={Key(9, 9, "x"): detail_of()})
        name_births(tree, found, (start(run),) * 2)
        assert tree.births is not None
        birth = next(one for one in tree.births.found if one.key == tag)
        assert birth.dumped is told
        assert birth.state == (state if told is dumped else "differs")


def test_state_of_the_row_comes_first() -> None:
    tag = "t3_l1_nrm"
    tree = tree_of((tag, KeyState.NOT_COMPARABLE))
    name_births(
        tree,
        found_of(visit(MOE, differ=(tag,), forced=(tag,)), details={Key(9, 9, "x"): detail_of()}),
        (start(MOE),) * 2,
    )
    assert tree.births is not None
    assert tree.births.found[0].state == "not comparable"
    assert tree.keys[0].cause == ""


@pytest.mark.parametrize(
    ("visits", "lacking", "named"),
    [
        ([visit(MOE)], [], False),
        ([visit(MOE)], ["no state"], False),
        ([], [], False),
        ([], ["no state"], True),
        ([visit(MOE), visit(MOE, 4, differ=("t4_l0_nrm",), forced=("t4_l0_nrm",))], [], True),
    ],
)
def test_nothing_is_put_where_no_key_differs(
    visits: list[Visit], lacking: list[str], named: bool
) -> None:
    tree = tree_of(("t3_l1_nrm", KeyState.DIFFERS))
    found = found_of(*visits, lacking=lacking, details={Key(9, 9, "x"): detail_of()})
    name_births(tree, found, (start(MOE),) * 2)
    assert (tree.births is not None) is named


def test_reasons_why_births_may_be_missing() -> None:
    tags = ("t3_l1_nrm", "t3_l2_nrm")
    seen = visit(MOE, differ=("t3_l0_attn", *tags), forced=tags)
    tree = tree_of()
    found = found_of(
        seen, lacking=["no S"], lacking_too="", details={Key.parse(tags[0]): detail_of()}
    )
    found.forcing.lacking = "ref lacks"
    name_births(tree, found, (start(MOE),) * 2, (3, 1))
    assert tree.births is not None
    assert [birth.key for birth in tree.births.found] == ["t3_l1_nrm"]
    assert tree.births.complete is False
    assert tree.births.reason == (
        "ref lacks; no S; t3_l0_attn: the dut gives other bytes on equal inputs, something else "
        "is read; one layer was searched, t3_l1 (parity diff without --bisect: all)"
    )


@pytest.mark.parametrize(
    ("layer", "tag"), [((4, 2), "t4_l2"), ((4, None), "t4"), ((12, 10), "t12_l10")]
)
def test_layer_tag(layer: tuple[int, int | None], tag: str) -> None:
    assert layer_tag(layer) == tag


# --- a tap that lies ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["tree", "detail"])
@pytest.mark.parametrize("liar", ["ref", "dut", "unknown"])
def test_tap_that_lies_is_named_and_its_births_are_not(place: str, liar: str) -> None:
    tags = ("t3_l1_nrm", "t3_l2_nrm")
    seen = visit(MOE, differ=tags, forced=tags)
    first = Key.parse(tags[0])
    digest = fnv1a64_array(ONE, 14695981039346656037)
    told = {**seen.ref, first: Entry(first, digest + (liar == "ref"), None)}
    seen = replace(seen, ref=told)
    equal = detail_of(ONE, ONE)
    details = {Key.parse(tags[1]): detail_of(), first: equal}
    if place == "tree":
        details = {Key.parse(tags[1]): detail_of()}
    found = found_of(visit(MOE, 2), seen, details=details)
    if liar != "unknown":
        found.tensors = ({first: ONE}, {})
    tree = tree_of((tags[0], KeyState.DIFFERS))
    tree.elements = equal.elements if place == "tree" else None
    name_births(tree, found, (start(MOE),) * 2)
    side = "ref" if liar == "ref" else "dut"
    text = f"the tap of {side} does not report what it computes"
    assert tree.reason == f"the values are equal, the digests are not: {text}"
    assert tree.births is not None
    assert tree.births.reason == tree.reason
    assert not tree.births.complete
    assert [birth.key for birth in tree.births.found] == [tags[1]]
    assert tree.keys[0].cause == ""


def test_tap_that_lies_goes_by_the_hash_of_the_run_and_keeps_the_reason() -> None:
    tag, one = "t3_l1_nrm", ONE[:1]
    first, seen = Key.parse(tag), visit(MOE, differ=(tag,), forced=(tag,))
    digest = fnv1a64_array(one, births.BASES["kestrel-fnv"])
    seen = replace(seen, ref={**seen.ref, first: Entry(first, digest, None)})
    for name, side in (("kestrel-fnv", "dut"), ("fnv1a64", "ref")):
        tree = tree_of()
        tree.ref["hash"], tree.reason = name, "contaminated start"
        found = found_of(seen, details={first: detail_of(one, one)}, lacking=["no S"])
        found.tensors, found.forcing.lacking = ({first: one}, {}), "no replay"
        name_births(tree, found, (start(MOE),) * 2)
        assert tree.births is not None
        assert tree.births.reason.split("; ")[1:] == ["no replay", "no S"]
        assert f"the tap of {side} does not" in tree.births.reason
        assert tree.reason == "contaminated start"


def test_no_elements_and_no_lie() -> None:
    tag = "t3_l1_nrm"
    empty = detail_of(ONE[:0], ONE[:0])
    details = {Key.parse(tag): replace(detail_of(), elements=None), Key(9, 9, "x"): empty}
    tree = tree_of((tag, KeyState.DIFFERS))
    name_births(
        tree, found_of(visit(MOE, differ=(tag,), forced=(tag,)), details=details), (start(MOE),) * 2
    )
    assert tree.births is not None
    assert (tree.births.complete, len(tree.births.found)) == (True, 1)


# --- start rows, variants, weights ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("lacks", "source"),
    [("", START), ("ref", "state part l1_k row 1"), ("dut", "state part l1_k row 1")],
)
def test_rows_of_the_start_states(lacks: str, source: str) -> None:
    states = [{"l1_k": np.array([[1], [value], [3]])} for value in (2, 5)]
    starts = [
        start(MOE, None if lacks == role else state)
        for role, state in zip(("ref", "dut"), states, strict=True)
    ]
    tree = tree_of(("t3_l1_attn", KeyState.DIFFERS), first="t3_l1_attn")
    seen = visit(MOE, differ=("t3_l1_attn",), rows={"l1_k": [1]})
    name_births(tree, found_of(seen, details={Key(9, 9, "x"): detail_of()}), tuple(starts))  # type: ignore[arg-type]
    assert (tree.keys[0].cause, tree.keys[0].source) == (Cause.INHERITED, source)


@pytest.mark.parametrize("headers", [{"ref": "fold_p"}, {"dut": "rsqrt,fold_p"}, {"ref": "rsqrt"}])
def test_variants_of_either_header(headers: dict[str, str]) -> None:
    masked = visit(MOE, differ=("t3_l1_topp",), forced=("t3_l1_topp",))
    tree = tree_of(("t3_l1_down", KeyState.SAME), **headers)
    name_births(tree, found_of(masked, details={Key(9, 9, "x"): detail_of()}), (start(MOE),) * 2)
    folds = any("fold_p" in text for text in headers.values())
    assert tree.keys[0].cause == (Cause.MASKED if folds else "")
    del tree.ref["variants"], tree.dut["variants"]
    assert births._variants(tree) == {""}


READERS = ("t3_l0_nrm", "t3_l0_ores")


@pytest.mark.parametrize(
    ("weights", "embedded"),
    [(None, True), ({"layers.1.wq": 0}, True), ({"layers.0.wq": 0}, False)],
)
def test_embedding_is_one_birth_unless_its_layer_has_other_weights(
    weights: object, embedded: bool
) -> None:
    seen = visit(MOE, differ=READERS, forced=READERS)
    tree = tree_of(*((tag, KeyState.DIFFERS) for tag in READERS))
    starts = (start(MOE), start(MOE, weights=weights))
    name_births(tree, found_of(seen, details={Key(9, 9, "x"): detail_of()}), starts)
    assert tree.births is not None
    ops = {birth.key: birth.op for birth in tree.births.found}
    if embedded:
        assert ops == {"t3_l0_nrm": EMBEDDING}
        assert [(row.cause, row.source) for row in tree.keys] == [
            (Cause.BORN, ""),
            (Cause.INHERITED, "t3_l0_nrm"),
        ]
    else:
        assert list(ops) == list(READERS)
        assert EMBEDDING not in ops.values()


# --- the flow -------------------------------------------------------------------------------------


def test_embedding_takes_the_place_of_the_ops_that_read_it() -> None:
    """Also for what inherits from them, here and at a later position; one reader alone is none."""
    chain = ("t3_l0_kraw", "t3_l0_knorm", "t3_l0_k")
    first = visit(MOE, differ=(*READERS, *chain, "t3_l2_attn"), forced=(*READERS, "t3_l2_attn"))
    later = visit(
        MOE,
        4,
        differ=("t4_l0_attn", "t4_l0_nrm"),
        forced=("t4_l0_nrm",),
        rows={"l0_k": [3]},
    )
    flow = flowed(MOE, first, later)
    assert [one.key.tag for one in flow.born] == ["t3_l0_nrm", "t3_l2_attn", "t4_l0_nrm"]
    assert embedded(flow) == {Key.parse("t3_l0_nrm")}
    told = causes(flow)
    for tag in ("t3_l0_ores", *chain, "t4_l0_attn"):
        assert told[tag] == (Cause.INHERITED, "t3_l0_nrm")
    assert told["t3_l0_fnrm"] == (Cause.MASKED, "t3_l0_nrm")  # from ores, until then
    assert told["t3_l2_attn"] == (Cause.BORN, "")
    ends = visit(MOE, 4, differ=("t4_l0_attn",), rows={"l0_k": [3]})
    assert causes(flowed(MOE, first, ends))["t4_l0_attn"] == (Cause.INHERITED, "t3_l0_nrm")


def test_a_later_position_inherits_from_the_embedding_too() -> None:
    """What reached layer 1 through the second reader is put down to the embedding as well."""
    chain = ("t3_l0_x", "t3_l1_nrm", "t3_l1_kraw", "t3_l1_knorm", "t3_l1_k")
    first = visit(MOE, differ=(*READERS, *chain), forced=READERS)
    later = visit(MOE, 4, differ=("t4_l1_attn",), rows={"l1_k": [3]})
    flow = flowed(MOE, first, later)
    assert embedded(flow) == {Key.parse("t3_l0_nrm")}
    assert causes(flow)["t3_l1_k"] == (Cause.INHERITED, "t3_l0_nrm")
    assert causes(flow)["t4_l1_attn"] == (Cause.INHERITED, "t3_l0_nrm")


@pytest.mark.parametrize(
    ("differ", "forced"),
    [
        (READERS[:1], READERS[:1]),
        (READERS, READERS[:1]),
        (READERS, None),
        ((*READERS, "t3_l2_nrm"), (*READERS, "t3_l2_nrm")),
    ],
    ids=["one reader", "one replayed", "no replay", "another layer"],
)
def test_ops_that_read_the_embedding_stay_births(
    differ: tuple[str, ...], forced: tuple[str, ...] | None
) -> None:
    flow = flowed(MOE, visit(MOE, differ=differ, forced=forced))
    assert embedded(flow) == set()
    assert {one.key.tag for one in flow.born} == set(differ)


def test_keys_of_one_side_alone_are_not_judged() -> None:
    seen = visit(MOE, differ=("t3_l1_nrm",), forced=None)
    gone = {key: entry for key, entry in seen.dut.items() if key.tag != "t3_l0_x"}
    flow = flowed(MOE, replace(seen, dut=gone))
    assert flow.born == []  # its input was not seen on both sides
    assert Key.parse("t3_l0_x") not in flow.causes


def test_a_birth_keeps_its_visit_and_how_it_was_found() -> None:
    by_replay = visit(MOE, differ=("t3_l1_nrm",), forced=("t3_l1_nrm",))
    assert flowed(MOE, by_replay).born == [Born(Key.parse("t3_l1_nrm"), by_replay, True, True)]
    by_inputs = visit(MOE, differ=("t3_l1_nrm",), forced=None)
    assert flowed(MOE, by_inputs).born == [Born(Key.parse("t3_l1_nrm"), by_inputs, False, True)]
    assert causes(flowed(MOE, by_inputs))["t3_l1_nrm"] == (Cause.BORN, "")


def test_a_difference_that_was_not_replayed_has_no_known_origin() -> None:
    """What reads it inherits from nothing that is known."""
    seen = visit(MOE, differ=("t3_l1_nrm", "t3_l1_kraw", "t3_l1_knorm"), forced=("t3_l1_nrm",))
    kept = {key: entry for key, entry in (seen.forced or {}).items() if key.field != "kraw"}
    flow = flowed(MOE, replace(seen, forced=kept))
    assert causes(flow)["t3_l1_knorm"] == (Cause.INHERITED, "")
    assert "t3_l1_kraw" not in causes(flow)


def test_first_source_is_the_token_then_the_start_then_keys() -> None:
    """A token stands before every key of its position, the start before every position."""
    seen = visit(
        MOE, differ=("t3_l0_nrm", "t3_l0_ores", "t3_l0_attn"), forced=("t3_l0_attn",), tokens=(1, 2)
    )
    assert causes(flowed(MOE, seen))["t3_l0_ores"] == (Cause.INHERITED, "token at t3")
    both = visit(
        MOE, differ=("t3_l1_qrope", "t3_l1_attn"), forced=("t3_l1_qrope",), rows={"l1_k": [0, 1]}
    )
    flow = flowed(MOE, both, start={"l1_k": [1]})
    assert causes(flow)["t3_l1_attn"] == (Cause.INHERITED, START)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("moves", [True, False])
def test_state_that_no_side_tells_is_known_by_its_keys(told: bool, moves: bool) -> None:
    """Without the states: rows by all positions before, whole parts by the last one alone."""
    begin = 0 if told else 2
    visits = [visit(MOE, pos, forced=None) for pos in range(begin, 4)]
    if moves:
        visits[1] = visit(MOE, begin + 1, differ=(f"t{begin + 1}_l1_k",), forced=None)
    unseen = [replace(one, rows=None) for one in visits]
    last = replace(visit(MOE, 4, differ=("t4_l1_attn",), forced=None), rows=None)
    flow = flowed(MOE, *unseen, last)
    born = ["t4_l1_attn"] if told and not moves else []
    assert [one.key.tag for one in flow.born if one.key.pos == 4] == born


@pytest.mark.parametrize(
    ("seen", "moved", "born"),
    [((3,), (), True), ((2, 3), (2,), True), ((2, 3), (3,), False), ((2,), (), False)],
)
def test_whole_part_is_known_by_the_position_before(
    seen: tuple[int, ...], moved: tuple[int, ...], born: bool
) -> None:
    visits = [
        replace(visit(HYBRID, pos, differ=(f"t{pos}_l1_s",) if pos in moved else ()), rows=None)
        for pos in seen
    ]
    last = replace(visit(HYBRID, 4, differ=("t4_l1_o",), forced=None), rows=None)
    flow = flowed(HYBRID, *visits, last)
    assert [one.key.tag for one in flow.born if one.key.pos == 4] == (["t4_l1_o"] if born else [])
    begin = replace(visit(HYBRID, 0, differ=("t0_l1_o",), forced=None), rows=None)
    assert [one.key.tag for one in flowed(HYBRID, begin).born] == ["t0_l1_o"]


def test_rows_that_are_told_are_all_known() -> None:
    """A whole part that does not differ is known, though no position before was seen."""
    flow = flowed(HYBRID, visit(HYBRID, 4, differ=("t4_l1_o",), forced=None, rows={}))
    assert [one.key.tag for one in flow.born] == ["t4_l1_o"]
    assert flowed(HYBRID).born == []
    assert Flow(HYBRID, {}, ()).doubts == []


def test_row_of_a_field_that_the_run_does_not_dump_is_not_known() -> None:
    """S is dumped only when asked for: where a row of it that differs comes from is not known."""
    last = visit(HYBRID, 9, differ=("t9_l1_o",), rows={"l1_s": [0]})
    assert causes(flowed(HYBRID, last))["t9_l1_o"] == (Cause.INHERITED, "")
    later = visit(MOE, 9, differ=("t9_l1_attn",), rows={"l1_k": [8]})
    assert causes(flowed(MOE, later))["t9_l1_attn"] == (Cause.INHERITED, "state part l1_k row 8")


def test_input_that_was_not_given_but_made_alike() -> None:
    """The forced op reads what the dut's op made of the ref's inputs, if these are its bytes."""
    made = visit(MOE, differ=("t3_l0_attn",), forced=("t3_l0_attn",))
    kept = frozenset(key for key in made.ref if key.tag != "t3_l0_k")
    assert flowed(MOE, replace(made, given=kept)).doubts == []
    without = {key: e for key, e in (made.forced or {}).items() if key.tag != "t3_l0_k"}
    flow = flowed(MOE, replace(made, given=kept, forced=without))
    assert flow.doubts == ["t3_l0_attn was not replayed: not all its inputs are the ref's"]
