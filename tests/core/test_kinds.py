"""Values of another kind than their dataclass declares are found, with their place."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from parity.kinds import misfit
from parity.status import Level


@dataclass
class Part:
    """One of each kind."""

    name: str = "n"
    count: int = 1
    share: float = 0.5
    level: Level = Level.BIT
    note: str | None = None
    pair: tuple[int, str] = (1, "a")
    index: tuple[int, ...] = (1, 2)
    words: dict[str, str] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)


def test_what_is_declared_fits() -> None:
    inner = Part(note="x", share=1, index=(), words={"a": "b"})
    assert misfit(Part(parts=[inner, inner]), Part) is None


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": 1}, "name"),
        ({"name": None}, "name"),
        ({"count": 1.0}, "count"),
        ({"count": True}, "count"),
        ({"share": "1"}, "share"),
        ({"level": "bit"}, "level"),
        ({"note": 1}, "note"),
        ({"pair": (1, 2)}, "pair[1]"),
        ({"pair": (1,)}, "pair"),
        ({"pair": [1, "a"]}, "pair"),
        ({"index": (1, "2")}, "index[1]"),
        ({"words": {"a": 1}}, "words['a']"),
        ({"words": {1: "a"}}, "words"),
        ({"words": []}, "words"),
        ({"parts": [Part(), 5]}, "parts[1]"),
        ({"parts": [Part(parts=[Part(name="", count=[])])]}, "parts[0].parts[0].count"),
    ],
)
def test_red_another_kind_is_named_by_its_place(change: dict[str, object], where: str) -> None:
    assert misfit(Part(**change), Part) == where  # type: ignore[arg-type]
