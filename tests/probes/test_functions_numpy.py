"""NumPy's functions as they come: what decides their bits is said, and nothing is promised."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from parity.elementary.functions import FUNCTIONS, open_implementation
from parity_probes.numpy_functions import vector_extensions

X = np.random.default_rng(20_261_203).normal(0, 10, 4_096).astype(np.float32)
REPORT = (
    "import numpy as np\n"
    "from parity.elementary.functions import open_implementation as o\n"
    "x = np.random.default_rng(26).normal(0, 20, 10001).astype(np.float32)\n"
    "from parity.elementary.positions import check_positions\n"
    "n = o('numpy')\n"
    "print(n.describe()['processor'], *(len(check_positions(n, f, abs(x))) for f in "
    "('expf', 'logf', 'sinf', 'cosf')), sep='|')\n"
)


@pytest.mark.parametrize(
    ("function", "plain"),
    [("expf", np.exp), ("cosf", np.cos), ("sinf", np.sin), ("logf", np.log)],
)
def test_numpys_own_float32_functions(function: str, plain: np.ufunc) -> None:
    x = np.abs(X)
    assert open_implementation("numpy").evaluate(function, x).tobytes() == plain(x).tobytes()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_are_near_the_correct_ones(function: str) -> None:
    """In float32 throughout, and the function that is meant: some units in the last place, of 1 +
    e^x for softplus, which rounds that sum."""
    x = np.abs(X) if function in ("logf", "rsqrt") else X
    found = open_implementation("numpy").evaluate(function, x)
    wanted = open_implementation("correct").evaluate(function, x)
    assert found.dtype == np.float32
    least = np.float32(1.0 if function == "softplus" else 1e-3)
    assert np.all(np.abs(found - wanted) <= 8 * np.spacing(np.maximum(np.abs(wanted), least)))


def test_specials_give_no_warning_and_no_error() -> None:
    bits = np.array([0x7F800000, 0xFF800000, 0x7F800001, 0, 0x80000000, 1, 0x7F7FFFFF], np.uint32)
    for function in FUNCTIONS:
        assert open_implementation("numpy").evaluate(function, bits.view(np.float32)).size == 7


def test_vector_features_that_are_switched_off_are_seen() -> None:
    """Position independence with and without wide vectors: reported, whatever it is."""
    found = vector_extensions().split("found ")[1]
    if found == "none":
        pytest.skip("numpy: no vector extension to switch off on this processor")
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": found}
    command = [sys.executable, "-c", REPORT]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    processor, *violations = run.stdout.strip().split("|")
    assert processor.endswith("found none")
    assert [count.isdigit() for count in violations] == [True] * 4
