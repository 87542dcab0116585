"""Engines and reports found through entry points: faults are named with their distribution."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from parity import registry
from parity.errors import InputError, NotRunError, ParityBug
from parity.protocol import REQUIRED, EngineSettings
from parity.registry import ENGINES, REPORTS
from parity_cpu.engine import Engine
from tests.cli import engines_for_tests
from tests.cli.running import ENGINES as FAULTY
from tests.cli.running import SHORT, said
from tests.cli_runner import run_cli

REPORT_IT = "  next: report it with the command you typed\n"


def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distribution: str, *points: str
) -> None:
    """Put a distribution with engine entry points on the path, as pip would."""
    folder = tmp_path / f"{distribution}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("\n".join(["[parity.engines]", *points]) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_scanned", lambda group, places: {})


def test_engine_of_another_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "acme", f"acme = {FAULTY}:Moved")
    assert registry.plugins(ENGINES)["acme"].distribution == "acme"
    assert registry.engine_class("acme") is engines_for_tests.Moved
    result = run_cli("diff", *SHORT, "--dut", "acme@key=t4_l1_x", "-q")
    assert (result.status, result.stdout.split(",")[0]) == (1, "diverged: t4_l1_x born here")


def test_what_is_installed_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was on the path before, and was looked into; and it is looked into again after."""
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "acme" not in registry.plugins(ENGINES)
    install(tmp_path, monkeypatch, "acme", f"acme = {FAULTY}:Moved")
    assert registry.plugins(ENGINES)["acme"].distribution == "acme"
    (tmp_path / "acme-1.0.dist-info").rename(tmp_path / "gone")
    assert "acme" not in registry.plugins(ENGINES)


@pytest.mark.parametrize(
    ("value", "said_of_it"),
    [
        ("no_such_module:Engine", "cannot be loaded: No module named 'no_such_module'"),
        (
            f"{FAULTY}:Absent",
            "cannot be loaded: AttributeError: module 'tests.cli.engines_for_tests' has no "
            "attribute 'Absent'",
        ),
        ("acme_raises:Engine", "cannot be loaded: ZeroDivisionError: division by zero"),
    ],
)
def test_red_entry_point_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, said_of_it: str
) -> None:
    (tmp_path / "acme_raises.py").write_text("1 / 0\n")
    install(tmp_path, monkeypatch, "acme", f"acme = {value}")
    message = f"acme: entry point acme = {value} {said_of_it}"
    result = run_cli("diff", "--dut", "acme", *SHORT)
    assert said(result) == (2, "", f"parity: internal error: {message}\n{REPORT_IT}")
    listed = run_cli("engines")
    assert listed.status == 0
    assert f"acme    cannot be loaded: {message}" in listed.stdout
    assert "cpu     parity-harness" in listed.stdout
    assert f"acme    no   {message}" in run_cli("doctor").stdout


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("NoWeights", "weights(self) -> 'Mapping[str, tuple[TensorType, int]]'"),
        ("NoWriteState", "write_state(self, state: 'Mapping[str, np.ndarray]') -> 'None'"),
        ("NOT_AN_ENGINE", "name"),
    ],
)
def test_red_missing_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, lacks: str
) -> None:
    install(tmp_path, monkeypatch, "acme", f"acme = {FAULTY}:{name}")
    message = f"acme: engine acme lacks {lacks} of the Engine Protocol"
    with pytest.raises(ParityBug) as caught:
        registry.engine_class("acme")
    assert str(caught.value) == message
    result = run_cli("diff", "--dut", "acme", *SHORT)
    assert said(result) == (2, "", f"parity: internal error: {message}\n{REPORT_IT}")
    # The same class by module:attr is the user's own, to be mended by the user.
    result = run_cli("diff", "--dut", f"{FAULTY}:{name}", *SHORT)
    assert said(result) == (
        2,
        "",
        f"parity: engine {FAULTY}:{name} lacks {lacks} of the Engine Protocol\n"
        f"  next: it needs {', '.join(REQUIRED)}\n",
    )


def test_red_one_name_from_two_distributions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "acme", f"cpu = {FAULTY}:Moved")
    with pytest.raises(InputError) as caught:
        registry.plugins(ENGINES)
    assert caught.value.message.startswith("engine 'cpu' comes from two packages: ")
    assert {"acme", "parity-harness"} <= set(caught.value.message.replace(":", " ").split())
    assert caught.value.next_step == "uninstall one of them"
    assert run_cli("engines").status == 2


def test_same_entry_point_twice_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "acme", "cpu = parity_cpu:Engine")
    assert registry.engine_class("cpu") is Engine


@pytest.mark.usefixtures("nothing_installed")
def test_red_nothing_installed() -> None:
    install_it = "install parity first: pip install -e . (or the wheel)"
    result = run_cli("engines")
    assert said(result) == (2, "", f"parity: no engine is installed\n  next: {install_it}\n")
    result = run_cli("diff", "--dut", "cpu")
    assert (result.status, result.stdout) == (2, "")
    assert f"no engine: {install_it};" in result.stderr
    with pytest.raises(InputError) as caught:
        registry.find(REPORTS, "console")
    assert caught.value.message == "no report 'console'; installed: none"
    assert caught.value.next_step == install_it


def test_red_report_with_a_near_name(tmp_path: Path) -> None:
    result = run_cli("report", "run.json", "--format", "consol")
    assert (result.status, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "parity: no report 'consol'\n  next: did you mean console? installed: console, csv"
    )


# A user's own engine, module:attr.


def test_own_engine_is_found_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_engine.py").write_text("from parity_cpu import Engine as Mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    result = run_cli("diff", *SHORT, "--dut", "own_engine:Mine", "-q")
    assert said(result) == (0, "same: 138 of 138 keys, level bit, control fired\n", "")


def test_working_folder_shadows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "colorsys.py").write_text("Mine = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    with pytest.raises(InputError, match="module colorsys has no Mine"):
        registry.foreign_engine_class("colorsys:Mine")


FIND_IT = "run in the folder that holds the module, or put that into PYTHONPATH"


@pytest.mark.parametrize(
    ("path", "message", "next_step"),
    [
        (
            "no_such:Engine",
            "no_such cannot be imported: No module named 'no_such'",
            FIND_IT,
        ),
        (
            "parity.no_such:Engine",
            "parity.no_such cannot be imported: No module named 'parity.no_such'",
            FIND_IT,
        ),
        (
            "own_needs:Engine",
            "own_needs cannot be imported: No module named 'no_such'",
            "try: python -c 'import own_needs'",
        ),
        (
            "own_torn:Engine",
            "own_torn cannot be imported: SyntaxError: '(' was never closed (own_torn.py, line 1)",
            "try: python -c 'import own_torn'",
        ),
        (f"{FAULTY}:Move", f"module {FAULTY} has no Move", f"did you mean {FAULTY}:Moved?"),
        (f"{FAULTY}:QQQ", f"module {FAULTY} has no QQQ", "name a class of that module"),
    ],
)
def test_red_own_engine_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str, next_step: str
) -> None:
    (tmp_path / "own_needs.py").write_text("import no_such\n")
    (tmp_path / "own_torn.py").write_text("broken(\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run_cli("diff", "--dut", path, *SHORT)
    assert said(result) == (2, "", f"parity: engine {path}: {message}\n  next: {next_step}\n")


def test_red_tier_and_variant_that_an_engine_lacks() -> None:
    settings = EngineSettings(tier="slow")
    with pytest.raises(InputError) as caught:
        registry.open_engine(Engine, settings, "cpu:slow")
    assert caught.value.message == "cpu:slow: engine cpu has no tier 'slow'"
    assert caught.value.next_step == "tiers: exact, fast"
    settings = EngineSettings(variants=frozenset({"quick"}))
    with pytest.raises(InputError) as caught:
        registry.open_engine(Engine, settings, "cpu+quick")
    assert caught.value.message == "cpu+quick: engine cpu has no variant 'quick'"
    assert caught.value.next_step.startswith("variants: rsqrt, norm_tree, ")


def test_red_capability_that_an_engine_lacks() -> None:
    engine = engines_for_tests.NoState(EngineSettings())
    registry.require(engine, "capture", "elements")
    with pytest.raises(NotRunError) as caught:
        registry.require(engine, "state", "--prefill ref")
    assert caught.value.message == "cpu lacks the capability 'state', needed for --prefill ref"
    assert caught.value.next_step == "parity engines lists what each engine offers"
