"""No real compiler contracts, flushes or approximates in the exact tier, on any architecture."""

from __future__ import annotations

import pytest

from parity_cuda import nvrtc
from parity_cuda.sources import kernel_sources
from tests.engines.cuda import ptx
from tests.engines.needed import lack

WRITTEN = ptx.written_fmas(kernel_sources())
SUM = "out[j] = __fadd_rn(a[j], b[j]);"
# What nvcc and NVRTC make of this kernel's one statement, by flags.
RED = [
    ("a product and a sum", "out[j] = a[j] * b[j] + a[j];", "-fmad=false", "-fmad=true",
     "add: fma.rn.f32 contracts"),
    ("a float64 product and sum", "out[j] = (float)((double)a[j] * b[j] + (double)a[j]);",
     "-fmad=false", "-fmad=true", "add: fma.rn.f64 contracts"),
    ("a fast exponential", "out[j] = __expf(a[j]);", "", "", "ex2.approx.f32 is not correctly"),
    ("a plain quotient", "out[j] = a[j] / b[j];", "-prec-div=true", "-prec-div=false",
     "f32 is not correctly rounded"),
    ("a plain root", "out[j] = sqrtf(a[j]);", "-prec-sqrt=true", "-prec-sqrt=false",
     "add: sqrt.approx.f32 is not correctly rounded"),
    ("a plain sum", "out[j] = a[j] + b[j];", "-ftz=false", "-ftz=true", "flushes subnormals"),
    ("a library sine", "out[j] = sinf(a[j]);", "", "", "add: fma.rn.f32 contracts"),
]  # fmt: skip


@pytest.fixture(params=list(ptx.COMPILERS))
def compiled(request: pytest.FixtureRequest) -> ptx.Compile:
    """One of the compilers, or a skip that says which is missing; NVRTC may not be in CI."""
    if reason := ptx.missing(request.param):
        pytest.skip(reason) if request.param == "nvcc" else lack(reason)
    return ptx.COMPILERS[request.param]


@pytest.mark.parametrize("arch", ptx.ARCHITECTURES)
def test_kernels_keep_the_contract(compiled: ptx.Compile, arch: str) -> None:
    text = compiled(ptx.exact_tier(kernel_sources()), arch, nvrtc.FLAGS)
    assert f".target {arch}" in text
    assert ptx.faults(text, *WRITTEN) == []
    found = ptx.instructions(text)
    assert set(found) >= {"rmsnorm", "attention_int8", "router_topk", "map_logf", "digest"}
    with_fma64 = {kernel for kernel, names in found.items() if "fma.rn.f64" in names}
    # Their text is shared with a kernel that has one.
    without = {"attention_f32_scores", "attention_int8_scores", "q4_matvec"}
    assert with_fma64 == WRITTEN[0] - without
    assert {kernel for kernel, names in found.items() if "fma.rn.f32" in names} == WRITTEN[1]
    assert "div.rn.f32" in found["rmsnorm"]
    assert "sqrt.rn.f32" in found["rmsnorm"]


def test_which_kernels_have_an_fma_written() -> None:
    with_fma64, with_fma32 = WRITTEN
    assert with_fma64 >= {"attention_int8", "rope", "router_topk", "swiglu", "map_expf"}
    assert not with_fma64 & {"rmsnorm", "headnorm", "f32_matvec", "quant8", "map_logf"}
    assert with_fma32 >= {"map_logf", "map_softplus", "q4_matvec", "fused_project"}
    assert not with_fma32 & {"attention_int8", "rope", "rmsnorm", "map_expf", "map_silu"}


def test_only_the_selftest_depends_on_a_flag(compiled: ptx.Compile) -> None:
    """Every op is written in rounded operations; the self-test is not, on purpose."""
    flags = [flag for flag in nvrtc.FLAGS if not flag.startswith("-fmad")]
    sources = ptx.exact_tier(kernel_sources())
    text = compiled(sources, "sm_90", [*flags, "-fmad=true"])
    found = ptx.faults(text, *WRITTEN)
    assert found
    assert {text.split(":")[0] for text in found} == {"selftest"}
    assert "selftest: fma.rn.f32 contracts" in found
    # Where one is written, no other is made.
    kept = fmas(compiled(sources, "sm_90", [*flags, "-fmad=false"]))
    assert {name for name, number in fmas(text).items() if number != kept[name]} == {"selftest"}


def fmas(text: str) -> dict[str, int]:
    """How many fused products each kernel holds."""
    found = ptx.instructions(text).items()
    return {kernel: sum(name.startswith("fma.") for name in names) for kernel, names in found}


@pytest.mark.parametrize(("statement", "flag", "wrong", "said"), [row[1:] for row in RED],
                         ids=[row[0] for row in RED])  # fmt: skip
def test_red(compiled: ptx.Compile, statement: str, flag: str, wrong: str, said: str) -> None:
    text = kernel_sources()["add.cu"]
    assert text.count(SUM) == 1
    sources = {"add.cu": text.replace(SUM, statement)}
    flags = [wrong if kept == flag else kept for kept in nvrtc.FLAGS]
    assert (flags != list(nvrtc.FLAGS)) == bool(flag)
    found = ptx.faults(compiled(sources, "sm_90", flags))
    assert any(said in text for text in found), found
    if flag:
        assert ptx.faults(compiled(sources, "sm_90", nvrtc.FLAGS)) == []


def test_variants_are_seen_where_they_are_not_fixed(compiled: ptx.Compile) -> None:
    """What the exact tier must not hold is really there in the kernels as they ship."""
    sources = kernel_sources()
    fixed = ptx.exact_tier(sources)
    takes = {name for name in sources if name.endswith(".cu") and "int variants" in sources[name]}
    assert {name for name in sources if fixed[name] != sources[name]} == takes
    assert len(takes) > 20
    found = ptx.faults(compiled(sources, "sm_90", nvrtc.FLAGS), *WRITTEN)
    for kernel, fault in (
        ("rmsnorm", "rsqrt.approx.f32 is not correctly rounded"),
        ("f32_matvec", "fma.rn.f32 contracts"),
        ("swiglu", "fma.rn.f32 contracts"),
    ):
        assert f"{kernel}: {fault}" in found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("add.f32 \t%f3, %f1, %f2;", "add.f32 names no rounding"),
        ("@%p1 add.ftz.f32 \t%f3, %f1, %f2;", "add.ftz.f32 flushes subnormals"),
        ("fma.rz.f64 \t%fd3, %fd1, %fd2, %fd0;", "fma.rz.f64 does not round to nearest"),
        ("rsqrt.approx.f32 \t%f3, %f1;", "rsqrt.approx.f32 is not correctly rounded"),
        ("fma.rn.f32 \t%f3, %f1, %f2, %f4;", "fma.rn.f32 contracts"),
        ("fma.rn.f64 \t%fd3, %fd1, %fd2, %fd4;", "fma.rn.f64 contracts"),
    ],
)
def test_red_one_instruction(line: str, said: str) -> None:
    text = f".visible .entry planted(\n\t.param .u64 p\n)\n{{\n\tmov.u32 \t%r1, 1;\n\t{line}\n}}\n"
    assert ptx.faults(text) == [f"planted: {said}"]
    allowed = text.replace(line, "fma.rn.f64 \t%fd3;")
    assert ptx.faults(allowed, fma64={"planted"}) == []
    assert ptx.faults(allowed, fma32={"planted"}) == ["planted: fma.rn.f64 contracts"]
