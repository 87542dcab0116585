"""House rules that a file listing can check: file length, folder shape, no machine's own paths."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 499  # a file stays under 500 lines
SOURCE = {".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".sh", ".toml", ".html", ".css", ".js"}
TEXT = SOURCE | {".md", ".yaml", ".yml", ".txt", ".json", ""}
UNTRACKED = {".git", ".hypothesis", ".venv", "venv", "dist", "build", "site", "__pycache__"}
PLUGIN_FOLDERS = ("engines", "probes", "reports")
# Put together here, so that this file does not name them.
MACHINE_PATHS = ("/" + "work/", "/tmp/" + "venv", "." + "library", ".." + "/shared", "/" + "root/")


def files(root: Path, suffixes: set[str]) -> Iterator[Path]:
    """Yield the project's files with one of the suffixes, tool folders left out."""
    for folder, names, found in os.walk(root):
        names[:] = sorted(n for n in names if n not in UNTRACKED and not n.endswith("_cache"))
        yield from (Path(folder, f) for f in sorted(found) if Path(f).suffix in suffixes)


def too_long(root: Path) -> list[str]:
    """Return one line for each source file of 500 lines or more."""
    lengths = {path: len(path.read_bytes().splitlines()) for path in files(root, SOURCE)}
    assert lengths, f"no source file under {root}"
    return [f"{p.relative_to(root)}: {n} lines" for p, n in lengths.items() if n > MAX_LINES]


def stray_modules(root: Path) -> list[str]:
    """Return the modules that lie directly in a plug-in folder, which is not a package."""
    return [f"{folder}/{p.name}" for folder in PLUGIN_FOLDERS for p in (root / folder).glob("*.py")]


def machine_paths(root: Path) -> list[str]:
    """Return file, line and word for each mention of a path that exists on one machine only."""
    return [
        f"{path.relative_to(root)}:{number}: {word}"
        for path in files(root, TEXT)
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        for word in MACHINE_PATHS
        if word in line
    ]


def test_files_are_under_500_lines() -> None:
    assert too_long(ROOT) == []


def test_plugin_folders_are_not_packages() -> None:
    assert all((ROOT / folder).is_dir() for folder in PLUGIN_FOLDERS)
    assert stray_modules(ROOT) == []


def test_no_path_of_one_machine() -> None:
    assert machine_paths(ROOT) == []


def test_packages_are_typed() -> None:
    packages = [ROOT / "parity", *(p for f in PLUGIN_FOLDERS for p in (ROOT / f).glob("parity_*"))]
    assert len(packages) == 6
    assert [p.name for p in packages if not (p / "py.typed").is_file()] == []


@pytest.mark.parametrize(("lines", "reported"), [(499, []), (500, ["long.py: 500 lines"])])
def test_red_long_file(tmp_path: Path, lines: int, reported: list[str]) -> None:
    (tmp_path / "long.py").write_text("x = 1\n" * lines)
    assert too_long(tmp_path) == reported


@pytest.mark.parametrize("folder", PLUGIN_FOLDERS)
def test_red_init_in_plugin_folder(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "__init__.py").touch()
    assert stray_modules(tmp_path) == [f"{folder}/__init__.py"]


@pytest.mark.parametrize("word", MACHINE_PATHS)
@pytest.mark.parametrize("name", ["page.md", ".ci/run", "pyproject.toml"])
def test_red_path_of_one_machine(tmp_path: Path, word: str, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"first\nsee {word}x\n")
    assert machine_paths(tmp_path) == [f"{name}:2: {word}"]
