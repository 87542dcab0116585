"""What contract 6 asks of an engine with rows, mark and rollback, beyond equal bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from parity.comparison.states import compare_states
from parity.errors import InputError
from parity.families import dumped_fields
from parity.fnv import fnv1a64_array
from parity.inject import move_element
from parity.keys import Key
from parity.model.checks import MOST_ROWS
from parity.model.generator import prompt_tokens
from parity.protocol import Injection, Plan, Step
from tests.engines.kernel_texts import all_sources, kernels
from tests.probes.asking import ENGINES, model_of, opened

ROOM = 80
KINDS = ("moe-tiny", "hybrid-tiny", "next-tiny")
TOKENS = prompt_tokens(5, ROOM, 512)
KERNELS = kernels(all_sources())
# These have no rows of their own: their argument counts elements, as the grid does, and bounds it.
ELEMENTWISE = {
    *("add", "swiglu", "sigmoid_gate", "silu_gate", "shared_gate", "quant16", "digest"),
    "append_rows",
}
# A block of these takes several rows, to read weights and keys once: an argument counts them.
ATTENTION = {"attention_int8", "attention_f32", "attention_int8_scores", "attention_f32_scores"}
DELTA = {"fused_delta_inputs", "fused_delta"}
TOGETHER = {"q4_matvec_rows", "f32_matvec_rows", "expert_matvec", *ATTENTION, *DELTA}
# What follows the count of rows by what is fastest: these of its arguments, and nothing else.
SHAPED = {"q4_matvec_rows": ("m", "tile", "stock")}
# Room for the inputs of a block's rows.
STAGED = {"q4_matvec_rows", "f32_matvec_rows", "attention_int8", "attention_f32"}
STAGED |= {"attention_int8_scores", "attention_f32_scores", "expert_matvec", *DELTA}


@pytest.fixture(params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def plan_of(kind: str, **changes: Any) -> Plan:
    return Plan(**{"fields": dumped_fields(model_of(kind).config), **changes})


def told(steps: Sequence[Step]) -> list[tuple[bytes, list[Any]]]:
    """All that steps say."""
    return [(step.logits.tobytes(), step.entries) for step in steps]


def same_state(one: Any, other: Any) -> bool:
    return compare_states("end", one.read_state(), other.read_state()).equal


# --- one process, many sizes ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_one_after_the_other_in_one_process(kind: str, engine_name: str) -> None:
    """M = 2, 8, 3, one, 33, one, 2: buffers of an earlier forward change nothing."""
    plan = plan_of(kind)
    single, rows = (opened(engine_name, model_of(kind), ROOM) for _ in range(2))
    at = 0
    for size in (2, 8, 3, 1, 33, 1, 2):
        block = TOKENS[at : at + size]
        ref = [single.step(token, plan) for token in block]
        dut = rows.step_rows(block, plan) if size > 1 else [rows.step(block[0], plan)]
        assert told(ref) == told(dut), size
        at += size
    assert same_state(single, rows)


def test_a_forward_of_one_row_is_a_step(engine_name: str) -> None:
    one, other = (opened(engine_name, model_of("moe-tiny"), 4) for _ in range(2))
    plan = plan_of("moe-tiny")
    assert told([one.step(9, plan)]) == told(other.step_rows([9], plan))


def test_logits_of_rows_are_copies(engine_name: str) -> None:
    engine = opened(engine_name, model_of("moe-tiny"), 8)
    steps = engine.step_rows([1, 2, 3])
    kept = [step.logits.tobytes() for step in steps]
    for step in engine.step_rows([4, 5, 6]):
        step.logits[...] = np.nan
    assert [step.logits.tobytes() for step in steps] == kept


# --- the single-row path --------------------------------------------------------------------------


class Watched:
    """Launches (kernel, shapes, shared memory, numbers among the arguments) and allocations."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.allocations: list[tuple[int, ...]] = []


@contextmanager
def watching(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    watched, backend = Watched(), engine.backend
    launch, empty = backend.launch, backend.empty

    def seen(kernel: str, grid: Any, block: Any, args: Any, shared: int = 0, **more: bool) -> None:
        chosen = SHAPED.get(kernel, ())
        named = zip(KERNELS[kernel].parameters, args, strict=True)
        kept = (arg for name, arg in named if name not in chosen)
        numbers = tuple(arg for arg in kept if isinstance(arg, np.generic))
        watched.launches.append((kernel, tuple(grid), block, shared, numbers))
        launch(kernel, grid, block, args, shared, **more)

    def made(shape: Any, dtype: Any) -> Any:
        watched.allocations.append(tuple(shape))
        return empty(shape, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "launch", seen)
        patch.setattr(backend, "empty", made)
        yield watched


@pytest.mark.parametrize("kind", KINDS)
def test_rows_leave_the_single_row_path_as_it_was(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same launches, no allocation and same bits, before rows were used and after."""
    plan, engine = plan_of(kind), opened("emu", model_of(kind), ROOM)
    engine.step(TOKENS[0], plan)  # allocates what a step needs
    assert engine._decoder.many.nbytes == 0
    start = engine.read_state()

    def step() -> tuple[Watched, list[Any]]:
        engine.reset()
        engine.write_state(start)
        with watching(engine, monkeypatch) as watched:
            given = told([engine.step(TOKENS[1], plan)])
        return watched, given

    before = step()
    engine.step_rows(TOKENS[1:9], plan)
    after = step()
    assert before[0].launches == after[0].launches
    assert before[0].allocations == after[0].allocations == []
    assert before[1] == after[1]


def test_single_steps_call_the_same_ops_after_rows() -> None:
    engine = opened("cpu", model_of("hybrid-tiny"), ROOM)
    engine.step(TOKENS[0])
    first = dict(engine.counters())
    engine.step_rows(TOKENS[1:4])
    before = dict(engine.counters())
    engine.step(TOKENS[4])
    assert {name: count - before[name] for name, count in engine.counters().items()} == first


def test_buffers_of_rows_are_sized_by_the_cap_on_first_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = opened("emu", model_of("hybrid-tiny"), ROOM)
    engine.backend.fuse = False  # other launches keep other values
    engine.step(TOKENS[0])
    one = engine._decoder.one.nbytes
    engine.step_rows(TOKENS[:2])
    many = engine._decoder.many.nbytes
    assert many == one * MOST_ROWS
    with watching(engine, monkeypatch) as watched:
        engine.step_rows(TOKENS[:8])
        engine.step_rows(TOKENS[:3])
    assert engine._decoder.many.nbytes == many
    # The block that goes to the host holds the logits of as many rows as were asked for so far.
    assert all(len(shape) == 1 for shape in watched.allocations)
    assert len(watched.allocations) <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_row_count_is_in_the_launch_shape_or_in_one_argument(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}
    for size in (3, 7):
        engine = opened("emu", model_of(kind), ROOM)
        engine.prefill(TOKENS[:11])
        with watching(engine, monkeypatch) as watched:
            engine.step_rows(TOKENS[:size], plan_of(kind))
        one_row = {"conv_step", "delta_step"}
        seen[size] = [call for call in watched.launches if call[0] not in one_row]
    assert len(seen[3]) == len(seen[7]) > 20
    counted = set()
    for three, seven in zip(seen[3], seen[7], strict=True):
        kernel = three[0]
        assert kernel == seven[0]
        shapes = kernel in ELEMENTWISE | TOGETHER or three[1:3] != seven[1:3]
        assert shapes, f"{kernel}: the shape does not say how many rows"
        shared = kernel in STAGED or three[3] == seven[3]
        assert shared, f"{kernel}: shared memory grows with the rows"
        other = [pair for pair in zip(three[4], seven[4], strict=True) if pair[0] != pair[1]]
        if other and kernel not in ELEMENTWISE:
            counted.add(kernel)
            assert other == [(3, 7)], f"{kernel}: more than a count of rows differs"
    assert counted <= TOGETHER


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "room", "text"),
    [
        ([], ROOM, "0 rows in one forward: 1 to 64 are possible"),
        ([1] * 65, ROOM, "65 rows in one forward: 1 to 64 are possible"),
        ([1, 2, 3, 4], 8, "position 8 is past the KV cache"),
        ([1, 2, 512, 4], ROOM, "token 512 at position 7 is outside the vocabulary"),
        ([1, -1], ROOM, "token -1 at position 6 is outside the vocabulary"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_done_is_refused_before_anything_changes(
    kind: str, rows: list[int], room: int, text: str, engine_name: str
) -> None:
    plain, engine = (opened(engine_name, model_of(kind), room) for _ in range(2))
    for one in (plain, engine):
        one.prefill(TOKENS[:5])
        one.mark()
    before = dict(engine.counters())
    with pytest.raises(InputError, match=text):
        engine.step_rows(rows, plan_of(kind))
    assert dict(engine.counters()) == before
    assert same_state(plain, engine)
    assert told([plain.step(7, plan_of(kind))]) == told([engine.step(7, plan_of(kind))])
    engine.rollback()  # the mark is still there
    assert engine.length == 5


def test_rows_that_just_fill_the_cache(engine_name: str) -> None:
    single, rows = (opened(engine_name, model_of("hybrid-tiny"), 9) for _ in range(2))
    single.prefill(TOKENS[:9])
    rows.prefill(TOKENS[:5])
    rows.step_rows(TOKENS[5:9])
    assert same_state(single, rows)


# --- mark and rollback ----------------------------------------------------------------------------


def test_load_reset_and_a_written_state_drop_the_mark(engine_name: str) -> None:
    model = model_of("hybrid-tiny")
    engine = opened(engine_name, model, 12)
    engine.prefill(TOKENS[:3])
    state = engine.read_state()
    for drop in (engine.reset, lambda: engine.load(model, 12), lambda: engine.write_state(state)):
        engine.mark()
        drop()
        kept = engine.read_state()
        with pytest.raises(InputError, match="rollback without a mark: nothing was changed"):
            engine.rollback()
        assert compare_states("end", kept, engine.read_state()).equal
        engine.reset()
        engine.prefill(TOKENS[:3])


def test_mark_allocates_on_first_use_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened("emu", model_of("hybrid-tiny"), 12)
    assert engine._copies is None
    with watching(engine, monkeypatch) as first:
        engine.mark()
    config = engine.model.config
    assert 4 * sum(int(np.prod(shape)) for shape in first.allocations) == config.recurrent_bytes
    with watching(engine, monkeypatch) as later:
        engine.step_rows(TOKENS[:2])
        engine.rollback()
        engine.mark()
    assert [shape for shape in later.allocations if shape in first.allocations] == []
    assert [call[0] for call in first.launches] == []  # copies, no kernels


def test_mark_copies_and_a_second_one_replaces_it(engine_name: str) -> None:
    engine = opened(engine_name, model_of("gdn"), 12)
    engine.prefill(TOKENS[:2])
    engine.mark()
    engine.step(TOKENS[2])
    wanted = engine.read_state()
    engine.mark()
    engine.prefill(TOKENS[3:6])
    engine.step_rows(TOKENS[6:9])
    engine.rollback()
    assert compare_states("end", wanted, engine.read_state()).equal
    with pytest.raises(InputError, match="rollback without a mark"):
        engine.rollback()
    assert compare_states("end", wanted, engine.read_state()).equal


def test_every_part_that_the_engine_lists_is_marked(engine_name: str) -> None:
    """Each part by itself is spoiled after the mark, as a draft would; KV by its newest rows."""
    engine = opened(engine_name, model_of("hybrid-tiny"), 12)
    engine.prefill(TOKENS[:4])
    wanted = engine.read_state()
    engine.mark()
    tried = engine.step_rows(TOKENS[4:8])
    after = engine.read_state()
    changed = [name for name in wanted if after[name].tobytes() != wanted[name].tobytes()]
    assert changed == list(wanted)  # a draft touches every part
    engine.rollback()
    assert compare_states("end", wanted, engine.read_state()).equal
    assert told(tried) == told(engine.step_rows(TOKENS[4:8]))


# --- the tap --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_tap_changes_nothing_in_rows(kind: str, engine_name: str) -> None:
    """Nothing, everything, one place, one row's tensor: same logits and state."""
    model, everything = model_of(kind), plan_of(kind)
    plans = [
        None,
        everything,
        plan_of(kind, places=frozenset({(4, 0), (5, None)})),
        Plan(("attn",), tensors=frozenset({Key(5, 3, "attn")})),
    ]
    engines = [opened(engine_name, model, ROOM) for _ in plans]
    given = []
    for engine, plan in zip(engines, plans, strict=True):
        engine.prefill(TOKENS[:3])
        given.append(engine.step_rows(TOKENS[3:7], plan))
    logits = [[step.logits.tobytes() for step in steps] for steps in given]
    assert all(one == logits[0] for one in logits)
    assert all(same_state(engines[0], engine) for engine in engines)
    picked = [entry for step in given[1] for entry in step.entries if plans[2].wants(entry.key)]
    assert [entry for step in given[2] for entry in step.entries] == picked
    assert list(given[3][2].tensors) == [Key(5, 3, "attn")]
    assert not any(step.tensors for step in given[3][:2] + given[3][3:])


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_a_row_have_its_digests(kind: str, engine_name: str) -> None:
    keys = [Key(pos, 0, "nrm") for pos in (3, 4, 5)]
    keys += [Key(pos, 3, field) for pos in (3, 5) for field in ("k", "attn", "x")]
    keys += [Key(4, 1, "ks")] if kind == "moe-tiny" else [Key(4, 0, "hist"), Key(5, 0, "o")]
    engine = opened(engine_name, model_of(kind), ROOM)
    engine.prefill(TOKENS[:3])
    steps = engine.step_rows(TOKENS[3:6], plan_of(kind, tensors=frozenset(keys)))
    digests = {entry.key: entry.digest for step in steps for entry in step.entries}
    kept = {key: array for step in steps for key, array in step.tensors.items()}
    assert set(kept) == set(keys)
    assert {key: fnv1a64_array(array) for key, array in kept.items()} == {
        key: digests[key] for key in keys
    }


@pytest.mark.parametrize(
    ("kind", "field", "layer"), [("moe-tiny", "v", 1), ("hybrid-tiny", "hist", 2)]
)
def test_injection_moves_its_row_and_what_follows(
    kind: str, field: str, layer: int, engine_name: str
) -> None:
    key = Key(4, layer, field)
    clean, moved = (opened(engine_name, model_of(kind), ROOM) for _ in range(2))
    steps = []
    for engine, inject in ((clean, None), (moved, Injection(key, 1))):
        engine.prefill(TOKENS[:3])
        steps.append(engine.step_rows(TOKENS[3:6], plan_of(kind, inject=inject)))
    assert told(steps[0][:1]) == told(steps[1][:1])  # row 0 is before it
    pairs = list(zip(steps[0][1].entries, steps[1][1].entries, strict=True))
    first = next((ref.key for ref, dut in pairs if ref.digest != dut.digest), None)
    assert first == key
    assert told(steps[0][2:]) != told(steps[1][2:])  # row 2 sees it


def test_injected_rows_equal_injected_steps(engine_name: str) -> None:
    """The control of isodiff compares these two."""
    plan = plan_of("hybrid-tiny", inject=Injection(Key(4, 3, "k"), 5))
    single, rows = (opened(engine_name, model_of("hybrid-tiny"), ROOM) for _ in range(2))
    for engine in (single, rows):
        engine.prefill(TOKENS[:3])
    ref = [single.step(token, plan) for token in TOKENS[3:6]]
    assert told(ref) == told(rows.step_rows(TOKENS[3:6], plan))


# --- what a row sees ------------------------------------------------------------------------------


@pytest.mark.parametrize("past", [0, 5, 31, 32, 63])
@pytest.mark.parametrize("kind", ["moe-tiny", "attn", "gdn"])
def test_a_row_depends_on_the_rows_before_it_alone(kind: str, past: int, engine_name: str) -> None:
    """B23: another last token leaves the rows before it; another first one changes all."""
    engine = opened(engine_name, model_of(kind), ROOM)
    engine.prefill(TOKENS[:past])
    state = engine.read_state()
    block = TOKENS[past : past + 4]

    def rows(tokens: Sequence[int]) -> list[bytes]:
        engine.write_state(state)
        return [step.logits.tobytes() for step in engine.step_rows(tokens)]

    base = rows(block)
    last = rows([*block[:3], (block[3] + 1) % 512])
    first = rows([(block[0] + 1) % 512, *block[1:]])
    assert [one == other for one, other in zip(base, last, strict=True)] == [True] * 3 + [False]
    assert [one == other for one, other in zip(base, first, strict=True)] == [False] * 4
    engine.write_state(state)
    assert engine.step(block[0]).logits.tobytes() == base[0]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_what_lies_past_the_length(kind: str, engine_name: str) -> None:
    """B14: NaN, and zeros, in every KV row that is not in use: the same bits."""
    engine = opened(engine_name, model_of(kind), ROOM)
    engine.prefill(TOKENS[:6])
    given = []
    for fill in (np.nan, 0.0):
        state = engine.read_state()
        for layer in engine._state.layers:
            for part, array in layer.items():
                if part in ("k", "ks", "v", "vs"):
                    array[6:] = -1 if array.dtype == np.int8 and np.isnan(fill) else fill
        given.append(told(engine.step_rows(TOKENS[6:10], plan_of(kind))))
        given.append(told([engine.step(TOKENS[10], plan_of(kind))]))
        engine.reset()
        engine.write_state(state)
    assert given[:2] == given[2:]


def test_moved_element_is_what_the_device_moves(engine_name: str) -> None:
    """One injection in a row, against the same element moved by hand."""
    key, plan = Key(4, 0, "nrm"), plan_of("moe-tiny", tensors=frozenset({Key(4, 0, "nrm")}))
    kept = []
    for inject in (None, Injection(key, 7)):
        engine = opened(engine_name, model_of("moe-tiny"), ROOM)
        engine.prefill(TOKENS[:3])
        asked = plan_of("moe-tiny", tensors=plan.tensors, inject=inject)
        kept.append(engine.step_rows(TOKENS[3:6], asked)[1].tensors[key])
    move_element(kept[0], 7)
    assert kept[0].tobytes() == kept[1].tobytes()
