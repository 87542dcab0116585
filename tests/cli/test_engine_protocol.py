"""Versions of the Engine Protocol: an older engine runs as it did, a newer one is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity.cli.listing import describe
from parity.errors import InputError, ParityBug
from parity.protocol import CAPABILITIES, PROTOCOL
from parity.registry import ENGINES, Plugin, checked_engine, engine_class, plugins
from parity.status import ExitStatus
from tests.cli.running import SHORT, diff, said
from tests.cli_runner import run_cli

V1 = "tests.fixtures.engine_v1:Engine"


def test_an_engine_of_version_1_diffs(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "--ref", V1, "--dut", V1)
    assert (status, tree.verdict) == (0, "same")
    assert tree.counts.same == tree.counts.total == 3 * 46
    assert tree.control is not None
    assert (tree.control.kind, tree.control.fired) == ("inject", True)


@pytest.mark.parametrize("tag", ["t3_l0_nrm", "t4_l2_k", "t5_logits"])
def test_red_engine_of_version_1_at_its_key(tmp_path: Path, tag: str) -> None:
    """Births are named from the inputs alone: it cannot replay, a capability that it lacks."""
    status, tree = diff(tmp_path, "--ref", V1, "--dut", f"{V1}@fault={tag}")
    assert (status, tree.verdict, tree.first) == (1, "diverged", tag)
    assert tree.stability is not None
    assert tree.elements is not None
    assert tree.births is not None
    assert (tree.births.found[0].key, tree.births.found[0].how) == (tag, "inputs")
    assert tree.births.reason == "dut lacks the capability 'replay'"


@pytest.mark.parametrize("words", [("isodiff", "--m", "2..3"), ("rollback", "--m", "2")])
def test_an_engine_of_version_1_in_the_probes(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "found.json"
    result = run_cli(*words, "--engine", V1, "--pos", "3:3", "--json", str(path), "-q")
    found: dict[str, Any] = json.loads(path.read_text())
    assert (result.status, found["verdict"], found["first"]) == (0, "same", None)
    assert "control fired" in found["brief"]


def test_red_rows_of_an_engine_of_version_1(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    spec = f"{V1}@fault=t4_l1_attn@rows"
    words = ("--m", "2", "--pos", "3:3", "--json", str(path), "-q")
    result = run_cli("isodiff", "--engine", spec, *words)
    found = json.loads(path.read_text())
    assert (result.status, found["verdict"], found["first"]) == (1, "diverged", "t4_l1_attn")


def test_what_an_engine_of_version_1_lacks_is_named() -> None:
    result = run_cli("isolate", "--ref", V1, "--dut", f"{V1}@fault=t3_l0_nrm", *SHORT)
    assert (result.status, result.stderr) == (ExitStatus.DIVERGED, "")
    assert "placement not run: v1 lacks the capability 'replay'" in result.stdout
    assert "transplant not run: v1 lacks the capability 'replay'" in result.stdout


def test_our_engines_are_of_the_current_version() -> None:
    for name in ("cpu", "cuda", "emu"):
        assert getattr(engine_class(name), "protocol", 1) == PROTOCOL


# --- red


class Newer:
    """An engine of a version that does not exist yet."""

    name, version, tiers, variants = "newer", "9", ("exact",), ()
    capabilities: frozenset[str] = frozenset()
    protocol: Any = PROTOCOL + 1


class Nameless(Newer):
    """A version that is no number."""

    protocol = "two"


@pytest.mark.parametrize(("found", "version"), [(Newer, "3"), (Nameless, "two")])
def test_red_newer_engine_is_refused_by_its_number(found: type, version: str) -> None:
    with pytest.raises(InputError) as caught:
        checked_engine(found, "pkg: engine newer")
    assert caught.value.message == (
        f"pkg: engine newer is of version {version} of the Engine Protocol; "
        "this parity knows 1 to 2"
    )
    assert caught.value.next_step == "install a newer parity, or an older engine"


def test_red_newer_engine_from_the_command_line() -> None:
    spec = f"{__name__}:Newer"
    assert said(run_cli("diff", "--ref", "cpu", "--dut", spec)) == (
        2,
        "",
        f"parity: engine {spec} is of version 3 of the Engine Protocol; this parity knows 1 to 2\n"
        "  next: install a newer parity, or an older engine\n",
    )


def test_red_newer_engine_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = next(iter(plugins(ENGINES).values()))
    monkeypatch.setattr(Plugin, "load", lambda self: Newer)
    assert "is of version 3 of the Engine Protocol" in describe(plugin)["problem"]


def test_red_engine_that_lacks_a_member_is_told_of_that() -> None:
    class Old(Newer):
        protocol = 1

    with pytest.raises(ParityBug, match="pkg: engine old lacks describe"):
        checked_engine(Old, "pkg: engine old")


def test_capabilities_of_line_mode_are_capabilities_of_engines() -> None:
    from parity.program.engine import _ENGINE_CAPABILITIES

    assert set(CAPABILITIES) >= _ENGINE_CAPABILITIES
