"""A key's state and source by name: one name each, with a look and a rank."""

from dataclasses import replace

import pytest

from parity.tree import Cause, KeyState
from parity_reports import states
from tests.reports import trees


@pytest.mark.parametrize(
    ("state", "cause", "name"),
    [
        (KeyState.DIFFERS, Cause.BORN, "born here"),
        (KeyState.SAME, Cause.BORN, "born here, equal in the run"),
        (KeyState.DIFFERS, Cause.INHERITED, "inherited"),
        (KeyState.SAME, Cause.MASKED, "masked"),
        (KeyState.DIFFERS, "", "differs"),
        (KeyState.MISSING, Cause.INHERITED, "missing"),
        (KeyState.NOT_COMPARABLE, Cause.BORN, "not comparable"),
    ],
)
def test_each_state_has_one_name(state: str, cause: str, name: str) -> None:
    row = replace(trees.red().keys[0], state=state, cause=cause)
    assert states.state_name(row) == name
    assert name in states.LOOKS
    assert name in states.WORST


def test_a_source_is_named_once() -> None:
    row = replace(trees.red().keys[0], state=KeyState.DIFFERS, cause=Cause.BORN)
    assert states.sourced_name(replace(row, source=row.key)) == "born here"
    inherited = replace(row, cause=Cause.INHERITED, source="t33_l0_x")
    assert states.sourced_name(inherited) == "inherited from t33_l0_x"
    assert states.sourced_name(replace(inherited, cause="")) == "differs"
