"""Shared by all tests: what is not run is counted, and a run of nothing is not a pass."""

import gc
import os
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable

import pytest

Reporter = pytest.TerminalReporter
OUTCOMES = ("passed", "failed", "error", "skipped")


def pytest_configure() -> None:
    """Reports are as large as these say, and a test that asks for a size says so itself."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --no-gpu and --slow."""
    group = parser.getgroup("parity")
    group.addoption("--no-gpu", action="store_true", help="skip and count the gpu tests")
    group.addoption("--slow", action="store_true", help="run the slow tests too")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and take what is collected out of its sight.

    It would look through all of these tests again and again: a third of the time to collect them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip gpu and slow tests that this run cannot or should not do, tag gpu tests, begin with the
    longest."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    for item in gpu:
        # A property, not the keyword: keywords also hold the names of files and folders.
        item.user_properties.append(("needs", "gpu"))
    if gpu:
        _skip(gpu, "gpu: --no-gpu" if config.getoption("--no-gpu") else _device_problem())
    if not config.getoption("--slow"):
        _skip((i for i in items if i.get_closest_marker("slow")), "slow: no --slow")
    # The longest fixture of all: at the end one worker would wait for it, or make another.
    items.sort(key=lambda item: "study" not in item.path.parts)


def _skip(items: Iterable[pytest.Item], reason: str) -> None:
    for item in items if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))


def _device_problem() -> str:
    """Return why no GPU can be used here, or an empty string."""
    try:
        import cupy
    except ImportError:
        return "gpu: cupy is not installed"
    # Asked first: without a driver every other call reports a driver that is too old.
    if cupy.cuda.runtime.driverGetVersion() == 0:
        return "gpu: no NVIDIA driver"
    return "" if cupy.cuda.runtime.getDeviceCount() else "gpu: no device"


def pytest_terminal_summary(terminalreporter: Reporter) -> None:
    """Print what was not run, by reason, and a table of the gpu tests that did run."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report) for report in skipped)
    _write_gpu_table(terminalreporter)
    terminalreporter.write_line(f"not run: {len(skipped)}")
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"  {count} x {reason}")


def _reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")


def _write_gpu_table(reporter: Reporter) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: Counter[str] = Counter()
    for outcome in OUTCOMES:
        for report in reporter.stats.get(outcome, []):
            if ("needs", "gpu") in getattr(report, "user_properties", ()):
                file = report.nodeid.split("::", 1)[0]
                counts[file][outcome] += 1
                seconds[file] += report.duration
    if not any(count - Counter(skipped=count["skipped"]) for count in counts.values()):
        return
    width = max(map(len, counts))
    reporter.section("gpu tests")
    reporter.write_line(f"{'file':{width}}  passed  failed  not run  seconds")
    for file, count in sorted(counts.items()):
        failed = count["failed"] + count["error"]
        cells = f"{count['passed']:6}  {failed:6}  {count['skipped']:7}  {seconds[file]:7.2f}"
        reporter.write_line(f"{file:{width}}  {cells}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End 5 (no tests) instead of 0 when every selected test was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus != pytest.ExitCode.OK or session.config.option.collectonly:
        return  # an xdist worker has no reporter; the controller decides
    if not any(reporter.stats.get(name) for name in ("passed", "xfailed")):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
