"""Faults planted in a candidate: the gate refuses each at its key, whatever the clock says."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from parity.errors import NotRunError
from parity.gate import passes, timing
from parity.gate.running import Gate, run_gate
from parity.gate.settings import Settings
from parity.model.config import preset
from parity.model.model import SyntheticModel
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.runs.run import Run, Side
from parity.runs.settings import run_settings
from parity.runs.sides import open_side
from parity.spec import EngineSpec, parse_spec
from tests.red.gate_engines import CLOCK

ENGINES_HERE = "tests.red.gate_engines"
SMALL = replace(preset("moe-tiny"), layers=2, vocab=64)
SEEDS = (2, 3, 4)
PROMPT = (1, 2, 3)  # eight tokens are decoded, t3 to t10
BASE, FAST = "Paced@us=1000", "Paced@us=800"


@pytest.fixture(autouse=True)
def made_up_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "now", CLOCK.now)
    CLOCK.at = 0


def spec(text: str) -> EngineSpec:
    whole = text if text == "emu" or text.startswith("tests.") else f"{ENGINES_HERE}:{text}"
    found = parse_spec(whole, plugins(ENGINES))
    assert isinstance(found, EngineSpec)
    return found


def gate(
    candidate: str, base: str = BASE, sizes: tuple[int, ...] = (1, 8), rounds: int = 6
) -> Gate:
    """Three seeds of a short run."""
    runs = tuple(
        run_settings(model=SyntheticModel(SMALL, seed), tokens=PROMPT, n=8, dump_prefill=True)
        for seed in SEEDS
    )
    settings = Settings(runs, sizes, rounds, Fraction("0.95"))

    def open_pair(run: Run) -> tuple[Side, Side]:
        with Progress(quiet=True) as progress:
            return (
                open_side("ref", spec(base), run, progress),
                open_side("dut", spec(candidate), run, progress),
            )

    return run_gate(settings, open_pair)


def refused(candidate: str, **given: Any) -> tuple[int, int, str, str]:
    """(seed, M, first key, what) of a gate that must refuse."""
    found = gate(candidate, **given)
    assert (found.decision.verdict, found.decision.verdict.exit_status) == ("refused", 1)
    assert found.problem is not None
    assert found.decision.reason == f"not equal: {found.problem.text}"
    assert not found.timings
    return found.problem.seed, found.problem.size, found.problem.first, found.problem.what


# --- not equal ------------------------------------------------------------------------------------


def test_one_ulp_at_eight_rows_of_seed_three() -> None:
    """The very candidate is twice as fast, and passes with seed 2."""
    key = "a key differs"
    assert refused("WideOnSeedThree@us=500") == (3, 8, "t10_l1_attn", key)
    found = gate("WideOnSeedThree@us=500", sizes=(1, 4))
    assert found.decision.verdict == "default"  # nobody looked at M = 8


def test_the_op_behind_the_key_is_named() -> None:
    problem = gate("WideOnSeedThree@us=500").problem
    assert problem is not None
    assert problem.cause.startswith("attention (contract ")
    assert problem.cause.endswith("every key before it is equal")


@pytest.mark.parametrize(
    ("candidate", "first", "what"),
    [
        ("WideStates", "l1_v row 10 (position 10)", "the end state differs"),
        ("WideLogits", "t5_logits", "the logits returned differ"),
        ("ShortRows", "t10_logits", "7 rows for 8 tokens"),
        ("Shaky", "t4_l0_x", "a key differs, and another run of it is not the same"),
        ("OtherWeights", "", "weights differ in 1 tensor, first final_norm"),
    ],
)
def test_other_bits_with_a_tap(candidate: str, first: str, what: str) -> None:
    size = 8 if first else 1
    assert refused(candidate) == (2, size, first, what)


def test_single_steps_are_compared_by_diff() -> None:
    problem = gate("Paced+fma@us=500").problem
    assert problem is not None
    assert (problem.first, problem.singly) == ("t0_l0_kraw", True)
    assert problem.cause.endswith("born here")


@pytest.mark.parametrize(
    ("candidate", "size", "first", "what"),
    [
        ("UntappedPath", 8, "t4_logits", "the logits returned differ in warm-up round 1"),
        ("UntappedSteps", 1, "t3_logits", "the logits returned differ in warm-up round 1"),
        (
            "UntappedState",
            8,
            "l1_ks row 9 (position 9)",
            "the end state differs in warm-up round 1",
        ),
        ("OneRound", 8, "t7_logits", "the logits returned differ in timed round 2"),
        ("WhileTimed", 8, "t3_logits", "the logits returned differ in timed round 1"),
    ],
)
def test_other_bits_without_a_tap(candidate: str, size: int, first: str, what: str) -> None:
    """Every key is right: only what the timed passes gave tells."""
    assert refused(f"{candidate}@us=100") == (2, size, first, f"{what}, without a tap")


def test_another_path_of_the_emulated_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """From five rows on and without a tap, a product is added in another order."""
    monkeypatch.setattr(passes, "now", itertools.count().__next__)
    found = gate("tests.red.gate_devices:EmuUntapped", "emu")
    assert found.problem is not None
    assert (found.problem.size, found.problem.first) == (8, "t3_logits")
    assert found.decision.reason.startswith("not equal: seed 2, M = 8: the logits returned differ")


def test_times_before_the_fault_are_kept() -> None:
    found = gate("OneRound@us=100")
    assert [(pair.round, pair.size) for pair in found.pairs] == [(1, 1), (1, 8), (2, 1)]


def test_red_timed_passes_that_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that comparison the same candidates would become the default."""
    monkeypatch.setattr(timing, "difference", lambda *_args, **_options: None)
    for candidate in ("UntappedPath", "UntappedState", "OneRound", "WhileTimed"):
        assert gate(f"{candidate}@us=100").decision.verdict == "default"


def test_a_candidate_that_remembers_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives the right bits of an untapped pass that it has made before, in no time."""
    assert gate("Remembers@us=1100").decision.reason == "equal, slower"
    monkeypatch.setattr(timing, "fresh_tokens", lambda ground, _number: ground.course.tokens)
    assert gate("Remembers@us=1100").decision.verdict == "default"


def test_rows_that_stood_there_before_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of V written elsewhere is read from the cache, where an earlier pass left it."""
    assert refused("LateRows@us=100", sizes=(1, 6))[:3] == (2, 6, "t4_l0_k")
    monkeypatch.setattr(passes, "write_over", lambda side, course: side.write_state(course.start))
    found = gate("LateRows@us=100", sizes=(1, 6)).problem
    assert found is None or found.first != "t4_l0_k"


# --- no verdict -----------------------------------------------------------------------------------


def not_run(candidate: str, base: str = BASE) -> tuple[str, str]:
    with pytest.raises(NotRunError) as caught:
        gate(candidate, base)
    assert caught.value.exit_status == 3
    return caught.value.message, caught.value.next_step


def test_a_planted_fault_that_is_not_found() -> None:
    message, hint = not_run("RemembersRows@us=100")
    assert message.startswith("seed 2, M = 8: the control did not fire: a fault planted at t")
    assert message.endswith(" was found at nothing")
    assert hint.endswith("does not show what it computes: parity doctor")


@pytest.mark.parametrize("which", ["candidate", "base"])
def test_missing_capabilities(which: str) -> None:
    for name, what in (("NoRows", "M > 1 cannot be checked"), ("NoState", "the end state is not")):
        message, hint = not_run(name) if which == "candidate" else not_run(FAST, name)
        need = "rows" if name == "NoRows" else "state"
        assert message.startswith(f"{ENGINES_HERE}:{name} lacks the capability '{need}'")
        assert what in message
        assert hint == "parity engines lists what each engine offers"


def test_a_candidate_that_cannot_inject_is_checked_at_dump_level() -> None:
    found = gate("NoInject@us=500")
    assert found.decision.verdict == "default"
    controls = [size.control for seed in found.seeds for size in seed.sizes]
    assert {control.kind for control in controls if control} == {"dump level"}


def test_a_base_whose_rows_are_wrong_is_not_held_against_the_candidate() -> None:
    message, hint = not_run(FAST, "WideLogits")
    name = f"{ENGINES_HERE}:WideLogits"
    assert message == (
        f"seed 2, M = 8: warm-up round 1: the base {name} does not equal its own single steps, "
        "first t5_logits"
    )
    assert hint == f"parity isodiff --engine {name} --m 8"


@pytest.mark.parametrize("visit", [1, 2], ids=["in diff", "in the pass that is held against"])
def test_a_base_that_differs_from_itself(visit: int) -> None:
    base = f"ShakySteps@visit={visit}"
    message, hint = not_run(FAST, base)
    name = f"{ENGINES_HERE}:{base}"
    assert message == f"seed 2: the base {name} differs from itself, first at t5_l0_x"
    assert hint == f"parity stable --engine {name}"


def test_a_clock_that_stands_still() -> None:
    message, _ = not_run("Stopped", "Stopped")
    assert message == "a timed pass took no time by the clock"


# --- equal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidate", "rounds", "verdict", "status", "reason"),
    [
        ("Paced@us=800", 12, "default", 0, "equal and faster"),
        ("Paced@us=1300", 12, "opt-in", 1, "equal, slower"),
        ("Paced@us=995", 12, "default", 0, "equal and faster"),
        ("Paced@us=1001", 12, "opt-in", 1, "equal, slower"),
        ("Paced@us=1000@wide=1000", 12, "opt-in", 1, "equal, not faster"),
        (
            "Paced@us=800@wide=1100",
            12,
            "opt-in",
            1,
            "equal and faster over all, but slower at M = 8",
        ),
        ("Paced@us=1000@noise=5", 12, "undecided", 3, "equal, and the noise hides"),
        ("Paced@us=500", 3, "undecided", 3, "equal, with too few pairs to tell: 6 are the fewest"),
        ("Paced@us=500", 5, "undecided", 3, "equal, with too few pairs to tell: 6 are the fewest"),
        ("Paced@us=500", 6, "default", 0, "equal and faster"),
    ],
)
def test_verdict_by_the_clock(
    candidate: str, rounds: int, verdict: str, status: int, reason: str
) -> None:
    found = gate(candidate, rounds=rounds)
    assert (found.decision.verdict, found.decision.verdict.exit_status) == (verdict, status)
    assert found.decision.reason.startswith(reason)
    assert len(found.pairs) == 2 * rounds


@pytest.mark.parametrize(
    ("candidate", "base"),
    [
        ("OneBuild+quick", "OneBuild"),
        ("Deaf+two_pass@us=900@noise=1", "Deaf@us=900@noise=1"),
        (BASE, BASE),
    ],
)
def test_the_same_code_is_never_the_default(candidate: str, base: str) -> None:
    found = gate(candidate, base)
    assert found.identical
    assert (found.decision.verdict, found.decision.verdict.exit_status) == ("undecided", 3)
    assert found.decision.reason == "equal, and both sides run the same code: nothing to gate"


def test_a_variant_that_switches_nothing_is_not_called_faster() -> None:
    """The clock says twice as fast; the compiled code is the same."""
    found = gate("OneBuild+quick", "OneBuild")
    assert found.timings[0].ratio == 0.5
    assert found.timings[0].interval.below_one
    assert found.decision.verdict == "undecided"


def test_red_identity_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.gate.running.identical", lambda *_: False)
    assert gate("OneBuild+quick", "OneBuild").decision.verdict == "default"
