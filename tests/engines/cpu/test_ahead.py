"""A first forward's ops are compiled by several processes; one that fails costs time alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity_cpu import ahead
from parity_cpu.calls import Calls
from parity_cpu.engine import Engine
from parity_cpu.ops.digest import digest

# Two ops, one for each process. What is planted here happens in the other one alone.
OPS = """
import os
import sys
from parity_cpu.jit import jit
if sys.argv == ["-c"]:
    {plant}
@jit
def first(x):
    return x + 1.0
@jit
def second(x):
    return x * 2.0
"""
MAIN = """
import ops
from numba import float64
from parity_cpu import ahead
{plant}
ahead.wanted = lambda decoder: [(op, (float64,)) for op in (ops.first, ops.second)]
ahead.compile_ahead(None)
print(ops.first(1.0), ops.second(3.0))
print(*(sum(op.stats.cache_hits.values()) for op in (ops.first, ops.second)))
"""


def compiled(folder: Path, inside: str = "pass", before: str = "pass", processors: int = 2) -> str:
    """Two values, and how often the op of each was found among what is kept: of a new process."""
    (folder / "ops.py").write_text(OPS.format(plant=inside))
    (folder / "main.py").write_text(MAIN.format(plant=before))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "PARITY_CACHE": str(folder / "cache"),
        "NUMBA_NUM_THREADS": str(processors),
    }
    command = [sys.executable, str(folder / "main.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# This process gives the other one time: it does not go on before something is kept.
WAITING = """
import time
from parity_cpu.jit import cache_is_warm
own = ops.first.compile
def compile(kinds):
    while not cache_is_warm():
        time.sleep(0.01)
    return own(kinds)
ops.first.compile = compile
"""


def test_the_other_process_compiles_and_keeps(tmp_path: Path) -> None:
    values, *hits = compiled(tmp_path, before=WAITING).splitlines()
    assert values == "2.0 6.0"
    assert hits in (["1 0"], ["0 1"])


@pytest.mark.parametrize(
    "plant",
    [
        {"inside": "os._exit(3)"},
        # It compiles other sources, as when a file changes in between.
        {"inside": "jit = lambda fn, jit=jit: jit(lambda x: x - 1.0)"},
        {"before": "ahead.COMPILER = ('/no/such/python',)"},
        {"before": "ahead.COMPILER = ('false',)"},
        {"processors": 1},
    ],
    ids=["dies", "other_code", "no_python", "no_answer", "one_processor"],
)
def test_red_what_nobody_kept_is_compiled_when_it_is_called(
    tmp_path: Path, plant: dict[str, Any]
) -> None:
    assert compiled(tmp_path, **plant) == "2.0 6.0\n0 0\n"


class Typed(Calls):
    """Notes the types of what it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Any] = set()

    def __call__(self, op: Any, *args: Any) -> None:
        self.found.add((op, tuple(op.typeof_pyval(arg) for arg in args)))
        super().__call__(op, *args)


@pytest.mark.parametrize("model", ["moe-tiny", "hybrid-tiny", "dense-tiny"])
def test_wanted_is_what_a_step_calls(model: str) -> None:
    """And asking for it runs no op: neither counts nor the state change."""
    engine = Engine(EngineSettings())
    engine.load(synthetic(model, 7), 4)
    before = engine.read_state()
    found = ahead.wanted(engine._decoder)
    after = engine.read_state()
    assert engine.counters() == {}
    assert {name: value.tobytes() for name, value in after.items()} == {
        name: value.tobytes() for name, value in before.items()
    }
    engine._decoder.call = ran = Typed()
    (step,) = engine.prefill((1,), Plan(("logits",)))
    assert [entry.key.field for entry in step.entries] == ["logits"]
    hashed = (digest, tuple(digest.typeof_pyval(arg) for arg in HASHED))  # type: ignore[attr-defined]
    assert set(found) == ran.found | {hashed}
    assert hashed[1] in digest.overloads  # type: ignore[attr-defined]
    parallel = [op.targetoptions["parallel"] for op, _ in found]
    assert parallel == sorted(parallel, reverse=True)
    assert any(parallel)


def test_a_function_in_an_ops_place_is_left_out() -> None:
    call = ahead.Wanted()
    call(digest, *HASHED)
    call(len, HASHED)
    assert [op for op, _ in call.found] == [digest]


HASHED = (np.frombuffer(np.ones(3, np.float32), np.uint8), np.uint64(1), True)


def test_red_code_that_is_not_kept_is_not_compiled_by_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started(target: Any, args: Any) -> None:
        raise AssertionError("a process was started")

    class Op:
        """An op, kept in a folder or nowhere."""

        def __init__(self, folder: str | None) -> None:
            self.stats = type("Stats", (), {"cache_path": folder})

    monkeypatch.setattr(ahead, "Thread", started)
    monkeypatch.setattr(ahead, "get_num_threads", lambda: 2)
    monkeypatch.setattr(ahead, "wanted", lambda decoder: [(Op(folder), ()) for folder in folders])
    decoder: Any = None
    folders: list[str | None] = ["there", None]
    ahead.compile_ahead(decoder)
    folders = ["there", "there"]
    with pytest.raises(AssertionError, match="a process was started"):
        ahead.compile_ahead(decoder)
