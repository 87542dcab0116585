"""What --fast means, and what a gate refuses before it runs anything."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from parity.errors import InputError
from parity.gate.evidence import default_name
from parity.gate.settings import Settings, candidate_spec
from parity.runs.settings import run_settings
from parity.spec import EngineSpec, ProgramSpec, parse_spec

INSTALLED = ("cpu", "cuda", "emu", "my-engine")


def candidate(text: str, base: str = "cuda", own: tuple[str, ...] = ()) -> EngineSpec:
    spec = parse_spec(base, INSTALLED)
    assert isinstance(spec, EngineSpec)
    made = candidate_spec(text, spec, INSTALLED, own)
    assert isinstance(made, EngineSpec)
    return made


@pytest.mark.parametrize(
    ("fast", "base", "text"),
    [
        ("two_pass", "cuda", "cuda+two_pass"),
        ("+two_pass", "cuda", "cuda+two_pass"),
        ("+libm_exp,-two_pass", "cuda:fast-libm_exp", "cuda:fast-two_pass"),
        ("+libm_exp-two_pass", "cuda:fast-libm_exp", "cuda:fast-two_pass"),
        ("-two_pass", "cuda:exact+two_pass+fma", "cuda:exact+fma"),
        ("fma,two_pass", "emu@shuffled=7@threads", "emu+fma+two_pass@shuffled=7@threads"),
        ("-fma", "my.module:Engine:fast", "my.module:Engine:fast-fma"),
        ("fma", "cuda+fma", "cuda+fma"),
        ("cuda:fast", "cuda", "cuda:fast"),
        ("cuda+two_pass", "emu", "cuda+two_pass"),
        ("cpu", "cuda", "cpu"),
        ("my-engine", "cuda", "my-engine"),
        ("my.module:Fast", "cuda", "my.module:Fast"),
    ],
)
def test_candidate(fast: str, base: str, text: str) -> None:
    found = candidate(fast, base)
    assert found.text == text
    if found.name != "my.module:Engine":
        assert found == parse_spec(text, INSTALLED)  # the text chooses just that


def test_a_program_is_a_side_without_variants() -> None:
    base = parse_spec("exec:./engine --flag", INSTALLED)
    assert isinstance(base, ProgramSpec)
    assert candidate_spec("exec:./fast", base, INSTALLED) == parse_spec("exec:./fast", INSTALLED)
    with pytest.raises(InputError, match="flag has no variants"):
        candidate_spec("two_pass", base, INSTALLED)


def test_a_variant_of_the_engine_itself() -> None:
    assert candidate("+quick", own=("quick",)).plus == {"quick"}


@pytest.mark.parametrize(
    ("fast", "message", "hint"),
    [
        ("two_pss", "--fast two_pss: 'two_pss' is no variant and no engine", "did you mean two_p"),
        ("+fma,two_pss", "--fast +fma,two_pss: 'two_pss' is no variant", "did you mean two_pass?"),
        ("cdua", "--fast cdua: 'cdua' is no variant and no engine", "did you mean cuda?"),
        ("fma,-fma", "--fast fma,-fma: fma stands twice", "name it once"),
        ("+fma,,two_pass", "--fast +fma,,two_pass: not a list of variants", "write --fast="),
        ("run.dump", "--fast run.dump: not an engine: it cannot be timed", "name an engine"),
        ("", "--fast names nothing", "name variants or an engine"),
    ],
)
def test_red_what_is_neither(fast: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        candidate(fast)
    assert caught.value.message.startswith(message)
    assert caught.value.next_step.startswith(hint)


def settings(**changes: Any) -> Settings:
    seeds, n = changes.pop("seeds", 3), changes.pop("n", 8)
    runs = tuple(
        run_settings(model="moe-tiny", seed=7 + k, tokens=[1, 2, 3], n=n) for k in range(seeds)
    )
    given = {"sizes": (1, 8), "rounds": 24, "confidence": Fraction("0.95"), **changes}
    return Settings(runs, **given)


def test_rounds_are_shared_out_over_the_seeds() -> None:
    for rounds in (3, 7, 24, 25, 26):
        made = settings(rounds=rounds)
        shares = [made.rounds_of(index) for index in range(3)]
        assert sum(shares) == rounds
        assert max(shares) - min(shares) <= 1
    assert settings().seeds == [7, 8, 9]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 2}, "--seeds 2: that says too little"),
        ({"seeds": 1}, "--seeds 1: that says too little"),
        ({"sizes": (4,)}, "--m 4: that says too little"),
        ({"n": 4}, "--n 4 with --m 8: no forward has 8 rows"),
        ({"rounds": 2}, "--rounds 2 with --seeds 3: not every seed is timed"),
        ({"confidence": Fraction("0.9")}, "--confidence 0.9: a gate asks for 0.95 or more"),
        ({"confidence": Fraction(1)}, "--confidence 1: a gate asks for 0.95 or more, below 1"),
    ],
    ids=["two seeds", "one seed", "one M", "n below M", "rounds", "0.9", "1"],
)
def test_red_settings_that_say_too_little(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        settings(**changes)
    assert caught.value.message.startswith(message)
    assert caught.value.next_step


def test_default_name_is_plain_and_not_too_long() -> None:
    assert default_name("cuda", "cuda+fma", "moe-48") == "cuda+fma against cuda, moe-48"
    long = default_name("a.module:" + "x" * 300, "exec:'./a b'\n", "moe-48")
    assert len(long) < 150
    assert long.isprintable()
