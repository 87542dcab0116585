"""What an op calls, and the op done again around its calls, against the scalar oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from parity.keys import Key
from parity.model.model import synthetic
from parity.protocol import ELEMENTARY, Call, EngineSettings, Plan, Step
from parity.runs.run import Run
from parity.variants import variant_mask
from parity_cpu import Engine, arguments, calls
from parity_cpu.arguments import PARTS
from parity_cpu.own_functions import own_values
from tests.engines.elementary_log import Log, oracle_log
from tests.engines.op_arguments import op_arguments, parameters
from tests.oracle import check, hybrid_check, variants
from tests.oracle.inputs import OPS, cases, is_non_finite
from tests.oracle.variants_shared import Names

F = np.float32
EXACT: Names = frozenset()
KNOWN: tuple[Names, ...] = (frozenset({"two_pass"}), frozenset({"split_keys"}))  # no correction
SHARED = [op for op in PARTS if op in OPS]
HYBRID = [op for op in PARTS if op in hybrid_check.TABLES]
# Sets of variants that change what is called, beside the exact tier.
ORDERS = [(op, names) for op in SHARED if "attention" in op for names in KNOWN]
SETS = [(op, names) for op in SHARED if op in variants.OF_OP for names in variants.sets_of(op)]


def arguments_of(op: str, outputs: check.Outputs, args: check.Args, mask: int) -> list[Any]:
    """What the engine calls the op with."""
    compiled = getattr(import_module(f"parity_cpu.ops.{op}"), op)
    return op_arguments(op, parameters(compiled), outputs, args, mask)


# --- outputs --------------------------------------------------------------------------------------


def redone(op: str, args: check.Args, specs: hybrid_check.Specs, mask: int) -> check.Outputs:
    """The outputs of an op done again with the engine's own functions."""
    outputs = tuple(np.full(shape, -1, dtype) for shape, dtype in specs)
    own = partial(_own, mask)
    assert arguments.redo(op, arguments_of(op, outputs, args, mask), own)
    return outputs


def _own(mask: int, function: str, x: np.ndarray) -> np.ndarray:
    return own_values(function, x, mask)


def redone_shared(op: str, args: check.Args, names: Names = EXACT) -> check.Outputs:
    return redone(op, args, check.output_specs(op, args), variant_mask(names))


def in_order(value: str | Names) -> str:
    """A test id that does not depend on the order of a set: workers must collect the same ids."""
    return value if isinstance(value, str) else "+".join(sorted(value))


@pytest.mark.parametrize("op", SHARED)
def test_op_around_its_calls_has_the_oracles_bytes(op: str) -> None:
    assert check.check_op(op, redone_shared) > 5


@pytest.mark.parametrize(("op", "names"), SETS, ids=in_order)
def test_variant_around_its_calls_has_the_oracles_bytes(op: str, names: Names) -> None:
    assert check.check_variants(op, names, redone_shared) > 5


@pytest.mark.parametrize("variant", ["", *hybrid_check.EXPONENTIALS])
@pytest.mark.parametrize("op", HYBRID)
def test_hybrid_op_around_its_calls_has_the_oracles_bytes(op: str, variant: str) -> None:
    if variant and op not in hybrid_check.WITH_VARIANTS:
        variant = ""
    mask = variant_mask([variant] if variant else [])
    assert hybrid_check.check_op(op, redone, variant, mask) > 4


def test_every_op_is_held_against_the_oracle() -> None:
    assert {*SHARED, *HYBRID} == set(PARTS)


# --- arguments ------------------------------------------------------------------------------------


def told(op: str, args: check.Args, specs: hybrid_check.Specs, names: Names) -> arguments.Ran:
    """What the op is going to call."""
    outputs = tuple(np.full(shape, -1, dtype) for shape, dtype in specs)
    return arguments.watch(op, arguments_of(op, outputs, args, variant_mask(names)), None)


def wanted_parts(op: str, args: check.Args, log: Log) -> dict[str, Log]:
    """The oracle's log by part: delta_gates makes two fields element by element."""
    if op == "conv_step":
        return {"conv": log, "hist": []}
    if op != "delta_gates":
        return {"": log}
    parts: dict[str, Log] = {"beta": [], "g": []}
    rest = iter(log)
    for m, h in np.ndindex(args[0].shape):
        parts["beta"].append(next(rest))
        curved = not F(args[0][m, h] + args[3][h]) > F(20.0)
        parts["g"] += [next(rest) for _ in range(3 if curved else 1)]
    assert not list(rest)
    return parts


def all_cases(op: str) -> Iterator[tuple[str, check.Args, hybrid_check.Specs]]:
    if op in SHARED:
        yield from ((name, args, check.output_specs(op, args)) for name, args in cases(op))
    if op in HYBRID:
        for name, args, outputs in hybrid_check.expected(op):
            made = outputs[:-1] if op in hybrid_check.IN_PLACE else outputs
            yield name, args, tuple((out.shape, out.dtype.type) for out in made)


def check_arguments(op: str, names: Names = EXACT) -> int:
    """Every case of an op: the same calls in the same order with the same argument bits."""
    compared = 0
    for case, args, specs in all_cases(op):
        ran = told(op, args, specs, names)
        wanted = wanted_parts(op, args, oracle_log(op, args, names))
        assert set(ran.parts) == set(wanted)
        for part, log in wanted.items():
            compared += _compare(f"{op}[{case}] {part}", dict(ran.parts[part]), log)
    return compared


def _compare(where: str, told: dict[str, np.ndarray], log: Log) -> int:
    assert set(told) == {name for name, _ in log}, where
    for name, x in told.items():
        wanted = np.array([value for called, value in log if called == name], F)
        assert (x.dtype, x.shape) == (wanted.dtype, wanted.shape), f"{where}: {name}"
        wrong = check.differing(wanted, x, any_nan=is_non_finite(where.split("[")[1]))
        assert not wrong.any(), f"{where}: {name}, first at call {int(np.argmax(wrong))}"
    return len(log)


@pytest.mark.parametrize("op", PARTS)
def test_oracle_makes_the_same_calls(op: str) -> None:
    assert check_arguments(op) > 20


@pytest.mark.parametrize(("op", "names"), ORDERS, ids=in_order)
def test_oracle_makes_the_same_calls_from_a_known_maximum(op: str, names: Names) -> None:
    assert check_arguments(op, names) > 20


def test_first_key_of_all_is_no_call() -> None:
    """At position 0 p is 1 and c is 0 by definition (contract 1.8)."""
    case = next(args for _, args in cases("attention_f32") if args[-1] == 0)
    ran = told("attention_f32", case, check.output_specs("attention_f32", case), EXACT)
    assert ran.parts == {"": ()}


# --- in a step ------------------------------------------------------------------------------------


def traced(preset: str, settings: EngineSettings | None = None) -> Step:
    """A step at position 2, every field captured and traced."""
    model = synthetic(preset, 7)
    run = Run(model, (1, 2), extra_fields=("ffn",))
    engine = Engine(settings or EngineSettings())
    engine.load(model, 3)
    engine.prefill(run.prompt)
    every = frozenset(entry.key for entry in engine.step(3, Plan(run.fields)).entries)
    engine.reset()
    engine.prefill(run.prompt)
    return engine.step(3, Plan(run.fields, tensors=every, trace=every))


def by_function(ran: tuple[Call, ...]) -> dict[str, np.ndarray]:
    return {name: x for call in ran for name, x in call.elementary}


@pytest.mark.parametrize("preset", ["moe-tiny", "hybrid-tiny", "next-tiny"])
def test_a_step_tells_what_its_values_say(preset: str) -> None:
    """Some arguments stand in the step's own values; others follow from them."""
    step = traced(preset)
    seen = set()
    for key, ran in step.calls.items():
        calls_of, value = by_function(ran), step.tensors[key]
        if key.field == "act":
            gate = step.tensors[Key(key.pos, key.layer, "gate")]
            assert calls_of["expf"].tobytes() == (-gate).tobytes()
        elif key.field == "conv":
            x = -calls_of["expf"]
            e = own_values("expf", -x, 0)
            assert (x * (F(1.0) / (F(1.0) + e))).tobytes() == value.tobytes()
        elif key.field in ("beta", "gs"):
            e = own_values("expf", calls_of["expf"], 0)
            assert (F(1.0) / (F(1.0) + e)).tobytes() == value.tobytes()
        elif key.field == "g":
            last = calls_of["expf"][1::2]
            assert own_values("expf", last, 0).tobytes() == value.tobytes()
        elif key.field == "rlogits":
            assert calls_of == {}
            continue
        elif key.field == "topk":
            logits = step.tensors[Key(key.pos, key.layer, "rlogits")]
            assert calls_of["expf"].tobytes() == (logits - logits.max()).tobytes()
        else:
            continue
        seen.add(key.field)
    hybrid, experts = {"conv", "beta", "g"}, {"topk"}
    wanted = {"moe-tiny": experts, "hybrid-tiny": hybrid, "next-tiny": {*hybrid, *experts, "gs"}}
    assert seen == {"act", *wanted[preset]}


def test_fields_of_one_op_have_their_own_calls() -> None:
    step = traced("hybrid-tiny")
    sizes = {
        field: {name: x.size for name, x in by_function(step.calls[Key(2, 0, field)]).items()}
        for field in ("conv", "hist", "qn", "beta", "g", "o", "gn")
    }
    assert sizes == {
        "conv": {"expf": 960},
        "hist": {},
        "qn": {},
        "beta": {"expf": 6},
        "g": {"expf": 12, "logf": 6},
        "o": {},
        "gn": {"rsqrt": 6, "expf": 576},
    }


def test_rows_of_one_forward_share_their_calls() -> None:
    model = synthetic("moe-tiny", 7)
    engine = Engine(EngineSettings())
    engine.load(model, 3)
    key = Key(1, 0, "knorm")
    _, row, _ = engine.step_rows((1, 2, 3), Plan((), trace=frozenset({key})))
    assert by_function(row.calls[key])["rsqrt"].size == 3 * model.config.n_kv


def test_nothing_is_worked_out_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    watch = arguments.watch

    def counting(op: str, *rest: Any) -> arguments.Ran:
        asked.append(op)
        return watch(op, *rest)

    monkeypatch.setattr(calls, "watch", counting)
    model = synthetic("dense-tiny", 7)
    engine = Engine(EngineSettings())
    engine.load(model, 3)
    engine.step(1, Plan(Run(model, (1,)).fields))
    assert asked == []
    engine.step(2, Plan((), trace=frozenset({Key(1, 0, "nrm")})))
    assert "swiglu" in asked
    del asked[:]
    engine.step(3)
    assert asked == []


def test_borrowed_functions_make_what_the_variant_makes() -> None:
    """A variant of functions alone is the exact tier with them borrowed: every key, every bit."""
    names = frozenset({"rsqrt", "libm_exp", "libm_sincos"})
    for preset in ("moe-tiny", "hybrid-tiny"):
        model = synthetic(preset, 7)
        run = Run(model, (1, 2), extra_fields=("ffn",))
        dut, ref = Engine(EngineSettings(variants=names)), Engine(EngineSettings())
        for engine in (dut, ref):
            engine.load(model, 4)
        own = [dut.step(token, Plan(run.fields)).entries for token in (1, 2, 3)]
        lent = [ref.step(t, Plan(run.fields, borrow=dut.elementary)).entries for t in (1, 2, 3)]
        assert own == lent
        ref.reset()
        assert own != [ref.step(token, Plan(run.fields)).entries for token in (1, 2, 3)]


# --- planted faults -------------------------------------------------------------------------------


def one_after_the_other(made: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Every element of a first call, then every element of a second."""
    return np.concatenate([x[called] for x, called in made])


def every_element(made: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """softplus calls above 20 too."""
    return np.stack([x for x, _ in made], axis=-1).reshape(-1)


def descending(s: np.ndarray) -> np.ndarray:
    """Keys in the other order."""
    given = arguments_online(s)
    return np.ascontiguousarray(given.reshape(-1, 2)[::-1]).reshape(-1)


def weights_first(s: np.ndarray) -> np.ndarray:
    """The weight of a key before its correction."""
    return np.ascontiguousarray(arguments_online(s).reshape(-1, 2)[:, ::-1]).reshape(-1)


arguments_online = arguments.online_arguments


@pytest.mark.parametrize(
    ("op", "name", "fault"),
    [
        ("delta_gates", "_interleaved", one_after_the_other),
        ("delta_gates", "_interleaved", every_element),
        ("attention_int8", "online_arguments", descending),
        ("attention_f32", "online_arguments", weights_first),
        ("rmsnorm", "squares_by_blocks", arguments.squares_ascending),
        ("headnorm", "squares_ascending", arguments.squares_by_blocks),
        ("swiglu", "_sigmoid", lambda ask, x: ask("expf", x)),
        ("router_topk", "largest", lambda row: row[0]),
    ],
)
def test_red_other_arguments(
    monkeypatch: pytest.MonkeyPatch, op: str, name: str, fault: Callable[..., Any]
) -> None:
    monkeypatch.setattr(arguments, name, fault)
    with pytest.raises(AssertionError, match=rf"{op}\["):
        check_arguments(op)


@pytest.mark.parametrize("op", sorted({*SHARED} - {"attention_f32"}))
def test_red_values_that_are_not_used(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """Functions of another library give the bits of another library."""
    moved = lambda mask, name, x: own_values(name, x, mask) * F(1.0 + 2.0**-20)  # noqa: E731
    monkeypatch.setitem(globals(), "_own", moved)
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_op(op, redone_shared)


def test_every_function_is_called_by_some_op() -> None:
    names = set()
    for op in PARTS:
        _, args, specs = next(all_cases(op))
        for part in told(op, args, specs, EXACT).parts.values():
            names |= {name for name, _ in part}
    assert names == set(ELEMENTARY)
