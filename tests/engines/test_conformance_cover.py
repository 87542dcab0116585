"""Every promise, every capability and every single requirement has an engine that breaks it."""

from __future__ import annotations

import ast
import inspect
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from parity import testing
from parity.model.generator import prompt_tokens
from parity.model.model import Model
from parity.promises import engines as promises
from parity.promises import functions as function_promises
from parity.promises.candidate import candidate
from parity.promises.conformance import Bench, ConformanceError
from parity.protocol import CAPABILITIES
from parity.testing import PROMISES, run_check
from tests.engines.broken_capabilities import LengthAlone
from tests.engines.broken_promises import Broken
from tests.engines.test_conformance import BROKEN, HYBRID, SMALL

MODULES = (testing, promises, function_promises)
CHECKS = {check.__name__: check for check, _ in PROMISES}
NEEDED = dict((name, capability) for (_, capability), name in zip(PROMISES, CHECKS, strict=True))
Place = tuple[str, int]  # file and line


def requirements(module: ModuleType) -> dict[Place, int]:
    """Where each call of a ``require`` begins, and the line where it ends."""
    tree = ast.walk(ast.parse(inspect.getsource(module)))
    calls = (node for node in tree if isinstance(node, ast.Call))
    asked = (call for call in calls if getattr(call.func, "attr", "").startswith("require"))
    return {(str(module.__file__), one.lineno): one.end_lineno or one.lineno for one in asked}


def failing_places(engine: type, promise: str, model: Model) -> set[Place]:
    """The lines at which the check of a promise gives up on an engine."""
    tokens = tuple(prompt_tokens(7, 6, model.config.vocab))
    bench = Bench(promise, candidate(engine, None), model, tokens)
    with pytest.raises(ConformanceError) as raised:
        run_check(CHECKS[promise], bench)
    return {(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(raised.tb)}


def never_failed(seen: set[Place]) -> list[str]:
    """Requirements at which no engine failed."""
    places = {place: end for module in MODULES for place, end in requirements(module).items()}
    return [
        f"{Path(file).name}:{begin}"
        for (file, begin), end in places.items()
        if not any((file, line) in seen for line in range(begin, end + 1))
    ]


def uncovered(broken: Iterable[Broken], capabilities: Sequence[str]) -> list[str]:
    """Promises without an engine that breaks them, and capabilities without such a promise."""
    covered = {one.promise for one in broken}
    missing = [name for name in CHECKS if name not in covered]
    used = {NEEDED[name] for name in covered}
    return [*missing, *(name for name in capabilities if name not in used)]


def test_every_promise_and_every_capability_has_a_break() -> None:
    assert uncovered(BROKEN, [*CAPABILITIES]) == []


@pytest.mark.parametrize("promise", CHECKS)
def test_red_a_promise_without_a_break_is_named(promise: str) -> None:
    left = [one for one in BROKEN if one.promise != promise]
    capability = [NEEDED[promise]] if NEEDED[promise] in CAPABILITIES else []
    assert uncovered(left, [*CAPABILITIES]) == [promise, *capability]


def test_red_a_capability_without_a_promise_is_named() -> None:
    assert uncovered(BROKEN, [*CAPABILITIES, "telepathy"]) == ["telepathy"]


def test_every_requirement_was_seen_to_fail() -> None:
    """A requirement that no engine ever broke could be one that cannot fail."""
    seen = failing_places(LengthAlone, "rollback_restores", HYBRID)
    for one in BROKEN:
        seen |= failing_places(one.engine, one.promise, SMALL)
    assert never_failed(seen) == []


def test_red_a_requirement_that_never_failed_is_named() -> None:
    found = never_failed(set())
    assert len(found) == sum(len(requirements(module)) for module in MODULES) > 60
