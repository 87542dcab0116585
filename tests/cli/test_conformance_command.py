"""parity conformance: every promise by name, kept, not offered or broken; 0, 1, 2 and 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity import testing
from parity.errors import InputError, NotRunError
from parity.model.generator import prompt_tokens
from parity.model.model import synthetic
from parity.promises.candidate import candidate
from parity.protocol import EngineSettings
from parity.testing import (
    PROMISES,
    Bench,
    ConformanceError,
    engine_conformance,
    promise_outcomes,
    run_check,
)
from parity_cpu import Engine
from parity_cuda import EmuEngine
from tests.cli.running import said
from tests.cli_runner import run_cli
from tests.engines.broken_capabilities import LosesARow
from tests.engines.broken_engines import Misspelt, NoStep
from tests.engines.test_conformance import SMALL
from tests.programs.specs import EXAMPLE, twin

HERE = "tests.cli.test_conformance_command"
BROKEN = "tests.engines.broken_capabilities"
NAMES = [check.__name__ for check, _ in PROMISES]


class Choosy(Engine):
    """Refuses every model."""

    def load(self, model: Any, positions: int) -> None:
        raise InputError(f"choosy does not run {model.config.name}", "choose another model")


class Leaves(Engine):
    """Works once, then its device is gone."""

    def reset(self) -> None:
        super().reset()
        if self.length == 0 and getattr(self, "left", False):
            raise NotRunError("the device is gone")
        self.left = True


def told(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    path = tmp_path / "found.json"
    result = run_cli("conformance", *words, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, json.loads(path.read_text())


def states(found: dict[str, Any]) -> dict[str, str]:
    return {one["promise"]: one["state"] for one in found["promises"]}


# --- the command ----------------------------------------------------------------------------------


def test_what_is_not_offered_is_named(tmp_path: Path) -> None:
    result = run_cli("conformance", "emu", "--model", "dense-tiny")
    lines = result.stdout.splitlines()
    assert result.status == 0
    assert lines[0] == "KEPT  19 of 21 promises kept, 2 not offered"
    assert "  not offered  borrow_computes_with_what_is_given (borrow)" in lines
    assert "  kept         members" in lines
    assert [line for line in lines if line.startswith("  model")] == [
        "  model    dense-tiny seed 7"
    ]


def test_red_a_broken_promise_has_its_reason_and_the_rest_is_told(tmp_path: Path) -> None:
    result = run_cli("conformance", f"{BROKEN}:LosesARow")
    lines = result.stdout.splitlines()
    assert (result.status, result.stderr) == (1, "")
    first = "first rows_equal_steps, 1 of 21 promises broken, 19 kept, 1 not offered"
    assert lines[0] == f"BROKEN  {first}"
    assert "  BROKEN       rows_equal_steps: 5 rows in a cache of 8 at 4 was not refused" in lines
    assert "  promise  the docstring of parity.testing.rows_equal_steps says what is asked" in lines
    assert f"  parity conformance {BROKEN}:LosesARow" in lines
    assert [line.split()[-1] for line in lines if line.startswith("  kept ")] == [
        name for name in NAMES if name not in ("rows_equal_steps", "batch_keeps_sequences_apart")
    ]
    status, found = told(tmp_path, f"{BROKEN}:LosesARow")
    assert (status, found["verdict"]) == (1, "broken")
    assert [name for name, state in states(found).items() if state == "broken"] == [
        "rows_equal_steps"
    ]


@pytest.mark.parametrize(
    ("side", "status", "problem"),
    [
        ("run.dump", 2, "conformance run.dump: not an engine"),
        ("cpu:slow", 2, "cpu:slow: engine cpu has no tier 'slow'"),
        ("tests.engines.broken_engines:NoStep", 2, "lacks step(self, token"),
        (f"{HERE}:Choosy", 2, "choosy does not run moe-tiny"),
        (f"{HERE}:Leaves", 3, "not run: the device is gone"),
        ("exec:true", 3, "not run: exec:true has no line mode"),
    ],
)
def test_what_cannot_be_asked_is_no_verdict(side: str, status: int, problem: str) -> None:
    result = run_cli("conformance", side)
    assert (result.status, result.stdout) == (status, "")
    assert problem in result.stderr
    assert "next:" in result.stderr or side.endswith("Leaves")


# --- programs -------------------------------------------------------------------------------------


def test_a_program_keeps_what_it_offers(tmp_path: Path) -> None:
    status, found = told(tmp_path, EXAMPLE)
    assert (status, found["format"], found["verdict"]) == (0, "parity-conformance", "kept")
    assert [one["promise"] for one in found["promises"]] == NAMES
    kept = [name for name, state in states(found).items() if state == "kept"]
    assert kept == [
        *("members", "shapes", "logits_are_a_copy", "prefill_equals_steps", "reset_forgets"),
        *("tap_changes_nothing", "entries_are_typed", "state_round_trip", "rows_equal_steps"),
        *("rollback_restores", "counters_count", "bad_token_is_refused", "full_cache_is_refused"),
    ]
    assert states(found)["weights"] == "not offered"


@pytest.mark.parametrize(
    ("fault", "promise", "text"),
    [
        ("Rows", "rows_equal_steps", "1 step and 3 rows, step 3: other logits"),
        ("NoMark", "rollback_restores", "rollback without a mark was not refused"),
        ("Length", "rollback_restores", "rollback to 0: state part lengths differs"),
        ("Tapped", "prefill_equals_steps", "prefill of 1 and 3 without a plan: other logits"),
    ],
)
def test_red_a_program_with_a_fault(fault: str, promise: str, text: str) -> None:
    checks = {check.__name__: check for check, _ in PROMISES}
    model = synthetic("moe-tiny", 7)
    tokens = tuple(prompt_tokens(7, 6, model.config.vocab))
    bench = Bench(promise, candidate(twin(fault), None), model, tokens)
    with pytest.raises(ConformanceError, match=promise) as raised:
        run_check(checks[promise], bench)
    assert raised.value.said.startswith(text)


def test_red_the_command_says_so_of_a_program() -> None:
    result = run_cli("conformance", twin("Rows"), "-q")
    line = "broken: first rows_equal_steps, 1 of 21 promises broken, 12 kept, 8 not offered\n"
    assert said(result) == (1, line, "")


# --- parity.testing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [Engine, "cpu", "parity_cpu:Engine", lambda: Engine(EngineSettings()), lambda s: Engine(s)],
    ids=["class", "spec", "module", "factory", "factory with settings"],
)
def test_an_engine_is_a_class_a_factory_or_a_spec(given: Any) -> None:
    said = "batch_keeps_sequences_apart"
    wanted = [f"{name}: not offered (batch)" if name == said else name for name in NAMES]
    assert engine_conformance(given, model=SMALL) == wanted


def test_a_spec_carries_tier_variants_and_options() -> None:
    ran = engine_conformance("emu:fast@shuffled=5", model=SMALL)
    assert len(ran) == len(NAMES)
    made: list[EngineSettings] = []

    def factory(settings: EngineSettings) -> EmuEngine:
        made.append(settings)
        return EmuEngine(settings)

    wanted = EngineSettings(options={"shuffled": "5"})
    assert engine_conformance(factory, model=SMALL, settings=wanted) == ran
    assert made
    assert all(settings is wanted for settings in made)


def test_red_a_broken_factory() -> None:
    with pytest.raises(ConformanceError) as raised:
        engine_conformance(lambda: LosesARow(EngineSettings()), model=SMALL)
    assert raised.value.promise == "rows_equal_steps"


def test_red_a_factory_that_gives_one_engine_again() -> None:
    """Two engines that are one: what a fresh engine must not know is known."""
    one = Engine(EngineSettings())
    with pytest.raises(ConformanceError) as raised:
        engine_conformance(lambda: one, model=SMALL)
    assert raised.value.promise == "logits_are_a_copy"


@pytest.mark.parametrize(
    ("given", "options", "problem"),
    [
        (Engine(EngineSettings()), {}, "Engine: neither an engine class, nor a factory"),
        ("cpu", {"settings": EngineSettings()}, "cpu: settings beside a spec"),
        ("run.dump", {}, "conformance run.dump: not an engine"),
        ("cpx", {}, "'cpx' is no engine"),
    ],
    ids=["an engine", "settings twice", "a dump", "unknown"],
)
def test_what_is_no_engine_is_refused(given: Any, options: Any, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        engine_conformance(given, **options)
    assert raised.value.message.startswith(problem)


@pytest.mark.parametrize("engine", [NoStep, Misspelt])
def test_red_without_members_nothing_more_is_checked(engine: Any) -> None:
    first, *others = promise_outcomes(engine, model=SMALL)
    assert (first.promise, first.state) == ("members", "BROKEN")
    assert {one.state for one in others} == {"not checked"}
    assert [one.promise for one in (first, *others)] == NAMES


def test_an_outcome_reads_as_a_line() -> None:
    lines = [str(one) for one in promise_outcomes(LosesARow, model=SMALL)]
    assert lines[0] == "members"
    said = "rows_equal_steps: BROKEN: 5 rows in a cache of 8 at 4 was not refused"
    assert lines[NAMES.index("rows_equal_steps")] == said
    assert testing.Outcome("x", "not offered", "rows").__str__() == "x: not offered (rows)"
