"""The cache of built modules, the choice of a compiler, what a build refuses and how it says so."""

import importlib.util
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError, NotRunError, ParityBug
from parity_cuda.emu import EmuModule, build_module, cache_folder, find_compiler
from parity_cuda.emu.build import FLAGS
from tests.engines.emu.reference import ASCENDING

KERNEL = 'extern "C" __global__ void k(int* y) { y[threadIdx.x] = VALUE; }\n'


def source(value: object) -> dict[str, str]:
    return {"k.cu": KERNEL.replace("VALUE", str(value))}


def first_value(sources: dict[str, str]) -> int:
    y = np.zeros(4, np.int32)
    EmuModule(build_module(sources)).launch("k", (1,), (4,), (y,), schedule=ASCENDING)
    assert len(set(y.tolist())) == 1
    return int(y[0])


# ---- the cache


def test_second_build_is_a_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    first, second = build_module(source(1)), build_module(source(1))
    assert (first.hit, second.hit) == (False, True)
    assert first.path == second.path
    assert first.path.parent == tmp_path / "emu"
    assert second.kernels == first.kernels == ("k",)
    left = sorted(path.name for path in first.path.parent.iterdir())
    key = first.path.name.partition(".")[0]
    assert left == sorted([f"{key}.kernels", first.path.name]), "no temporary file stays"


def test_a_build_is_announced_and_a_hit_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    said: list[str] = []
    for _ in range(2):
        build_module(source(1), announce=lambda: said.append("building"))
    assert said == ["building"]


@pytest.mark.parametrize("suffix", [".so", ".kernels"])
def test_anything_in_the_cache_may_be_deleted(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    first = build_module(source(1))
    (kept,) = first.path.parent.glob(f"*{suffix}")
    kept.unlink()
    second, third = build_module(source(1)), build_module(source(1))
    assert (second.hit, third.hit) == (False, True)
    assert second.kernels == third.kernels == first.kernels


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The objects that are compiled from now on, by the name of their unit's file."""
    seen: list[str] = []
    run = subprocess.run

    def spy(command: list[str], **options: Any) -> Any:
        if "-c" in command:
            text = (Path(options["cwd"]) / command[command.index("-c") + 1]).read_text()
            lines = re.findall(r'^#line 1 "(.*)"$', text, re.MULTILINE)
            seen.append(lines[0] if lines else "main")
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", spy)
    return seen


def test_a_changed_text_is_compiled_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    head = '#include "h.cuh"\n'
    one, two = source("N")["k.cu"], source(2)["k.cu"].replace("k(", "l(")
    base = {"a.cu": head + one, "b.cu": two, "h.cuh": "constexpr int N = 3;\n"}
    seen = compiled(monkeypatch)
    build_module(base)
    assert sorted(seen) == ["a.cu", "b.cu", "main"]
    seen.clear()
    build_module({**base, "b.cu": two + "// more\n"})
    assert seen == ["b.cu"]
    seen.clear()
    assert first_value({**base, "h.cuh": "constexpr int N = 4;\n"}) == 4
    assert seen == ["a.cu"]


def test_an_altered_object_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path))
    build_module(source(1))
    objects = sorted((tmp_path / "emu-objects").iterdir())
    assert len(objects) == 2
    others = [path.read_bytes() for path in objects]
    for path, other in zip(objects, reversed(others), strict=True):  # swapped
        path.write_bytes(other)
    for path in (tmp_path / "emu").iterdir():
        path.unlink()
    seen = compiled(monkeypatch)
    assert first_value(source(1)) == 1
    assert sorted(seen) == ["k.cu", "main"]


@pytest.mark.parametrize("change", ["text", "name", "header", "flags", "mode", "compiler"])
def test_any_change_is_another_module(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {"k.cu": '#include "k.cuh"\n' + source("N")["k.cu"], "k.cuh": "constexpr int N = 3;\n"}
    first = build_module(base)
    other = dict(base)
    options: dict[str, object] = {}
    if change == "text":
        other["k.cu"] += "// more\n"
    elif change == "name":
        other["l.cu"] = other.pop("k.cu")
    elif change == "header":
        other["k.cuh"] = other["k.cuh"].replace("3", "4")
    elif change == "flags":
        options["extra_flags"] = ("-O1",)
    elif change == "mode":
        options["mode"] = "asan"
    else:
        wrapper = tmp_path / "cxx"
        wrapper.write_text(f'#!/bin/sh\nexec {find_compiler().command[0]} "$@"\n')
        wrapper.chmod(0o700)
        monkeypatch.setenv("PARITY_CXX", str(wrapper))
    second = build_module(other, **options)  # type: ignore[arg-type]
    assert second.path != first.path
    assert (second.digest != first.digest) == (change in ("text", "name", "header"))
    if change == "header":
        assert (first_value(base), first_value(other)) == (3, 4)


def test_digest_is_of_the_texts_alone() -> None:
    """It stands in reports, so it may not change with the machine or with the shim."""
    digest = build_module(source(1)).digest
    assert digest == "080d8f9575af125cc791d1a464e5d272ca2cee3186677080452bc7aaf39ed6b0"


def test_order_of_sources_does_not_matter() -> None:
    one, two = source(1)["k.cu"], source(2)["k.cu"].replace("k(", "l(")
    forwards = build_module({"a.cu": one, "b.cu": two})
    backwards = build_module({"b.cu": two, "a.cu": one})
    assert forwards.path == backwards.path
    assert backwards.hit
    assert forwards.kernels == backwards.kernels == ("k", "l")


def test_what_a_module_says_of_itself() -> None:
    built = build_module(source(1), extra_flags=("-DX=1",))
    assert built.flags[: len(FLAGS)] == FLAGS
    assert {"-ffp-contract=off", "-fno-fast-math", "-O2"} <= set(built.flags)
    assert built.flags[-1] == "-DX=1"
    assert built.mode == "fast"
    assert built.compiler == find_compiler().version.splitlines()[0]
    assert re.fullmatch(r"[0-9a-f]{64}", built.digest)


BUILD_SCRIPT = """
import sys
from parity_cuda.emu import EmuModule, Schedule, build_module
import numpy as np
built = build_module({"k.cu": sys.argv[1]})
y = np.zeros(4, np.int32)
EmuModule(built).launch("k", (1,), (4,), (y,), schedule=Schedule("ascending"))
print(built.path, y.tolist())
"""


def test_two_processes_build_the_same_module_at_once(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PARITY_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", BUILD_SCRIPT, source(7)["k.cu"]]
    running = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert said[0] == said[1]
    assert said[0].endswith("[7, 7, 7, 7]\n")
    assert len(list((tmp_path / "emu").glob("*.so"))) == 1
    assert len(list((tmp_path / "emu").iterdir())) == 2


def test_cache_folder_is_private(tmp_path: Path) -> None:
    folder = cache_folder({"PARITY_CACHE": str(tmp_path / "new")})
    assert folder == tmp_path / "new" / "emu"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"PARITY_CACHE": "BASE/a", "XDG_CACHE_HOME": "BASE/b"}, "BASE/a/emu"),
        ({"XDG_CACHE_HOME": "BASE/b"}, "BASE/b/parity/emu"),
        ({}, "BASE/home/.cache/parity/emu"),
    ],
    ids=["parity-cache", "xdg", "home"],
)
def test_where_the_cache_is(
    env: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = str(tmp_path)
    monkeypatch.setenv("HOME", f"{base}/home")
    given = {name: value.replace("BASE", base) for name, value in env.items()}
    assert str(cache_folder(given)) == expected.replace("BASE", base)


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_cache_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "emu"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(InputError, match=f"{folder} is writable by others"):
        cache_folder({"PARITY_CACHE": str(tmp_path)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_CACHE", str(tmp_path))
        assert refusal(source(1)).message.endswith("is writable by others"), (
            "nothing is built there"
        )
    folder.chmod(0o755)
    assert cache_folder({"PARITY_CACHE": str(tmp_path)}) == folder


def test_cache_of_someone_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(InputError, match="belongs to another user"):
        cache_folder({"PARITY_CACHE": str(tmp_path)})


def test_cache_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the cache folder"):
        cache_folder({"PARITY_CACHE": str(tmp_path / "file")})


# ---- the compiler


def test_parity_cxx_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("#!/bin/sh\necho own compiler 1.0 with $1\n")
    own.chmod(0o700)
    compiler = find_compiler({**os.environ, "PARITY_CXX": f"{own} -pipe"})
    assert compiler.command == (str(own), "-pipe")
    assert str(compiler) == "own compiler 1.0 with -pipe"


@pytest.mark.parametrize("name", ["nowhere", "'no partner", "false"])
def test_parity_cxx_that_does_not_run_is_no_silent_fallback(name: str) -> None:
    with pytest.raises(InputError, match=f"PARITY_CXX names a compiler that does not run: {name}"):
        find_compiler({**os.environ, "PARITY_CXX": name})


@pytest.mark.parametrize("present", [("g++", "c++", "clang++"), ("c++", "clang++"), ("clang++",)])
def test_order_of_compilers(tmp_path: Path, present: tuple[str, ...]) -> None:
    for name in present:
        (tmp_path / name).write_text(f"#!/bin/sh\necho I am {name}\n")
        (tmp_path / name).chmod(0o700)
    assert str(find_compiler({"PATH": str(tmp_path)})) == f"I am {present[0]}"


def test_compiler_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "g++").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "c++").write_text("#!/bin/sh\necho I am c++\n")
    for name in ("g++", "c++"):
        (tmp_path / name).chmod(0o700)
    assert str(find_compiler({"PATH": str(tmp_path)})) == "I am c++"


def test_no_compiler_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotRunError, match=r"^the emulator needs a C\+\+ compiler") as caught:
        find_compiler({"PATH": str(tmp_path)})
    assert "g++" in caught.value.next_step
    assert "ziglang" in caught.value.next_step


# ---- texts that do not build


def refusal(sources: dict[str, str]) -> InputError:
    with pytest.raises(InputError) as caught:
        build_module(sources)
    return caught.value


def test_compile_error_names_file_line_and_log() -> None:
    text = KERNEL.replace("VALUE", "1") + "\n\n" + "int broken = undefined_name;\n"
    error = refusal({"a.cu": KERNEL.replace("VALUE", "1").replace("k(", "j("), "b.cu": text})
    assert str(error) == "b.cu:4: 'undefined_name' was not declared in this scope"
    log = Path(re.search(r"/\S+\.log", error.next_step)[0])  # type: ignore[index]
    assert "undefined_name" in log.read_text()
    assert "-ffp-contract=off" in log.read_text(), "the log holds the command, too"


def test_error_in_a_header_names_the_header() -> None:
    error = refusal({"a.cu": '#include "h.cuh"\n' + source(1)["k.cu"], "h.cuh": "\nint x = y;\n"})
    assert str(error).startswith("h.cuh:2: ")


def test_error_inside_the_shim_names_the_callers_line() -> None:
    text = 'struct S { double a, b; };\nextern "C" __global__ void k(S* y) {\n'
    error = refusal({"a.cu": text + "  y[0] = __shfl_sync(0xffffffffu, y[0], 0);\n}\n"})
    assert str(error) == "a.cu:3: static assertion failed: shuffles move 4 or 8 bytes"


def test_missing_header() -> None:
    error = refusal({"a.cu": '#include "no.cuh"\n' + source(1)["k.cu"]})
    assert str(error).startswith("a.cu:1: no.cuh: No such file")


def test_link_error_has_a_message_too() -> None:
    text = 'extern "C" int nowhere_defined(int);\n' + source("nowhere_defined(1)")["k.cu"]
    error = refusal({"a.cu": text})
    assert re.match(r"the kernel sources do not compile: .*undefined .*nowhere_defined", str(error))
    assert ".log" in error.next_step


REFUSED = (
    *(
        "expf",
        "exp2f",
        "logf",
        "log2f",
        "powf",
        "sinf",
        "cosf",
        "tanhf",
        "erff",
        "rsqrtf",
        "atan2f",
    ),
    *("exp", "log", "pow", "sin", "cos", "tanh", "rsqrt", "__frsqrt_rn", "cbrtf", "hypotf"),
    *("__expf", "__logf", "__powf", "__sinf", "__cosf", "__fdividef", "__tanf", "__exp10f"),
)


@pytest.mark.parametrize("include", ["", "#include <math.h>\n", "#include <cmath>\n"])
def test_functions_that_are_not_portable_are_refused(include: str) -> None:
    """All in one compilation: the log names every one of them, at its line."""
    lines = [f"y[{i}] = (int){name}(x);" for i, name in enumerate(REFUSED)]
    head = include + 'extern "C" __global__ void k(int* y, float x) {\n'
    error = refusal({"a.cu": head + "\n".join(lines) + "\n}\n"})
    assert "expf is not bit-portable: device and host give different bits" in str(error)
    log = Path(re.search(r"/\S+\.log", error.next_step)[0]).read_text()  # type: ignore[index]
    first = head.count("\n") + 1
    for i, name in enumerate(REFUSED):
        assert f"a.cu:{first + i}:" in log
        assert f"{name} is not bit-portable" in log


def test_a_kernel_may_have_a_variable_named_like_a_refused_function() -> None:
    text = source("exp + log")["k.cu"].replace("{ ", "{ const int exp = 3, log = 4; ", 1)
    assert first_value({"a.cu": text}) == 7


def test_struct_argument_is_refused() -> None:
    error = refusal({"a.cu": '\nextern "C" __global__ void k(float2 v) { (void)v; }'})
    assert str(error).startswith("a.cu:2: ")
    assert "a kernel takes numbers and pointers only" in str(error)


@pytest.mark.parametrize("name", ["a.cpp", "../a.cu", "x/a.cu", "a b.cu", ""])
def test_names_that_are_not_plain_file_names(name: str) -> None:
    with pytest.raises(ParityBug, match="a kernel source is named"):
        build_module({name: source(1)["k.cu"]})
