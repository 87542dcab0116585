"""Rows and batches of ``hf`` on a device: what must hold there whatever its kernels do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from parity_torch import invariant  # noqa: E402
from tests.cli_runner import run_cli  # noqa: E402

pytestmark = pytest.mark.gpu

DTYPES = ("f32", "bf16", "f16")
Record = dict[str, Any]


def settings() -> tuple[Any, ...]:
    """What invariant=on sets on a device."""
    cuda, matmul = torch.backends.cuda, torch.backends.cuda.matmul
    halves = [f"allow_{name}_reduced_precision_reduction" for name in ("bf16", "fp16")]
    return (
        *(getattr(matmul, name) for name in halves),
        *(getattr(matmul, f"{name}_split_k", None) for name in halves),
        *(cuda.preferred_blas_library(), torch.backends.cudnn.benchmark),
        *(cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()),
        *(cuda.cudnn_sdp_enabled(), torch.are_deterministic_algorithms_enabled()),
    )


def isodiff(tmp_path: Path, dtype: str, *words: str) -> Record:
    path = tmp_path / "found.json"
    engine = f"hf:dense-tiny,dtype={dtype},device=cuda"
    ran = run_cli("isodiff", "--engine", engine, *words, "--json", str(path))
    assert ran.status in (0, 1), ran.stderr
    found: Record = json.loads(path.read_text())
    print(f"{dtype} {' '.join(words)}: {found['headline']}; {dict(found['facts']).get('settings')}")
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_stable_and_tried_with_other_settings(tmp_path: Path, dtype: str) -> None:
    found = isodiff(tmp_path, dtype, "--m", "2..8", "--pos", "33:33")
    assert found["verdict"] in ("same", "diverged")
    assert (found["again"] is None) == (found["verdict"] == "same")
    if found["moved"]:
        assert found["moved"]["logits"]["dtype"] == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_sequence_reads_its_neighbour(tmp_path: Path, dtype: str) -> None:
    found = isodiff(tmp_path, dtype, "--batch", "--m", "2..4", "--pos", "33")
    assert found["verdict"] in ("same", "diverged")
    assert {one["contents"] for one in found["batches"]} == {None, ""}
    assert dict(found["facts"])["contents"] == "the tokens of the neighbours change nothing"


def test_settings_hold_inside_and_are_put_back() -> None:
    before = settings()
    with invariant.invariant("cuda"):
        inside = settings()
    assert inside[:2] == (False, False)
    assert set(inside[2:4]) <= {False, None}
    assert inside[4] == torch._C._BlasBackend.Cublaslt
    assert settings() == before
