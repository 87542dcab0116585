"""A program as an engine: what it refuses by itself, what it keeps, and when the program ends."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from parity.errors import InputError, ParityBug
from parity.fnv import BASES
from parity.keys import Key
from parity.model.model import synthetic
from parity.program.engine import ProgramEngine, program_engine
from parity.protocol import EngineSettings, Plan
from parity.spec import ProgramSpec, runnable
from tests.programs.processes import gone
from tests.programs.scripted import VOCAB, ZEROS
from tests.programs.specs import scripted

PLAN = Plan(("nrm", "logits"))


def opened(folder: Path, positions: int = 4, **rules: object) -> ProgramEngine:
    """The scripted program with the model loaded."""
    spec = runnable(scripted(folder, **rules), "--engine")
    assert isinstance(spec, ProgramSpec)
    engine = program_engine(spec)(EngineSettings("own"))  # type: ignore[call-arg]
    assert isinstance(engine, ProgramEngine)
    engine.load(synthetic("moe-tiny", 7), positions)
    return engine


def pid_of(engine: ProgramEngine) -> int:
    return engine._talk._process._popen.pid


def test_class_of_a_program(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    assert (engine.name, engine.version, engine.tiers, engine.protocol) == (
        *("scripted", "1", ("own",), 2),
    )
    assert engine.capabilities == {"rows", "rollback", "state", "counters"}
    assert engine.describe()["device"] == "untold"
    assert engine.weights() == {}
    assert engine.counters() == {"calls": 0}


def test_steps_with_and_without_a_plan(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    [last] = engine.prefill([1, 2])
    assert (last.entries, last.logits.dtype, last.logits.shape) == ([], np.float32, (VOCAB,))
    engine.reset()
    steps = engine.prefill([1, 2], PLAN)
    assert [step.entries[0].key for step in steps] == [
        Key(0, None, "logits"),
        Key(1, None, "logits"),
    ]
    rows = engine.step_rows([3, 4], PLAN)
    assert [row.entries[0].key.pos for row in rows] == [2, 3]
    assert engine.step_rows is not None
    engine.reset()
    nothing = engine.step(1, Plan(()))
    assert nothing.entries == []
    elsewhere = engine.step(1, Plan(("logits",), places=frozenset({(0, None)})))
    assert elsewhere.entries == []


def test_position_after_each_request(tmp_path: Path) -> None:
    """A row of another position than the one that follows would be refused."""
    engine = opened(tmp_path)
    engine.step(1)
    engine.mark()
    engine.step_rows([1, 2])
    engine.rollback()
    assert engine.step(1, PLAN).entries[0].key.pos == 1
    state = engine.read_state()
    assert state["lengths"].tolist() == [2]
    engine.reset()
    engine.write_state(state)
    assert engine.step(1, PLAN).entries[0].key.pos == 2
    engine.load(synthetic("moe-tiny", 8), 4)
    assert engine.step(1, PLAN).entries[0].key.pos == 0


def test_red_what_is_refused_before_the_program_is_asked(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    for tokens in ([VOCAB], [-1], [1] * 5):
        with pytest.raises(InputError):
            engine.prefill(tokens)
    for tokens in ([], [1] * 65):
        with pytest.raises(InputError, match="rows in one forward: 1 to 64 are possible"):
            engine.step_rows(tokens)
    with pytest.raises(InputError, match="is past the KV cache"):
        engine.write_state({"lengths": np.array([5], np.int32)})
    with pytest.raises(ParityBug, match="no hash is called by the basis"):
        engine.step(1, Plan(("logits",), basis=1))
    assert engine.step(1, PLAN).entries[0].key.pos == 0  # nothing of that was done


def test_red_a_refusal_is_told_and_the_program_goes_on(tmp_path: Path) -> None:
    engine = opened(tmp_path, rollback="error no mark\n")
    for _ in range(2):
        with pytest.raises(InputError, match="reply to 'rollback': error no mark"):
            engine.rollback()
    assert engine.step(1, PLAN).entries[0].key.pos == 0


def test_red_what_broke_once_stays_broken(tmp_path: Path) -> None:
    engine = opened(tmp_path, mark="row 1\n")
    pid = pid_of(engine)
    for call in (engine.mark, engine.reset, lambda: engine.step(1)):
        with pytest.raises(InputError, match="reply to 'mark', line 1: it does not belong here"):
            call()
    assert not Path(f"/proc/{pid}").exists()


def test_digest_is_taken_from_the_basis_of_the_plan(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    found = {
        engine.step(1, Plan(("logits",), basis=basis)).entries[0].digest for basis in BASES.values()
    }
    assert len(found) == 2


def test_nan_is_marked_in_the_key(tmp_path: Path) -> None:
    row = ZEROS.replace("00000000", "0000c07f", 1)
    engine = opened(tmp_path, step=f"row POS\n{row}ok\n")
    [entry] = engine.step(1, PLAN).entries
    assert entry.nonfinite == (1, 0)


def test_the_program_ends_with_its_engine(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    pid = pid_of(engine)
    assert Path(f"/proc/{pid}").exists()
    del engine
    gc.collect()
    assert gone(pid)
