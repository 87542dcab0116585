"""The promises of the optional capabilities: see ``parity.testing``, which lists them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from parity.dtypes import dtype_name
from parity.dump import TensorType
from parity.families import field_type
from parity.fnv import fnv1a64_array
from parity.inject import move_element
from parity.keys import Key
from parity.promises.conformance import (
    POSITIONS,
    Bench,
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
from parity.protocol import Engine, Injection, Plan, Step

ROW_PARTS = ("k", "ks", "v", "vs")  # state parts with one row a position
_PART = re.compile(r"l\d+_(\w+)")


def capture_matches_digests(bench: Bench) -> None:
    """Capability ``capture``: the tensors asked for, no others, with the family's dtype and shape;
    their bytes have the digest that was reported, and they are copies."""
    config, asked = bench.model.config, bench.expected_keys(1)[::3]
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
            field_type(config, key.field, key.layer),
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
    are not touched, and what is computed from the value differs. So with a ``change`` that puts
    another value there."""
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
    _check_changed_value(bench, base)
    _check_moved_logits(bench, base)
    other = _injected(bench, Injection(Key(2, 0, "nrm"), 0))
    bench.require_same("a key of another position", [base], [other])
    if bench.offers("capture"):
        _check_moved_tensor(bench, base.entries[1].key)


def _check_changed_value(bench: Bench, base: Step) -> None:
    """Every sign of the first value turned: what is told has the bytes that were given."""
    key, given = base.entries[0].key, []

    def turned(value: np.ndarray) -> np.ndarray:
        given.append(-value)
        return given[0]

    step = _injected(bench, Injection(key, change=turned))
    bench.require(len(given) == 1, f"{key}: a change was asked for {len(given)} times, not once")
    found = first_difference(base.entries, step.entries)
    bench.require(found.startswith(f"{key} "), f"changed {key}, and found {found or 'nothing'}")
    same = step.entries[0].digest == fnv1a64_array(given[0])
    bench.require(same, f"{key}: not the digest of the value that was put there")
    changed = sum(one != other for one, other in zip(base.entries, step.entries, strict=True))
    bench.require(changed > 1, f"nothing after {key} differs: the value put there was not used")


def _check_moved_logits(bench: Bench, base: Step) -> None:
    index = base.logits.size - 1
    step = _injected(bench, Injection(base.entries[-1].key, index))
    wanted = base.logits.copy()
    move_element(wanted, index)
    bench.require(bits(wanted) == bits(step.logits), "moved logits: others were returned")
    bench.require_digest_of_logits(step)


def _check_moved_tensor(bench: Bench, key: Key) -> None:
    asked = frozenset({key})
    wanted = _injected(bench, None, asked).tensors[key].copy()
    move_element(wanted, 1)
    same = bits(wanted) == bits(_injected(bench, Injection(key, 1), asked).tensors[key])
    bench.require(same, f"{key}: not the value with its element 1 moved by the smallest step")


def _last_index(bench: Bench, key: Key) -> int:
    return int(np.prod(field_type(bench.model.config, key.field, key.layer).shape)) - 1


def _injected(
    bench: Bench, inject: Injection | None, tensors: frozenset[Key] = frozenset()
) -> Step:
    """The step at position 1, with one element moved."""
    plan = replace(bench.plan, tensors=tensors, inject=inject)
    return single_steps(bench.open(), bench.tokens[:2], plan)[1]


def replay_reads_what_is_given(bench: Bench) -> None:
    """Capability ``replay``: ``replace`` is asked once for every value of the step, with what the
    op made. Given the same values back, nothing changes. Given another value, that key and those
    before it are reported as the ops made them, and what follows has the bytes it has after the
    same value is injected; so has the state, stored rows and parts too. What is shown is a copy."""
    keys = bench.expected_keys(2)
    base = _step_with(bench, tensors=frozenset(keys))
    asked: list[Key] = []

    def same(key: Key, read: Callable[[], np.ndarray]) -> np.ndarray:
        asked.append(key)
        bench.require(bits(read()) == bits(base[0].tensors[key]), f"{key} read as another value")
        return base[0].tensors[key]

    def written(key: Key, read: Callable[[], np.ndarray]) -> None:
        move_element(read(), 0)

    again = _step_with(bench, replace=same)
    told = sorted(key.tag for key in {*asked, *keys} if asked.count(key) != keys.count(key))
    bench.require(not told, f"asked for {len(asked)} of {len(keys)} values, not alike: {told[:3]}")
    bench.require_same("given the same values", [base[0]], [again[0]])
    untouched = _step_with(bench, replace=written)
    bench.require_same("after the caller wrote into what it read", [base[0]], [untouched[0]])
    stored = {key.field: key for key in reversed(keys) if key.field in ("k", "s", "hist")}
    for key in (keys[0], *stored.values(), keys[len(keys) // 2], keys[-3]):
        _check_given(bench, base, key)


def _check_given(bench: Bench, base: tuple[Step, State], key: Key) -> None:
    moved = np.array(base[0].tensors[key])
    move_element(moved, 0)
    given = _step_with(bench, replace=lambda asked, _: moved if asked == key else None)
    wanted = _step_with(bench, inject=Injection(key, 0))
    entries = given[0].entries
    at = next(i for i, entry in enumerate(entries) if entry.key == key)
    found = first_difference(base[0].entries[: at + 1], entries[: at + 1])
    bench.require_none(f"{key} given, up to it", found)
    found = first_difference(wanted[0].entries[at + 1 :], entries[at + 1 :])
    bench.require_none(f"{key} given, after it", found)
    found = state_difference(wanted[1], given[1])
    bench.require_none(f"{key} given, the state", found)


def _step_with(bench: Bench, **plan: object) -> tuple[Step, State]:
    """The step at position 2 under a changed plan, and the state after it."""
    engine = bench.open()
    engine.prefill(bench.tokens[:2])
    step = engine.step(bench.tokens[2], replace(bench.plan, **plan))  # type: ignore[arg-type]
    return step, read_state(engine) if bench.offers("state") else {}


def trace_tells_what_ran(bench: Bench) -> None:
    """Capability ``trace``: a step names at least one call for each traced key and for no other,
    and is otherwise the same step."""
    asked = bench.expected_keys(2)[::4]
    step, _ = _step_with(bench, trace=frozenset(asked))
    bench.require_same("traced", [_step_with(bench)[0]], [step])
    told = sorted(key.tag for key in step.calls.keys() ^ set(asked))
    bench.require(not told, f"{len(step.calls)} of {len(asked)} keys, not alike: {told[:3]}")
    silent = [key.tag for key, calls in step.calls.items() if not any(call.op for call in calls)]
    bench.require(not silent, f"no call told for {silent[:3]}")


def rows_equal_steps(bench: Bench) -> None:
    """Capability ``rows``: M tokens in one forward give M steps with the bits of M single steps,
    each under its own position, and leave the same state; so do the steps after them. No rows at
    all, a token outside the vocabulary and rows past the KV cache are refused, and change nothing.
    """
    tokens, plan = bench.tokens, bench.plan
    single, engine = bench.open(), bench.open()
    wanted = single_steps(single, tokens, plan)
    found = [engine.step(tokens[0], plan), *_step_rows(engine, tokens[1:4], plan)]
    bench.require_same("1 step and 3 rows", wanted[:4], found)
    for what, rows in (("no rows", ()), ("a bad token", (tokens[4], bench.model.config.vocab))):
        bench.require_refused(what, lambda rows=rows: _step_rows(engine, rows))  # type: ignore[misc]
    bench.require_refused("5 rows in a cache of 8 at 4", lambda: _step_rows(engine, tokens[:5]))
    found = [*_step_rows(engine, tokens[4:5], plan), engine.step(tokens[5], plan)]
    bench.require_same("after 3 rows and the refusals", wanted[4:], found)
    bench.require_same_state("after 3 rows", single, engine)
    quiet = _step_rows(bench.open(), tokens[:3])
    bare = [replace(step, entries=[]) for step in wanted[:3]]
    bench.require_same("3 rows without a plan", bare, quiet)


def batch_keeps_sequences_apart(bench: Bench) -> None:
    """Capability ``batch``: each sequence gets one Step for each of its own tokens, under its own
    positions; what its neighbours hold changes none of its bits (their number and lengths may:
    ``parity isodiff --batch`` tells). No sequence, one that is decoded whole, and a token outside
    the vocabulary are refused. Afterwards the engine is reset."""
    tokens, plan, engine = bench.tokens, bench.plan, bench.open()
    short, long = tokens[:3], tokens[1:6]
    found = _step_batch(engine, (short, long), plan, 1)
    sizes = [len(steps) for steps in found]
    bench.require(sizes == [3, 5], f"sequences of 3 and 5 tokens gave {sizes} steps, not [3, 5]")
    for steps in found:
        for pos, step in enumerate(steps):
            bench.require(bool(step.entries), f"step {pos} of a sequence has no key")
            strays = [one.key.tag for one in step.entries if one.key.pos != pos]
            bench.require(not strays, f"position {pos} stands under {strays[:1]}")
    again = _step_batch(bench.open(), (short, tuple(reversed(long))), plan, 1)
    bench.require_same("beside other tokens", found[0], again[0])
    wanted = single_steps(bench.open(), tokens[:2], plan)
    bench.require_same("after a batch", wanted, single_steps(engine, tokens[:2], plan))
    refused: tuple[tuple[str, tuple[tuple[int, ...], ...], int], ...] = (
        ("no sequence", (), 0),
        ("a sequence that is decoded whole", (short, long), 3),
        ("a bad token", (short, (tokens[0], bench.model.config.vocab)), 0),
    )
    for what, sequences, decode in refused:
        bench.require_refused(
            what,
            lambda given=sequences, count=decode: _step_batch(engine, given, plan, count),  # type: ignore[misc]
        )


def rollback_restores(bench: Bench) -> None:
    """Capability ``rollback``: after ``mark`` and any steps, ``rollback`` gives the marked state
    back, once; position 0 may be marked, and a second mark replaces the first. Without a mark
    (none was set, it is used up, ``reset`` or ``load`` dropped it) a ParityError, and nothing
    changes."""
    tokens, plan = bench.tokens, bench.plan
    wanted = single_steps(bench.open(), tokens[:5], plan)
    engine, quiet = bench.open(), bench.open()
    bench.require_refused("rollback without a mark", lambda: _rollback(engine))
    for length, others in ((0, tokens[3:5]), (2, tokens[:2])):
        _mark(engine)
        single_steps(engine, others)
        _rollback(engine)
        bench.require_same_state(f"rollback to {length}", quiet, engine)
        bench.require_refused("a second rollback", lambda: _rollback(engine))
        again = single_steps(engine, tokens[length : length + 2], plan)
        bench.require_same(f"after rollback to {length}", wanted[length : length + 2], again)
        single_steps(quiet, tokens[length : length + 2])
    _mark(engine)
    engine.reset()
    bench.require_refused("rollback after reset", lambda: _rollback(engine))
    single_steps(engine, tokens[:3])
    _mark(engine)
    engine.step(tokens[3])
    _mark(engine)
    engine.step(tokens[0])
    _rollback(engine)
    bench.require_same("after a second mark", wanted[4:], single_steps(engine, tokens[4:5], plan))
    _mark(engine)
    engine.load(bench.model, POSITIONS)
    bench.require_refused("rollback after load", lambda: _rollback(engine))
    bench.require_same("after load", wanted[:2], single_steps(engine, tokens[:2], plan))


def counters_count(bench: Bench) -> None:
    """Capability ``counters``: whole numbers by name; a step raises some and lowers none, and what
    was handed out before stays as it was."""
    engine = bench.open()
    engine.step(bench.tokens[0])
    before = _counters(engine)
    kept = dict(before)
    engine.step(bench.tokens[1])
    after = _counters(engine)
    bench.require(dict(before) == kept, "a step changed the counters that were given before")
    for name, count in after.items():
        whole = isinstance(name, str) and isinstance(count, int)
        bench.require(whole, f"{name!r} is {count!r}, not a whole number by name")
    lower = [name for name, count in kept.items() if after.get(name, -1) < count]
    bench.require(not lower, f"{', '.join(lower[:3])} went down")
    bench.require(sum(after.values()) > sum(kept.values()), "a step counted nothing")


def _step_rows(engine: Engine, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
    return engine.step_rows(tokens, plan)  # type: ignore[attr-defined, no-any-return]


def _step_batch(
    engine: Engine, sequences: Sequence[Sequence[int]], plan: Plan, decode: int
) -> list[list[Step]]:
    return engine.step_batch(sequences, plan, decode)  # type: ignore[attr-defined, no-any-return]


def _mark(engine: Engine) -> None:
    engine.mark()  # type: ignore[attr-defined]


def _rollback(engine: Engine) -> None:
    engine.rollback()  # type: ignore[attr-defined]


def _counters(engine: Engine) -> Mapping[str, int]:
    return engine.counters()  # type: ignore[attr-defined, no-any-return]
