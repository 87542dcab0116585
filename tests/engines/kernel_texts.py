"""What the kernels' texts say of each kernel: its file, its arguments, the variants it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from parity.variants import EXCLUSIVE, VARIANTS, variant_mask
from parity_cuda.sources import FUNCTION_KERNELS, HASH, KERNELS

_MACRO = re.compile(r"^MAP\((\w+), (\w+)\)$", re.MULTILINE)
_MAPPED = (
    r'extern "C" __global__ void \1(float* out, const float* x, long long n) '
    r"{ map_elements<\2>(out, x, n); }"
)
_BOUNDS = re.compile(r"__launch_bounds__\([^()]*\)\s*")
_COMMENT = re.compile(r"//[^\n]*|^#define(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_FUNCTION = re.compile(
    r"(?P<kind>__global__|__device__)[^;{}()]*?\b(?P<name>\w+)\s*"
    r"\((?P<parameters>(?:[^()]|\([^()]*\))*)\)"
    r"\s*(?:const\s*)?\{"
)

# One kernel that takes a number from a header, and the same with another number there.
COUNTED = {
    "k.cu": '#include "k.cuh"\nextern "C" __global__ void k(int* y) { y[threadIdx.x] = N; }\n',
    "k.cuh": "constexpr int N = 3;\n",
}
RECOUNTED = {**COUNTED, "k.cuh": "constexpr int N = 4;\n"}


@dataclass(frozen=True)
class Kernel:
    """One ``__global__`` function. ``reads``: names of the variants that its mask can swap in;
    ``calls``: the functions that its text leads to, itself among them. ``fixed``: the variants that
    every one of its masks has, of those in ``family``, for which its file has a kernel each."""

    name: str
    file: str
    parameters: tuple[str, ...]
    reads: frozenset[str]
    calls: frozenset[str]
    fixed: frozenset[str] = frozenset()
    family: frozenset[str] = frozenset()

    def masks(self) -> tuple[int, ...]:
        """The exact tier, and every set of the variants it reads that may stand together; of a
        family those that it is launched with."""
        names = sorted(self.reads)
        sets = [frozenset(c) for n in range(len(names) + 1) for c in combinations(names, n)]
        allowed = [each for each in sets if not any(each.issuperset(pair) for pair in EXCLUSIVE)]
        own = [each for each in allowed if each & self.family == self.fixed]
        return tuple(sorted(variant_mask(each) for each in own))


@dataclass(frozen=True)
class _Function:
    kernel: bool
    parameters: tuple[str, ...]
    body: str


def all_sources() -> dict[str, str]:
    """Every kernel text there is, the engine's, the functions' and the core's, by file name."""
    paths = [
        *HASH,
        *(path for folder in (KERNELS, FUNCTION_KERNELS) for path in folder.glob("*.cu*")),
    ]
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(paths)}
    assert len(texts) == len(paths), "two kernel files share a name"
    return texts


def kernels(sources: Mapping[str, str]) -> dict[str, Kernel]:
    """Every kernel of the .cu files by name; one that stands in the macro MAP counts.

    Those of a .cuh are for engines of other projects: tests/engines/emu/test_header_digest.py.
    """
    found: dict[str, Kernel] = {}
    texts = {file: written_out(text) for file, text in sources.items()}
    shared = dict(each for file, text in texts.items() if file.endswith(".cuh")
                  for each in _functions(text))  # fmt: skip
    for file, text in texts.items():
        here = dict(_functions(text))
        own = shared | here
        for name, function in here.items() if file.endswith(".cu") else ():
            if function.kernel:
                calls: set[str] = set()
                reads = _reads(name, own, calls)
                if "variants" not in function.parameters:
                    reads = frozenset()
                assert name not in found, f"two kernels are named {name}"
                found[name] = Kernel(name, file, function.parameters, reads, frozenset(calls))
    return _families(found)


def _families(found: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernels, told what a name adds to its file's: ``k_fma`` of k.cu has fma in every mask,
    and the others of that file, if they do not say so, in none."""
    fixed = {name: _named(kernel) for name, kernel in found.items()}
    return {
        name: replace(
            kernel, fixed=fixed[name], reads=kernel.reads | fixed[name], family=frozenset().union(
                *(fixed[other] for other in found if found[other].file == kernel.file)))
        for name, kernel in found.items()
    }  # fmt: skip


def _named(kernel: Kernel) -> frozenset[str]:
    stem = kernel.file.partition(".")[0]
    added = kernel.name.removeprefix(stem) if kernel.name.startswith(stem) else ""
    return frozenset(variant for variant in VARIANTS if f"_{variant}_" in f"{added}_")


def bodies(sources: Mapping[str, str]) -> dict[str, str]:
    """The text between the braces of each function, without comments, by its name."""
    return {name: function.body for text in sources.values()
            for name, function in _functions(written_out(text))}  # fmt: skip


def written_out(text: str) -> str:
    """The text with each use of the macro MAP as the kernel that it stands for."""
    return _MACRO.sub(_MAPPED, text)


def _functions(text: str) -> Iterator[tuple[str, _Function]]:
    code = _BOUNDS.sub("", _COMMENT.sub("", text))
    for head in _FUNCTION.finditer(code):
        names = tuple(re.findall(r"(\w+)\s*(?:,|$)", head["parameters"]))
        body = code[head.end() : _end(code, head.end())]
        yield head["name"], _Function(head["kind"] == "__global__", names, body)


def _end(code: str, at: int) -> int:
    """Where the brace closes that was opened just before ``at``."""
    depth = 1
    for mark in re.finditer(r"[{}]", code[at:]):
        depth += 1 if mark[0] == "{" else -1
        if depth == 0:
            return at + mark.start()
    raise AssertionError("a function does not end")


def _reads(name: str, functions: Mapping[str, _Function], seen: set[str]) -> frozenset[str]:
    """Variants named in a function's body, or in that of one that it names."""
    seen.add(name)
    words = set(re.findall(r"\w+", functions[name].body))
    found = {variant for variant in VARIANTS if variant.upper() in words}
    for called in sorted(words & set(functions)):
        if called not in seen:
            found |= _reads(called, functions, seen)
    return frozenset(found)
