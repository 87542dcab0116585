"""What every engine promises, as checks that the author of an engine can run.

    from parity.testing import engine_conformance
    print(engine_conformance(MyEngine))

Each promise is one public function below; its docstring is the promise. None of them asks for
particular bits: an engine of any tier keeps its promises to itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.conformance import (
    POSITIONS,
    STATE,
    Bench,
    ConformanceError,
    State,
    bits,
    copies,
    first_difference,
    read_state,
    single_steps,
    spoil,
    state_difference,
    write_state,
)
from parity.dtypes import dtype_name
from parity.dump import TensorType
from parity.errors import NotRunError, ParityBug
from parity.families import field_type
from parity.fnv import BASES, fnv1a64_array
from parity.inject import move_element
from parity.keys import FINAL_FIELDS, Key, KeyOrder
from parity.model.generator import prompt_tokens
from parity.model.model import Model, synthetic
from parity.protocol import CAPABILITIES, Engine, EngineSettings, Injection, Plan, Step
from parity.registry import checked_engine

__all__ = ["PROMISES", "Bench", "ConformanceError", "engine_conformance", "run_check"]

DESCRIBED = ("device", "driver", "compiler", "options", "kernels", "emulated")
ROW_PARTS = ("k", "ks", "v", "vs")  # state parts with one row a position
STORED = {"float32": "f32", "uint16": "f16", "uint8": "u8"}  # as weights() names them
_PART = re.compile(r"l\d+_(\w+)")


def engine_conformance(
    engine_class: type[Engine],
    *,
    model: str | Model = "moe-tiny",
    seed: int = 7,
    settings: EngineSettings | None = None,
) -> list[str]:
    """Hold an engine class to every promise of this module.

    ``model``: a preset's name, made with ``seed``, or a model. ``settings``: how the engine is
    opened; by default its first tier, without variants. Returns the names of the checks that ran,
    and ``name: not offered (capability)`` for those that could not. Raises ConformanceError at the
    first promise that is broken; NotRunError where the engine cannot be opened here.
    """
    loaded = synthetic(model, seed) if isinstance(model, str) else model
    tiers = getattr(engine_class, "tiers", None) or ("exact",)
    chosen = settings or EngineSettings(tier=tiers[0])
    tokens = tuple(prompt_tokens(seed, 6, loaded.config.vocab))
    bench = Bench("", engine_class, loaded, chosen, tokens)
    ran = []
    for check, capability in PROMISES:
        if capability and not bench.offers(capability):
            ran.append(f"{check.__name__}: not offered ({capability})")
            continue
        run_check(check, replace(bench, promise=check.__name__))
        ran.append(check.__name__)
    return ran


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
    text for each of DESCRIBED, and ``emulated`` is ``yes`` or ``no``.
    """
    found = bench.engine_class
    try:
        checked_engine(found, getattr(found, "__name__", str(found)))
    except ParityBug as error:
        bench.require(False, str(error))
    bench.require(isinstance(found.name, str) and bool(found.name), f"name is {found.name!r}")
    bench.require(isinstance(found.version, str), f"version is {found.version!r}")
    bench.require(len(found.tiers) > 0, "tiers is empty")
    unknown = sorted(set(found.capabilities) - set(CAPABILITIES))
    bench.require(not unknown, f"unknown capabilities {unknown}; known: {sorted(CAPABILITIES)}")
    described = bench.open().describe()
    for name in DESCRIBED:
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
    wanted = f"float32[{bench.model.config.vocab}]"
    bench.require(told == wanted, f"logits are {told}, not {wanted}")


def logits_are_a_copy(bench: Bench) -> None:
    """The logits of a step belong to the caller: later steps do not change them, and changing
    them changes no later step."""
    quiet, engine = bench.open(), bench.open()
    wanted = single_steps(quiet, bench.tokens[:3])
    first = engine.step(bench.tokens[0])
    second = engine.step(bench.tokens[1])
    kept = bits(first.logits) == bits(wanted[0].logits)
    bench.require(kept, "the next step wrote into the logits of the one before")
    try:
        first.logits[...] = second.logits[...] = np.float32(np.nan)
    except ValueError:  # read-only
        bench.require(False, "the logits cannot be written to")
    after = engine.step(bench.tokens[2])
    bench.require_same("after the caller wrote into them", wanted[2:], [after])


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
    from the plan's basis, the same whatever else is asked for."""
    config = bench.model.config
    steps = single_steps(bench.open(), bench.tokens[:2], bench.plan)
    for pos, step in enumerate(steps):
        keys = [entry.key for entry in step.entries]
        bench.require_none(f"step {pos}", _key_problem(keys, _expected_keys(bench, pos)))
        for entry in step.entries:
            kind = field_type(config, entry.key.field)
            bench.require(entry.type == kind, f"{entry.key} is {kind}, reported {entry.type}")
            bench.require(entry.nonfinite is None, f"{entry.key}: nonfinite {entry.nonfinite}")
        _check_logits_digest(bench, step, BASES["fnv1a64"])
    some = Plan(("nrm", "attn", "logits"), places=frozenset({(1, 0), (1, None)}))
    picked = [entry for entry in steps[1].entries if some.wants(entry.key)]
    chosen = single_steps(bench.open(), bench.tokens[:2], some)
    bench.require(not chosen[0].entries, "entries at a position that was not asked for")
    bench.require_none("with fields and places", first_difference(picked, chosen[1].entries))
    other = bench.open().step(bench.tokens[0], Plan(("logits",), basis=BASES["kestrel-fnv"]))
    _check_logits_digest(bench, other, BASES["kestrel-fnv"])


def _check_logits_digest(bench: Bench, step: Step, basis: int) -> None:
    told = step.entries[-1]
    digest = fnv1a64_array(step.logits, basis)
    bench.require(told.digest == digest, f"{told.key} is not the digest of the logits it gave")


def _expected_keys(bench: Bench, pos: int) -> list[Key]:
    """Every key of one step, in dataflow order."""
    inner = [field for field in bench.fields if field not in FINAL_FIELDS]
    layers = range(bench.model.config.layers)
    keys = [Key(pos, layer, field) for layer in layers for field in inner]
    return sorted([*keys, *(Key(pos, None, field) for field in FINAL_FIELDS)], key=KeyOrder())


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


# --- capabilities --------------------------------------------------------------------------------


def capture_matches_digests(bench: Bench) -> None:
    """Capability ``capture``: the tensors asked for, no others, with the family's dtype and shape;
    their bytes have the digest that was reported, and they are copies."""
    config, asked = bench.model.config, _expected_keys(bench, 1)[::3]
    engine = bench.open()
    plan = replace(bench.plan, tensors=frozenset(asked))
    step = single_steps(engine, bench.tokens[:2], plan)[1]
    told = sorted(key.tag for key in step.tensors.keys() ^ set(asked))
    bench.require(not told, f"{len(step.tensors)} of {len(asked)} tensors, not alike: {told[:3]}")
    digests = {entry.key: entry.digest for entry in step.entries}
    engine.prefill(bench.tokens[2:4])  # what is no copy changes here
    for key in asked:
        array = step.tensors[key]
        kind, wanted = (
            TensorType(dtype_name(array.dtype), array.shape),
            field_type(config, key.field),
        )
        bench.require(kind == wanted, f"{key} is {wanted}, captured {kind}")
        same = fnv1a64_array(array) == digests[key]
        bench.require(same, f"{key}: the tensor does not have the digest that was reported")


def state_round_trip(bench: Bench) -> None:
    """Capability ``state``: what ``read_state`` gives, ``write_state`` restores bit for bit, in the
    same engine and in a fresh one, and the steps after it have the same bytes. Both copy. A state
    longer than the KV cache is refused and changes nothing."""
    tokens, fresh, engine = bench.tokens, bench.open(), bench.open()
    engine.prefill(tokens[:4])
    state = read_state(engine)
    saved = copies(state)
    _check_parts(bench, saved, 4)
    after = single_steps(engine, tokens[4:], bench.plan)
    bench.require_none("a step wrote into what was read", state_difference(saved, state))
    for where, target in (("a fresh engine", fresh), ("the same engine", engine)):
        given = copies(saved)
        target.reset()
        write_state(target, given)
        spoil(given)
        bench.require_none(f"{where}, read back", state_difference(saved, read_state(target)))
        spoil(read_state(target))
        continued = single_steps(target, tokens[4:], bench.plan)
        bench.require_same(f"{where}, continued", after, continued)
    bench.require_same_state("after continuing", engine, fresh)
    small = bench.open(3)
    small.prefill(tokens[:2])
    before = copies(read_state(small))
    bench.require_refused("a state of 4 in a cache of 3", lambda: write_state(small, saved))
    bench.require_none("after the refusal", state_difference(before, read_state(small)))


def _check_parts(bench: Bench, state: State, length: int) -> None:
    lengths = state.get("lengths", np.zeros(0))
    kept = lengths.dtype.name == "int32" and lengths.tolist() == [length]
    bench.require(kept, f"lengths is {lengths.dtype}{lengths.tolist()}, not int32[{length}]")
    parts = {name: _PART.fullmatch(name) for name in state if name != "lengths"}
    bench.require(bool(parts), "no part but lengths")
    for name, found in parts.items():
        bench.require(found is not None, f"a part is named {name!r}, not like l0_k")
        if found is not None and found[1] in ROW_PARTS:
            rows = state[name].shape[0]
            bench.require(rows == length, f"{name} has {rows} rows, {length} were written")


def inject_moves_one_key(bench: Bench) -> None:
    """Capability ``inject``: the value behind the key is moved by the smallest step in that one
    element, before it is hashed and used. Keys before it keep their bytes, keys of other positions
    are not touched, and what is computed from the value differs."""
    base = _injected(bench, None)
    integer = [entry for entry in base.entries if entry.type and "int" in entry.type.dtype]
    middle = base.entries[len(base.entries) // 2]
    for entry in (base.entries[0], *integer[:1], middle):
        step = _injected(bench, Injection(entry.key, _last_index(bench, entry.key)))
        found = first_difference(base.entries, step.entries)
        text = f"moved {entry.key}, and found {found or 'nothing'}"
        bench.require(found.startswith(f"{entry.key} "), text)
    step = _injected(bench, Injection(base.entries[0].key, _last_index(bench, base.entries[0].key)))
    changed = sum(one != other for one, other in zip(base.entries, step.entries, strict=True))
    bench.require(changed > 1, f"nothing after {base.entries[0].key} differs: it was not used")
    _check_moved_logits(bench, base)
    other = _injected(bench, Injection(Key(2, 0, "nrm"), 0))
    bench.require_same("a key of another position", [base], [other])
    if bench.offers("capture"):
        _check_moved_tensor(bench, base.entries[1].key)


def _check_moved_logits(bench: Bench, base: Step) -> None:
    index = base.logits.size - 1
    step = _injected(bench, Injection(base.entries[-1].key, index))
    wanted = base.logits.copy()
    move_element(wanted, index)
    bench.require(bits(wanted) == bits(step.logits), "moved logits: others were returned")
    _check_logits_digest(bench, step, BASES["fnv1a64"])


def _check_moved_tensor(bench: Bench, key: Key) -> None:
    asked = frozenset({key})
    wanted = _injected(bench, None, asked).tensors[key].copy()
    move_element(wanted, 1)
    same = bits(wanted) == bits(_injected(bench, Injection(key, 1), asked).tensors[key])
    bench.require(same, f"{key}: not the value with its element 1 moved by the smallest step")


def _last_index(bench: Bench, key: Key) -> int:
    return int(np.prod(field_type(bench.model.config, key.field).shape)) - 1


def _injected(
    bench: Bench, inject: Injection | None, tensors: frozenset[Key] = frozenset()
) -> Step:
    """The step at position 1, with one element moved."""
    plan = replace(bench.plan, tensors=tensors, inject=inject)
    return single_steps(bench.open(), bench.tokens[:2], plan)[1]


# --- refusals ------------------------------------------------------------------------------------


def bad_token_is_refused(bench: Bench) -> None:
    """A token id outside the vocabulary raises a ParityError, in ``step`` and anywhere in a
    ``prefill``, and changes no state: the next step has the bytes it would have had."""
    tokens, plan = bench.tokens, bench.plan
    wanted = single_steps(bench.open(), tokens[:4], plan)
    engine = bench.open()
    engine.prefill(tokens[:2])
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
    engine.prefill(tokens[:2])
    bench.require_refused("prefill past the cache", lambda: engine.prefill(tokens[2:4]))
    bench.require_same("after the refusal", wanted[2:], single_steps(engine, tokens[2:3], plan))
    bench.require_refused("a step past the cache", lambda: engine.step(tokens[3]))
    engine.reset()
    bench.require_same("after a reset", wanted, single_steps(engine, tokens[:3], plan))


PROMISES: tuple[tuple[Callable[[Bench], None], str], ...] = (
    (members, ""),
    (weights, ""),
    (shapes, ""),
    (logits_are_a_copy, ""),
    (prefill_equals_steps, ""),
    (reset_forgets, ""),
    (tap_changes_nothing, ""),
    (entries_are_typed, ""),
    (capture_matches_digests, "capture"),
    (state_round_trip, STATE),
    (inject_moves_one_key, "inject"),
    (bad_token_is_refused, ""),
    (full_cache_is_refused, ""),
)
