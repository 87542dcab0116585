"""An engine by somebody else, in a distribution of its own, comes in by the same door as ours."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TOY = Path(__file__).parents[1] / "toy_engine"
ENTRY_POINT = 'toy = "parity_toy:Engine"'

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
missing = [name for name in ("pip", "hatchling") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(missing), reason=f"toy engine: {' and '.join(missing)} missing"
)


def install(source: Path, target: Path) -> None:
    """Build and install a distribution into a folder, without network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def runner(target: Path) -> Command:
    """Run ``parity`` in a process of its own that sees the folder."""

    def run(
        *args: str, program: tuple[str, ...] = ("-m", "parity")
    ) -> subprocess.CompletedProcess[str]:
        seen = [str(target), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, seen))}
        command = [sys.executable, *program, *args]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    return run


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command line with the toy engine installed beside ours."""
    target = tmp_path_factory.mktemp("site")
    install(TOY, target)
    return runner(target)


def test_it_is_listed_beside_ours(parity: Command) -> None:
    done = parity("engines")
    assert done.returncode == 0, done.stderr
    listed = dict(re.findall(r"^(\w+) +(parity[\w-]+) ", done.stdout, re.MULTILINE))
    assert listed["toy"] == "parity-toy-engine"
    assert listed["cpu"] == listed["cuda"] == listed["emu"] == "parity-harness"
    assert "capabilities  capture\n" in done.stdout


def test_diff_names_where_it_leaves_the_contract(parity: Command, tmp_path: Path) -> None:
    """Which key is first depends on NumPy's sums: it is one of layer 0, and its elements show."""
    report = tmp_path / "run.json"
    done = parity("diff", "--ref", "cpu", "--dut", "toy", "--json", str(report))
    assert done.returncode == 1, done.stderr
    first = re.match(r"DIVERGED  first at (t32_l0_\w+)(, born here)?\n", done.stdout)
    assert first, done.stdout
    assert re.search(r"^  (\d+) of \d+ elements differ", done.stdout, re.MULTILINE)
    assert "states not compared: dut lacks the capability 'state'" in done.stdout
    assert json.loads(report.read_text())["first"] == first[1]


def test_it_is_the_same_as_itself(parity: Command) -> None:
    done = parity("diff", "--ref", "toy", "--dut", "toy", "--n", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SAME  92 of 92 keys equal")
    assert "control  fired: dump level" in done.stdout


def test_it_keeps_its_promises(parity: Command) -> None:
    done = parity("conformance", "toy")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("KEPT  11 of 21 promises kept, 10 not offered\n")
    assert "  kept         capture_matches_digests\n" in done.stdout
    assert "  not offered  inject_moves_one_key (inject)\n" in done.stdout
    code = "import parity.testing as t, parity_toy; print(*t.engine_conformance(parity_toy.Engine))"
    called = parity("-c", code, program=())
    assert called.returncode == 0, called.stderr
    assert "inject_moves_one_key: not offered (inject)" in called.stdout
    assert called.stdout.rstrip().endswith("full_cache_is_refused")


def test_red_the_same_engine_with_a_prefill_of_its_own(tmp_path: Path) -> None:
    """Somebody else's engine, broken: the promise is named, by the command line too."""
    source = tmp_path / "toy"
    shutil.copytree(TOY, source)
    module = source / "parity_toy" / "__init__.py"
    fed = "steps = [self.step(token, plan) for token in tokens]"
    assert module.read_text().count(fed) == 1
    module.write_text(module.read_text().replace(fed, fed.replace("tokens]", "tokens[::-1]]")))
    install(source, tmp_path / "site")
    done = runner(tmp_path / "site")("conformance", "toy")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("BROKEN  first prefill_equals_steps, ")
    assert (
        "  BROKEN       prefill_equals_steps: prefill of 4, step 0: other logits\n" in done.stdout
    )


def test_what_it_cannot_load_is_refused(parity: Command) -> None:
    done = parity("diff", "--ref", "cpu", "--dut", "toy", "--model", "dense-tiny")
    assert done.returncode == 2
    assert "toy runs the MoE family" in done.stderr


def test_red_without_entry_point(tmp_path: Path) -> None:
    """The door is the entry point, nothing else: without it there is no toy."""
    source = tmp_path / "toy"
    (source / "parity_toy").mkdir(parents=True)
    text = (TOY / "pyproject.toml").read_text()
    assert text.count(ENTRY_POINT) == 1
    (source / "pyproject.toml").write_text(text.replace(ENTRY_POINT, ""))
    (source / "parity_toy" / "__init__.py").write_text((TOY / "parity_toy/__init__.py").read_text())
    install(source, tmp_path / "site")
    parity = runner(tmp_path / "site")
    assert "toy" not in parity("engines").stdout
    done = parity("diff", "--ref", "cpu", "--dut", "toy")
    assert done.returncode == 2
    assert "'toy' is no engine" in done.stderr


def test_red_a_class_without_a_member(tmp_path: Path) -> None:
    """An engine that lacks a required member is refused by name, and listed with the reason."""
    source = tmp_path / "toy"
    (source / "parity_toy").mkdir(parents=True)
    (source / "pyproject.toml").write_text((TOY / "pyproject.toml").read_text())
    text = (TOY / "parity_toy" / "__init__.py").read_text()
    assert text.count("def prefill(") == 1
    (source / "parity_toy" / "__init__.py").write_text(text.replace("def prefill(", "def fill("))
    install(source, tmp_path / "site")
    parity = runner(tmp_path / "site")
    said = "parity-toy-engine: engine toy lacks prefill"
    assert said in parity("engines").stdout
    done = parity("diff", "--ref", "cpu", "--dut", "toy")
    assert done.returncode == 2
    assert said in done.stderr
