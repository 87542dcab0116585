"""What the device engine hands over of a replayed step: arrays, of which entries are made when
somebody looks at them. The device computes nothing here and tells what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.comparison.compare import compare_dumps, exit_status
from parity.comparison.impossible import one_hash_notes
from parity.dump import MAIN, Dump, Entry
from parity.dumps.forms import Form
from parity.dumps.reader import read_dump
from parity.dumps.table import Table, joined
from parity.dumps.writer import write_dump
from parity.families import field_type
from parity.keys import Key, KeyOrder
from parity.model.config import PRESETS
from parity.model.model import synthetic
from parity.protocol import Plan, Step
from parity.runs.engine_diff import Ask, diff_engines
from parity.runs.run import Run, Side, SideRun, run_side
from parity.runs.stability import unlike_entries, unlike_run
from parity.status import ExitStatus, Verdict
from parity_cuda.digests import Table as Jobs
from tests.bench import dumping
from tests.bench.idle import Idle, IdleSteps
from tests.bench.scaling_cases import loaded, run_of
from tests.core.test_forms import entries_made

NAME = "qwen3-30b-a3b"  # of its shape alone: no weight is made
KEYS = 530
Nonfinite = dict[int, tuple[int, int]]


def hashes(idle: IdleSteps, pos: int) -> np.ndarray:
    """uint64[values]: another one for each value of each forward."""
    rng = np.random.default_rng(pos)
    return rng.integers(0, 1 << 63, idle.rows * len(idle.offered), np.uint64)


def told(idle: IdleSteps, pos: int, nonfinite: Nonfinite | None = None) -> list[Step]:
    """A replayed forward at ``pos`` of which the device tells ``hashes``."""
    idle.answer(hashes(idle, pos), nonfinite)
    return idle.steps(pos)


def wanted(idle: IdleSteps, pos: int, nonfinite: Nonfinite | None = None) -> list[Entry]:
    """The entries of the rows of a forward, one by one, in dataflow order."""
    config, order = idle.arena.config, KeyOrder()
    found = []
    for at, digest in enumerate(hashes(idle, pos).tolist()):
        layer, field = idle.offered[at // idle.rows]
        key = Key(pos + at % idle.rows, layer, field)
        kind = field_type(config, field, layer)
        found.append(Entry(key, digest, kind, (nonfinite or {}).get(at)))
    return sorted(found, key=lambda entry: order(entry.key))


def dump_of(steps: Sequence[Step]) -> Dump:
    return Dump({}, {MAIN: joined(step.entries for step in steps)}, "steps")


def judged(ref: Sequence[Entry], steps: Sequence[Step]) -> tuple[str | None, ExitStatus, int]:
    """The first key that differs, the exit status, and how many keys differ."""
    tree = compare_dumps(Dump({}, {MAIN: ref}, "wanted"), dump_of(steps))
    return tree.first, exit_status(tree), tree.counts.differ


@pytest.mark.parametrize(
    ("preset", "rows", "keys"),
    [(NAME, 1, KEYS), ("moe-tiny", 1, 46), ("moe-tiny", 3, 46), ("hybrid-tiny", 3, 100)],
)
def test_a_replayed_step_tells_what_the_device_told(preset: str, rows: int, keys: int) -> None:
    idle = IdleSteps(preset, rows)
    for pos in (7, 1000):
        odd = {2: (3, 1), rows * keys - 1: (1, 0)}
        for nonfinite in ({}, odd):
            steps = told(idle, pos, nonfinite)
            assert [len(step.entries) for step in steps] == [keys] * rows
            assert [e for step in steps for e in step.entries] == wanted(idle, pos, nonfinite)
            assert judged(wanted(idle, pos), told(idle, pos)) == (None, ExitStatus.SAME, 0)


# --- who makes entries ----------------------------------------------------------------------------


class IdleEngine:
    """An engine whose device tells ``hashes``; ``odd``: by position, what else it tells."""

    name = version = "idle"
    tiers, variants, capabilities = ("exact",), (), frozenset[str]()

    def __init__(self, odd: dict[int, Nonfinite] | None = None) -> None:
        self.idle, self.odd, self.length = IdleSteps(NAME), odd or {}, 0

    def describe(self) -> dict[str, str]:
        return {"device": "none", "emulated": "yes"}

    def weights(self) -> dict[str, Any]:
        return {}

    def reset(self) -> None:
        self.length = 0

    def prefill(self, tokens: Sequence[int], plan: Plan | None = None) -> list[Step]:
        return [self.step(token, plan) for token in tokens][-1:]

    def step(self, token: int, plan: Plan | None = None) -> Step:
        pos, self.length = self.length, self.length + 1
        step = told(self.idle, pos, self.odd.get(pos))[0]
        return Step(step.logits) if plan is None else step


def ran(odd: dict[int, Nonfinite] | None = None, n: int = 3) -> SideRun:
    """A run of ``n`` steps after a prompt of two tokens."""
    engine: Any = IdleEngine(odd)
    run = Run(synthetic(NAME, 7), (1, 2), n)
    return run_side(Side("ref", "idle", engine), run)


def test_nobody_makes_an_entry_that_nobody_looks_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Steps, the run that takes them in, the file, the comparison, the rerun: all by column."""
    with entries_made(monkeypatch) as made:
        one, two = ran(), ran()
        write_dump(one.dump, tmp_path / "one")
        back = read_dump(tmp_path / "one")
        assert compare_dumps(one.dump, two.dump).counts.same == 3 * KEYS
        assert compare_dumps(one.dump, back).counts.same == 3 * KEYS
        assert (unlike_run(one, two), one_hash_notes(one.dump, two.dump)) == ("", [])
        assert made() == 0
        assert one.dump.entries[700].key.tag == "t3_l15_v"
        assert made() == 1


@pytest.mark.parametrize("n", [2, 5])
def test_a_green_diff_makes_the_entries_of_its_control_alone(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """However many keys are compared: the key that is drawn, once to draw and once to name it."""
    run = run_of(2, n)
    ref, dut = (Side(role, "cpu", loaded("cpu", run.model.config, 64)) for role in ("ref", "dut"))
    with entries_made(monkeypatch) as made:
        tree = diff_engines(ref, dut, run, Ask())
        assert made() == 2
    assert tree.control is not None
    assert (tree.verdict, tree.counts.same, tree.control.fired) == (Verdict.SAME, 24 * n, True)


def test_a_red_comparison_makes_no_entry_either(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = IdleSteps(NAME)
    step = told(idle, 9)[0]
    assert isinstance(step.entries, Table)
    changed = replace(step, entries=step.entries.with_digest(300, 5))
    with entries_made(monkeypatch) as made:
        tree = compare_dumps(dump_of([step]), dump_of([changed]))
        assert (tree.first, tree.counts.differ, len(tree.keys)) == ("t9_l27_k", 1, KEYS)
        assert str(unlike_entries(step.entries, changed.entries)) == "t9_l27_k"
        assert made() == 0
    assert tree.keys[300].dut == "0000000000000005 int8[4,128]"


def test_red_a_step_that_makes_its_entries_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Form.table

    def eager(self: Form, *given: Any) -> Any:
        return [*real(self, *given)]

    monkeypatch.setattr(Form, "table", eager)
    idle = IdleSteps(NAME)
    with entries_made(monkeypatch) as made:
        told(idle, 9)
        assert made() == KEYS


# --- planted faults -------------------------------------------------------------------------------


def first_wrong(plant: Callable[[], None], rows: int = 1, preset: str = NAME) -> Any:
    """What ``judged`` says of a forward at position 4 after a fault was planted."""
    idle = IdleSteps(preset, rows)
    assert judged(wanted(idle, 4), told(idle, 4)) == (None, ExitStatus.SAME, 0)
    plant()
    return judged(wanted(idle, 4), told(idle, 4))


def test_red_digests_in_the_order_of_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device hashes large values first; the first small one has another's digest."""

    def unsorted(self: Jobs, found: np.ndarray) -> Any:
        return found["hash"].copy(), {}

    first = first_wrong(lambda: monkeypatch.setattr(Jobs, "results", unsorted))
    assert first == ("t4_l0_nrm", ExitStatus.DIVERGED, KEYS)


def test_red_digests_shifted_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the hundredth key on each has the digest of the one before it."""
    real = Form.table

    def shifted(self: Form, *given: Any) -> Table:
        table = real(self, *given)
        digest = table.digest.copy()
        digest[100:] = table.digest[99:-1]
        return replace(table, digest=digest)

    first = first_wrong(lambda: monkeypatch.setattr(Form, "table", shifted))
    assert first == ("t4_l9_kraw", ExitStatus.DIVERGED, KEYS - 100)


def test_red_a_row_with_the_digests_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 2 of three tells what row 1 told."""
    real = Form.table

    def mixed(self: Form, pos: int, digests: np.ndarray, nonfinite: Any) -> Table:
        moved = self if pos != 6 else replace(self, at=self.at - 1)
        return real(moved, pos, digests, nonfinite)

    first = first_wrong(lambda: monkeypatch.setattr(Form, "table", mixed), 3, "moe-tiny")
    assert first == ("t6_l0_nrm", ExitStatus.DIVERGED, 46)


def held(monkeypatch: pytest.MonkeyPatch, plant: Callable[[], None]) -> Any:
    """What ``judged`` says of three replayed steps that somebody kept until the last was done."""
    idle = IdleSteps(NAME)
    plant()
    steps = [step for pos in (4, 5, 6) for step in told(idle, pos)]
    return judged([entry for pos in (4, 5, 6) for entry in wanted(idle, pos)], steps)


def test_red_a_stale_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step hands out the same memory: the last one wrote over those before it."""
    real, kept = Form.table, np.zeros(KEYS, np.uint64)

    def shared(self: Form, *given: Any) -> Table:
        table = real(self, *given)
        kept[:] = table.digest
        return replace(table, digest=kept)

    assert held(monkeypatch, lambda: None) == (None, ExitStatus.SAME, 0)
    found = held(monkeypatch, lambda: monkeypatch.setattr(Form, "table", shared))
    assert found == ("t4_l0_nrm", ExitStatus.DIVERGED, 2 * KEYS)


def test_red_logits_that_the_next_step_writes_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are handed out as they came to the host: that must be a copy each time."""

    def kept() -> float:
        idle = IdleSteps("moe-tiny")
        logits = idle.arena.logits(1)
        logits[...] = 1
        step = idle.steps(8)[0]
        logits[...] = 2
        idle.steps(9)
        return float(step.logits[5])

    assert kept() == 1
    monkeypatch.setattr(Idle, "download", lambda self, buffer: buffer)
    assert kept() == 2


def test_one_of_many_is_not_finite() -> None:
    """The run ends with that step; the comparison says where, and is not green."""
    run = ran({3: {400: (7, 11)}}, n=5)
    layer, field = IdleSteps(NAME).offered[400]
    key = Key(3, layer, field)
    assert (str(key), run.dump.header["stopped"]) == ("t3_l36_ks", "t3_l36_ks")
    assert len(run.dump.entries) == 2 * KEYS
    odd = [entry for entry in run.dump.entries if entry.nonfinite]
    assert [(entry.key, entry.nonfinite) for entry in odd] == [(key, (7, 11))]
    tree = compare_dumps(run.dump, ran({3: {400: (7, 11)}}, n=5).dump)
    said = "not finite with the same bytes: t3_l36_ks (ref 7 from index 11, dut 7 from index 11)"
    assert (exit_status(tree), tree.reason) == (ExitStatus.NOT_RUN, said)


def test_red_what_is_not_finite_told_of_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in the order of the jobs, not of the values."""
    real = Jobs.results

    def unsorted(self: Jobs, found: np.ndarray) -> Any:
        bad = np.flatnonzero(found["nonfinite"])
        return real(self, found)[0], {int(at): (1, 0) for at in bad}

    monkeypatch.setattr(Jobs, "results", unsorted)
    assert ran({3: {400: (7, 11)}}, n=5).dump.header["stopped"] != "t3_l36_ks"


def test_red_nobody_looks_whether_all_is_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Jobs.results
    monkeypatch.setattr(Jobs, "results", lambda self, found: (real(self, found)[0], {}))
    run = ran({3: {400: (7, 11)}}, n=5)
    assert ("stopped" in run.dump.header, len(run.dump.entries)) == (False, 5 * KEYS)


# --- the bench ------------------------------------------------------------------------------------


def test_the_bench_times_what_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dumping, "SHAPES", ("moe-tiny",))
    monkeypatch.setattr(dumping, "ROUNDS", 1)
    assert dumping.main(["2", "--json", str(tmp_path / "found.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 4 + 6
    assert lines[2].startswith("moe-tiny, 1 rows of 46 keys, dump ")
    with pytest.raises(SystemExit) as ended:
        dumping.main(["0"])
    assert ended.value.code == 2
    assert "the number of rounds must be 1 or more, got 0" in capsys.readouterr().err
    assert PRESETS.keys() >= {*dumping.SHAPES, NAME}
