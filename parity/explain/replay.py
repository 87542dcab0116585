"""``parity replay``: the op of a repro folder alone, by both sides, against what was recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.comparison.compare import compare_dumps
from parity.comparison.elements import compare_tensors
from parity.dtypes import dtype_name, same_bits
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.errors import InputError, NotRunError
from parity.explain.drill import KEPT
from parity.explain.repro import SIDES, Repro, replay_op
from parity.fnv import BASES, fnv1a64_array
from parity.keys import Key
from parity.model.generator import words
from parity.model.model import Model, model_digest, synthetic
from parity.protocol import Injection, Step
from parity.registry import ENGINES, plugins
from parity.runs.carried import open_for
from parity.runs.control import INTEGERS
from parity.runs.run import Run, Side
from parity.spec import EngineSpec, Spec, parse_spec
from parity.status import Level, Verdict
from parity.tree import Birth, Births, Cause, Control, KeyRow, KeyState, Stability, Tree

ROLES = dict(zip(SIDES, (("state", "capture"), ("state", "capture", "replay")), strict=True))


@dataclass(frozen=True)
class Made:
    """What one side makes of the op now. ``kernels``: the ops that ran, where it can tell."""

    side: Side
    entry: Entry
    value: np.ndarray
    kernels: list[str]


def sides_of(repro: Repro, moved: str | None = None) -> tuple[str, str]:
    """The specs of ref and dut as recorded. Where they name the run's model themselves
    (``hf:FOLDER``), the path is the one it was read from, or ``moved``."""
    record = repro.record
    ref, dut = (parse_spec(of.get("spec", ""), plugins(ENGINES)) for of in (record.ref, record.dut))
    named, path = getattr(ref, "model", ""), moved or record.model.get("path")
    return _at(ref, named, path), _at(dut, named, path)


def _at(spec: Spec, named: str, path: str | None) -> str:
    if path is None or not isinstance(spec, EngineSpec) or not named or spec.model != named:
        return spec.text
    return spec.text.replace(f"{spec.name}:{named}", f"{spec.name}:{path}", 1)


def model_of(repro: Repro, sides: Sequence[Spec], moved: str | None = None) -> Model:
    """The model that the folder names, opened as ``sides`` open it. ``moved``: where its file or
    folder lies now.

    InputError where this parity has no such preset, and where the file is not there. That its
    weights are the recorded ones is checked once they are loaded.
    """
    found = repro.record.model
    try:
        if "path" in found:
            return _file_model(found, sides, moved)
        if moved is not None:
            raise InputError(f"--model {moved}: the repro is of {found['label']}", "leave it out")
        return synthetic(found["name"], found["seed"], found["weights"], found["only"])
    except (KeyError, TypeError) as error:
        raise InputError(f"the repro names no model: {error}", "write the repro again") from error


def _file_model(found: Mapping[str, Any], sides: Sequence[Spec], moved: str | None) -> Model:
    path = moved or found["path"]
    if not os.path.exists(path):
        raise InputError(
            f"{path}: no such file or folder; the repro was written with {found['label']} there",
            "give --model FILE where it lies now",
        )
    return open_for(sides, path, seed=found.get("seed", 0), weights=found["weights"])


def run_of(repro: Repro, model: Model) -> Run:
    """The settings that the engines are opened with: a KV cache of the same size."""
    record = repro.record
    prompt = tuple(record.fed[: record.prompt])
    more = record.positions - len(prompt)
    return Run(model=model, prompt=prompt, n=more, hash_name=record.hash_name)


def replay_repro(
    repro: Repro, run: Run, ref: Side, dut: Side, *, seed: int = 0, reproduce: str = ""
) -> Tree:
    """Run the op by both sides on the recorded inputs: DIVERGED where they still differ, SAME
    where they do not, UNSTABLE where a side does not give the same twice.

    Raises NotRunError for a side that lacks a capability, InputError where the ref has other
    weights than the folder was written with.
    """
    _check_sides(repro, run.model, ref, dut)
    made = {"ref": _make(ref, repro), "dut": _make(dut, repro)}
    tree = compare_dumps(*(_dump(repro, run.model, made[role]) for role in SIDES))
    tree.run = {
        "model": repro.record.model["label"],
        "positions": f"{repro.key.pos}:{repro.key.pos}",
    }
    tree.reproduce = reproduce
    tree.inputs = [_input_row(repro, key) for key in repro.inputs]
    tree.notes.append(_told(repro, made))
    if tree.verdict is Verdict.DIVERGED:
        _explain(tree, repro, made)
    elif tree.verdict is Verdict.SAME:
        _check_control(tree, repro, made, seed)
    return tree


def _check_sides(repro: Repro, model: Model, ref: Side, dut: Side) -> None:
    for side, needs in zip((ref, dut), ROLES.values(), strict=True):
        missing = [need for need in needs if not side.has(need)]
        if missing:
            raise NotRunError(
                f"{side.spec} lacks the capability {missing[0]!r}, needed for replay",
                "parity engines lists what each engine offers",
            )
    told = f"{model_digest(model.config, ref.weights):016x}"
    wanted = repro.record.model["digest"]
    if told != wanted:
        file = "path" in repro.record.model
        raise InputError(
            f"{ref.spec}: the weights of {model.label} have the digest {told}, the repro was "
            f"written with {wanted}",
            "give --model the file it was written with"
            if file
            else "replay it with the parity that wrote it, or give another --ref",
        )


def _make(side: Side, repro: Repro) -> Made:
    """The op by one side, with what ran for it."""
    trace = frozenset({repro.key}) if side.has("trace") else frozenset()
    step = replay_op(side, repro, trace=trace)
    entry = _entry(side, step, repro.key)
    kernels = [call.op for call in step.calls.get(repro.key, ())]
    return Made(side, entry, step.tensors[repro.key], kernels)


def _entry(side: Side, step: Step, key: Key) -> Entry:
    found = next((entry for entry in step.entries if entry.key == key), None)
    if found is None or key not in step.tensors:
        raise NotRunError(f"{side.spec} does not tell {key}", "give another engine")
    return found


def _dump(repro: Repro, model: Model, made: Made) -> Dump:
    """A dump of the one key."""
    engine = made.side.engine
    settings = getattr(engine, "settings", None)
    header = {
        "hash": repro.record.hash_name,
        "engine": engine.name,
        "version": engine.version,
        "tier": settings.tier if settings else engine.tiers[0],
        "variants": ",".join(sorted(settings.variants)) if settings else "",
        "model": model.label,
        "weights": f"{model_digest(model.config, made.side.weights):016x}",
        **engine.describe(),
    }
    header["variants"] = header["variants"] or "none"
    return Dump(header, {MAIN: [made.entry]}, made.side.spec)


def _input_row(repro: Repro, key: Key) -> KeyRow:
    """A recorded input: both sides read it, so it is the same."""
    array = repro.inputs[key]
    kind = TensorType(dtype_name(array.dtype), array.shape)
    digest = fnv1a64_array(array, BASES[repro.record.hash_name])
    text = Entry(key, digest, kind).value_text()
    return KeyRow(key.tag, KeyState.SAME, text, text)


def _told(repro: Repro, made: dict[str, Made]) -> str:
    """``ref as recorded, dut as recorded, differ in 37 of 128 elements``."""
    parts = []
    for role in SIDES:
        before, now = repro.outputs[role], made[role].value
        if same_bits(before, now):
            parts.append(f"{role} as recorded")
        else:
            parts.append(f"{role} stale ({_count(before, now)} not as recorded)")
    ref, dut = (made[role].value for role in SIDES)
    between = "equal now" if same_bits(ref, dut) else f"differ in {_count(ref, dut)}"
    return ", ".join([*parts, between])


def _count(one: np.ndarray, other: np.ndarray) -> str:
    """``37 of 128 elements``."""
    found = compare_tensors("", one, other)
    if not found.total:
        return "dtype or shape"
    return f"{found.differ:,} of {found.total:,} elements"


def _explain(tree: Tree, repro: Repro, made: dict[str, Made]) -> None:
    """Run the op once more; where each side repeats itself the difference is born here."""
    key, record = repro.key, repro.record
    for role in SIDES:
        again = replay_op(made[role].side, repro).tensors.get(key)
        if again is None or not same_bits(again, made[role].value):
            tree.verdict, tree.level = Verdict.UNSTABLE, Level.NONE
            tree.stability = Stability(2, role, key.tag, 2)
            tree.reason = f"{role} differs from itself at {key}: a rerun gave another digest"
            return
    tree.stability = Stability(2)
    ref, dut = (made[role] for role in SIDES)
    tree.elements = compare_tensors(key.tag, ref.value, dut.value, limit=KEPT)
    row = tree.keys[0]
    tree.keys = [KeyRow(row.key, row.state, row.ref, row.dut, row.segment, Cause.BORN, row.key)]
    birth = Birth(
        key=key.tag,
        op=record.op,
        how="replay",
        dumped=True,
        state=KeyState.DIFFERS,
        clean=True,
        ref=ref.entry.value_text(),
        dut=dut.entry.value_text(),
        ref_kernels=ref.kernels,
        dut_kernels=dut.kernels,
        elements=tree.elements,
    )
    tree.births = Births([birth], complete=True, reason="", reruns=0, replays=2)


def _check_control(tree: Tree, repro: Repro, made: dict[str, Made], seed: int) -> None:
    """Move one element of the dut's output before it is hashed; the comparison must find it."""
    key, ref, dut = repro.key, made["ref"], made["dut"]
    index = int(words(seed, "control", 0, 1)[0]) % max(1, dut.value.size)
    if not dut.side.has("inject"):
        planted = Entry(key, dut.entry.digest ^ 1, dut.entry.type)
        kind, element, unit = "dump level", None, "ULP"
    else:
        step = replay_op(dut.side, repro, inject=Injection(key, index))
        planted = _entry(dut.side, step, key)
        integer = planted.type is not None and planted.type.dtype in INTEGERS
        kind, element, unit = "inject", index, "step" if integer else "ULP"
    header: dict[str, Any] = {"hash": repro.record.hash_name}
    sides = (Dump(header, {MAIN: [entry]}) for entry in (ref.entry, planted))
    found = compare_dumps(*sides).first
    tree.control = Control(kind, found == key.tag, key.tag, found, element, unit)
    if not tree.control.fired:
        tree.verdict, tree.level = Verdict.NOT_RUN, Level.NONE
        tree.reason = (
            f"the control did not fire: a fault planted at {key} was not found"
            f"\nthe tap of {dut.side.spec} does not show what it computes: parity doctor"
        )
