"""No build is run whose sources, options or bytes are others by now: cpu, emu and NVRTC (B11)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import parity_cpu
from parity.dump import Dump
from parity.dumps.reader import read_dump
from parity.errors import NotRunError
from parity.protocol import EngineSettings
from parity_cuda import nvrtc, sources
from parity_cuda.emu import EmuModule, build, build_module
from parity_cuda.engine import EmuEngine
from parity_cuda.sources import Unit, kernel_sources
from tests.cli_runner import run_cli
from tests.engines.emu.reference import ASCENDING
from tests.engines.kernel_texts import COUNTED, RECOUNTED
from tests.engines.needed import lack

SHORT = ("--model", "dense-tiny", "--tokens", "1,2", "--n", "1", "--dump-prefill")
HELPER = "ops/variants.py"  # rmsnorm and headnorm call it: another file
# The RMSNorm epsilon of 1e-6 becomes 1e-5.
ROOT = "    return f32(f32(1.0) / f32(np.sqrt(v)))\n"
WIDER = "    return f32(f32(1.0) / f32(np.sqrt(f32(v + f32(9e-6)))))\n"


class Package:
    """A copy of parity_cpu that processes of its own run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "parity_cpu"
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(parity_cpu.__file__).parent, self.path, ignore=skipped)

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.path / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def python(self, program: str, *words: str) -> str:
        paths = [str(self.folder), *sys.path]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-c", program, *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def dump(self, name: str) -> Path:
        path = self.folder / name
        program = "from parity.__main__ import main; main()"
        self.python(program, "dump", "--engine", "cpu", "-o", str(path), *SHORT)
        return path


# --- the CPU engine -------------------------------------------------------------------------------

# Runs a package, changes its helper on disk, and goes on: in memory nothing has changed.
GOING_ON = """
import sys
from pathlib import Path
from parity.model.model import synthetic
from parity.protocol import EngineSettings, Plan
from parity_cpu.engine import Engine

def run():
    engine = Engine(EngineSettings())
    engine.load(synthetic("dense-tiny", 7), 4)
    steps = engine.prefill((1, 2), Plan(("nrm", "logits")))
    told = engine.describe()
    print(told["kernels"], told["compiled"], f"{steps[-1].entries[-1].digest:016x}")

run()
helper, old, new = sys.argv[1:]
path = Path(helper)
path.write_text(path.read_text().replace(old, new))
run()
"""


def test_red_a_changed_helper_in_another_file(tmp_path: Path) -> None:
    """B11 (a), and its twin: a process that runs on tells of what it loaded, not of the disk."""
    package = Package(tmp_path)
    before = read_dump(package.dump("before"))
    first, second = package.python(GOING_ON, str(package.path / HELPER), ROOT, WIDER).splitlines()
    assert first == second
    assert first.split()[:2] == [before.header["kernels"], before.header["compiled"]]
    after_path = package.dump("after")
    found = run_cli("compare", str(package.folder / "before"), str(after_path), "-q")
    assert found.status == 1
    assert "t0_l0_nrm" in found.stdout
    after = read_dump(after_path)
    for name in ("kernels", "compiled"):
        assert after.header[name] != before.header[name], name
    package.edit(HELPER, WIDER, ROOT)
    back = read_dump(package.dump("back"))
    assert rows(back) == rows(before)
    assert back.header == before.header


def rows(dump: Dump) -> list[str]:
    return [f"{entry.key} {entry.value_text()}" for entry in dump.entries]


COPIES = (
    ("one.py", "from two import factor\n@jit\ndef product(x):\n    return x * factor()\n"),
    ("two.py", "FLAG = 2.0\n@jit\ndef factor():\n    return FLAG\n"),
)
HEAD = "from parity_cpu.jit import jit\n"


class Small:
    """Two modules of compiled functions, the helper in the second, kept in a cache of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in COPIES:
            (folder / name).write_text(HEAD + text)

    def run(self, program: str, **env: str) -> list[str]:
        paths = [str(self.folder), *sys.path]
        more = {"PYTHONPATH": os.pathsep.join(paths), "PARITY_CACHE": str(self.folder / "cache")}
        text = f"import one, two\nfrom parity_cpu.code_cache import *\n{program}"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text],
            env={**os.environ, **more, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    @property
    def entries(self) -> list[Path]:
        return sorted((self.folder / "cache").rglob("*.nbc"))


PRODUCT = (
    "print(one.product(21.0), sum(one.product.stats.cache_hits.values()), "
    "loaded_code([one.product]))"
)


@pytest.fixture
def small(tmp_path: Path) -> Small:
    return Small(tmp_path)


def test_red_a_module_level_flag_is_flipped(small: Small) -> None:
    """B11 (b): to and fro in one process, and in a second one that finds all of it compiled."""
    flip = f"two.FLAG = 3.0; names = forget_changed(); {PRODUCT}"
    back = f"two.FLAG = 2.0; forget_changed(); {PRODUCT}; print(*names, *forget_changed())"
    first = small.run(f"{PRODUCT}; {flip}; {back}")
    assert first[0:9:3] == ["42.0", "63.0", "42.0"]
    assert first[2] == first[8] != first[5]
    assert first[9:] == ["two.factor", "one.product"]
    second = small.run(f"{PRODUCT}; {flip}; {back}")
    assert second[0:9:3] == ["42.0", "63.0", "42.0"]
    assert second[2:9:3] == first[2:9:3]
    assert second[1] == "1"


def test_red_a_flag_that_is_flipped_between_two_types(small: Small) -> None:
    """The second code is compiled with the new value, and not kept under the old one's name."""
    calls = "print(one.product({x}), int(sum(one.product.stats.cache_hits.values())))"
    first, second = calls.format(x="21.0"), calls.format(x="21")
    assert small.run(f"{first}; two.FLAG = 3.0; {second}; {first}")[::2] == ["42.0", "63.0", "63.0"]
    assert small.run(f"{second}; {first}") == ["42.0", "0", "42.0", "1"]


def test_red_without_looking_at_flags_the_old_one_is_frozen(small: Small) -> None:
    """The control of the test above: Numba alone goes on with the first value."""
    assert small.run(f"{PRODUCT}; two.FLAG = 3.0; {PRODUCT}")[::3] == ["42.0", "42.0"]


@pytest.mark.parametrize("damage", ["cut", "altered", "swapped", "empty"])
def test_red_damaged_code_is_compiled_anew(small: Small, damage: str) -> None:
    fresh = small.run(PRODUCT)
    assert fresh[:2] == ["42.0", "0"]
    second, first = small.entries
    factor, product = (path.read_bytes() for path in small.entries)
    if damage == "swapped":
        first.write_bytes(factor)
        second.write_bytes(product)
    else:
        at = len(product) // 2
        middle = bytes([product[at] ^ 1])
        altered = product[:at] + middle + product[at + 1 :]
        first.write_bytes({"cut": product[:-1], "altered": altered, "empty": b""}[damage])
    assert small.run(PRODUCT) == fresh, "compiled again: no hit, the same code"
    assert small.run(PRODUCT) == ["42.0", "1", fresh[2]], "and kept again"


def test_other_settings_of_the_compiler_are_another_entry(small: Small) -> None:
    """Numba's own cache would go on with what NUMBA_OPT=3 made."""
    first = small.run(PRODUCT)
    kept = small.entries
    other = small.run(PRODUCT, NUMBA_OPT="0")
    assert (first[:2], other[:2]) == (["42.0", "0"], ["42.0", "0"])
    assert other[2] != first[2]
    assert set(kept) < set(small.entries)
    assert small.run(PRODUCT) == ["42.0", "1", first[2]]


def test_what_is_kept_is_found_by_every_function_of_the_engine() -> None:
    """A function that reads a value nobody can tell would be compiled in every process."""
    from parity_cpu import code_cache, engine, functions

    assert engine.Engine.name + functions.Ucrt.name == "cpuucrt"
    ours = [kept for kept in code_cache._caches if kept.name.startswith("parity_cpu.")]
    assert len(ours) > 50
    assert [kept.name for kept in ours if not code_cache._fingerprint(kept.dispatcher)] == []


# --- the emulator ---------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def first_value(texts: dict[str, str]) -> int:
    y = np.zeros(4, np.int32)
    EmuModule(build_module(texts)).launch("k", (1,), (4,), (y,), schedule=ASCENDING)
    return int(y[0])


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("damage", ["cut", "altered", "swapped", "names"])
def test_red_a_damaged_library_is_built_anew(damage: str) -> None:
    built, other = build_module(COUNTED), build_module(RECOUNTED)
    whole = built.path.read_bytes()
    at = whole.index(b"emu_kernels")
    if damage == "names":
        (names,) = built.path.parent.glob(f"{built.path.name.split('.')[0]}.kernels")
        names.write_text(names.read_text().replace("\nk", "\nl"))
    else:
        altered = whole[:at] + b"E" + whole[at + 1 :]
        swapped = other.path.read_bytes()
        bad = {"cut": whole[:-1], "altered": altered, "swapped": swapped}[damage]
        built.path.unlink()
        built.path.write_bytes(bad)
    again = build_module(COUNTED)
    assert not again.hit
    assert (again.code, again.kernels) == (built.code, ("k",))
    assert again.path.read_bytes() == whole
    assert build_module(COUNTED).hit


@pytest.mark.usefixtures("cache")
def test_red_an_included_header_is_part_of_the_build() -> None:
    """B11 (c): the kernel's own file is the same."""
    assert (first_value(COUNTED), first_value(RECOUNTED)) == (3, 4)
    assert build_module(COUNTED).code != build_module(RECOUNTED).code


@pytest.mark.usefixtures("cache")
def test_the_emulators_headers_are_those_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They change on disk while a process runs: it builds with what its keys were made of."""
    built = build_module(COUNTED)
    shim = tmp_path / "shim"
    shim.mkdir()
    for header in build.SHIM.glob("*.h"):
        (shim / header.name).write_text("#error changed on disk\n")
    monkeypatch.setattr(build, "SHIM", shim)
    monkeypatch.setattr(build, "_translator", lambda: "the same")
    other = build_module(RECOUNTED)
    assert (other.hit, build_module(RECOUNTED).hit) == (False, True)
    assert first_value(RECOUNTED) == 4
    assert built.path != other.path


def test_the_engine_tells_the_digest_of_the_library_it_loaded() -> None:
    engine = EmuEngine(EngineSettings())
    told = engine.describe()
    built = build_module(kernel_sources())
    assert built.hit
    assert told["compiled"] == built.code[:16]
    assert re.fullmatch("[0-9a-f]{16}", told["compiled"])
    masked = EmuEngine(EngineSettings(variants=frozenset({"libm_exp"}))).describe()
    assert masked["compiled"] == told["compiled"]
    assert (told["mask"], masked["mask"]) == ("0000", "0020")


def test_red_python_files_of_the_device_engine_that_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module that was loaded after its file changed is not what the key says."""
    monkeypatch.setattr(sources.PYTHON, "_held", set())
    EmuEngine(EngineSettings())
    path = sources.PACKAGE / "emu" / "translate.py"
    monkeypatch.setattr(sources.PYTHON, "_held", set())
    monkeypatch.delitem(sources.PYTHON.files, path)
    with pytest.raises(NotRunError, match=r"parity_cuda\.emu\.translate was changed on disk"):
        EmuEngine(EngineSettings())


# --- NVRTC ----------------------------------------------------------------------------------------

ARCH, UNIT = "sm_90", Unit(("k.cu",))


@pytest.fixture
def usable(cache: Path) -> Path:
    try:
        nvrtc.nvrtc_version()
    except NotRunError:
        lack("nvrtc: NVRTC is not installed")
    return cache


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("damage", ["cut", "altered", "swapped"])
def test_red_a_damaged_cubin_is_compiled_anew(damage: str) -> None:
    path, _ = nvrtc.cached_cubin(COUNTED, ARCH, UNIT)
    other, _ = nvrtc.cached_cubin(RECOUNTED, ARCH, UNIT)
    whole, at = path.read_bytes(), path.stat().st_size // 2
    altered = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    bad = {"cut": whole[:-1], "altered": altered, "swapped": other.read_bytes()}
    path.write_bytes(bad[damage])
    again, hit = nvrtc.cached_cubin(COUNTED, ARCH, UNIT)
    assert not hit
    assert again.read_bytes() == whole
    assert nvrtc.cached_cubin(COUNTED, ARCH, UNIT) == (again, True)


@pytest.mark.usefixtures("usable")
def test_red_an_included_header_is_part_of_the_cubin() -> None:
    """B11 (c) for a device."""
    paths = [nvrtc.cached_cubin(texts, ARCH, UNIT)[0] for texts in (COUNTED, RECOUNTED)]
    assert len({nvrtc.code_digest([path]) for path in paths}) == 2
    assert paths[0].read_bytes() == nvrtc.compile_cubin(COUNTED, ARCH)[0]
