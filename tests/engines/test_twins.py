"""Both texts of every op name the same contract section, arguments and steps; breaks are seen."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path

import pytest

import parity_cpu
import parity_cuda
from parity.variants import VARIANTS, variant_mask
from parity_cuda.ops import Ops
from tests.engines import twins

ROOT = Path(__file__).parents[2]
OPS = Path(parity_cpu.__file__).parent / "ops"
KERNELS = Path(parity_cuda.__file__).parent / "kernels"
CONTRACT = twins.sections((ROOT / "docs" / "contract.md").read_text(encoding="utf-8"))
PAIRS = twins.pairs(OPS, KERNELS)
HEADERS = {stem for stem, (_, kernel) in PAIRS.items() if kernel.suffix == ".cuh"}


def texts(stem: str) -> tuple[str, str]:
    ref, dut = PAIRS[stem]
    return ref.read_text(encoding="utf-8"), dut.read_text(encoding="utf-8")


def launch_arguments(stem: str) -> list[str] | None:
    """Arguments of the launch method without self; None for a header, [] where there is none."""
    if stem in HEADERS:
        return None
    method = getattr(Ops, twins.base(stem), None)
    return [] if method is None else list(inspect.signature(method).parameters)[1:]


def problems(stem: str, ref: str, dut: str, launch: list[str] | None = None) -> list[str]:
    sides = twins.read_reference(ref), twins.read_kernel(dut)
    return twins.problems(stem, *sides, CONTRACT, launch or launch_arguments(stem))


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, (old, text.count(old))
    return text.replace(old, new)


def test_contract_sections_are_found() -> None:
    assert {"1.0", "1.1", "1.8", "1.11", "2", "3.2", "4", "8"} <= CONTRACT
    assert "9" not in CONTRACT


def test_every_file_has_its_twin_or_a_reason() -> None:
    assert twins.unpaired(OPS, KERNELS) == []
    assert len(PAIRS) == 37
    assert {"attention", "attention_parts", "elementary", "q4", "tree", "variants"} == HEADERS


@pytest.mark.parametrize("stem", PAIRS)
def test_twins(stem: str) -> None:
    assert problems(stem, *texts(stem)) == []


def test_every_launch_method_has_a_kernel() -> None:
    methods = {name for name, _ in inspect.getmembers(Ops, inspect.isfunction) if name[0] != "_"}
    assert methods == {twins.base(stem) for stem in set(PAIRS) - HEADERS}


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.cu*")), ids=lambda path: path.name)
def test_every_cited_section_exists(path: Path) -> None:
    assert twins.read_kernel(path.read_text(encoding="utf-8")).cited <= CONTRACT


# --- planted breaks -----------------------------------------------------------------------------


@pytest.mark.parametrize("stem", sorted(set(PAIRS) - twins.WITHOUT_STEPS))
def test_red_one_step_text_changed(stem: str) -> None:
    ref, dut = texts(stem)
    step = twins.read_kernel(dut).steps[-1][1]
    at = dut.rindex(step)
    planted = dut[:at] + f"{step}, nearly" + dut[at + len(step) :]
    assert problems(stem, ref, planted) == [f"{stem}: ref '{step}', dut '{step}, nearly'"]


@pytest.mark.parametrize("stem", ["rmsnorm", "attention", "attention_parts", "router_topk", "q4"])
def test_red_two_steps_swapped(stem: str) -> None:
    ref, dut = texts(stem)
    one, two = re.findall(r"// (step \d+: .*)", dut)[:2]
    planted = dut.replace(one, "\0", 1).replace(two, one, 1).replace("\0", two, 1)
    assert problems(stem, ref, planted) == [
        f"{stem}: ref '{one}', dut '{two}'",
        f"{stem}: ref '{two}', dut '{one}'",
    ]


@pytest.mark.parametrize("stem", sorted(set(PAIRS) - HEADERS))
def test_red_first_argument_renamed(stem: str) -> None:
    ref, dut = texts(stem)
    name = twins.read_reference(ref).arguments[twins.base(stem)][0]
    head = rf"void (?:__launch_bounds__\(\d+(?:, \d+)?\) )?{stem}\((?:\w+ )?\w+\* ?"
    planted = re.sub(rf"({head}){name}\b", r"\1renamed", dut)
    (said,) = problems(stem, ref, planted)
    assert said.startswith(f"{stem}: {stem}: arguments ref ['{name}'")
    assert "dut ['renamed'" in said


@pytest.mark.parametrize(
    ("stem", "old", "new", "said"),
    [
        ("rmsnorm", "const float* x, const float* w", "const float* w, const float* x",
         "arguments"),
        ("rmsnorm", "int variants,", "int variants, float more,", "adds float more: no size"),
        ("swiglu", 'void swiglu(', 'void swiglu_row(', "dut has no kernel swiglu"),
        ("tree", "tree_sum(float* x, int n)", "tree_sum(int n, float* x)", "arguments"),
        ("tree", "int power_of_two(", "int next_power(", "functions ref"),
        ("headnorm", "Contract 1.2", "Contract 1.1", "ref cites ['1.2'], dut ['1.1']"),
        ("headnorm", " Contract 1.2.", "", "ref cites ['1.2'], dut []"),
        ("add", "  // step 1: one addition\n", "", "no steps in dut"),
        ("rope", "  // step 3: the rest passes unchanged\n", "", "3 steps in ref, 2 in dut"),
    ],
)  # fmt: skip
def test_red_kernel_text(stem: str, old: str, new: str, said: str) -> None:
    ref, dut = texts(stem)
    found = problems(stem, ref, changed(dut, old, new))
    assert any(said in text for text in found), found


def test_red_section_that_the_contract_lacks() -> None:
    ref, dut = texts("headnorm")
    sides = (
        changed(ref, "Contract 1.2", "Contract 1.99"),
        changed(dut, "Contract 1.2", "Contract 1.99"),
    )
    assert problems("headnorm", *sides) == ["headnorm: no contract section 1.99"]


def test_red_section_gone_from_the_contract() -> None:
    page = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    without = twins.sections(changed(page, "**1.2 Head norm**", "Head norm"))
    sides = twins.read_reference(texts("headnorm")[0]), twins.read_kernel(texts("headnorm")[1])
    launch = launch_arguments("headnorm")
    assert twins.problems("headnorm", *sides, without, launch) == [
        "headnorm: no contract section 1.2"
    ]


def test_red_launch_method_with_other_arguments() -> None:
    (said,) = problems("add", *texts("add"), ["out", "b", "a"])
    assert said == "add: launched with ['out', 'b', 'a'], ref has ['out', 'a', 'b']"


def test_red_step_moved_to_another_function() -> None:
    ref, dut = texts("elementary")
    step = "  // step 1: the product is rounded once more\n"
    before = "  return __fdiv_rn(1.0f, __fadd_rn(1.0f, ucrt_expf(-x)));\n"
    planted = changed(changed(dut, step, ""), before, f"{step}  return (\n")
    assert problems("elementary", ref, planted) == [
        "elementary: the steps stand in other functions"
    ]


def variant_bits(text: str) -> dict[str, int]:
    """Name to bit of every variant that a text defines, Python or CUDA."""
    found = re.findall(r"^(?:#define )?([A-Z_]+) (?:= 1 << |\(1 << )(\d+)", text, re.MULTILINE)
    return {name.lower(): 1 << int(bit) for name, bit in found}


def test_variants_have_one_bit_everywhere() -> None:
    wanted = {name: variant_mask([name]) for name in VARIANTS}
    assert len(wanted) == 15
    for path in (OPS.parent / "variants.py", KERNELS / "variants.cuh"):
        assert variant_bits(path.read_text(encoding="utf-8")) == wanted


def test_red_variant_with_another_bit() -> None:
    text = (KERNELS / "variants.cuh").read_text(encoding="utf-8")
    wanted = {name: variant_mask([name]) for name in VARIANTS}
    assert variant_bits(changed(text, "FOLD_P (1 << 11)", "FOLD_P (1 << 10)")) != wanted
    assert variant_bits(changed(text, "#define FOLD_P (1 << 11)\n", "")) != wanted


def test_red_file_without_twin(tmp_path: Path) -> None:
    ops, kernels = tmp_path / "ops", tmp_path / "kernels"
    shutil.copytree(OPS, ops, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(KERNELS, kernels)
    (ops / "rope.py").unlink()
    (kernels / "add.cu").unlink()
    (kernels / "selftest.cu").unlink()
    assert twins.unpaired(ops, kernels) == [
        "add.py has no kernel",
        "rope.cu has no reference",
        "selftest is listed as alone and is not there",
    ]
