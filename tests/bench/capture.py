"""What capture costs: time and bytes a token, by what is captured; prints one table.

Usage: capture.py [--engine SPEC] [--model M] [--seed S] [--steps N] [--rounds R] [--json F]

A round feeds the same N tokens (default 4) from the same state under every kind of plan, one after
the other, so that a slow moment of the machine falls on all of them; of each step the least of R
rounds (default 10) counts. A run whose logits or state are not those without a tap ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from parity.digests.file import to_text
from parity.digests.tree import grow
from parity.dtypes import dtype_bits
from parity.dump import MAIN, Dump, Entry
from parity.dumps.writer import format_lines
from parity.errors import ParityError
from parity.explain.dataflow import step_keys
from parity.families import dumped_fields, every_field, field_type
from parity.keys import Key
from parity.model.config import ModelConfig
from parity.model.generator import prompt_tokens
from parity.model.model import Model, synthetic
from parity.progress import Progress
from parity.protocol import Plan, Step
from parity.registry import ENGINES, plugins
from parity.runs.run import Run, Side
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec

FORMAT, VERSION = "parity-capture-cost", 1
PROMPT = 32
Plans = Callable[[int], Plan | None]  # by position


@dataclass(frozen=True)
class Cost:
    """A token under one kind of plan. ``seconds``: of a step; ``ratio``: to a step without a tap;
    ``read``: bytes of the values that are hashed or kept; ``kept``: bytes of the values that are
    kept; ``dump``, ``digest``: bytes that the keys take in a dump and in a digest file."""

    what: str
    seconds: float
    ratio: float
    keys: int
    read: int
    kept: int
    dump: int
    digest: int


class Disturbed(Exception):
    """A tap changed what it looked at."""


def plans_of(config: ModelConfig) -> dict[str, Plans]:
    """What is captured, from nothing to everything."""
    dumped, every = dumped_fields(config), every_field(config)
    last = config.layers - 1

    def keys(pos: int, fields: Sequence[str]) -> frozenset[Key]:
        return frozenset(step_keys(config, pos, fields))

    return {
        "off": lambda pos: None,
        "one layer": lambda pos: Plan(dumped, places=frozenset({(pos, last)})),
        "digests": lambda pos: Plan(dumped),
        "digests, every field": lambda pos: Plan(every),
        "digests and values": lambda pos: Plan(dumped, tensors=keys(pos, dumped)),
        "the same, every field": lambda pos: Plan(every, tensors=keys(pos, every)),
        "digests and trace": lambda pos: Plan(dumped, trace=keys(pos, dumped)),
    }


def measure(side: Side, model: Model, steps: int, rounds: int) -> list[Cost]:
    """The costs, least of ``rounds``; raises Disturbed."""
    tokens = prompt_tokens(7, PROMPT + steps, model.config.vocab)
    side.engine.reset()
    side.engine.prefill(tokens[:PROMPT])
    start = side.read_state()
    if start is None:
        raise Disturbed(f"{side.spec} cannot give its state: nothing could be held against it")
    plans = plans_of(model.config)
    least = {name: np.full(steps, np.inf) for name in plans}
    told: dict[str, list[Step]] = {}
    wanted: list[bytes] = []
    for number in range(rounds + 1):  # the first warms caches and grows the tap's memory
        for name, plan in plans.items():
            side.write_state(start)
            asked = [plan(PROMPT + at) for at in range(steps)]
            told[name], seconds = _timed(side, tokens[PROMPT:], asked)
            if number:
                least[name] = np.minimum(least[name], seconds)
            left = _left(side, told[name])
            wanted = wanted or left
            if left != wanted:
                raise Disturbed(f"{name}: other logits or another state than without a tap")
    best = {name: float(seconds.mean()) for name, seconds in least.items()}
    return [_cost(model.config, name, best, done) for name, done in told.items()]


def _timed(
    side: Side, tokens: Sequence[int], plans: Sequence[Plan | None]
) -> tuple[list[Step], list[float]]:
    """The steps, and the seconds of each."""
    steps, seconds = [], []
    for token, plan in zip(tokens, plans, strict=True):
        began = time.perf_counter()
        steps.append(side.engine.step(token, plan))
        seconds.append(time.perf_counter() - began)
    return steps, seconds


def _left(side: Side, done: Sequence[Step]) -> list[bytes]:
    state = side.read_state() or {}
    parts = [name.encode() + array.tobytes() for name, array in state.items()]
    return [*(step.logits.tobytes() for step in done), *parts]


def _cost(config: ModelConfig, what: str, best: dict[str, float], done: Sequence[Step]) -> Cost:
    step, steps = done[-1], len(done)
    entries = [entry for one in done for entry in one.entries]
    keys = {*(entry.key for entry in step.entries), *step.tensors}
    dump = Dump({}, {MAIN: entries})
    return Cost(
        what=what,
        seconds=best[what],
        ratio=best[what] / best["off"],
        keys=len(step.entries),
        read=sum(_bytes(config, key.field) for key in keys),
        kept=sum(array.nbytes for array in step.tensors.values()),
        dump=_lines_bytes(entries) // steps,
        digest=sum(map(len, _links(dump))) // steps if entries else 0,
    )


def _bytes(config: ModelConfig, field: str) -> int:
    kind = field_type(config, field)
    return int(np.prod(kind.shape)) * dtype_bits(kind.dtype) // 8


def _lines_bytes(entries: list[Entry]) -> int:
    lines = format_lines(Dump({}, {MAIN: entries}), plain=False)
    return sum(len(line) + 1 for line in lines if not line.startswith("#"))


def _links(dump: Dump) -> list[str]:
    links: list[str] = json.loads(to_text(grow(dump)))["links"]
    return links


def table(costs: Sequence[Cost]) -> list[str]:
    """The lines of a table; milliseconds and bytes a token."""
    heads = ("captured", "ms", "x", "keys", "read", "kept", "dump", "digest")
    rows = [
        (
            *(cost.what, f"{1e3 * cost.seconds:.2f}", f"{cost.ratio:.2f}"),
            *(f"{n:,}" for n in (cost.keys, cost.read, cost.kept, cost.dump, cost.digest)),
        )
        for cost in costs
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{'<' if not at else '>'}{widths[at]}}" for at, cell in enumerate(row)
        ).rstrip()
        for row in (heads, *rows)
    ]


def main(arguments: list[str]) -> int:
    """Measure, print, and write the JSON file where one is asked for."""
    asked = _asked(arguments)
    try:
        spec = parse_spec(asked.engine, plugins(ENGINES))
        if not isinstance(spec, EngineSpec):
            raise Disturbed(f"{asked.engine} is no engine")
        model = synthetic(asked.model, asked.seed)
        run = Run(model, (0,) * PROMPT, asked.steps)
        side = open_side("engine", spec, run, Progress(quiet=True))
        costs = measure(side, model, asked.steps, asked.rounds)
    except (Disturbed, ParityError) as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    about = {
        "engine": asked.engine,
        "model": model.label,
        "device": side.engine.describe()["device"],
        "machine": f"{platform.platform()}, {os.cpu_count()} CPUs",
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    print("\n".join([f"{name}  {text}" for name, text in about.items()]))
    print(f"{asked.steps} steps after t{PROMPT - 1}, least of {asked.rounds} rounds; a token:\n")
    print("\n".join(table(costs)))
    if asked.json is not None:
        body = {"format": FORMAT, "version": VERSION, **about, "steps": asked.steps}
        body |= {"rounds": asked.rounds, "costs": [asdict(cost) for cost in costs]}
        asked.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return 0


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="capture.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", default="cpu")
    parser.add_argument("--model", default="moe-48")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=_count, default=4)
    parser.add_argument("--rounds", type=_count, default=10)
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
