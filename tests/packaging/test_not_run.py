"""tests/conftest.py counts what is not run, and a run of nothing does not end 0."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
CONFIG = "[pytest]\nmarkers =\n    gpu: planted\n    slow: planted\n"
ONE_OF_EACH = """\
import pytest

def test_plain(): pass

@pytest.mark.gpu
def test_gpu(): pass

@pytest.mark.gpu
def test_gpu_too(): pass

@pytest.mark.slow
def test_slow(): pass
"""
FAKE_CUPY = """\
class runtime:
    driverGetVersion = staticmethod(lambda: {driver})
    getDeviceCount = staticmethod(lambda: {count})
class cuda:
    runtime = runtime
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return a folder with our conftest.py and one test of each kind."""
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text(CONFIG)
    (tmp_path / "test_planted.py").write_text(ONE_OF_EACH)
    return tmp_path


def run(suite: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run pytest on the planted suite and return its exit status and output lines."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_skipped_tests_are_counted_by_reason(suite: Path, workers: str) -> None:
    status, lines = run(suite, "--no-gpu", "-n", workers)
    assert status == 0
    at = lines.index("not run: 3")
    assert lines[at + 1 : at + 3] == ["  2 x gpu: --no-gpu", "  1 x slow: no --slow"]


def test_slow_option_runs_the_slow_test(suite: Path) -> None:
    assert "not run: 2" in run(suite, "--no-gpu", "--slow")[1]


@pytest.mark.parametrize(
    ("driver", "count", "reason"),
    [(0, 0, "gpu: no NVIDIA driver"), (13000, 0, "gpu: no device")],
    ids=["driver", "device"],
)
def test_machine_without_gpu_says_why(suite: Path, driver: int, count: int, reason: str) -> None:
    (suite / "cupy.py").write_text(FAKE_CUPY.format(driver=driver, count=count))
    status, lines = run(suite)
    assert status == 0
    assert f"  2 x {reason}" in lines
    assert not any("gpu tests" in line for line in lines)


def test_gpu_tests_that_run_are_shown_in_a_table(suite: Path) -> None:
    (suite / "cupy.py").write_text(FAKE_CUPY.format(driver=13000, count=1))
    (suite / "test_more.py").write_text(
        "import pytest\npytestmark = pytest.mark.gpu\ndef test_red(): raise OSError\n"
    )
    status, lines = run(suite, "-m", "gpu")
    assert status == 1
    assert "not run: 0" in lines
    rows = [line.split()[:4] for line in lines if line.startswith(("file ", "test_"))][-3:]
    assert rows == [
        ["file", "passed", "failed", "not"],
        ["test_more.py", "0", "1", "0"],
        ["test_planted.py", "2", "0", "0"],
    ]


def test_red_nothing_ran(suite: Path) -> None:
    status, lines = run(suite, "-m", "gpu", "--no-gpu")
    assert status == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "not run: 2" in lines
