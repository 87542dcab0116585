"""Every kernel under stress: orders, poison, ASan and UBSan, TSan. docs/stress.md."""

from __future__ import annotations

import pytest

from parity_cuda.emu import EmuModule
from parity_cuda.sources import FUNCTION_KERNELS, KERNELS
from tests.engines.emu import stress
from tests.engines.emu.stress import Pairs
from tests.engines.emu.stress_builds import Builds
from tests.engines.emu.stress_cases import OPS, ROWS, WITHOUT_ROWS, all_cases
from tests.engines.kernel_texts import all_sources, kernels

CASES = all_cases()
SANITIZERS = ("asan", "tsan")


@pytest.fixture(scope="module")
def module(builds: Builds) -> EmuModule:
    return builds.load(stress.stress_sources())


@pytest.fixture(scope="module")
def launched(module: EmuModule) -> Pairs:
    """Every kernel and mask that the cases launch."""
    cases = [case for group in CASES.values() for case in group]
    runs = (stress.run(module, case, stress.ASCENDING) for case in cases)
    return set().union(*(backend.launched for _, backend in runs))


def wanted(sources: dict[str, str]) -> Pairs:
    """Every kernel of these texts with every mask it reads."""
    return {(kernel.name, mask) for kernel in kernels(sources).values() for mask in kernel.masks()}


# --- nothing is left out --------------------------------------------------------------------------


def test_every_file_holds_a_kernel() -> None:
    """None is hidden from the tests below by the way it is written."""
    files = {path.name for folder in (KERNELS, FUNCTION_KERNELS) for path in folder.glob("*.cu")}
    assert files == {kernel.file for kernel in kernels(all_sources()).values()}
    assert len(files) > 30


def test_every_kernel_runs_with_every_mask_that_it_reads(launched: Pairs) -> None:
    assert wanted(all_sources()) - launched == set(), "give these a case in stress_cases.py"
    assert len(launched) > 100


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ('extern "C" __global__ void planted(float* x) { x[0] = 1.0f; }', {("planted", 0)}),
        ("MAP(planted, planted_function)", {("planted", 0)}),
        (
            '#include "variants.cuh"\nextern "C" __global__ void __launch_bounds__(64) planted(\n'
            "    float* x, int variants) { x[0] = inverse_root(x[1], variants); }",
            {("planted", 0), ("planted", 1)},
        ),
    ],
)
def test_red_a_kernel_without_a_case(launched: Pairs, text: str, missing: Pairs) -> None:
    assert wanted({**all_sources(), "planted.cu": text}) - launched == missing


def test_red_a_variant_without_a_case(launched: Pairs) -> None:
    """A kernel that begins to read one more variant needs cases for it."""
    sources = all_sources()
    old = "  const float ffn = ranks_sum("
    assert sources["combine.cu"].count(old) == 1
    new = f"  if (variants & FMA) return;\n{old}"
    sources["combine.cu"] = sources["combine.cu"].replace(old, new)
    assert wanted(sources) - launched == {("combine", 1 << 2), ("combine", 1 << 2 | 1 << 11)}


@pytest.mark.parametrize("group", [group for group in CASES if CASES[group][0].rows])
def test_every_op_has_one_two_and_three_rows(group: str) -> None:
    assert {case.rows for case in CASES[group]} >= set(ROWS)


def test_which_ops_have_no_rows() -> None:
    """Ops whose launch takes one row; every other one is in the test above."""
    assert {op for op in OPS if not CASES[op][0].rows} == WITHOUT_ROWS
    many = {op for op in OPS if max(case.rows for case in CASES[op]) > 32}
    assert many >= {"q4_matvec", "f32_matvec"}


# --- the checks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", CASES)
def test_orders_and_poison_change_no_bit(module: EmuModule, group: str) -> None:
    assert [report for case in CASES[group] for report in stress.reports(module, case)] == []


@pytest.mark.parametrize("mode", SANITIZERS)
@pytest.mark.parametrize("group", CASES)
def test_sanitizers_say_nothing(builds: Builds, module: EmuModule, group: str, mode: str) -> None:
    """And the bits are those of the build that the engine has."""
    found = builds.sanitized(mode, stress.stress_sources(), list(CASES))[group]
    assert found["reports"] == []
    assert found["digests"] == stress.digests(module, CASES[group])
    assert len(found["digests"]) == len(CASES[group])
