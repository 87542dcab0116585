"""parity_dump.cuh compiles: with NVRTC for every architecture, with nvcc beside parity_dump.h."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from parity.errors import NotRunError
from parity_cuda import nvrtc
from tests.c_header import INCLUDE
from tests.engines.header_digest import sources
from tests.engines.needed import lack

PAGE = INCLUDE.parents[1] / "docs" / "header.md"
HOST = """
void tap_on_device(parity_dump* dump, const float* x, ParityJob* job, ParityResult* result) {
  const size_t shape[1] = {1000};
  *job = parity_job("f32", x, shape[0]);
  parity_digest_jobs<<<1, PARITY_THREADS>>>(result, job, dump->basis);
  parity_tap_digest(dump, 0, 1, "x", "f32", 1, shape, parity_device_digest(*result));
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_nvrtc_compiles_it(arch: str) -> None:
    try:
        cubin, log = nvrtc.compile_cubin(sources(), arch)
    except NotRunError:
        lack("nvrtc: NVRTC is not installed")
    assert (cubin[:4], log.strip("\0\n ")) == (b"\x7fELF", "")


@pytest.mark.parametrize("standard", ["c++11", "c++17"])
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_nvcc_compiles_it_beside_the_c_header(tmp_path: Path, standard: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (shown,) = re.findall(r"```cuda\n(#include .*?)```", page, re.DOTALL)
    (tmp_path / "host.cu").write_text(shown + HOST)
    warnings = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror")
    words = [
        "nvcc",
        f"-std={standard}",
        "-arch=sm_90",
        *warnings,
        "-I",
        str(INCLUDE),
        "-c",
        "host.cu",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
