"""pyproject.toml agrees with the code: entry points resolve, the version has one source."""

import importlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = {
    f"{group}:{name}": target
    for group, entries in {**PROJECT["entry-points"], "scripts": PROJECT["scripts"]}.items()
    for name, target in entries.items()
}


def resolve(target: str) -> object:
    """Import what an entry point names; raises ImportError or AttributeError if it cannot.

    A plug-in of pytest is a module.
    """
    module, _, attribute = target.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, attribute) if attribute else imported.pytest_configure


@pytest.mark.parametrize("name", TARGETS)
def test_entry_point_resolves_without_a_device(name: str) -> None:
    assert callable(resolve(TARGETS[name]))


@pytest.mark.parametrize(
    "target", ["parity_reports:Missing", "parity_missing:Engine", "parity.status"]
)
def test_red_entry_point_to_nothing(target: str) -> None:
    with pytest.raises((ImportError, AttributeError)):
        resolve(target)


def test_groups_and_names() -> None:
    names = {group: set(entries) for group, entries in PROJECT["entry-points"].items()}
    assert names["parity.engines"] >= {"cpu", "cuda", "emu"}
    assert names["parity.reports"] >= {"console", "json", "csv"}


def test_version_is_read_from_the_code() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
