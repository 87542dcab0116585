"""Seeded mutations of texts and of JSON values, for the fuzz tests; and their budget.

``PARITY_FUZZ`` is how many mutations each target gets (default 1,000: two seconds or so).
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

BUDGET = int(os.environ.get("PARITY_FUZZ", "1000"))
SEED = int(os.environ.get("PARITY_FUZZ_SEED", "1"))


def mutated(data: bytes, words: Sequence[bytes], chance: random.Random) -> bytes:
    """``data`` after one to four changes: bytes, ranges, lines, words of a dictionary, a cut."""
    for _ in range(chance.randint(1, 4)):
        data = _changed(data, words, chance)
    return data


def _changed(data: bytes, words: Sequence[bytes], chance: random.Random) -> bytes:
    at, end = sorted(chance.randint(0, len(data)) for _ in range(2))
    near = min(len(data), at + chance.randint(0, 8))
    kind = chance.randrange(8)
    if kind == 0:
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[near:]
    if kind == 2:
        return data[:at] + chance.choice(words) + data[chance.choice((at, near)) :]
    if kind == 3:
        return data[:at]
    if kind == 4:
        return data[:end] + data[at:near] + data[end:]
    lines = data.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    if kind == 5:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 6:
        lines.insert(one, lines[other])
    else:
        del lines[one]
    return b"\n".join(lines)


def altered(value: Any, chance: random.Random) -> Any:
    """A JSON value in which one part, at any depth, is another one, gone, new or twice there."""
    if isinstance(value, dict | list) and value and chance.random() < 0.9:
        return _altered_inside(value, chance)
    return chance.choice(
        [
            *(None, True, 0, -1, 1.5, 1 << 70, "", "x", "t0_l0_x", "differs", "bit", "same"),
            *([], {}, [[]], {"a": 1}, [value], {"a": value}),
        ]
    )


def _altered_inside(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        name = chance.choice(list(value))
        kind = chance.randrange(8)
        rest = {key: item for key, item in value.items() if key != name}
        if kind == 0:
            return rest
        if kind == 1:
            return {**rest, f"{name}x": value[name]}
        return {**value, name: altered(value[name], chance)}
    at = chance.randrange(len(value))
    kind = chance.randrange(8)
    if kind == 0:
        return [*value[:at], *value[at + 1 :]]
    if kind == 1:
        return [*value, value[at]]
    return [*value[:at], altered(value[at], chance), *value[at + 1 :]]
