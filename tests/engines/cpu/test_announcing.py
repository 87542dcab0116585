"""The CPU engine says that it compiles, and does so ahead: once, though a cold cache stays cold."""

from __future__ import annotations

import pytest

from parity.model.model import synthetic
from parity.protocol import EngineSettings
from parity_cpu import engine, jit
from parity_cpu.engine import Engine


class Heard:
    """Notes, kept."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize(("warm", "said"), [(False, 1), (True, 0)])
def test_red_compiling_is_said_once(monkeypatch: pytest.MonkeyPatch, warm: bool, said: int) -> None:
    monkeypatch.setattr(Engine, "_announced", False)
    monkeypatch.setattr(jit, "cache_is_warm", lambda: warm)
    compiled: list[object] = []
    monkeypatch.setattr(engine, "compile_ahead", compiled.append)
    heard = Heard()
    for _ in range(3):
        settings = EngineSettings("exact", frozenset(), {}, heard)
        Engine(settings).load(synthetic("dense-tiny", 7), 4)
    assert (len(heard.notes), len(compiled)) == (said, said)
    assert all(note.startswith("compiling the CPU engine") for note in heard.notes)
