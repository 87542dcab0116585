"""What ``just bench-scaling`` doubles: keys, context, rows and layers, one case a thing that grows.

A case is made for one size and gives the call that is timed; all else is done before. ``needs``:
the growth that the model, or the text that is written, has by itself: 0 for what should not grow, 1
linear, 2 quadratic (a whole prefill: every position reads those before it).
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import parity
from parity.digests.chain import first_by_bisection
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.dumps.reader import read_dump
from parity.dumps.writer import write_dump
from parity.families import dumped_fields
from parity.keys import Key
from parity.model.config import PRESETS, ModelConfig
from parity.model.generator import prompt_tokens
from parity.model.model import SyntheticModel
from parity.presenting import Options
from parity.protocol import EngineSettings, Plan
from parity.registry import REPORTS, engine_class, find
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.probe import Ask as ProbeAsk
from parity.runs.run import Run, Side, run_side
from parity.runs.search import bisect_engines
from parity.tree import Tree
from parity_probes.isodiff import Isodiff

Call = Callable[[], object]
SEED = 7
ROWS = ("k", "ks", "v", "vs")  # parts of a state by position


@dataclass(frozen=True)
class Case:
    """``sizes``: each twice the one before. ``make``: engine's name and size to what is timed."""

    group: str
    name: str
    needs: int
    sizes: tuple[int, ...]
    make: Callable[[str, int], Call]

    @property
    def label(self) -> str:
        """What a table calls it."""
        return f"{self.group}: {self.name}"


def doubled(first: int, times: int = 3) -> tuple[int, ...]:
    """``first`` and its doublings, ``times`` sizes in all."""
    return tuple(first << number for number in range(times))


# --- keys -----------------------------------------------------------------------------------------


def dump_of(keys: int, differ: str) -> Dump:
    """A dump of so many keys, 46 a position. ``differ``: "none" of them has another digest than in
    any other dump of that size, the "last" one, or "every" one."""
    fields = dumped_fields(PRESETS["moe-tiny"])
    layered, kind = [name for name in fields if name not in ("final_normed", "logits")], "f32"
    tails = [(layer, name) for layer in range(4) for name in layered]
    tails += [(None, "final_normed"), (None, "logits")]  # type: ignore[list-item]
    entries = []
    for at in range(keys):
        pos, place = divmod(at, len(tails))
        other = differ == "every" or (differ == "last" and at == keys - 1)
        digest = at * 0x9E3779B97F4A7C15 % (1 << 64) ^ int(other)
        entries.append(Entry(Key(pos, *tails[place]), digest, TensorType(kind, (32,))))
    return Dump({"hash": "fnv1a64"}, {MAIN: entries}, differ)


@cache
def folder() -> Path:
    """Of the files that are compared; gone with the process."""
    held = tempfile.TemporaryDirectory(prefix="parity-scaling-")
    _held.append(held)
    return Path(held.name)


_held: list[tempfile.TemporaryDirectory[str]] = []


@cache
def written(keys: int, differ: str) -> Path:
    """The file of ``dump_of``."""
    path = folder() / f"{keys}-{differ}.dump"
    write_dump(dump_of(keys, differ), path)
    return path


@cache
def tree_of(keys: int, differ: str) -> Tree:
    """Two dumps compared."""
    return parity.compare(written(keys, "none"), written(keys, differ)).tree


def comparing(differ: str) -> Callable[[str, int], Call]:
    """``parity compare`` of two files."""

    def make(engine: str, keys: int) -> Call:
        paths = written(keys, "none"), written(keys, differ)
        return lambda: parity.compare(*paths)

    return make


def presenting(name: str, differ: str) -> Callable[[str, int], Call]:
    """One report of two dumps."""

    def make(engine: str, keys: int) -> Call:
        tree, presenter = tree_of(keys, differ), find(REPORTS, name).load()()
        return lambda: presenter.write(tree, io.StringIO(), Options())

    return make


def reading_a_tree(engine: str, keys: int) -> Call:
    text = tree_of(keys, "every").to_json()
    return lambda: Tree.from_json(text)


def reading_a_dump(engine: str, keys: int) -> Call:
    path = written(keys, "none")
    return lambda: read_dump(path).size


def writing_a_dump(engine: str, keys: int) -> Call:
    dump, path = dump_of(keys, "none"), folder() / f"{keys}-again.dump"
    return lambda: write_dump(dump, path, force=True)


def bisecting(engine: str, keys: int) -> Call:
    dumps = dump_of(keys, "none"), dump_of(keys, "last")
    return lambda: first_by_bisection(*dumps)


KEYS = (
    Case("keys", "compare, last differs", 1, doubled(25_000), comparing("last")),
    Case("keys", "compare, every one differs", 1, doubled(20_000), comparing("every")),
    Case("keys", "read a dump", 1, doubled(50_000), reading_a_dump),
    Case("keys", "write a dump", 1, doubled(10_000), writing_a_dump),
    Case("keys", "chain and bisect", 1, doubled(10_000), bisecting),
    *(
        Case("keys", f"report {name}", 1, doubled(10_000), presenting(name, "every"))
        for name in ("json", "html", "csv", "junit", "markdown", "console")
    ),
    Case("keys", "read a report", 1, doubled(10_000), reading_a_tree),
)

# --- engines --------------------------------------------------------------------------------------


def with_layers(name: str, layers: int) -> ModelConfig:
    """A preset with so many layers, and room for a long context."""
    return replace(PRESETS[name], layers=layers, context=1 << 20)


def loaded(engine: str, config: ModelConfig, positions: int) -> Any:
    """An engine that holds a synthetic model."""
    opened: Any = engine_class(engine)(EngineSettings())  # type: ignore[call-arg]
    opened.load(SyntheticModel(config, SEED), positions)
    return opened


def at_context(engine: str, preset: str, context: int, more: int, layers: int = 2) -> Any:
    """An engine that stands at position ``context`` with room for ``more`` rows, by a state whose
    rows are those of a few real ones, again and again."""
    config = with_layers(preset, layers)
    opened = loaded(engine, config, context + more)
    for token in prompt_tokens(SEED, 16, config.ids):
        opened.step(int(token))
    state = opened.read_state()
    opened.write_state(
        {
            name: np.array([context], np.int32)
            if name == "lengths"
            else np.resize(part, (context, *part.shape[1:]))
            if name.partition("_")[2] in ROWS
            else part
            for name, part in state.items()
        }
    )
    opened.mark()
    return opened


def again(opened: Any, call: Call) -> Call:
    """``call``, and back to where the engine stood, by its mark."""

    def run() -> None:
        call()
        opened.rollback()
        opened.mark()

    return run


def stepping(preset: str, layers: int = 2) -> Callable[[str, int], Call]:
    """A decode step with all keys dumped."""

    def make(engine: str, context: int) -> Call:
        opened = at_context(engine, preset, context, 1, layers)
        plan = Plan(fields=dumped_fields(opened._model.config))
        return again(opened, lambda: opened.step(1, plan))

    return make


def marking(preset: str) -> Callable[[str, int], Call]:
    """Mark and rollback, nothing between."""

    def make(engine: str, context: int) -> Call:
        opened = at_context(engine, preset, context, 1)
        return again(opened, lambda: None)

    return make


def reading_state(engine: str, context: int) -> Call:
    opened = at_context(engine, "moe-tiny", context, 1)
    return lambda: opened.read_state()


def isodiffing(engine: str, context: int) -> Call:
    config = with_layers("moe-tiny", 1)
    ask = ProbeAsk((2,), (context,), (SyntheticModel(config, SEED),))

    def open_side(model: Any, positions: int) -> Side:
        return Side("engine", engine, loaded(engine, config, positions))

    return lambda: Isodiff().run(open_side, ask)


def row_by_row(tap: bool) -> Callable[[str, int], Call]:
    """M rows in one forward, ``tap``: with all keys dumped."""

    def make(engine: str, rows: int) -> Call:
        opened = at_context(engine, "moe-tiny", 64, rows)
        config = opened._model.config
        plan = Plan(fields=dumped_fields(config)) if tap else None
        tokens = [int(token) for token in prompt_tokens(SEED, rows, config.ids)]
        return again(opened, lambda: opened.step_rows(tokens, plan))

    return make


def run_of(layers: int, n: int) -> Run:
    """A short prompt, then ``n`` tokens."""
    model = SyntheticModel(with_layers("moe-tiny", layers), SEED)
    return Run(model, tuple(int(one) for one in prompt_tokens(SEED, 4, model.config.ids)), n)


def sides_of(engine: str, run: Run) -> tuple[Side, Side]:
    """The engine, and its fast tier: every key differs, or nearly."""
    fast: Any = engine_class(engine)(EngineSettings(tier="fast", variants=frozenset({"split_k"})))  # type: ignore[call-arg]
    fast.load(run.model, run.positions)
    ref = loaded(engine, run.model.config, run.positions)
    return Side("ref", engine, ref), Side("dut", f"{engine}:fast", fast)


def diffing(engine: str, n: int) -> Call:
    run = run_of(1, n)
    sides = sides_of(engine, run)
    return lambda: diff_engines(*sides, run, Ask())


def bisecting_runs(engine: str, n: int) -> Call:
    run = run_of(1, n)
    sides = sides_of(engine, run)
    return lambda: bisect_engines(*sides, run, Ask())


def dumping(engine: str, n: int) -> Call:
    run = run_of(1, n)
    side = sides_of(engine, run)[0]
    return lambda: run_side(side, run)


def layer_by_layer(engine: str, layers: int) -> Call:
    opened = at_context(engine, "moe-tiny", 64, 1, layers)
    plan = Plan(fields=dumped_fields(opened._model.config))
    return again(opened, lambda: opened.step(1, plan))


def loading(engine: str, layers: int) -> Call:
    return lambda: loaded(engine, with_layers("moe-tiny", layers), 64)


def diffing_layers(engine: str, layers: int) -> Call:
    run = run_of(layers, 2)
    sides = sides_of(engine, run)
    return lambda: diff_engines(*sides, run, Ask())


ENGINES = (
    Case("context", "decode step, int8 keys", 1, doubled(8192), stepping("moe-tiny")),
    Case("context", "decode step, hybrid", 1, doubled(8192), stepping("hybrid-tiny", 4)),
    Case("context", "mark and rollback, int8 keys", 0, doubled(4096), marking("moe-tiny")),
    Case("context", "mark and rollback, hybrid", 0, doubled(4096), marking("hybrid-tiny")),
    Case("context", "read the state", 1, doubled(32768), reading_state),
    Case("context", "isodiff", 2, doubled(128), isodiffing),
    Case("tokens", "dump", 2, doubled(64), dumping),
    Case("tokens", "diff, births of every one", 2, doubled(32), diffing),
    Case("tokens", "diff --bisect", 2, doubled(64), bisecting_runs),
    Case("rows", "step_rows", 1, doubled(16), row_by_row(False)),
    Case("rows", "step_rows, all keys", 1, doubled(16), row_by_row(True)),
    Case("layers", "decode step, all keys", 1, doubled(8), layer_by_layer),
    Case("layers", "load", 1, doubled(8), loading),
    Case("layers", "diff, births of every one", 1, doubled(4), diffing_layers),
)
CASES = (*KEYS, *ENGINES)
