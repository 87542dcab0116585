"""Where ``parity selftest`` plants its faults: dump files, tensor files, engines that run.

Inside an engine a changed value stands in the place of what the op made, before it is hashed and
used (``Injection.change``). The hash that the engine then tells must be the core's hash of the
changed bytes, else the fault counts as not planted. What no op could read (another dtype or shape;
a key that is missing, extra, told twice or out of order) is planted in what the engine reports.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from parity.dtypes import dtype_name
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.dumps.writer import write_dump
from parity.errors import NotRunError, ParityBug
from parity.fnv import fnv1a64_array
from parity.keys import Key
from parity.model.generator import prompt_tokens, words
from parity.model.model import Model
from parity.protocol import Engine, Injection, Plan, Step
from parity.runs.run import Run, Side, run_side
from parity.selftest.faults import EXTRA, Change, Fault, Spots, edited, spots_of
from parity.selftest.planting import Compared
from parity.tree import Tree

FIELDS = ("nrm", "attn", "x")  # of the files
PROMPT, STEPS = 3, 2  # of the engines
NEEDS = ("inject", "capture")
Report = Callable[[list[Entry], np.ndarray], list[Entry]]
FileComparing = Callable[[Path, Path], Tree]
DumpComparing = Callable[[Dump, Dump], Tree]


def _entry(key: Key, array: np.ndarray) -> Entry:
    return Entry(key, fnv1a64_array(array), TensorType(dtype_name(array.dtype), array.shape))


def _extra(key: Key) -> Key:
    """A key that the ref does not have, beside ``key``."""
    return key._replace(field="extra")


def _draw(name: str, seed: int, count: int) -> int:
    return int(words(seed, f"selftest {name}", 0, 1)[0]) % count


# --- files ----------------------------------------------------------------------------------------

Tensors = list[tuple[Key, np.ndarray]]


def made_tensors(seed: int) -> Tensors:
    """Two positions of two layers, float32[4,4] each, and logits float32[16], in dataflow order;
    numbers in -1 .. 1."""
    keys = []
    for pos in range(2):
        keys += [Key(pos, layer, name) for layer in range(2) for name in FIELDS]
        keys.append(Key(pos, None, "logits"))
    draws = words(seed, "selftest tensors", 0, 16 * len(keys)).reshape(len(keys), 16)
    values = ((draws >> np.uint64(40)) / np.float64(1 << 23) - 1.0).astype(np.float32)
    shapes = [(16,) if key.layer is None else (4, 4) for key in keys]
    return [(k, x.reshape(s)) for k, x, s in zip(keys, values, shapes, strict=True)]


class Files:
    """A level in files. ``compare``: as ``parity compare`` compares two paths."""

    name = ""
    suffix = ""

    def __init__(self, folder: Path, seed: int, compare: FileComparing) -> None:
        self.paths = tuple(folder / f"{side}{self.suffix}" for side in ("ref", "dut"))
        self._compare = compare
        self.tensors = made_tensors(seed)
        square = [at for at, (_, array) in enumerate(self.tensors) if array.ndim == 2]
        self.at = square[_draw(self.name, seed, len(square))]
        found = spots_of(self.tensors[self.at][1], seed)
        if found is None:
            raise ParityBug(f"{self.name}: no place for the faults")
        self.spots: Spots = found

    @property
    def key(self) -> Key:
        """Where the fault is."""
        return self.tensors[self.at][0]

    def key_of(self, fault: Fault) -> str:
        """The planted tensor, or the extra one beside it."""
        return (_extra(self.key) if fault.edit == EXTRA else self.key).tag

    def compare(self, fault: Fault) -> Compared:
        """Write both files and compare them."""
        key, array = self.tensors[self.at]
        base = array if fault.base is None else fault.base(array, self.spots)
        held = base if fault.change is None else fault.change(base, self.spots)
        sides = [[*self.tensors], [*self.tensors]]
        sides[0][self.at], sides[1][self.at] = (key, base), (key, held)
        sides[1] = edited(sides[1], self.at, fault.edit, (_extra(key), array))
        for path, tensors in zip(self.paths, sides, strict=True):
            self.write(path, tensors)
        tree = self._compare(*self.paths)
        if fault.change is not None and _entry(key, base) == _entry(key, held):
            return Compared(tree, "not planted: the value is what it was")
        return Compared(tree, self.problem(tree, base, held))

    def write(self, path: Path, tensors: Tensors) -> None:
        """Write one side."""
        raise NotImplementedError

    def problem(self, tree: Tree, ref: np.ndarray, dut: np.ndarray) -> str:
        """A fault in one key shows in that key alone."""
        counts = tree.counts
        apart = counts.differ + counts.missing + counts.extra
        return f"{apart} keys differ, 1 was changed" if apart > 1 else ""


class DumpFiles(Files):
    """Two dump files."""

    name, suffix = "dumps", ".dump"

    def write(self, path: Path, tensors: Tensors) -> None:
        """A dump as another program may write it: a key may stand there twice."""
        entries = [_entry(key, array) for key, array in tensors]
        write_dump(Dump({"engine": "selftest"}, {MAIN: entries}), path, force=True)


class TensorFiles(Files):
    """Two ``.npz`` files."""

    name, suffix = "npz", ".npz"

    def write(self, path: Path, tensors: Tensors) -> None:
        """An archive as numpy.savez writes it, in which a name may stand twice."""
        with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zipfile's, of the name that stands twice
            for key, array in tensors:
                with archive.open(f"{key}.npy", "w") as stream:
                    np.lib.format.write_array(stream, np.ascontiguousarray(array))

    def problem(self, tree: Tree, ref: np.ndarray, dut: np.ndarray) -> str:
        """The elements that differ are told as well, where both have one dtype and shape."""
        if ref.dtype == dut.dtype and ref.shape == dut.shape:
            wanted = int((ref.view(np.uint32) != dut.view(np.uint32)).sum())
            found = tree.elements.differ if tree.elements is not None else 0
            if wanted != found:
                return f"{found} elements differ, {wanted} were changed"
        return super().problem(tree, ref, dut)


# --- engines --------------------------------------------------------------------------------------


class Planted:
    """An engine with a fault behind one key, in every run that dumps it.

    ``change``: gives what stands there before it is hashed and used, from the float32[rows,
    columns] that the op made. ``report``: gives the entries that a step tells, from those that the
    engine told and the value behind the key. ``given``: what ``change`` gave last; ``seen``: the
    last value behind the key, with the change in it.
    """

    def __init__(self, engine: Engine, key: Key) -> None:
        self._engine, self._key = engine, key
        self.change: Callable[[np.ndarray], np.ndarray] | None = None
        self.report: Report = lambda entries, value: entries
        self.given: np.ndarray | None = None
        self.seen: np.ndarray | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        """As the engine does: the fault stands in a decoded step."""
        return self._engine.prefill(tokens, plan)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        """A step, with the fault in it where it is the one of the key."""
        if plan is None:
            return self._engine.step(token)
        inject = None if self.change is None else Injection(self._key, change=self._changed)
        step = self._engine.step(
            token, replace(plan, inject=inject, tensors=frozenset({self._key}))
        )
        if self._key not in step.tensors:
            return step
        self.seen = step.tensors[self._key]
        entries = self.report([*step.entries], self.seen)
        return replace(step, entries=entries, tensors={})

    def _changed(self, value: np.ndarray) -> np.ndarray:
        self.given = value if self.change is None else self.change(value)
        return self.given


class EngineRuns:
    """A level inside one engine: the ref without the fault, the dut with it.

    ``compare``: as ``parity diff`` compares the dumps of two runs.
    """

    def __init__(
        self, name: str, engine: Engine, model: Model, seed: int, compare: DumpComparing
    ) -> None:
        self.name, self._engine, self._compare = name, engine, compare
        missing = [need for need in NEEDS if need not in engine.capabilities]
        if missing:
            raise NotRunError(
                f"{name}: the engine lacks the capability {missing[0]!r}, needed for selftest",
                "parity engines lists what each engine offers",
            )
        prompt = prompt_tokens(seed, PROMPT, model.config.ids)
        self._run = Run(model, tuple(prompt), STEPS)
        engine.load(model, self._run.positions)
        self.key, self.spots = self._place(seed)
        self._planted = Planted(engine, self.key)
        self._refs: dict[Change | None, Dump] = {}

    def key_of(self, fault: Fault) -> str:
        """The planted key, or the extra one beside it."""
        return (_extra(self.key) if fault.edit == EXTRA else self.key).tag

    def compare(self, fault: Fault) -> Compared:
        """Run the dut with the fault and compare it with the ref's run."""
        if fault.base not in self._refs:
            self._refs[fault.base] = self._dump("ref", fault.base, Fault(""))
        ref = self._refs[fault.base]
        change = fault.base if fault.retypes else _composed(fault.base, fault.change)
        dut = self._dump("dut", change, fault)
        problem = self._unplanted(ref, dut, fault)
        return Compared(self._compare(ref, dut), problem)

    def _dump(self, role: str, change: Change | None, fault: Fault) -> Dump:
        planted, spots = self._planted, self.spots
        planted.given = None
        planted.change = None if change is None else lambda value: change(value, spots)
        planted.report = lambda entries, value: self._told(fault, entries, value)
        return run_side(Side(role, self.name, cast(Engine, planted)), self._run).dump

    def _told(self, fault: Fault, entries: list[Entry], value: np.ndarray) -> list[Entry]:
        """What the step tells: of another type, or with another list of keys."""
        at = next(at for at, entry in enumerate(entries) if entry.key == self.key)
        if fault.retypes and fault.change is not None:
            entries = [*entries]
            entries[at] = _entry(self.key, fault.change(value, self.spots))
        return edited(entries, at, fault.edit, _entry(_extra(self.key), value))

    def _unplanted(self, ref: Dump, dut: Dump, fault: Fault) -> str:
        """Why the fault does not stand where it should; "" where it does."""
        held = [[e for e in side.entries if e.key == self.key] for side in (ref, dut)]
        given = self._planted.given
        if given is None and self._planted.change is not None:
            return "not planted: the engine did not ask for the change"
        if given is not None and held[1][0].digest != fnv1a64_array(given):
            return "not planted: the engine did not hash the value that was put there"
        if fault.change is not None and held[0] == held[1]:
            return "not planted: the value is what it was"
        return ""

    def _place(self, seed: int) -> tuple[Key, Spots]:
        """A key of a decoded step whose value has rows, and the spots in it."""
        side = Side("ref", self.name, self._engine)
        keys = [entry.key for entry in run_side(side, self._run).dump.entries if _has_rows(entry)]
        order = np.argsort(words(seed, "selftest engine", 0, len(keys))).tolist()
        for key in (keys[at] for at in order):
            planted = Planted(self._engine, key)
            run_side(Side("ref", self.name, cast(Engine, planted)), self._run)
            spots = None if planted.seen is None else spots_of(planted.seen, seed)
            if spots is not None:
                return key, spots
        raise ParityBug(f"{self.name}: no key has a place for the faults")


def _has_rows(entry: Entry) -> bool:
    kind = entry.type
    return kind is not None and kind.dtype == "f32" and len(kind.shape) == 2 and kind.shape[0] > 1


def _composed(base: Change | None, change: Change | None) -> Change | None:
    """``change`` on what ``base`` makes of a value."""
    if base is None or change is None:
        return base or change
    return lambda value, spots: change(base(value, spots), spots)
