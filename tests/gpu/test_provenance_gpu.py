"""On a device: the digest told is that of the cubin loaded, and no stale cubin is ever loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.protocol import EngineSettings
from parity.tree import Tree
from parity_cuda import nvrtc
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.engine import CudaEngine
from parity_cuda.sources import kernel_sources, units_of
from tests.cli_runner import run_cli
from tests.engines.kernel_texts import COUNTED, RECOUNTED

pytestmark = pytest.mark.gpu

SHORT = ("--model", "dense-tiny", "--tokens", "1,2", "--n", "1")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of our own."""
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def value_of(texts: dict[str, str]) -> tuple[int, str]:
    """What the kernel of these texts writes, and the digest of the code that wrote it."""
    backend = CupyBackend(EngineSettings(), texts)
    y = backend.upload(np.zeros(4, np.int32))
    backend.launch("k", (1,), 4, [y])
    found = backend.download(y)
    assert len(set(found.tolist())) == 1
    return int(found[0]), backend.info()["compiled"]


def diff(tmp_path: Path, ref: str, dut: str) -> tuple[int, Tree]:
    path = tmp_path / "run.json"
    result = run_cli("diff", "--ref", ref, "--dut", dut, *SHORT, "--json", str(path))
    assert path.exists(), result.stderr
    return result.status, Tree.from_json(path.read_text())


def code_of(tree: Tree) -> list[str]:
    return [note for note in tree.notes if "compiled code" in note or "one build" in note]


def test_the_digest_loaded_is_that_of_what_was_compiled(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVRTC does not give the same bytes twice (docs/provenance.md): what it gave is looked at."""
    compiled: list[bytes] = []
    real = nvrtc.compile_cubin

    def seen(*given: Any) -> tuple[bytes, str]:
        cubin, log = real(*given)
        compiled.append(cubin)
        return cubin, log

    monkeypatch.setattr(nvrtc, "compile_cubin", seen)
    told = [CudaEngine(EngineSettings()).describe() for _ in range(2)]  # compiled, then kept
    assert sorted(path.read_bytes() for path in (cache / "cubin").iterdir()) == sorted(compiled)
    texts, arch = kernel_sources(), told[0]["options"].split()[0]
    paths = nvrtc.cached_cubins(texts, arch, units_of(texts, 0)).values()
    each = [hashlib.sha256(path.read_bytes()).digest() for path in paths]
    assert len(each) == len(compiled)
    wanted = hashlib.sha256(b"".join(each)).hexdigest()[:16]
    assert [one["compiled"] for one in told] == [wanted, wanted]
    assert "cupy=" in told[0]["packages"]
    assert "parity=" in told[0]["packages"]
    size = sum(map(len, compiled))
    print(f"\n{told[0]['device']}, {told[0]['compiler']}: {len(each)} cubins, {size:,} bytes")


def test_a_tier_has_code_of_its_own_and_one_build_serves_all_other_masks() -> None:
    exact, masked, other = (
        CudaEngine(EngineSettings(variants=frozenset(names))).describe()
        for names in ((), ("libm_exp",), ("rsqrt",))
    )
    assert exact["compiled"] != masked["compiled"] == other["compiled"]
    assert [each["mask"] for each in (exact, masked, other)] == ["0000", "0020", "0001"]


def test_red_a_diff_that_switches_nothing(tmp_path: Path) -> None:
    status, tree = diff(tmp_path, "cuda", "cuda")
    assert status == 0
    told = f"ref and dut ran the same compiled code ({tree.ref['compiled']}) in the same way"
    assert code_of(tree) == [f"{told}: this switches nothing in it"]


@pytest.mark.parametrize(("variant", "status"), [("rsqrt", 1), ("router_tree", 0)])
def test_a_variant_is_not_called_the_same(tmp_path: Path, variant: str, status: int) -> None:
    found, tree = diff(tmp_path, "cuda", f"cuda+{variant}")
    assert found == status
    codes = f"ref {tree.ref['compiled']} dut {tree.dut['compiled']}"
    text = f"the compiled code differs ({codes}): no bit shows it"
    assert code_of(tree) == ([] if status else [text])


def test_two_masks_of_no_tier_are_one_build(tmp_path: Path) -> None:
    found, tree = diff(tmp_path, "cuda+rsqrt", "cuda+rsqrt+router_tree")
    assert found == 0
    text = f"ref and dut ran one build ({tree.ref['compiled']}), mask 0001 against 0201"
    assert code_of(tree) == [f"{text}: no bit shows it"]


@pytest.mark.usefixtures("cache")
def test_red_an_included_header_is_part_of_the_cubin() -> None:
    """B11 (c): the kernel's own file is the same."""
    (first, code), (second, other) = value_of(COUNTED), value_of(RECOUNTED)
    assert (first, second) == (3, 4)
    assert code != other


@pytest.mark.parametrize("damage", ["cut", "altered", "swapped"])
def test_red_a_damaged_cubin_is_not_loaded(cache: Path, damage: str) -> None:
    first = value_of(COUNTED)
    (path,) = (cache / "cubin").iterdir()
    value_of(RECOUNTED)
    (other,) = set((cache / "cubin").iterdir()) - {path}
    whole, at = path.read_bytes(), path.stat().st_size // 2
    altered = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    bad = {"cut": whole[:-1], "altered": altered, "swapped": other.read_bytes()}
    path.write_bytes(bad[damage])
    assert value_of(COUNTED) == first
    assert path.read_bytes() == whole
