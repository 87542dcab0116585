"""The pytest plug-in: the fixture ``parity_baseline``, and the options that go with it.

Loaded by every run of pytest where parity is installed, so nothing heavy is imported before a test
asks for the fixture. ``-p no:parity`` leaves it out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from parity.baseline.fixture import ParityBaseline

UPDATE, STORE, INI = "--parity-update", "--parity-store", "parity_store"
DEFAULT_STORE = ".parity-store"
_ASSERTING = ("parity.testing", "parity.bits_equal")
_passed = pytest.StashKey[bool]()
_baseline = pytest.StashKey["ParityBaseline"]()
_told = pytest.StashKey[list[str]]()  # what became of a test's baselines, until its last report

# Assertions of these modules are shown as those of a test, where they are not imported yet.
pytest.register_assert_rewrite(*(name for name in _ASSERTING if name not in sys.modules))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, and the setting in a configuration file."""
    group = parser.getgroup("parity", "parity: arrays that must stay equal to the bit")
    group.addoption(
        UPDATE,
        action="store_true",
        default=False,
        help="accept what parity_baseline checks in tests that pass; on the command line alone",
    )
    group.addoption(
        STORE, metavar="DIR", default=None, help=f"folder of accepted arrays (else {INI})"
    )
    parser.addini(
        INI, f"folder of accepted arrays, beside this file (default: {DEFAULT_STORE})", default=""
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that were not typed: nobody must accept results without knowing it."""
    if hasattr(config, "workerinput"):
        return  # of pytest-xdist: the process that started it has asked
    environment = os.environ.get("PYTEST_ADDOPTS", "")
    hidden = next((name for name in (UPDATE, STORE, f"{INI}=") if name in environment), None)
    if hidden is not None:
        raise pytest.UsageError(f"{hidden} in PYTEST_ADDOPTS: give it on the command line")
    typed = [str(word).partition("=")[0] for word in config.invocation_params.args]
    given = {UPDATE: config.getoption(UPDATE), STORE: config.getoption(STORE) is not None}
    for name, is_given in given.items():
        if is_given and name not in typed:
            raise pytest.UsageError(f"{name} in addopts: give it on the command line")
    if given[UPDATE]:
        config.pluginmanager.register(_Summary(), "parity-summary")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Where the accepted arrays lie, in runs that chose a folder or change it."""
    if not config.getoption(UPDATE) and config.getoption(STORE) is None:
        return []
    updating = ", accepting what differs" if config.getoption(UPDATE) else ""
    return [f"parity: store {store_folder(config)}{updating}"]


def store_folder(config: pytest.Config) -> Path:
    """The option, as a shell reads it; else the setting or the default, beside the configuration
    file (the root folder where there is none)."""
    if (typed := config.getoption(STORE)) is not None:
        return Path(config.invocation_params.dir, typed)
    beside = config.inipath.parent if config.inipath is not None else config.rootpath
    return Path(beside, config.getini(INI) or DEFAULT_STORE)


@pytest.fixture
def parity_baseline(request: pytest.FixtureRequest) -> ParityBaseline:
    """Hold arrays to those that were accepted: ``parity_baseline.check(array)``.

    A test without an accepted baseline fails; ``pytest --parity-update`` accepts.
    """
    from parity.baseline.fixture import ParityBaseline

    config, node = request.config, request.node
    made = ParityBaseline(store_folder(config), node.nodeid, update=bool(config.getoption(UPDATE)))
    node.stash[_baseline] = made
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether the test passed; send what was accepted along with its last report."""
    report = yield
    if call.when == "setup":
        item.stash[_passed] = False
    elif call.when == "call":
        item.stash[_passed] = report.passed
    elif told := item.stash.get(_told, []):
        report.parity_told = told  # type: ignore[attr-defined]
        item.stash[_told] = []
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Accept what a test checked, once all of it has passed, its teardown included."""
    baseline = item.stash.get(_baseline, None)
    try:
        result = yield
        if baseline is not None and item.stash.get(_passed, False):
            item.stash[_told] = baseline.accept()
        elif baseline is not None:
            item.stash[_told] = baseline.left()
        return result
    finally:
        if baseline is not None:
            del item.stash[_baseline]


class _Summary:
    """What a run accepted, test by test; with pytest-xdist told by the reports of its workers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.lines += getattr(report, "parity_told", ())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("parity baselines")
        for line in self.lines or ["nothing was checked, nothing was accepted"]:
            terminalreporter.write_line(line)
