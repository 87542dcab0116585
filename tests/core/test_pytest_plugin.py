"""The pytest plug-in: baselines are compared, never made in passing, and seen to turn red."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

# Loaded before any run inside this process: pytester forgets what a run imports, and NumPy cannot
# be imported twice.
from parity import testing
from parity.baseline import fixture as baseline_fixture
from parity.baseline.fixture import default_name
from parity.builds import provenance
from parity.store import Store
from parity.store.store import LONGEST_NAME

pytest_plugins = "pytester"
QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "error")
LOADED = (baseline_fixture, provenance, testing, np)

TESTS = """\
import numpy as np
import pytest
X = np.arange(4, dtype=np.float32) + SHIFT

def test_one(parity_baseline):
    parity_baseline.check(X)

def test_named(parity_baseline):
    parity_baseline.check({"q": X, "k": -X}, name="heads")
"""
# One ULP on the element [2] of every array.
MOVED = "X[2] = np.nextafter(X[2], np.float32(9))\n\ndef test_one"


def write(pytester: pytest.Pytester, text: str = TESTS, shift: str = "np.float32(0)") -> Path:
    return pytester.makepyfile(test_it=text.replace("SHIFT", shift))


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """pytest in this process, with warnings as errors, as strict suites have it."""
    return pytester.runpytest_inprocess(*QUICK, *words)


def names(pytester: pytest.Pytester, folder: str = ".parity-store") -> list[str]:
    return Store(pytester.path / folder).names("baseline")


def update(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return run(pytester, "--parity-update", *words)


def test_red_a_missing_baseline_fails_and_is_not_made(pytester: pytest.Pytester) -> None:
    write(pytester)
    done = run(pytester)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        [
            "E*AssertionError: no baseline 'test_it.py::test_one' in *.parity-store: "
            "nothing was compared",
            "E*accept it with: pytest --parity-update test_it.py::test_one",
        ]
    )
    assert not (pytester.path / ".parity-store").exists()


def test_update_accepts_and_says_what(pytester: pytest.Pytester) -> None:
    write(pytester)
    done = update(pytester)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(
        [
            "parity: store *.parity-store, accepting what differs",
            "*= parity baselines =*",
            "saved  test_it.py::test_one: 1 array, entry 1",
            "saved  heads: 2 arrays, entry 1",
        ]
    )
    assert names(pytester) == ["heads", "test_it.py::test_one"]
    again = run(pytester)
    again.assert_outcomes(passed=2)
    assert "baselines" not in again.stdout.str()


def test_red_one_ulp_fails_names_the_element_and_changes_nothing(
    pytester: pytest.Pytester,
) -> None:
    write(pytester)
    update(pytester)
    write(pytester, TESTS.replace("\ndef test_one", MOVED))
    for _ in range(2):  # a red run leaves the baseline as it was
        done = run(pytester)
        done.assert_outcomes(failed=2)
        done.stdout.fnmatch_lines(
            [
                "E*AssertionError: array is not bit-equal: 1 of 4 elements differ, at most 1 ULP",
                "E*[[]2[]]    40000000  +2.00000000e+00  40000001  +2.00000024e+00  +1",
                "E*ref is baseline 'test_it.py::test_one', entry 1 of *",
                "E*if it is right, accept it with: pytest --parity-update test_it.py::test_one",
            ]
        )
    changed = update(pytester)
    changed.assert_outcomes(passed=2)
    changed.stdout.fnmatch_lines(
        [
            "changed  test_it.py::test_one: *1 of 1 differ, first array, entry 2",
            "changed  heads: *2 of 2 differ*, entry 2",
        ]
    )
    run(pytester).assert_outcomes(passed=2)
    update(pytester).stdout.fnmatch_lines(["unchanged  test_it.py::test_one", "unchanged  heads"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("check(X)", "check(X.astype(np.float64))", "array is not bit-equal: dtypes differ"),
        ("check(X)", "check(X.reshape(2, 2))", "array is not bit-equal: shapes differ*"),
        ('"q": X, ', "", "q is not bit-equal: it is missing in the dut"),
        ('{"q": X,', '{"z": X, "q": X,', "z is not bit-equal: it is not in the ref"),
        ("check(X)", "check({})", "not compared: nothing compared: no keys in dut"),
    ],
    ids=["dtype", "shape", "missing", "extra", "nothing"],
)
def test_red_other_arrays(pytester: pytest.Pytester, old: str, new: str, said: str) -> None:
    write(pytester)
    update(pytester)
    assert TESTS.count(old) == 1
    write(pytester, TESTS.replace(old, new))
    done = run(pytester)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines([f"E*AssertionError: {said}"])


@pytest.mark.parametrize(
    ("ending", "outcomes"),
    [
        ("    assert False", {"failed": 1}),
        ("    pytest.skip('here')", {"skipped": 1}),
        ("    pytest.xfail('here')", {"xfailed": 1}),
    ],
    ids=["fails", "skips", "xfails"],
)
def test_red_nothing_is_accepted_of_a_test_that_does_not_pass(
    pytester: pytest.Pytester, ending: str, outcomes: dict[str, int]
) -> None:
    head, _, _ = TESTS.partition("def test_one")
    write(
        pytester, f"{head}def test_it(parity_baseline):\n    parity_baseline.check(X)\n{ending}\n"
    )
    done = update(pytester)
    done.assert_outcomes(**outcomes)
    done.stdout.fnmatch_lines(["not accepted  test_it.py::test_it: the test did not pass"])
    assert names(pytester) == []


def test_red_nothing_is_accepted_where_the_teardown_fails(pytester: pytest.Pytester) -> None:
    text = TESTS + "\n@pytest.fixture(autouse=True)\ndef ends():\n    yield\n    assert False\n"
    write(pytester, text)
    update(pytester).assert_outcomes(passed=2, errors=2)
    assert names(pytester) == []


@pytest.mark.parametrize("words", [(), ("--parity-update",)], ids=["check", "update"])
def test_red_a_test_that_checks_nothing(pytester: pytest.Pytester, words: tuple[str, ...]) -> None:
    head, _, _ = TESTS.partition("def test_one")
    body = "def test_it(parity_baseline):\n    for x in []:\n        parity_baseline.check(x)\n"
    write(pytester, head + body)
    done = run(pytester, *words)
    done.assert_outcomes(passed=1, errors=1)
    assert done.ret == 1
    done.stdout.fnmatch_lines(
        ["E*test_it.py::test_it passed, and parity_baseline checked nothing in it"]
    )


def test_unusual_arrays_are_kept(pytester: pytest.Pytester) -> None:
    head, _, _ = TESTS.partition("def test_one")
    body = """def test_it(parity_baseline):
    special = np.array([np.nan, -0.0, np.inf])
    parity_baseline.check({
        "turned": np.asfortranarray(np.outer(X, X)), "swapped": X.astype(">f4"), "empty": X[:0],
        "scalar": np.float16(1.5), "special": special, "flags": X > 1,
    })
"""
    write(pytester, head + body)
    update(pytester).assert_outcomes(passed=1)
    run(pytester).assert_outcomes(passed=1)
    write(pytester, head + body.replace("-0.0", "0.0"))
    done = run(pytester)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E*special is not bit-equal: 1 of 3 elements differ", "E*zero sign"])


def test_red_an_altered_store_is_named(pytester: pytest.Pytester) -> None:
    write(pytester)
    update(pytester)
    altered = max(
        (path for path in (pytester.path / ".parity-store/objects").rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    altered.chmod(0o644)
    altered.write_bytes(altered.read_bytes()[:-1] + b"?")
    done = run(pytester)
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"E*InputError: *{altered.name}*"])


def test_two_checks_in_one_test_need_names(pytester: pytest.Pytester) -> None:
    text = (
        TESTS + "    parity_baseline.check(X, name='more')\n    parity_baseline.check(X, 'more')\n"
    )
    write(pytester, text)
    done = update(pytester, "-k", "named")
    done.assert_outcomes(failed=1, deselected=1)
    done.stdout.fnmatch_lines(["E*InputError: baseline 'more' is checked twice in *::test_named"])
    assert names(pytester) == []


def test_arrays_are_taken_when_they_are_checked(pytester: pytest.Pytester) -> None:
    write(pytester, TESTS + "    X[...] = 0\n")
    update(pytester).assert_outcomes(passed=2)
    run(pytester).assert_outcomes(passed=2)


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_many_processes_lose_nothing(pytester: pytest.Pytester, words: tuple[str, ...]) -> None:
    head, _, _ = TESTS.partition("def test_one")
    body = "@pytest.mark.parametrize('n', range(9))\ndef test_n(parity_baseline, n):\n"
    write(pytester, f"{head}{body}    parity_baseline.check(X * np.float32(n))\n")
    done = update(pytester, *words)
    done.assert_outcomes(passed=9)
    assert done.stdout.str().count("saved  test_it.py::test_n[") == 9
    assert names(pytester) == [f"test_it.py::test_n[{n}]" for n in range(9)]
    run(pytester, *words).assert_outcomes(passed=9)
    write(pytester, f"{head}{body}    parity_baseline.check(X * np.float32(n + (n == 5)))\n")
    red = run(pytester, *words)
    red.assert_outcomes(passed=8, failed=1)
    red.stdout.fnmatch_lines(["FAILED test_it.py::test_n[[]5[]]*"])


def test_a_long_test_keeps_a_name_of_its_own() -> None:
    assert default_name("tests/a.py::test_b[1]") == "tests/a.py::test_b[1]"
    long = [f"tests/{'x' * 300}.py::test_{end}" for end in ("a", "b", "é" * 90)]
    made = [default_name(node) for node in long]
    assert len(set(made)) == 3
    assert made[0].endswith("x.py::test_a")
    assert all(len(quote(name, safe="")) <= LONGEST_NAME for name in made)
    assert default_name("../test_a.py::test_b") == "/test_a.py::test_b"


# --- options that count on the command line alone -------------------------------------------------


def refused(done: pytest.RunResult, said: str) -> bool:
    text = done.stderr.str() + done.stdout.str()
    return done.ret == pytest.ExitCode.USAGE_ERROR and said in text


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("--parity-update", "--parity-update"),
        ("-q --parity-update", "--parity-update"),
        ("--parity-store=elsewhere", "--parity-store"),
        ("-o parity_store=elsewhere", "parity_store="),
    ],
    ids=["update", "update too", "store", "setting"],
)
def test_red_the_environment_chooses_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str, name: str
) -> None:
    write(pytester)
    monkeypatch.setenv("PYTEST_ADDOPTS", value)
    said = f"{name} in PYTEST_ADDOPTS: give it on the command line"
    assert refused(run(pytester), said)
    assert refused(update(pytester), said)
    assert names(pytester) == names(pytester, "elsewhere") == []


@pytest.mark.parametrize("option", ["--parity-update", "--parity-store=x"])
def test_red_addopts_chooses_nothing(pytester: pytest.Pytester, option: str) -> None:
    write(pytester)
    pytester.makeini(f"[pytest]\naddopts = {option}\n")
    name = option.partition("=")[0]
    assert refused(run(pytester), f"{name} in addopts: give it on the command line")
    assert names(pytester) == []


def test_red_a_file_of_options_chooses_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(pytester)
    (pytester.path / "options").write_text("--parity-update\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "@options")
    assert refused(run(pytester), "--parity-update in addopts: give it on the command line")
    assert names(pytester) == []


def test_a_store_by_setting_lies_beside_the_file(pytester: pytest.Pytester) -> None:
    write(pytester)
    pytester.makeini("[pytest]\nparity_store = accepted\n")
    update(pytester, f"--rootdir={pytester.path}").assert_outcomes(passed=2)
    assert len(names(pytester, "accepted")) == 2
    run(pytester).assert_outcomes(passed=2)
    done = run(pytester, "--parity-store", "elsewhere")
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["parity: store *elsewhere", "E*no baseline * in *elsewhere: *"])
    update(pytester, "--parity-store=elsewhere").assert_outcomes(passed=2)
    assert len(names(pytester, "elsewhere")) == 2


def test_an_update_of_nothing_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass")
    update(pytester).stdout.fnmatch_lines(["nothing was checked, nothing was accepted"])


# --- loading --------------------------------------------------------------------------------------


def test_nothing_heavy_is_loaded_until_the_fixture_is_asked_for(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import sys
        HEAVY = {"numpy", "numba", "pandas", "rich", "jinja2", "click", "parity.baseline"}

        def test_nothing_is_loaded():
            assert "parity.pytest_plugin" in sys.modules
            assert HEAVY.isdisjoint(sys.modules), HEAVY & set(sys.modules)

        def test_the_assertion_is_rewritten():
            import parity.testing
            from _pytest.assertion.rewrite import AssertionRewritingHook
            assert isinstance(parity.testing.__loader__, AssertionRewritingHook)
        """
    )
    command = [sys.executable, "-m", "pytest", *QUICK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_can_be_left_out(pytester: pytest.Pytester) -> None:
    write(pytester)
    done = run(pytester, "-p", "no:parity")
    done.assert_outcomes(errors=2)
    done.stdout.fnmatch_lines(["E*fixture 'parity_baseline' not found"])
