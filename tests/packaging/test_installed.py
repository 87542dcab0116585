"""check_installed refuses a command that fails and an import that leads elsewhere.

The install itself needs the package index: CI runs it as `just installed`.
"""

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging import check_installed


def test_output_of_a_command_is_returned(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd())"
    out = check_installed.run([sys.executable, "-c", code], tmp_path)
    assert Path(out.strip()).samefile(tmp_path)


def test_red_failing_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('half', file=sys.stderr); sys.exit(3)"
    with pytest.raises(SystemExit) as ended:
        check_installed.run([sys.executable, "-c", code], tmp_path)
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "half" in out
    assert "that ended 3, 0 expected" in out


def test_red_import_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("venv.create", lambda *_, **__: None)
    monkeypatch.setattr(check_installed, "build_toy", lambda folder: folder / "toy.whl")
    monkeypatch.setattr(
        check_installed, "run", lambda *_: "/elsewhere/parity_reports/__init__.py\n"
    )
    with pytest.raises(SystemExit) as ended:
        check_installed.check(tmp_path / "x.whl", tmp_path)
    assert ended.value.code == 1
    assert "which is not the installed wheel" in capsys.readouterr().out


def test_the_toy_engine_is_a_wheel_of_its_own(tmp_path: Path) -> None:
    wheel = check_installed.build_toy(tmp_path)
    assert wheel.parent == tmp_path / "wheels"
    files = check_installed.wheel_files(wheel)
    assert "parity_toy/__init__.py" in files
    [entry_points] = [name for name in files if name.endswith("entry_points.txt")]
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(entry_points).decode()
    assert text.split("\n")[:2] == ["[parity.engines]", "toy = parity_toy:Engine"]


def test_red_a_toy_wheel_that_holds_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    shutil.copytree(check_installed.TOY, source)
    (source / "parity").mkdir()
    (source / "parity" / "planted.py").write_text("")
    project = source / "pyproject.toml"
    project.write_text(project.read_text().replace('["parity_toy"]', '["parity_toy", "parity"]'))
    monkeypatch.setattr(check_installed, "TOY", source)
    with pytest.raises(SystemExit) as ended:
        check_installed.build_toy(tmp_path)
    assert ended.value.code == 1
    assert "holds parity, parity_toy, parity_toy_engine" in capsys.readouterr().out


def test_repository_is_taken_off_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert "PYTHONPATH" not in check_installed.clean_environment()


def test_program_needs_one_wheel(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_installed.main(["a", "b"]) == 2
    assert "one wheel expected, got 2" in capsys.readouterr().out
