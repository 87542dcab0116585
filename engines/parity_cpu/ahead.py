"""What a first forward needs, compiled several ops at a time, in processes of their own.

Numba compiles one function after the other in a process. Here every process takes the next op, and
keeps its code; the forward then finds it, and checks it like any other (code_cache.py). A process
that fails costs time alone: what is not kept is compiled when it is called.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections import deque
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen
from threading import Thread
from typing import Any

import numpy as np
from numba import get_num_threads
from numba.core.dispatcher import Dispatcher

from parity_cpu.calls import Calls
from parity_cpu.decoder import Decoder
from parity_cpu.ops.digest import digest
from parity_cpu.state import State
from parity_cpu.tap import Tap

PROCESSES = 4  # at most, with this one: the longest op takes about a quarter of the time of all
COMPILER = (sys.executable, "-P", "-c", "from parity_cpu.ahead import answer; answer()")

Wish = tuple[Any, tuple[Any, ...]]  # an op and the types of its arguments


class Wanted(Calls):
    """Notes ops and the types of their arguments; runs none. ``found``: each once."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Wish, None] = {}

    def __call__(self, op: Any, *args: Any) -> None:
        if isinstance(op, Dispatcher):  # another may stand in its place
            self.found[op, tuple(op.typeof_pyval(arg) for arg in args)] = None


def wanted(decoder: Decoder) -> list[Wish]:
    """Ops and argument types of a forward of one row and of its hashes, the longest to compile
    first."""
    own, decoder.call = decoder.call, Wanted()
    try:
        decoder.call(digest, np.empty(1, np.uint8), np.uint64(0), False)
        decoder.forward([0], 0, State(decoder.config, 1), Tap(None, decoder.call))
        found = list(decoder.call.found)
    finally:
        decoder.call = own
    return sorted(found, key=lambda each: not each[0].targetoptions["parallel"])


def compile_ahead(decoder: Decoder) -> None:
    """Compile what a forward of one row calls, by as many processes as there are processors.

    Does nothing where there is one processor, or where code is not kept.
    """
    others, todo = min(PROCESSES, get_num_threads()) - 1, deque(wanted(decoder))
    if others < 1 or any(op.stats.cache_path is None for op, _ in todo):
        return
    sharers = [Thread(target=_hand_out, args=(todo,)) for _ in range(others)]
    for sharer in sharers:
        sharer.start()
    try:
        with suppress(IndexError):
            while True:
                op, kinds = todo.popleft()
                op.compile(kinds)
    finally:
        todo.clear()
        for sharer in sharers:
            sharer.join()


def _hand_out(todo: deque[Wish]) -> None:
    """Have another process compile one op after the other, until none is left or it ends."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        suppress(IndexError, OSError),
        Popen(COMPILER, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        done = b"."
        while done:
            op, kinds = todo.popleft()
            pickle.dump((op.py_func.__module__, op.py_func.__name__, kinds), process.stdin)
            process.stdin.flush()
            done = process.stdout.read(1)


def answer() -> None:
    """In that process: compile and keep what is asked for, with a byte for each op that is done."""
    with suppress(EOFError):
        while True:
            module, name, kinds = pickle.load(sys.stdin.buffer)
            getattr(importlib.import_module(module), name).compile(kinds)
            sys.stdout.write(".")
            sys.stdout.flush()
