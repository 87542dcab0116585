"""What became of a key, by one name each, and how every report shows it.

Once the births are known a differing key is named by its cause, and a key that is equal in spite of
a differing input is masked; without causes a key is named by its state alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from parity.tree import Cause, KeyRow, KeyState

BORN_EQUAL = "born here, equal in the run"  # its difference cancels another one


@dataclass(frozen=True)
class Look:
    """``kind``: class of its mark; ``word``: in a strip; ``role``: its colour on the console."""

    kind: str
    word: str
    role: str


# In the order of the tables and of the script's numbers.
LOOKS = {
    KeyState.SAME: Look("same", "ok", "dim"),
    Cause.BORN: Look("born", "DIFF born", "diff"),
    BORN_EQUAL: Look("born", "born, equal", "diff"),
    Cause.INHERITED: Look("inherited", "DIFF inherited", "odd"),
    Cause.MASKED: Look("masked", "masked", "masked"),
    KeyState.DIFFERS: Look("differs", "DIFF", "diff"),
    KeyState.MISSING: Look("missing", "missing", "diff"),
    KeyState.EXTRA: Look("missing", "extra", "diff"),
    KeyState.NOT_COMPARABLE: Look("nc", "not comparable", "odd"),
}
PLAIN = (
    *(KeyState.SAME, KeyState.DIFFERS, KeyState.MISSING, KeyState.EXTRA),
    KeyState.NOT_COMPARABLE,
)
CAUSES = tuple(name for name in LOOKS if name not in PLAIN)
# What a mark over several keys shows: the first of these that any of them is.
WORST = (
    *(Cause.BORN, BORN_EQUAL, KeyState.MISSING, KeyState.EXTRA, KeyState.DIFFERS),
    *(KeyState.NOT_COMPARABLE, Cause.INHERITED, Cause.MASKED, KeyState.SAME),
)
_CAUSES = {
    (KeyState.DIFFERS, Cause.BORN): Cause.BORN,
    (KeyState.DIFFERS, Cause.INHERITED): Cause.INHERITED,
    (KeyState.SAME, Cause.BORN): BORN_EQUAL,
    (KeyState.SAME, Cause.MASKED): Cause.MASKED,
}


def state_name(row: KeyRow) -> str:
    """The name of what became of the key: by its cause where that is known, else its state."""
    return _CAUSES.get((row.state, row.cause), row.state)


def sourced_name(row: KeyRow) -> str:
    """``inherited from t33_l7_attn``: the name, and the birthplace where it is another key."""
    name = state_name(row)
    if not row.source or row.source == row.key or name == row.state:
        return name
    return f"{name} from {row.source}"


def look(row: KeyRow) -> Look:
    """How the key is shown."""
    return LOOKS[state_name(row)]


def is_born(row: KeyRow) -> bool:
    """Whether a difference begins at this key."""
    return state_name(row) in (Cause.BORN, BORN_EQUAL)


def tally(rows: Iterable[KeyRow]) -> dict[str, int]:
    """How many of ``rows`` have each name, in the order of LOOKS; names of none are left out."""
    counts = dict.fromkeys(LOOKS, 0)
    for row in rows:
        counts[state_name(row)] += 1
    return {name: number for name, number in counts.items() if number}
