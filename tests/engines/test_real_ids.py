"""Padded token ids whose logits are the largest: they are never chosen, and who chooses one is seen
(contract 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.comparison.compare import compare_dumps, exit_status
from parity.dumps.greedy import parse_greedy
from parity.dumps.reader import read_dump
from parity.model.model import Model
from parity.program.dump_mode import REAL_IDS, program_environment
from parity.program.serving import Tap, write_told_dump
from parity.protocol import EngineSettings, Plan
from parity.runs import run as running
from parity.runs.ladder import follow
from parity.runs.probe import Ask
from parity.runs.run import Run, Side, SideRun, run_side
from parity.runs.settings import run_settings
from parity.status import ExitStatus, Verdict
from parity_cpu import Engine as CpuEngine
from parity_cuda import EmuEngine
from parity_probes.isodiff import Isodiff
from tests.engines.real_models import changed, mixed
from tests.engines.scalar_models import Held
from tests.probes.asking import run_probe

ENGINES = [CpuEngine, EmuEngine]
REAL = 500  # of 512 ids
PROMPT = (1, 2, 3)


@cache
def padded() -> Held:
    """Rows of the head past REAL are large multiples of others, of both signs: at every position
    one of them has the largest logit."""
    plain = mixed(changed("moe-tiny"), ("lm_head",))
    head = plain.tensors["lm_head"].copy()
    for at in range(REAL, 512):
        head[at] = head[at // 2 - 200] * np.float32(64 if at % 2 else -64)
    config = replace(plain.config, real_ids=REAL)
    return Held(config, {**plain.tensors, "lm_head": head}, "padded")


def settings(**changes: Any) -> Run:
    return run_settings(model=padded(), tokens=PROMPT, n=4, **changes)


def side(engine: Any, run: Run, role: str = "ref") -> Side:
    opened = engine(EngineSettings())
    opened.load(run.model, run.positions)
    return Side(role, engine.name, opened)


@cache
def ran(engine: Any) -> SideRun:
    run = settings()
    return run_side(side(engine, run), run)


def logits_of(engine: Any, tokens: list[int]) -> list[np.ndarray]:
    opened = engine(EngineSettings())
    opened.load(padded(), len(tokens))
    return [opened.step(token).logits for token in tokens]


@pytest.mark.parametrize("engine", ENGINES)
def test_padded_ids_have_the_largest_logits_and_are_never_chosen(engine: Any) -> None:
    found = ran(engine)
    logits = logits_of(engine, [*PROMPT, *found.fed])
    assert all(int(np.argmax(row)) >= REAL for row in logits[2:])
    chosen = {pos: int(np.argmax(logits[pos][:REAL])) for pos in range(2, 7)}
    assert found.choices == chosen
    assert found.fed == [chosen[pos] for pos in range(2, 6)]
    assert parse_greedy(found.dump.header["greedy"], "") == chosen


def test_both_engines_agree() -> None:
    tree = compare_dumps(ran(CpuEngine).dump, ran(EmuEngine).dump)
    assert (tree.verdict, tree.counts.same, exit_status(tree)) == (
        Verdict.SAME,
        4 * 46,
        ExitStatus.SAME,
    )


def test_the_ladder_follows_real_ids() -> None:
    run = settings()
    choices = follow(side(CpuEngine, run), run)
    assert choices == ran(CpuEngine).choices


def test_prompts_are_drawn_of_real_ids() -> None:
    """Few real ids, so that a prompt of any would show."""
    model = Held(replace(padded().config, real_ids=5), padded().tensors)
    assert max(run_settings(model=model).prompt) < 5
    assert max(Ask((2,), (3,), (model,)).tokens(model, 40)) < 5


def test_isodiff_tells_real_ids() -> None:
    ask = Ask((2,), (3,), (padded(),), more=1)
    lines = run_probe(Isodiff, "cpu", ask).lines
    told = [
        int(word.partition("=")[2]) for line in lines for word in line.split() if "top1" in word
    ]
    assert len(told) == 2
    assert max(told) < REAL


# --- planted: a side in which a padded id wins ----------------------------------------------------


def test_red_a_choice_of_all_ids_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Level greedy: equal keys, and the position and both ids are named."""
    monkeypatch.setattr(running, "greedy", lambda logits, real_ids: int(np.argmax(logits)))
    run = settings()
    dut = run_side(side(CpuEngine, run), run, fed=ran(CpuEngine).fed)
    assert min(dut.choices.values()) >= REAL
    tree = compare_dumps(ran(CpuEngine).dump, dut.dump)
    ref, other = ran(CpuEngine).choices[2], dut.choices[2]
    assert tree.reason == (
        f"greedy choice differs at equal logits: position 2, ref {ref}, dut {other}"
    )
    assert (tree.verdict, exit_status(tree)) == (Verdict.DIVERGED, ExitStatus.DIVERGED)


class Program:
    """The cpu engine as a program in Python."""

    name, version = "program", "1"
    header: Mapping[str, str] = {}

    def __init__(self, model: Model) -> None:
        self.model, self.engine = model, CpuEngine(EngineSettings())

    def load(self, model: str, positions: int) -> None:
        self.engine.load(self.model, positions)

    def reset(self) -> None:
        self.engine.reset()

    def step(self, token: int, tap: Tap) -> np.ndarray:
        step = self.engine.step(token, Plan(tuple(tap.fields), basis=tap.basis))
        tap.entries += step.entries
        return step.logits


def by_program(tmp_path: Path, told: Mapping[str, str]) -> Any:
    """The program's dump against the engine's."""
    path = tmp_path / "program.dump"
    write_told_dump(Program(padded()), {**told, "PARITY_DUMP": str(path)})
    return compare_dumps(ran(CpuEngine).dump, read_dump(path))


def test_a_program_is_told_how_many_ids_are_real(tmp_path: Path) -> None:
    told = program_environment(settings(), ran(CpuEngine).fed, tmp_path / "any")
    assert told[REAL_IDS] == "500"
    tree = by_program(tmp_path, told)
    assert (tree.verdict, exit_status(tree)) == (Verdict.SAME, ExitStatus.SAME)
    assert tree.greedy == [(pos, one, one) for pos, one in ran(CpuEngine).choices.items()]


def test_a_program_is_told_nothing_where_all_are() -> None:
    run = run_settings(model="moe-tiny", tokens=PROMPT)
    assert REAL_IDS not in program_environment(run, [1], Path("any"))


def test_red_a_program_that_does_not_listen(tmp_path: Path) -> None:
    told = program_environment(settings(), ran(CpuEngine).fed, tmp_path / "any")
    del told[REAL_IDS]
    tree = by_program(tmp_path, told)
    assert tree.reason.startswith("greedy choice differs at equal logits: position 2, ref ")
    assert (tree.verdict, exit_status(tree)) == (Verdict.DIVERGED, ExitStatus.DIVERGED)
