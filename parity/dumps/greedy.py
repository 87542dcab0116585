"""The greedy header of a dump: ``pos:id`` for each position at which a token was chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from parity.dump import Dump
from parity.errors import InputError

_CHOICE = re.compile(r"(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,8})")


def format_greedy(choices: Mapping[int, int]) -> str:
    """Position to token id, as the header holds it: ``32:611,33:88``."""
    return ",".join(f"{pos}:{token}" for pos, token in choices.items())


def parse_greedy(text: str, source: str) -> dict[int, int]:
    """Read the header back; raises InputError naming ``source`` for any other text."""
    choices: dict[int, int] = {}
    for part in text.split(",") if text else ():
        found = _CHOICE.fullmatch(part.strip())
        if found is None or int(found[1]) in choices:
            raise InputError(
                f"{source}: header greedy: {part.strip()!r} is not a new position:token",
                "write it as # greedy 32:611,33:88",
            )
        choices[int(found[1])] = int(found[2])
    return choices


@dataclass(frozen=True)
class GreedyMatch:
    """Choices of both sides. ``choices``: (position, ref, dut) where both recorded one.

    ``equal``: the same choice at each position of either side, and at least one position.
    ``note`` says what was not recorded, if anything.
    """

    choices: list[tuple[int, int, int]] = field(default_factory=list)
    equal: bool = False
    note: str = ""

    @property
    def flip(self) -> tuple[int, int, int] | None:
        """The first position at which the choices differ, if any."""
        return next((row for row in self.choices if row[1] != row[2]), None)


def match_greedy(ref: Dump, dut: Dump) -> GreedyMatch:
    """Compare the greedy headers of two dumps."""
    ref_choices, dut_choices = (
        parse_greedy(side.header.get("greedy", ""), side.source) for side in (ref, dut)
    )
    common = sorted(ref_choices.keys() & dut_choices.keys())
    rows = [(pos, ref_choices[pos], dut_choices[pos]) for pos in common]
    note = ""
    if ref_choices.keys() != dut_choices.keys():
        sides = (("ref", ref_choices, dut_choices), ("dut", dut_choices, ref_choices))
        lacks = [
            f"{len(theirs.keys() - mine.keys())} in {side}"
            for side, mine, theirs in sides
            if theirs.keys() - mine.keys()
        ]
        note = f"greedy choices not recorded: {', '.join(lacks)}"
    return GreedyMatch(rows, bool(rows) and ref_choices == dut_choices, note)
