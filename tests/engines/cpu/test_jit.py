"""jit, jit_parallel and their cache: changed sources are never served old code."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core import config

import parity_cpu.jit as product
from parity_cpu.jit import cache_folder, cache_is_warm, jit, jit_inside, jit_parallel, jit_part

HELPER = """
from copied.jit import jit

@jit
def factor(x):
    return x * {factor}
"""
CALLER = """
from copied.helper import factor
from copied.jit import jit

@jit
def doubled(x):
    return factor(x)
"""
PROGRAM = """
from copied.caller import doubled
from copied.jit import cache_is_warm
warm = cache_is_warm()
print(doubled(21.0), warm, cache_is_warm(), sum(doubled.stats.cache_hits.values()))
"""


def double(x: Any) -> Any:
    return x + x


def increment(x: Any) -> Any:
    return x + np.float32(1)


class Copy:
    """A package with this project's jit.py, a caller in one file and its helper in another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "copied"
        self.package.mkdir()
        (self.package / "__init__.py").touch()
        (self.package / "jit.py").write_text(Path(product.__file__).read_text())
        (self.package / "caller.py").write_text(CALLER)
        self.set_factor(2)

    def set_factor(self, factor: int) -> None:
        (self.package / "helper.py").write_text(HELPER.format(factor=factor))

    def run(self, program: str = PROGRAM) -> list[str]:
        """What a new process prints."""
        environment = {
            **os.environ,
            "PARITY_CACHE": str(self.folder / "cache"),
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-W", "error", "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_second_process_uses_the_cache(copy: Copy) -> None:
    assert copy.run() == ["42.0", "False", "True", "0"]
    assert copy.run() == ["42.0", "True", "True", "1"]


def test_changed_helper_in_another_file_is_compiled_anew(copy: Copy) -> None:
    assert copy.run()[0] == "42.0"
    copy.set_factor(3)
    assert copy.run() == ["63.0", "False", "True", "0"]
    copy.set_factor(2)
    assert copy.run() == ["42.0", "True", "True", "1"]


NO_FINGERPRINT = """
import parity_cpu.code_cache
parity_cpu.code_cache._fingerprint = lambda dispatcher: "one for all"
"""


@pytest.mark.parametrize(("planted", "served"), [("", "63.0"), (NO_FINGERPRINT, "42.0")])
def test_red_without_either_digest_the_old_helper_is_served(
    copy: Copy, planted: str, served: str
) -> None:
    """The folder is named by the sources, the entry by what is in memory: each alone is enough."""
    source = (copy.package / "jit.py").read_text()
    without = source.replace("source_digest()[:16]", '"one for all"')
    assert without != source
    (copy.package / "jit.py").write_text(without)
    assert copy.run(planted + PROGRAM)[0] == "42.0"
    copy.set_factor(3)
    assert copy.run(planted + PROGRAM)[0] == served


def test_cache_lies_in_one_private_folder(copy: Copy) -> None:
    copy.run()
    (digest,) = (copy.folder / "cache" / "numba").iterdir()
    assert len(digest.name) == 16
    assert [oct(p.stat().st_mode & 0o777) for p in (digest, digest.parent)] == ["0o700", "0o700"]
    assert sorted(p.name.split("-")[0] for p in digest.rglob("*.nbc")) == [
        "caller.doubled",
        "helper.factor",
    ]
    assert [p.suffix for p in digest.iterdir()] == [".nbc", ".nbc"]
    assert list(copy.package.rglob("*.nb[ic]")) == []


def test_folder_by_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "own"))
    tail = Path("numba") / product.source_digest()[:16]
    assert cache_folder() == tmp_path / "own" / tail
    monkeypatch.delenv("PARITY_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "parity" / tail
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "parity" / tail
    assert not cache_is_warm()


@pytest.mark.parametrize("decorator", [jit, jit_parallel])
def test_settings_of_others_are_untouched(
    decorator: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "theirs"))
    ours = decorator(double)
    assert str(tmp_path / "theirs") == config.CACHE_DIR
    assert str(tmp_path / "own" / "numba") in ours.stats.cache_path
    assert str(tmp_path / "theirs") in njit(cache=True)(double).stats.cache_path


@pytest.mark.parametrize(("decorator", "parallel"), [(jit, False), (jit_parallel, True)])
def test_options(
    decorator: Any, parallel: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    options = decorator(double).targetoptions
    wanted = {"fastmath": False, "error_model": "numpy", "nogil": True, "parallel": parallel}
    assert {name: options[name] for name in wanted} == wanted


@pytest.mark.parametrize("decorator", [jit_part, jit_inside])
def test_red_a_part_called_from_python(
    decorator: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before and after it was compiled: it has no way in, and calling it must not end Python."""
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    part = decorator(increment)

    def caller(x: Any) -> Any:
        return part(x)

    told = "^increment is for compiled code alone; give it @jit to call it from Python$"
    with pytest.raises(TypeError, match=told):
        part(np.float32(1))
    assert njit(caller)(np.float32(1)) == 2
    assert len(part.overloads) == 1
    with pytest.raises(TypeError, match=told):
        part(np.float32(1))


def test_division_by_zero_is_inf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))

    def quotient(a: Any, b: Any) -> Any:
        return a / b

    compiled: Any = jit(quotient)
    assert compiled(np.float32(1), np.float32(0)) == np.inf


def test_unusable_folder_warns_and_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "file" / "below"))
    with pytest.warns(RuntimeWarning, match="compiled code is not kept.*set PARITY_CACHE"):
        compiled: Any = jit(increment)
    assert compiled(np.float32(1)) == 2
    assert not cache_is_warm()


def test_folder_of_another_user_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 123456789)
    with pytest.warns(RuntimeWarning, match="numba belongs to another user"):
        compiled: Any = jit(increment)
    assert compiled.stats.cache_path is None
    assert list(tmp_path.rglob("*.nb[ic]")) == []


def test_open_folder_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    folder = cache_folder()
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    jit(increment)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_closure_over_a_compiled_function_is_refused() -> None:
    inner = njit(increment)

    def outer(x: Any) -> Any:
        return inner(x)

    with pytest.raises(TypeError, match="outer closes over the compiled function increment"):
        jit(outer)


def test_warmth_is_asked_without_a_compiler(copy: Copy) -> None:
    program = "import sys; from copied.jit import cache_is_warm; print(cache_is_warm())"
    program += "; print([name for name in ('numba', 'llvmlite', 'numpy') if name in sys.modules])"
    assert copy.run(program) == ["False", "[]"]


def test_no_warning_in_an_ordinary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "a" / "b"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jit(double)
    assert cache_folder().is_dir()
