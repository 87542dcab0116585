"""Shared memory and kernels in CUDA texts: what is understood, what is refused and where."""

import re

import numpy as np
import pytest

from parity.errors import InputError
from parity_cuda.emu import EmuModule, build_module
from parity_cuda.emu.translate import translate
from tests.engines.emu.reference import ASCENDING


def kernel(body: str, head: str = "") -> str:
    return f'{head}extern "C" __global__ void k(int* y) {{\n{body}\n}}\n'


def result(body: str, head: str = "", threads: int = 8, shared: int = 0) -> list[int]:
    """What the kernel writes into 8 integers."""
    module = EmuModule(build_module({"a.cu": kernel(body, head)}))
    y = np.full(8, -1, np.int32)
    module.launch("k", (1,), (threads,), (y,), shared_bytes=shared, schedule=ASCENDING)
    return y.tolist()


USE = """
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = s[7 - threadIdx.x] + (int)(sizeof s / sizeof s[0]);"""


@pytest.mark.parametrize(
    "declaration",
    [
        "__shared__ int s[8];",
        "  static __shared__ int s [ 8 ] ;",
        "__shared__ __align__(16) int s[4 * 2];",
        "__align__(128) __shared__ int s[N];",
        "__shared__ alignas(8) volatile int s[8];",
        "__shared__ unsigned int s[8];",
        "__shared__ int other, s[8], more[3][5];",
        "__shared__ int // a comment; with a semicolon\n    s[8];",
        "#ifdef __CUDA_EMU__\n__shared__ int s[8];\n#else\n__shared__ __weird int s[8];\n#endif\n",
        "if (y) { }  __shared__ Pair<int, 8>::array s;",
        "__shared__ int s[sizeof(double)];",
    ],
)
def test_static_declarations(declaration: str) -> None:
    head = "constexpr int N = 8;\ntemplate <class T, int M> struct Pair { typedef T array[M]; };\n"
    assert result(declaration + USE, head) == [15 - i for i in range(8)]


def test_two_dimensions_and_a_scalar() -> None:
    body = """__shared__ int s[8][3], total;
      s[threadIdx.x][2] = 2 * threadIdx.x;
      if (threadIdx.x == 7) total = 100;
      __syncthreads();
      y[threadIdx.x] = s[7 - threadIdx.x][2] + total;"""
    assert result(body) == [114 - 2 * i for i in range(8)]


@pytest.mark.parametrize(
    "declaration",
    ["extern __shared__ int s[];", "extern __shared__ __align__(16) int s [ ];"],
)
def test_dynamic_declarations(declaration: str) -> None:
    body = f"""{declaration}
      s[threadIdx.x] = threadIdx.x;
      __syncthreads();
      y[threadIdx.x] = s[7 - threadIdx.x];"""
    assert result(body, shared=32) == [7 - i for i in range(8)]


def test_arrays_of_all_files_are_apart() -> None:
    """Same names and types in two headers and a file: none may share memory."""
    function = "__device__ int* NAME() { __shared__ int s[8]; return s; }\n"
    sources = {
        "h.cuh": "#pragma once\n" + function.replace("NAME", "of_h"),
        "a.cuh": '#include "h.cuh"\n' + function.replace("NAME", "of_a"),
        "b.cu": '#include "a.cuh"\n'
        + function.replace("NAME", "of_b")
        + kernel("of_h()[0] = 1; of_a()[0] = 2; of_b()[0] = 3; y[0] = 100 * of_h()[0] "
                 "+ 10 * of_a()[0] + of_b()[0];"),
    }  # fmt: skip
    y = np.zeros(1, np.int32)
    EmuModule(build_module(sources)).launch("k", (1,), (1,), (y,), schedule=ASCENDING)
    assert y.tolist() == [123]


SHARED_REFUSED = [
    "__shared__ int s[];",
    "extern __shared__ int s[8];",
    "extern __shared__ int s[], t[];",
    "extern __shared__ int s;",
    "__shared__ int* s;",
    "__shared__ int s[8] = {1};",
    "__shared__ int (&s)[8];",
    "volatile __shared__ int s[8];",
    "__shared__ s[8];",
    "#define DECLARE __shared__ int s[8];\nDECLARE",
    "int x = 0, __shared__ y;",
]


@pytest.mark.parametrize("declaration", SHARED_REFUSED)
def test_other_shared_declarations_are_refused_by_line(declaration: str) -> None:
    text = kernel("\n// __shared__ in a comment counts for nothing\n" + declaration)
    with pytest.raises(InputError, match=r"^a\.cu:4: this declaration of shared memory") as caught:
        translate({"a.cu": text})
    assert "__shared__ T name[N];" in caught.value.next_step


@pytest.mark.parametrize(
    "head",
    [
        "__shared__ int s[8];\n",
        "namespace n {\nextern __shared__ int s[];\n}\n",
        'extern "C" {\n__shared__ int s[8];\n}\n',
        "struct S {\n__shared__ int s[8];\n};\n",
    ],
)
def test_shared_memory_outside_a_function_is_refused(head: str) -> None:
    line = head[: head.index("__shared__")].count("\n") + 1
    with pytest.raises(InputError, match=rf"^a\.cu:{line}: this declaration of shared memory"):
        translate({"a.cu": kernel("y[0] = 1;", head)})


def test_alignment_beyond_what_the_memory_has_is_refused() -> None:
    with pytest.raises(InputError, match=r"^a\.cu:2: .*aligned to 128 bytes at most"):
        build_module({"a.cu": kernel("__shared__ __align__(256) int s[8]; y[0] = s[0];")})


@pytest.mark.parametrize(
    "declaration",
    [
        "template <int N> __global__ void t(int* y) { }",
        "#define KERNEL(name) __global__ void name(int* y)",
        "#define KERNEL(name) \\\n  __global__ void name(int* y)",
        "__global__ int t(int* y) { return 1; }",
        "void __global__ t(int* y) { }",
    ],
)
def test_kernels_that_cannot_be_launched_by_name_are_refused(declaration: str) -> None:
    text = kernel("y[0] = 1;") + declaration + "\n"
    line = 4 + ("\\\n" in declaration)
    with pytest.raises(InputError, match=rf"^a\.cu:{line}: this declaration of a kernel"):
        translate({"a.cu": text})


def test_kernel_declarations_that_are_understood() -> None:
    text = """
    extern "C" __global__ void a(int);
    extern "C" __global__ void __launch_bounds__(256) b(int* y) { }
    extern "C" __global__ __launch_bounds__(f(1), 2) void c(int* y) { }
    extern "C" { __global__ void
    d(int* y) { } }
    // __global__ void e()
    const char* f = "__global__ void f(";
    #ifndef __CUDA_EMU__
    extern "C" __global__ void g(int* y) { asm("x"); }
    #else
    extern "C" __global__ void h(int* y) { }
    #endif
    #if !defined(__CUDA_EMU__)
    __global__ nonsense
    #elif SOMETHING
    extern "C" __global__ void i(int* y) { }
    #endif
    extern "C" __global__ void a(int) { }
    """
    assert translate({"x.cu": text}).kernels == ("a", "b", "c", "d", "h", "i")


@pytest.mark.parametrize("word", ["asm", "asm volatile", "__asm__"])
def test_inline_ptx_is_refused_at_its_line(word: str) -> None:
    ptx = f'{word}("membar.gl;" ::: "memory");'
    with pytest.raises(InputError, match=r"^a\.cu:3: inline PTX does not run on a CPU") as caught:
        translate({"a.cu": kernel(f"// asm\n{ptx}")})
    assert "__CUDA_EMU__" in caught.value.next_step
    guarded = f"#ifndef __CUDA_EMU__\n{ptx}\n#else\ny[threadIdx.x] = 5;\n#endif"
    assert result(guarded) == [5] * 8


def test_texts_without_a_kernel_are_refused() -> None:
    with pytest.raises(InputError, match=r"no __global__ function in a\.cu, b\.cuh"):
        translate({"b.cuh": "", "a.cu": "// __global__ void k()"})


def test_a_kernel_of_a_header_that_nothing_includes_is_in_no_table() -> None:
    header = {"b.cuh": "static __global__ void of_header(int* y) { y[0] = 1; }\n"}
    through = {"c.cuh": '#include "b.cuh"\n', "d.cu": '#include "c.cuh"\n'}
    assert translate({"a.cu": kernel(""), **header}).kernels == ("k",)
    assert translate({"a.cu": kernel(""), **header, **through}).kernels == ("k", "of_header")


def test_two_kernels_of_one_name_are_refused() -> None:
    two = {"a.cu": kernel(""), "b.cu": "// a line\n" + kernel("")}
    with pytest.raises(InputError, match=r"^b\.cu:\d+: a second kernel called k; a\.cu has one"):
        translate(two)


def test_units_that_include_one_header_have_functions_of_their_own() -> None:
    header = "#pragma once\n__device__ int twice(int x) { return 2 * x; }\n"
    header += "static __device__ const int of_header[2] = {3, 4};\n"
    use = '#include "h.cuh"\nextern "C" __global__ void NAME(int* y) { y[0] = WHAT; }\n'
    sources = {
        "h.cuh": header,
        "a.cu": use.replace("NAME", "a").replace("WHAT", "twice(of_header[0])"),
        "b.cu": use.replace("NAME", "b").replace("WHAT", "twice(of_header[1])"),
    }
    module = EmuModule(build_module(sources))
    found = []
    for name in ("a", "b"):
        y = np.zeros(1, np.int32)
        module.launch(name, (1,), (1,), (y,), schedule=ASCENDING)
        found += y.tolist()
    assert found == [6, 8]


def test_lines_stay_where_they_are() -> None:
    text = kernel("__shared__\n int\n s[8];\nint here = __LINE__;\ny[0] = here + s[0];")
    unit = translate({"a.cu": text}).units["a.cu"].text
    shift = unit[: unit.index("#line 1")].count("\n") + 1
    line = next(i for i, each in enumerate(unit.splitlines(), 1) if "int here" in each)
    assert line - shift == 5


def test_raw_strings_and_digit_separators_hide_nothing() -> None:
    text = 'const char* a = R"x(__shared__ ")x"; const int b = 1\'000, c = 2\'000;\n'
    sources = {"a.cu": kernel("__shared__ int s[8]; y[0] = s[0];", text)}
    unit = translate(sources).units["a.cu"].text
    assert len(re.findall("shared_static", unit)) == 1
