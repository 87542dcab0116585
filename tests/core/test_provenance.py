"""What a header says of the build behind it, and when two sides ran one build."""

from __future__ import annotations

import math
import os
import py_compile
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity import __version__
from parity.builds import loaded
from parity.builds.cache import find_sealed, keep_sealed, seal
from parity.builds.fingerprint import Reads, fingerprint
from parity.builds.loaded import Sources, changed_since_start, stale_bytecode
from parity.builds.provenance import (
    code_notes,
    code_text,
    engine_facts,
    packages,
    packages_of,
    same_code,
    tells_code,
)
from parity.errors import NotRunError

CUDA = {"engine": "cuda", "version": "1", "tier": "exact", "variants": "none"}
CUDA |= {"compiled": "a" * 16, "mask": "0000"}


def changed(**values: str) -> dict[str, str]:
    """CUDA's header with other values."""
    return {**CUDA, **values}


# --- one code or two ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "dut", "same"),
    [
        (CUDA, CUDA, True),
        (CUDA, changed(compiled="b" * 16), False),
        (CUDA, changed(mask="0020", variants="libm_exp"), False),
        (changed(schedule="ascending seed 0"), changed(schedule="descending seed 0"), False),
        (CUDA, changed(variants="idle"), True),  # a variant that no compiled code is asked for
        (changed(compiled="none"), changed(compiled="none"), False),
        ({"engine": "foreign"}, {"engine": "foreign"}, False),
        (CUDA, {"engine": "foreign"}, False),
    ],
    ids=["itself", "code", "mask", "schedule", "idle", "nothing-ran", "silent", "one-silent"],
)
def test_same_code(ref: dict[str, str], dut: dict[str, str], same: bool) -> None:
    assert same_code(ref, dut) is same
    assert same_code(dut, ref) is same


def test_code_notes() -> None:
    told = "ref and dut ran the same compiled code (aaaaaaaaaaaaaaaa) in the same way"
    assert code_notes(CUDA, CUDA, equal=True) == [f"{told}: this switches nothing in it"]
    assert code_notes(CUDA, CUDA, equal=False) == [f"{told}: what differs comes from elsewhere"]
    masked = changed(mask="0020", variants="libm_exp")
    assert code_notes(CUDA, masked, equal=True) == [
        "ref and dut ran one build (aaaaaaaaaaaaaaaa), mask 0000 against 0020: no bit shows it"
    ]
    other = changed(compiled="b" * 16, variants="fancy")
    assert code_notes(CUDA, other, equal=True) == [
        "the compiled code differs (ref aaaaaaaaaaaaaaaa dut bbbbbbbbbbbbbbbb): no bit shows it"
    ]
    silent = {name: text for name, text in masked.items() if name != "compiled"}
    assert code_notes(CUDA, silent, equal=True) == [
        "whether the compiled code differs is not known: the dut tells no digest of it"
    ]


def test_nothing_is_noted_where_the_bits_or_the_engines_tell_it() -> None:
    masked = changed(mask="0020", variants="libm_exp")
    assert code_notes(CUDA, masked, equal=False) == []
    assert code_notes(CUDA, changed(engine="cpu", compiled="b" * 16), equal=True) == []
    assert code_notes({}, {}, equal=True) == []


def test_code_text() -> None:
    assert code_text(CUDA) == "aaaaaaaaaaaaaaaa mask 0000"
    assert code_text(changed(compiled="none")) == code_text({}) == ""
    assert not tells_code({})


def test_packages_are_those_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("a_package_of_mine")
    module.__version__ = "3.2.1"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_package_of_mine", module)
    found = packages(("a_package_of_mine", "not_loaded_at_all"))
    assert found == f"parity={__version__} numpy={np.__version__} a_package_of_mine=3.2.1"
    theirs = type("Theirs", (), {"__module__": "a_package_of_mine.engine"})
    assert packages_of(theirs()) == found


def test_facts_of_an_engine() -> None:
    class Plain:
        name, version, tiers = "plain", "9", ("only",)

        def describe(self) -> dict[str, str]:
            return {"compiled": "c" * 16}

    facts = engine_facts(Plain())  # type: ignore[arg-type]
    assert facts["packages"].startswith(f"parity={__version__} numpy=")
    del facts["packages"]
    wanted = {"engine": "plain", "version": "9", "tier": "only", "variants": "none"}
    assert facts == {**wanted, "compiled": "c" * 16}


# --- sealed files ---------------------------------------------------------------------------------


def test_a_sealed_file_is_found_by_its_key(tmp_path: Path) -> None:
    path = keep_sealed(tmp_path, "k", ".bin", b"content")
    assert find_sealed(tmp_path, "k", ".bin") == path
    assert find_sealed(tmp_path, "other", ".bin") is None
    assert find_sealed(tmp_path, "k", ".so") is None


@pytest.mark.parametrize("content", [b"conten", b"contenT", b"content more", b""])
def test_red_an_altered_file_is_not_found(tmp_path: Path, content: bytes) -> None:
    path = keep_sealed(tmp_path, "k", ".bin", b"content")
    path.write_bytes(content)
    assert find_sealed(tmp_path, "k", ".bin") is None


def test_red_a_swapped_file_is_not_found(tmp_path: Path) -> None:
    one = keep_sealed(tmp_path, "one", ".bin", b"1")
    other = keep_sealed(tmp_path, "other", ".bin", b"2")
    sealed = one.name.split(".")[1]
    shutil.copy(one, other)
    assert find_sealed(tmp_path, "other", ".bin") is None
    shutil.copy(one, tmp_path / f"other.{sealed}.bin")  # with its own seal in the name
    assert find_sealed(tmp_path, "other", ".bin") is None


def test_a_seal_keeps_its_parts_apart() -> None:
    assert seal("k", b"ab", b"c") != seal("k", b"a", b"bc")
    assert seal("k", b"ab") != seal("ka", b"b")


# --- fingerprints ---------------------------------------------------------------------------------

FLAG = 1
TABLE = np.array([1.0, 2.0])


def helper(x: Any) -> Any:
    return x + FLAG


def caller(x: Any) -> Any:
    return helper(x) * math.pi + TABLE[0]


def again(x: Any) -> Any:
    return again(x - 1) if x else helper(x)


def ping(x: Any) -> Any:
    return pong(x) + 1


def pong(x: Any) -> Any:
    return ping(x) * FLAG


def unknown(value: Any) -> None:
    """No value beside the plain ones is explained."""


def of(function: Any) -> str:
    return fingerprint(function, unknown)


def test_fingerprint_follows_helpers_flags_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[__name__]
    before, recursive = of(caller), of(again)
    assert of(caller) == before
    with monkeypatch.context() as patch:
        patch.setattr(module, "FLAG", 2)
        assert of(caller) != before
        assert of(again) != recursive
    with monkeypatch.context() as patch:
        patch.setattr(module, "TABLE", np.array([1.0, 3.0]))
        assert of(caller) != before
    with monkeypatch.context() as patch:
        patch.setattr(module, "helper", lambda x: x - FLAG)
        assert of(caller) != before
    assert of(caller) == before


@pytest.mark.parametrize("first", [ping, pong])
def test_fingerprint_of_a_circle_does_not_depend_on_what_was_asked_before(
    first: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [of(ping), of(pong)]
    reads = Reads()
    fingerprint(first, unknown, reads)
    assert [fingerprint(function, unknown, reads) for function in (ping, pong)] == alone
    monkeypatch.setattr(sys.modules[__name__], "FLAG", 7)
    assert [
        one for one, function in zip(alone, (ping, pong), strict=True) if one == of(function)
    ] == []


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ((1,), 1), (None, 0), (1, 2)]
)
def test_fingerprint_tells_values_apart(one: object, other: object) -> None:
    def made(value: object) -> Any:
        def inner() -> object:
            return value

        return inner

    assert of(made(one)) == of(made(one))
    assert of(made(one)) != of(made(other))
    assert of(eval(f"lambda: {one!r}")) != of(eval(f"lambda: {other!r}"))


def test_fingerprint_refuses_what_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FLAG", object())
    with pytest.raises(TypeError, match="nobody can tell what <object"):
        of(caller)


def test_reads_notice_a_flag_and_an_array_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "TABLE", np.array([1.0, 2.0]))
    reads = Reads()
    fingerprint(caller, unknown, reads)
    assert not reads.changed()
    TABLE[1] = 5.0
    assert reads.changed()
    TABLE[1] = 2.0
    assert not reads.changed()
    monkeypatch.setattr(module, "FLAG", 2)
    assert reads.changed()


# --- what is loaded -------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "a_changing_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text("VALUE = 1\n")
    return folder


CHANGING = """
import sys, pathlib
from parity.builds.loaded import Sources
folder = pathlib.Path(sys.argv[1])
sources = Sources(folder)
sources.read()
if sys.argv[2] == "before":
    (folder / "one.py").write_text("VALUE = 2\\n")
import a_changing_package.one as one
if sys.argv[2] == "at-once":
    (folder / "one.py").write_text("VALUE = 2\\n")
sources.require_loaded("a_changing_package")
(folder / "one.py").write_text("VALUE = 3\\n")
sources.require_loaded("a_changing_package")
print(one.VALUE, sources.digest()[:8])
"""


def run_changing(package: Path, when: str) -> tuple[int, str]:
    paths = [str(package.parent), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", CHANGING, str(package), when]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout or done.stderr.splitlines()[-1]


def test_a_digest_tells_of_what_was_loaded(package: Path) -> None:
    digest = Sources(package).digest()[:8]
    assert run_changing(package, "never") == (0, f"1 {digest}\n")


@pytest.mark.parametrize("when", ["before", "at-once"])
def test_red_a_module_that_changed_while_it_was_loaded(package: Path, when: str) -> None:
    status, said = run_changing(package, when)
    assert status == 1
    assert "a_changing_package.one was changed on disk while this process was loading" in said


@pytest.mark.parametrize("mode", ["TIMESTAMP", "UNCHECKED_HASH", "CHECKED_HASH"])
def test_stale_bytecode(package: Path, mode: str) -> None:
    """Python takes a .pyc whose note of date and size fits, or that asks not to be checked."""
    source = package / "one.py"
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode[mode])
    status = source.stat()
    assert not stale_bytecode(source, source.read_bytes())
    source.write_text("VALUE = 2\n")  # of the same size
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    believed = mode != "CHECKED_HASH"
    assert stale_bytecode(source, source.read_bytes()) is believed
    env = {**os.environ, "PYTHONPATH": str(package.parent)}
    program = "import a_changing_package.one as one; print(one.VALUE)"
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True)
    assert said.stdout == (b"1\n" if believed else b"2\n"), "the .pyc was what Python ran"


def test_red_stale_bytecode_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = package / "one.py"
    module = types.ModuleType("a_changing_package.one")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "a_changing_package.one", module)
    Sources(package).require_loaded("a_changing_package")
    status = source.stat()
    py_compile.compile(str(source))
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(NotRunError, match=r"one was loaded from a \.pyc of another") as caught:
        Sources(package).require_loaded("a_changing_package")
    assert "delete" in caught.value.next_step


def test_files_touched_after_the_start(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [package / "one.py"]
    assert changed_since_start(files)
    monkeypatch.setattr(loaded, "_started", lambda: files[0].stat().st_ctime_ns + 1)
    assert not changed_since_start(files)


def test_the_start_is_before_now() -> None:
    assert 0 < loaded._started() <= loaded._READ
