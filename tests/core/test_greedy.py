"""The greedy header: written, read back, matched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.dump import Dump
from parity.dumps.greedy import format_greedy, match_greedy, parse_greedy
from parity.errors import InputError


@given(st.dictionaries(st.integers(0, 10**9 - 1), st.integers(0, 10**9 - 1)))
@settings(derandomize=True)
def test_choices_survive_the_header(choices: dict[int, int]) -> None:
    assert parse_greedy(format_greedy(choices), "here") == choices


def test_the_written_form() -> None:
    assert format_greedy({32: 611, 33: 88}) == "32:611,33:88"
    assert parse_greedy("32:611, 33:88", "here") == {32: 611, 33: 88}


@pytest.mark.parametrize("text", [",", "1", "1:", ":1", "01:1", "1:2,1:2", "1:2;3:4", "\u0661:1"])
def test_other_text_is_refused_with_its_source(text: str) -> None:
    with pytest.raises(InputError, match="here: header greedy: "):
        parse_greedy(text, "here")


def dump(text: str) -> Dump:
    return Dump({"greedy": text} if text else {})


@pytest.mark.parametrize(
    ("ref", "dut", "equal", "flip", "note"),
    [
        ("1:2,2:3", "2:3,1:2", True, None, ""),
        ("1:2,2:3", "1:2,2:4", False, (2, 3, 4), ""),
        ("1:2,2:3", "1:2", False, None, "greedy choices not recorded: 1 in dut"),
        ("1:2", "2:2", False, None, "greedy choices not recorded: 1 in ref, 1 in dut"),
        ("", "", False, None, ""),
        ("1:2", "", False, None, "greedy choices not recorded: 1 in dut"),
    ],
)
def test_matching(
    ref: str, dut: str, equal: bool, flip: tuple[int, int, int] | None, note: str
) -> None:
    match = match_greedy(dump(ref), dump(dut))
    assert (match.equal, match.flip, match.note) == (equal, flip, note)
