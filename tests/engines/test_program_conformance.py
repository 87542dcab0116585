"""Programs in line mode are held to the promises of engines."""

from __future__ import annotations

import sys

import pytest

from parity.testing import PROMISES, ConformanceError, engine_conformance
from tests.programs.specs import EXAMPLE, HERE, twin

LACKED = ("capture", "inject", "replay", "trace", "elementary", "borrow", "batch")  # no program can
SERVED = f"exec:{sys.executable} {HERE / 'served.py'} tests.fixtures.engine_v1:Engine"


def kept(*lacked: str) -> list[str]:
    """What a conformance run says where all but these capabilities are offered."""
    return [
        f"{check.__name__}: not offered ({capability})" if capability in lacked else check.__name__
        for check, capability in PROMISES
    ]


def test_an_engine_keeps_every_promise_as_a_program() -> None:
    """An engine of version 1, served: weights, fields and state are the model's own."""
    assert engine_conformance(SERVED) == kept(*LACKED)


def test_the_example_keeps_every_promise() -> None:
    found = engine_conformance(EXAMPLE)
    assert [name for name in found if name not in kept(*LACKED)] in (
        [],
        ["weights: not offered (weights)"],
    )
    assert {"rows_equal_steps", "rollback_restores", "state_round_trip"} <= set(found)


@pytest.mark.parametrize(
    ("fault", "promise", "told"),
    [
        ("Tapped", "prefill_equals_steps", "prefill of 1 and 3 without a plan: other logits than"),
        ("Rows", "rows_equal_steps", "1 step and 3 rows, step 3: other logits"),
        ("OneHash", "entries_are_typed", "t0_l0_k: one digest from two bases, which no bytes have"),
    ],
)
def test_red_program_that_breaks_a_promise(fault: str, promise: str, told: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        engine_conformance(twin(fault))
    assert caught.value.promise == promise
    assert told in caught.value.message
