"""``parity header``: the folder that a C compiler is given."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from parity.fnv import BASES
from tests.c_header import build
from tests.cli_runner import run_cli

PROGRAM = """
#include "parity_dump.h"
int main(void) { return parity_hash("int8", "", 0, PARITY_FNV1A64).hash != %#xu; }
"""


def test_it_prints_the_folder_of_the_headers() -> None:
    result = run_cli("header")
    assert (result.status, result.stderr) == (0, "")
    folder = Path(result.stdout.removesuffix("\n"))
    assert {path.name for path in folder.iterdir()} >= {"parity_dump.h", "parity_dump.cuh"}


def test_red_it_takes_no_words() -> None:
    result = run_cli("header", "parity_dump.h")
    assert (result.status, result.stdout) == (2, "")


@pytest.mark.parametrize(("basis", "status"), [(BASES["fnv1a64"], 0), (1, 1)])
def test_a_program_is_built_against_it(tmp_path: Path, basis: int, status: int) -> None:
    (tmp_path / "p.c").write_text(PROGRAM % basis)
    program = build(tmp_path / "p.c", tmp_path / "p")
    assert subprocess.run([program], check=False).returncode == status
