"""parity_dump.h builds without a warning, in C and C++, and knows what parity knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from parity.dtypes import BOOL, FLOATS, INTEGERS, dtype_bits
from parity.fnv import BASES
from parity.keys import FINAL_FIELDS, LAYER_FIELDS
from tests.c_header import INCLUDE, build, compilers
from tests.engines.needed import lack

HEADER = (INCLUDE / "parity_dump.h").read_text()
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-c", "-o", "unit.o")
# C++ refuses what C lets pass: a pointer from malloc without a cast, a jump over a declaration.
LANGUAGES = ("c99", "c17", "c++11", "c++20")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", compilers())
def test_it_builds_without_a_warning(name: str, language: str, tmp_path: Path) -> None:
    kind = "c++" if "+" in language else "c"
    source = tmp_path / "unit.c"
    # Twice, as from two other headers; and one function used, the rest left unused.
    source.write_text(
        '#include "parity_dump.h"\n' * 2 + "int used(const parity_engine *e);\n"
        "int used(const parity_engine *e) { return parity_main(e); }\n"
    )
    words = [*compilers()[name], "-x", kind, f"-std={language}", "-O2", *STRICT]
    done = subprocess.run(
        [*words, "-I", str(INCLUDE), str(source)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_there_are_two_kinds_of_compiler() -> None:
    """gcc or clang, and the one of the dev extra."""
    if "zig" not in compilers():
        lack("ziglang is not installed")
    assert len(compilers()) >= 2


def test_two_files_of_one_program_include_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first.c", tmp_path / "second.c"
    include = '#include "parity_dump.h"\n'
    first.write_text(include + "int main(void) { return PARITY_DUMP_H_VERSION - 1; }\n")
    second.write_text(
        include + "int other(parity_dump *d);\n"
        "int other(parity_dump *d) { return parity_close(d); }\n"
    )
    program = build(first, tmp_path / "program", str(second))
    subprocess.run([program], check=True)


def test_it_needs_the_standard_library_alone() -> None:
    c99 = {"errno", "inttypes", "stdarg", "stdio", "stdlib", "string", "time"}
    assert set(re.findall(r"#include <(\w+)\.h>", HEADER)) == c99
    assert '#include "' not in HEADER


def test_its_known_fields_are_those_of_the_contract() -> None:
    listed = re.search(r"known\[\] =\s+((?:\"[^\"]*\"\s*)+);", HEADER)
    assert listed is not None
    names = "".join(re.findall(r'"([^"]*)"', listed[1])).split(",")
    assert tuple(names) == LAYER_FIELDS + FINAL_FIELDS


def test_its_page_names_every_member_and_error() -> None:
    page = " ".join((INCLUDE.parents[1] / "docs" / "header.md").read_text().split())
    engine = HEADER[HEADER.index("typedef struct parity_engine") : HEADER.index("} parity_engine;")]
    plain = ("name", "version", "headers", "vocab", "step", "prefill", "rows", "parts", "counters")
    members = [*re.findall(r"\(\*(\w+)\)\(", engine), *plain]
    assert len(members) == 14
    assert [name for name in members if not re.search(rf"`[^`]*\b{name}\b[^`]*`", page)] == []
    errors = set(re.findall(r'error = "([^"]*)"', HEADER))
    assert len(errors) == 7
    assert [error for error in errors if error not in page] == []


def test_its_dtypes_are_those_of_a_dump() -> None:
    sizes = {
        name: int(size) for name, size in re.findall(r'\{"(\w+)", (\d), 0x?[0-9a-f]*\}', HEADER)
    }
    names = [*FLOATS, *INTEGERS, BOOL]
    assert sizes == {name: dtype_bits(name) // 8 for name in names}


def test_its_bases_are_those_of_a_dump() -> None:
    assert all(f"{basis:#018x}u" in HEADER for basis in BASES.values())
