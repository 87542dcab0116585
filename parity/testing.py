"""For tests: arrays that must be equal to the bit, and engines that must keep their promises.

    from parity.testing import assert_bits_equal, engine_conformance
    assert_bits_equal(ref, dut)
    print(engine_conformance(MyEngine))

Each promise of an engine is one public function below; its docstring is the promise. None of them
asks for particular bits: an engine of any tier keeps its promises to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.bits_equal import assert_bits_equal
from parity.builds.provenance import COMPILED, MASK, PACKAGES
from parity.dump import TensorType
from parity.errors import InputError, NotRunError, ParityBug, ParityError
from parity.families import field_type
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key
from parity.model.config import MODULES
from parity.model.generator import prompt_tokens
from parity.model.model import Model
from parity.promises.candidate import Given, candidate
from parity.promises.conformance import (
    BROKEN,
    KEPT,
    NOT_CHECKED,
    NOT_OFFERED,
    POSITIONS,
    STATE,
    WEIGHTS,
    Bench,
    ConformanceError,
    Outcome,
    bits,
    class_name,
    first_difference,
    single_steps,
)
from parity.promises.engines import (
    batch_keeps_sequences_apart,
    capture_matches_digests,
    counters_count,
    inject_moves_one_key,
    replay_reads_what_is_given,
    rollback_restores,
    rows_equal_steps,
    state_round_trip,
    trace_tells_what_ran,
)
from parity.promises.functions import (
    borrow_computes_with_what_is_given,
    elementary_is_a_function,
)
from parity.protocol import CAPABILITIES, EngineSettings, Plan, Step
from parity.registry import checked_engine
from parity.runs.carried import model_text, open_for
from parity.spec import EngineSpec, Runnable, runnable

__all__ = [
    "PROMISES",
    "Bench",
    "ConformanceError",
    "Outcome",
    "assert_bits_equal",
    "bad_token_is_refused",
    "batch_keeps_sequences_apart",
    "borrow_computes_with_what_is_given",
    "capture_matches_digests",
    "counters_count",
    "elementary_is_a_function",
    "engine_conformance",
    "entries_are_typed",
    "full_cache_is_refused",
    "inject_moves_one_key",
    "logits_are_a_copy",
    "members",
    "prefill_equals_steps",
    "promise_outcomes",
    "replay_reads_what_is_given",
    "reset_forgets",
    "rollback_restores",
    "rows_equal_steps",
    "run_check",
    "shapes",
    "state_round_trip",
    "tap_changes_nothing",
    "trace_tells_what_ran",
    "weights",
]

DESCRIBED = ("device", "driver", "compiler", "options", "kernels", "emulated")
PROVENANCE = (COMPILED, MASK, PACKAGES)  # optional: docs/provenance.md
STORED = {"float32": "f32", "uint16": "f16", "uint8": "u8"}  # as weights() names them


def engine_conformance(
    engine: Given,
    *,
    model: str | Model = "",
    seed: int = 7,
    settings: EngineSettings | None = None,
) -> list[str]:
    """Hold an engine to every promise of this module.

    ``engine``: its class, a function that returns a fresh engine (called with the settings if it
    takes them), or a spec as on the command line (``"cpu:fast"``, ``"module:Engine"``).
    ``model``: a preset's name, made with ``seed``, a model file, or a model; by default the one
    that a spec names (``"hf:FOLDER"``), else moe-tiny. ``settings``: how the engine is opened; by
    default its first tier, without variants. Returns the names of the checks
    that ran, and ``name: not offered (capability)`` for those that could not. Raises
    ConformanceError at the first promise that is broken; NotRunError where the engine cannot be
    opened here, InputError where it refuses the model.
    """
    ran = []
    for outcome in promise_outcomes(engine, model=model, seed=seed, settings=settings):
        if outcome.error is not None:
            raise outcome.error
        ran.append(str(outcome))
    return ran


def promise_outcomes(
    engine: Given,
    *,
    model: str | Model = "",
    seed: int = 7,
    settings: EngineSettings | None = None,
) -> Iterator[Outcome]:
    """What becomes of each promise, in order, broken ones included; see ``engine_conformance``.

    Without its members an engine is not asked for more: what follows is then not checked.
    """
    loaded = _opened(engine, model, seed) if isinstance(model, str) else model
    if loaded.config.family == MODULES:
        raise InputError(
            f"{loaded.label} has fields of its own: promises are checked on the contract's",
            "give a preset (hf:dense-tiny): the promises are the engine's, whatever model it runs; "
            "on this model run parity stable, isodiff and rollback",
        )
    tokens = tuple(prompt_tokens(seed, 6, loaded.config.ids))
    bench = Bench("", candidate(engine, settings), loaded, tokens)
    _require_loaded(bench)
    sound = True
    for check, capability in PROMISES:
        name = check.__name__
        if not sound:
            outcome = Outcome(name, NOT_CHECKED)
        elif capability and not bench.offers(capability):
            outcome = Outcome(name, NOT_OFFERED, capability)
        else:
            outcome = _checked(check, replace(bench, promise=name))
        sound = sound and not (check is members and outcome.error)
        yield outcome


def _opened(engine: Given, text: str, seed: int) -> Model:
    """The model called ``text``, by the engine itself where it opens models."""
    sides: tuple[Runnable, ...] = ()
    if isinstance(engine, str):
        sides = (runnable(engine, "conformance"),)
    elif isinstance(engine, type):
        sides = (EngineSpec(engine.__name__, engine.__name__, foreign=True, given=engine),)
    return open_for(sides, model_text(sides, text), seed=seed, weights=None)


def _checked(check: Callable[[Bench], None], bench: Bench) -> Outcome:
    try:
        run_check(check, bench)
    except ConformanceError as error:
        return Outcome(bench.promise, BROKEN, error.said, error)
    return Outcome(bench.promise, KEPT)


def _require_loaded(bench: Bench) -> None:
    """Let an engine say that it is not here, or not for this model."""
    try:
        bench.open()
    except ParityError:
        raise
    except Exception:
        return  # a fault, which the first promise names


def run_check(check: Callable[[Bench], None], bench: Bench) -> None:
    """Run one check; whatever else the engine raises in it becomes a ConformanceError too."""
    try:
        check(bench)
    except (ConformanceError, NotRunError):
        raise
    except Exception as error:
        text = f"it raised {type(error).__name__}: {error}"
        raise ConformanceError(bench.promise, bench.name, text) from error


# --- what the engine says of itself --------------------------------------------------------------


def members(bench: Bench) -> None:
    """The class has every required member, and those of each capability that it names.

    ``tiers`` has one at least, ``capabilities`` only known ones; ``describe`` gives one line of
    text for each of DESCRIBED, and for each of PROVENANCE that it gives at all; ``emulated`` is
    ``yes`` or ``no``.
    """
    found = bench.candidate.members
    try:
        checked_engine(found, class_name(found))
    except ParityBug as error:
        bench.require(False, str(error))
    bench.require(isinstance(found.name, str) and bool(found.name), f"name is {found.name!r}")
    bench.require(isinstance(found.version, str), f"version is {found.version!r}")
    bench.require(len(found.tiers) > 0, "tiers is empty")
    unknown = sorted(set(found.capabilities) - set(CAPABILITIES))
    bench.require(not unknown, f"unknown capabilities {unknown}; known: {sorted(CAPABILITIES)}")
    described = bench.open().describe()
    for name in (*DESCRIBED, *(name for name in PROVENANCE if name in described)):
        text = described.get(name)
        ok = isinstance(text, str) and bool(text) and len(text.splitlines()) == 1
        bench.require(ok, f"describe()[{name!r}] is {text!r}, not one line of text")
    bench.require(described["emulated"] in ("yes", "no"), "emulated is neither yes nor no")


def weights(bench: Bench) -> None:
    """``weights`` names every tensor of the model in the model's order, with the stored type and
    FNV-1a-64 of the stored bytes: two engines that were given one model say so."""
    told = dict(bench.open().weights())
    names = list(bench.model.names())
    missing = [name for name in names if name not in told]
    bench.require(not missing, f"no digest of {', '.join(missing[:3])}")
    bench.require(list(told) == names, "other names, or another order, than the model's")
    for name in names:
        array = bench.model.tensor(name)
        kind = TensorType(STORED.get(array.dtype.name, array.dtype.name), array.shape)
        bench.require(told[name][0] == kind, f"{name} is {kind}, told as {told[name][0]}")
        bench.require(told[name][1] == fnv1a64_array(array), f"{name}: not the digest of its bytes")


# --- steps ---------------------------------------------------------------------------------------


def shapes(bench: Bench) -> None:
    """A step gives a Step: logits float32[vocab]; without a plan no entries and no tensors.
    ``prefill`` gives the last step alone, or with a plan one step a token."""
    engine = bench.open()
    steps = engine.prefill(bench.tokens[:2])
    bench.require(len(steps) == 1, f"prefill without a plan gave {len(steps)} steps, not the last")
    steps.append(engine.step(bench.tokens[2]))
    for step in steps:
        bench.require(not step.entries and not step.tensors, "entries or tensors without a plan")
    planned = engine.prefill(bench.tokens[3:5], bench.plan)
    bench.require(len(planned) == 2, f"prefill of 2 tokens with a plan gave {len(planned)} steps")
    for step in [*steps, *planned]:
        _check_logits(bench, step)


def _check_logits(bench: Bench, step: Step) -> None:
    bench.require(isinstance(step, Step), f"a {type(step).__name__}, not a Step")
    logits: Any = step.logits
    told = f"{logits.dtype}{list(logits.shape)}" if isinstance(logits, np.ndarray) else type(logits)
    wanted = f"float32[{bench.vocab}]"
    bench.require(told == wanted, f"logits are {told}, not {wanted}")


def logits_are_a_copy(bench: Bench) -> None:
    """The logits of a step belong to the caller: later steps do not change them, and changing
    them changes no later step. Nor do later steps change the entries of one before."""
    quiet, engine = bench.open(), bench.open()
    wanted = [bits(quiet.step(token).logits) for token in bench.tokens[:3]]
    first = engine.step(bench.tokens[0])
    repeatable = bits(first.logits) == wanted[0]
    bench.require(repeatable, "not repeatable: two fresh engines gave other logits in step 0")
    second = engine.step(bench.tokens[1])
    kept = bits(first.logits) == wanted[0]
    bench.require(kept, "the next step wrote into the logits of the one before")
    try:
        first.logits[...] = second.logits[...] = np.float32(np.nan)
    except ValueError:  # read-only
        bench.require(False, "the logits cannot be written to")
    after = engine.step(bench.tokens[2])
    bench.require(bits(after.logits) == wanted[2], "other logits after the caller wrote into them")
    engine.reset()
    steps, told = [], []
    for token in bench.tokens[:3]:
        steps.append(engine.step(token, bench.plan))
        told.append([*steps[-1].entries])
    where = "a later step wrote into the entries of one before"
    for step, entries in zip(steps, told, strict=True):
        bench.require_none(where, first_difference(entries, step.entries))


def prefill_equals_steps(bench: Bench) -> None:
    """``prefill`` has the bits of single steps, in one piece or in several, with a plan or
    without, and so has every step after it."""
    plan, tokens = bench.plan, bench.tokens
    single = single_steps(bench.open(), tokens, plan)
    engine = bench.open()
    whole = [*engine.prefill(tokens[:4], plan), *single_steps(engine, tokens[4:], plan)]
    bench.require_same("prefill of 4", single, whole)
    engine = bench.open()
    engine.prefill(tokens[:1])
    last = engine.prefill(tokens[1:4])
    kept = bits(last[-1].logits) == bits(single[3].logits)
    bench.require(kept, "prefill of 1 and 3 without a plan: other logits than 4 steps")
    bench.require_same(
        "after prefill of 1 and 3", single[4:], single_steps(engine, tokens[4:], plan)
    )


def reset_forgets(bench: Bench) -> None:
    """After ``reset``, and after ``load`` again, the same tokens give the same bytes, whatever was
    fed before."""
    plan, tokens = bench.plan, bench.tokens
    engine = bench.open()
    first = single_steps(engine, tokens[:3], plan)
    engine.reset()
    engine.prefill(tokens[::-1])
    engine.reset()
    bench.require_same("after reset", first, single_steps(engine, tokens[:3], plan))
    engine.load(bench.model, POSITIONS)
    bench.require_same("after load", first, single_steps(engine, tokens[:3], plan))


# --- the tap -------------------------------------------------------------------------------------


def tap_changes_nothing(bench: Bench) -> None:
    """Logits, and the state where it is offered, have the same bytes whatever the plan asks for:
    nothing, everything, some fields, some places, a tensor."""
    tokens, last = bench.tokens[:3], bench.model.config.layers - 1
    plans = {
        "everything": bench.plan,
        "two fields": Plan(("attn", "logits")),
        "one place": replace(bench.plan, places=frozenset({(1, last)})),
    }
    if bench.offers("capture"):
        plans["a tensor"] = replace(bench.plan, tensors=frozenset({Key(1, 0, "nrm")}))
    quiet = bench.open()
    wanted = single_steps(quiet, tokens)
    for what, plan in plans.items():
        engine = bench.open()
        for number, token in enumerate(tokens):
            same = bits(engine.step(token, plan).logits) == bits(wanted[number].logits)
            bench.require(same, f"with a tap on {what}, step {number} has other logits")
        bench.require_same_state(f"with a tap on {what}", quiet, engine)


def entries_are_typed(bench: Bench) -> None:
    """A step reports exactly the keys that the plan asks for, in dataflow order, each with the
    family's dtype and shape and without ``nonfinite`` where all is finite. The digest is FNV-1a-64
    from the plan's basis, the same whatever else is asked for. A program reports the keys of its
    own model."""
    steps = single_steps(bench.open(), bench.tokens[:2], bench.plan)
    for pos, step in enumerate(steps):
        if not bench.own_fields:
            _check_schema(bench, pos, step)
        for entry in step.entries:
            bench.require(entry.nonfinite is None, f"{entry.key}: nonfinite {entry.nonfinite}")
        bench.require_digest_of_logits(step)
    some = Plan(("nrm", "attn", "logits"), places=frozenset({(1, 0), (1, None)}))
    picked = [entry for entry in steps[1].entries if some.wants(entry.key)]
    chosen = single_steps(bench.open(), bench.tokens[:2], some)
    bench.require(not chosen[0].entries, "entries at a position that was not asked for")
    told = [one for one in chosen[1].entries if some.wants(one.key) or not bench.own_fields]
    bench.require_none("with fields and places", first_difference(picked, told))
    basis = BASES["kestrel-fnv"]
    other = bench.open().step(bench.tokens[0], replace(bench.plan, basis=basis))
    bench.require_digest_of_logits(other, basis)
    known = {(entry.key, entry.digest) for entry in steps[0].entries}
    stuck = next((one.key for one in other.entries if (one.key, one.digest) in known), None)
    bench.require(stuck is None, f"{stuck}: one digest from two bases, which no bytes have")


def _check_schema(bench: Bench, pos: int, step: Step) -> None:
    keys = [entry.key for entry in step.entries]
    bench.require_none(f"step {pos}", _key_problem(keys, bench.expected_keys(pos)))
    for entry in step.entries:
        kind = field_type(bench.model.config, entry.key.field, entry.key.layer)
        bench.require(entry.type == kind, f"{entry.key} is {kind}, reported {entry.type}")


def _key_problem(keys: Sequence[Key], wanted: Sequence[Key]) -> str:
    """What is wrong with a step's keys: missing, unknown, twice or out of order; or nothing."""
    told, known = set(keys), set(wanted)
    if lacking := [key for key in wanted if key not in told]:
        return f"{len(lacking)} keys are missing, first {lacking[0]}"
    if more := [key for key in keys if key not in known]:
        return f"{more[0]} is no key of this step"
    if len(keys) != len(told):
        return f"{next(key for key in keys if keys.count(key) > 1)} is reported twice"
    pairs = zip(keys, wanted, strict=True)
    return next((f"{one} stands where {other} belongs" for one, other in pairs if one != other), "")


# --- refusals ------------------------------------------------------------------------------------


def bad_token_is_refused(bench: Bench) -> None:
    """A token id outside the vocabulary raises a ParityError, in ``step`` and anywhere in a
    ``prefill``, and changes no state: the next step has the bytes it would have had."""
    tokens, plan = bench.tokens, bench.plan
    wanted = single_steps(bench.open(), tokens[:4], plan)
    engine = bench.open()
    single_steps(engine, tokens[:2])
    for bad in (-1, bench.model.config.vocab):
        bench.require_refused(f"step({bad})", lambda bad=bad: engine.step(bad))  # type: ignore[misc]
        many = (tokens[3], bad)
        bench.require_refused(f"prefill({many})", lambda many=many: engine.prefill(many))  # type: ignore[misc]
    bench.require_same("after the refusals", wanted[2:], single_steps(engine, tokens[2:4], plan))


def full_cache_is_refused(bench: Bench) -> None:
    """A position past the KV cache raises a ParityError before anything changes: in a ``step``,
    and in a ``prefill`` that would run past its end."""
    tokens, plan = bench.tokens, bench.plan
    wanted = single_steps(bench.open(), tokens[:3], plan)
    engine = bench.open(3)
    single_steps(engine, tokens[:2])
    bench.require_refused("prefill past the cache", lambda: engine.prefill(tokens[2:4]))
    bench.require_same("after the refusal", wanted[2:], single_steps(engine, tokens[2:3], plan))
    bench.require_refused("a step past the cache", lambda: engine.step(tokens[3]))
    engine.reset()
    bench.require_same("after a reset", wanted, single_steps(engine, tokens[:3], plan))


PROMISES: tuple[tuple[Callable[[Bench], None], str], ...] = (
    (members, ""),
    (weights, WEIGHTS),
    (shapes, ""),
    (logits_are_a_copy, ""),
    (prefill_equals_steps, ""),
    (reset_forgets, ""),
    (tap_changes_nothing, ""),
    (entries_are_typed, ""),
    (capture_matches_digests, "capture"),
    (state_round_trip, STATE),
    (inject_moves_one_key, "inject"),
    (replay_reads_what_is_given, "replay"),
    (trace_tells_what_ran, "trace"),
    (elementary_is_a_function, "elementary"),
    (borrow_computes_with_what_is_given, "borrow"),
    (rows_equal_steps, "rows"),
    (batch_keeps_sequences_apart, "batch"),
    (rollback_restores, "rollback"),
    (counters_count, "counters"),
    (bad_token_is_refused, ""),
    (full_cache_is_refused, ""),
)
