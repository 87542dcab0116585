"""The program's side of docs/exec.md for an engine written in Python.

    from parity.program.serving import serve
    serve(MyEngine())

``MyEngine`` is any object with ``Served``'s members. What else it has of ``rows``, ``mark`` and
``rollback``, ``state`` and ``set_state``, ``counters``, ``weights`` is told as a capability.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from parity.dump import MAIN, Dump, Entry
from parity.dumps.greedy import format_greedy
from parity.dumps.writer import write_dump
from parity.errors import ParityError
from parity.fnv import BASES
from parity.keys import Key
from parity.program.codec import PROTOCOL, entry_of, part_array, part_lines
from parity.runs.run import greedy

_CAPABILITIES = {
    "rows": ("rows",),
    "rollback": ("mark", "rollback"),
    "state": ("state", "set_state"),
    "counters": ("counters",),
    "weights": ("weights",),
}


class Tap:
    """Called by an engine for every value it makes: ``tap(pos, layer, field, array)``."""

    def __init__(self, fields: Collection[str] = (), basis: int = BASES["fnv1a64"]) -> None:
        self.fields, self.basis = frozenset(fields), basis
        self.entries: list[Entry] = []

    def __call__(self, pos: int, layer: int | None, field: str, array: np.ndarray) -> None:
        """Hash ``array`` (any real dtype, any strides) where the field was asked for."""
        if field in self.fields:
            self.entries.append(entry_of(Key(pos, layer, field), array, self.basis))


class Served(Protocol):
    """What ``serve`` needs of an engine."""

    name: str
    version: str

    @property
    def header(self) -> Mapping[str, str]:
        """More lines for the headers of dumps: device, compiler, model and so on."""
        ...

    def load(self, model: str, positions: int, /) -> None:
        """Load the model (``moe-tiny seed 7``, or the path of a GGUF file or a folder) and make a
        KV cache of ``positions`` rows."""
        ...

    def reset(self) -> None:
        """Forget the sequence and the mark."""
        ...

    def step(self, token: int, tap: Tap, /) -> np.ndarray:
        """Feed one token at the next position; float32[vocab] logits."""
        ...


def serve(engine: Served) -> None:
    """Write the dump that the environment asks for, or answer requests until ``quit``.

    A ValueError or a ParityError of the engine refuses a request, and must leave everything as it
    was; anything else ends the program. stdout is taken: what the engine, or a library that it
    calls, prints there goes to stderr.
    """
    if "PARITY_DUMP" in os.environ:
        write_told_dump(engine, os.environ)
        return
    out = sys.stdout.fileno()
    with os.fdopen(os.dup(out), "w", encoding="utf-8") as replies:
        os.dup2(sys.stderr.fileno(), out)
        _answer(_Requests(engine), sys.stdin, replies)


def model_label(told: str) -> str:
    """What headers call a model that a program is told: of a path its name, as parity does."""
    path = Path(told)
    if not path.is_absolute():
        return told
    return f"{path.name} f32" if path.is_dir() else path.name


def write_told_dump(engine: Served, told: Mapping[str, str]) -> None:
    """Dump mode: run what ``told`` (PARITY_TOKENS and so on) says, and write the dump."""
    tokens = [int(token) for token in told["PARITY_TOKENS"].split(",")]
    prefill = int(told["PARITY_PREFILL"])
    first = 0 if told["PARITY_DUMP_PREFILL"] == "1" else prefill
    tap = Tap(told["PARITY_FIELDS"].split(","), BASES[told["PARITY_HASH"]])
    engine.load(told["PARITY_MODEL"], len(tokens))
    logits = [engine.step(one, tap if pos >= first else Tap()) for pos, one in enumerate(tokens)]
    real_ids = int(told.get("PARITY_REAL_IDS", "0"))
    choices = {pos: greedy(logits[pos], real_ids) for pos in range(prefill - 1, len(tokens))}
    header = {"hash": told["PARITY_HASH"], "engine": engine.name, "version": engine.version}
    header |= {"model": model_label(told["PARITY_MODEL"]), **engine.header}
    header |= {"tokens": told["PARITY_TOKENS"], "greedy": format_greedy(choices)}
    write_dump(Dump(header, {MAIN: tap.entries}), Path(told["PARITY_DUMP"]))


def _answer(requests: _Requests, lines: Iterable[str], replies: IO[str]) -> None:
    stream = iter(lines)
    for line in stream:
        name, *words = line.split()
        if name == "load":  # a path may hold blanks
            words = line.rstrip("\n").split(" ", 2)[1:]
        method = getattr(requests, f"on_{name.replace('-', '_')}", None)
        told = [] if name != "set-state" else _until_end(stream)
        try:
            if method is None:
                raise ValueError("unknown request")
            reply = [*method(*words, *told), "ok"]
        except (ValueError, ParityError) as error:
            reply = [f"error {' '.join(str(error).split())}"]
        replies.writelines(f"{part}\n" for part in reply)
        replies.flush()
        if name == "quit":
            return


def _until_end(lines: Iterator[str]) -> list[str]:
    return [line.rstrip("\n") for line in iter(lambda: next(lines, "end\n"), "end\n")]


class _Requests:
    """One method a request, which gives the data lines of its reply."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.tap = Tap()
        self.pos = self.marked = 0

    def on_hello(self, _newest: str) -> list[str]:
        engine = self.engine
        words = [
            word
            for word, members in _CAPABILITIES.items()
            if all(hasattr(engine, member) for member in members)
        ]
        lines = [f"protocol {PROTOCOL}", f"engine {engine.name} {engine.version}"]
        lines.append(" ".join(["capabilities", *words]))
        vocab = getattr(engine, "vocab", None)
        lines += [] if vocab is None else [f"vocab {vocab}"]
        return [*lines, *(f"header {name} {value}" for name, value in engine.header.items())]

    def on_load(self, positions: str, model: str) -> list[str]:
        self.engine.load(model, int(positions))
        self.tap, self.pos = Tap(), 0
        return []

    def on_tap(self, name: str, fields: str = "") -> list[str]:
        self.tap = Tap() if name == "-" else Tap(fields.split(","), BASES[name])
        return []

    def on_reset(self) -> list[str]:
        self.engine.reset()
        self.pos = 0
        return []

    def on_prefill(self, *tokens: str) -> list[str]:
        """By single steps, of whose rows the last is told where there is no tap."""
        rows = [line for token in tokens for line in self.on_step(token)]
        return rows if self.tap.fields else rows[-2:]

    def on_step(self, token: str) -> list[str]:
        return self._rows([self.engine.step(int(token), self.tap)])

    def on_rows(self, *tokens: str) -> list[str]:
        return self._rows(self.engine.rows([int(token) for token in tokens], self.tap))

    def _rows(self, rows: Sequence[np.ndarray]) -> list[str]:
        lines = []
        told: dict[int, list[str]] = {}
        for entry in self.tap.entries:
            told.setdefault(entry.key.pos, []).append(f"{entry.key} {entry.value_text()}")
        for logits in rows:
            lines.append(f"row {self.pos}")
            lines += told.get(self.pos, [])
            lines.append(f"logits {logits.astype('<f4').tobytes().hex()}")
            self.pos += 1
        self.tap.entries.clear()
        return lines

    def on_mark(self) -> list[str]:
        self.engine.mark()
        self.marked = self.pos
        return []

    def on_rollback(self) -> list[str]:
        self.engine.rollback()
        self.pos = self.marked
        return []

    def on_state(self) -> list[str]:
        return part_lines(self.engine.state())

    def on_set_state(self, *lines: str) -> list[str]:
        parts = dict(part_array(line) for line in lines)
        self.engine.set_state(parts)
        self.pos = int(parts["lengths"][0])
        return []

    def on_counters(self) -> list[str]:
        return [f"count {name} {count}" for name, count in self.engine.counters().items()]

    def on_weights(self) -> list[str]:
        told = self.engine.weights()
        return [f"weight {name} {kind} {digest:016x}" for name, (kind, digest) in told.items()]

    def on_quit(self) -> list[str]:
        return []
