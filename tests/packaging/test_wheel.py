"""The wheel holds the six packages and nothing else at its top level."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging import check_wheel

ROOT = Path(__file__).parents[2]


def build(root: Path, out: Path) -> Path:
    """Build a wheel of the tree at `root` without network and return its path."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run([*command, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of what the build reads."""
    root = tmp_path / "tree"
    root.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    for folder in ("parity", "engines", "probes", "reports"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def change_packages(root: Path, new: str) -> None:
    """Replace the package list of the wheel in the tree's pyproject.toml."""
    text = (root / "pyproject.toml").read_text()
    start = text.index("packages = [\n", text.index("[tool.hatch.build.targets.wheel]"))
    end = text.index("]\n", start) + 2
    (root / "pyproject.toml").write_text(text[:start] + new + text[end:])


def test_wheel_holds_six_packages_and_all_their_sources(tree: Path, tmp_path: Path) -> None:
    wheel = build(tree, tmp_path / "out")
    required = check_wheel.source_files(ROOT)
    assert "parity_cuda/kernels/rmsnorm.cu" in required
    headers = ("parity_dump.h", "parity_dump.cuh", "parity_slice.cuh")
    assert {f"parity/include/{name}" for name in headers} <= required
    assert check_wheel.problems(check_wheel.wheel_files(wheel), required) == []
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert "Requires-Python: >=3.11\n" in text
    assert wheel.name.endswith("-py3-none-any.whl")


def test_red_package_list_cut_down(tree: Path, tmp_path: Path) -> None:
    change_packages(tree, 'packages = ["parity"]\n')
    files = check_wheel.wheel_files(build(tree, tmp_path / "out"))
    assert check_wheel.problems(files, set()) == [
        "missing package: parity_cpu",
        "missing package: parity_cuda",
        "missing package: parity_probes",
        "missing package: parity_reports",
        "missing package: parity_torch",
    ]


def test_red_folder_shipped_as_package(tree: Path, tmp_path: Path) -> None:
    engines = '"engines/parity_cpu", "engines/parity_cuda", "engines/parity_torch"'
    kept = f'"parity", {engines}, "probes/parity_probes"'
    change_packages(tree, f'packages = [{kept}, "reports"]\n')
    files = check_wheel.wheel_files(build(tree, tmp_path / "out"))
    assert check_wheel.problems(files, set()) == [
        "extra top-level name: reports",
        "missing package: parity_reports",
    ]


def test_red_kernel_left_out(tree: Path, tmp_path: Path) -> None:
    kernel = tree / "engines/parity_cuda/kernels/planted.cu"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_text("// planted\n")
    required = check_wheel.source_files(tree)
    text = (tree / "pyproject.toml").read_text()
    section = "[tool.hatch.build.targets.wheel]\n"
    changed = text.replace(section, section + 'exclude = ["planted.cu"]\n')
    (tree / "pyproject.toml").write_text(changed)
    files = check_wheel.wheel_files(build(tree, tmp_path / "out"))
    assert check_wheel.problems(files, required) == ["missing file: parity_cuda/kernels/planted.cu"]


def test_program_ends_1_with_the_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "planted-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("engines/__init__.py", "")
    assert check_wheel.main([str(wheel)]) == 1
    assert "planted-1-py3-none-any.whl: extra top-level name: engines" in capsys.readouterr().out


def test_program_needs_one_wheel(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_wheel.main([]) == 2
    assert "one wheel expected, got 0" in capsys.readouterr().out
