"""What kernels hold beyond the exact tier: each variant's instructions, each library function's."""

from __future__ import annotations

import pytest

from parity.variants import VARIANTS
from parity_cuda import nvrtc
from parity_cuda.sources import function_sources, kernel_sources
from tests.engines.cuda import ptx
from tests.engines.kernel_texts import all_sources, kernels
from tests.engines.needed import lack

KERNELS = kernels(all_sources())
Table = dict[str, set[str]]

# The device's expf and rsqrtf, by NVRTC 12.9 and 13.5 alike; its exp is written in fma's.
LIBRARY_EXPF = {"ex2.approx.ftz.f32", "fma.rm.f32", "fma.rn.f32"}
RSQRT = {"rsqrt.approx.f32"}
# Contract 5: what a variant may put into a kernel that reads it. The others keep every rounding.
BY_VARIANT: Table = {
    "rsqrt": RSQRT,
    "fma": {"fma.rn.f32"},
    "libm_exp": LIBRARY_EXPF,
    "libm_sincos": {"fma.rn.f32"},
    "exp_via_double": {"fma.rn.f64"},
}
# Contract 4: expf, cosf and sinf of the replica write fma64, its logf fma32.
FMA64, FMA32 = {"fma.rn.f64"}, {"fma.rn.f32"}
FUNCTIONS: Table = {
    "device_map_expf": LIBRARY_EXPF,
    "device_map_cosf": FMA32,
    "device_map_sinf": FMA32,
    "device_map_logf": FMA32,
    "device_map_rsqrt": RSQRT,
    "device_map_sigmoid": LIBRARY_EXPF,
    "device_map_silu": LIBRARY_EXPF,
    "device_map_softplus": LIBRARY_EXPF,
    "fast_map_expf": {"ex2.approx.f32"},
    "fast_map_cosf": {"cos.approx.f32"},
    "fast_map_sinf": {"sin.approx.f32"},
    "fast_map_logf": {"lg2.approx.f32"},
    "fast_map_rsqrt": RSQRT,
    "fast_map_sigmoid": {"ex2.approx.f32", "div.approx.f32"},
    "fast_map_silu": {"ex2.approx.f32", "div.approx.f32"},
    "fast_map_softplus": {"ex2.approx.f32", "lg2.approx.f32"},
    **dict.fromkeys(("map_expf", "map_cosf", "map_sinf", "map_sigmoid", "map_silu"), FMA64),
    "map_logf": FMA32,
    "map_softplus": FMA32 | FMA64,
    "map_rsqrt": set(),
    "map_exp64": FMA64,
    **dict.fromkeys(("double_map_expf", "double_map_sigmoid", "double_map_silu"), FMA64),
    "double_map_softplus": FMA32 | FMA64,
    "tally_inputs": set(),
    "tally_pairs": set(),
    "tally_rows": set(),
}


@pytest.fixture
def compiled() -> ptx.Compile:
    """NVRTC; CI may not be without it."""
    if reason := ptx.missing("nvrtc"):
        lack(reason)
    return ptx.COMPILERS["nvrtc"]


# Instructions that a kernel's text leads to and the kernel never does: its rows are not normed.
UNREACHED = {"q4_matvec": {"rsqrt.approx.f32"}}


def allowed(sources: dict[str, str]) -> Table:
    """What each kernel of the engine holds as it ships: what is written, and what it reads."""
    written = ptx.written_fmas(sources)
    table = {}
    for name, kernel in kernels(sources).items():
        table[name] = set().union(*(BY_VARIANT.get(variant, set()) for variant in kernel.reads))
        table[name] |= FMA64 if name in written[0] else set()
        table[name] |= FMA32 if name in written[1] else set()
        table[name] -= UNREACHED.get(name, set())
    return table


def differing(found: Table, wanted: Table) -> Table:
    """Kernels that are not in both, or hold other instructions: those that are in one alone."""
    names = found.keys() | wanted.keys()
    alone = {
        name: found.get(name, {"no kernel"}) ^ wanted.get(name, {"no entry"}) for name in names
    }
    return {name: words for name, words in alone.items() if words}


@pytest.mark.parametrize("arch", ptx.ARCHITECTURES)
def test_kernels_as_they_ship(compiled: ptx.Compile, arch: str) -> None:
    sources = kernel_sources()
    text = compiled(sources, arch, nvrtc.FLAGS)
    assert f".target {arch}" in text
    assert differing(ptx.inexact(text), allowed(sources)) == {}


@pytest.mark.parametrize("arch", ptx.ARCHITECTURES)
def test_functions(compiled: ptx.Compile, arch: str) -> None:
    text = compiled(function_sources(), arch, nvrtc.FLAGS)
    assert f".target {arch}" in text
    assert differing(ptx.inexact(text), FUNCTIONS) == {}


def test_every_kernel_is_in_a_list() -> None:
    assert set(allowed(kernel_sources())) | set(FUNCTIONS) == set(KERNELS)
    assert set(BY_VARIANT) <= set(VARIANTS)


@pytest.mark.parametrize(
    ("file", "old", "new", "alone"),
    [
        ("combine.cu", "__fadd_rn(ores[at], ffn)", "__fmaf_rn(ores[at], 1.5f, ffn)",
         {"combine": {"fma.rn.f32"}}),
        ("rmsnorm.cu", "eps, variants, d)", "eps, 0, d)", {"rmsnorm": RSQRT}),
        ("headnorm.cu", "normed(x[j], r, w[j])", "__fdividef(normed(x[j], r, w[j]), r)",
         {"headnorm": {"div.approx.f32"}}),
    ],
)  # fmt: skip
def test_red_a_kernel(compiled: ptx.Compile, file: str, old: str, new: str, alone: Table) -> None:
    """One that gained an instruction, one that lost a variant's."""
    sources = {name: text for name, text in kernel_sources().items()
               if name == file or name.endswith(".cuh")}  # fmt: skip
    wanted = allowed(sources)
    assert sources[file].count(old) == 1
    sources[file] = sources[file].replace(old, new)
    assert differing(ptx.inexact(compiled(sources, "sm_90", nvrtc.FLAGS)), wanted) == alone


def test_red_a_function(compiled: ptx.Compile) -> None:
    """The exact library's logf became the fast one."""
    sources = {name: text for name, text in function_sources().items()
               if name == "library.cu" or name.endswith(".cuh")}  # fmt: skip
    old = "device_logf(float x) { return logf(x); }"
    assert sources["library.cu"].count(old) == 1
    sources["library.cu"] = sources["library.cu"].replace(old, old.replace(" logf", " __logf"))
    found = ptx.inexact(compiled(sources, "sm_90", nvrtc.FLAGS))
    wanted = {name: FUNCTIONS[name] for name in found}
    assert differing(found, wanted) == {"device_map_logf": {"lg2.approx.f32", "fma.rn.f32"}}


def test_red_a_kernel_that_no_text_shows(compiled: ptx.Compile) -> None:
    """The compiler's own list of kernels holds one that the tests do not read in the texts."""
    text = '#define K(k) extern "C" __global__ void k(float* x) { x[0] = 1.0f; }\nK(hidden)\n'
    found = ptx.inexact(compiled({"hidden.cu": text}, "sm_90", nvrtc.FLAGS))
    assert differing(found, allowed({"hidden.cu": text})) == {"hidden": {"no entry"}}
