"""What a reference op and its kernel must share: read from both texts and held side by side.

A twin is ``ops/<stem>.py`` with ``kernels/<stem>.cu`` (one kernel) or ``<stem>.cuh`` (functions
that kernels include).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

# Files that have no twin, each with its reason.
OPS_ALONE = {
    "digest",  # the tap's hash: integers only; the kernel has jobs instead of arguments
    "elementary_tables",  # constants; tests/engines/cuda/test_elementary_emu.py compares them
}
KERNELS_ALONE = {
    "async_copy",  # how memory is read
    "attention_scores",  # how the scores of both attention ops are shared out
    "attention_tiles",  # the same of what their chains add
    "barriers",  # who waits for whom
    "chain",  # sums that the steps of several ops are made of
    "delta",  # the same of a Gated DeltaNet step
    "norm",  # the same of rmsnorm and norm_tree
    "int16",  # the same of quant16
    "ranks",  # the same of combine and combine_shared
    "topk",  # the same of router_topk
    "route",  # the router's rows of one row of inputs
    "q4_int",  # how the work of one row's chosen experts is shared out
    "experts",  # the same of their gate and up
    "down",  # the same of their down
    "heads",  # the same of headnorm, rope and quant8
    "cos_sin",  # two of elementary at once; tests/engines/cuda/test_elementary_emu.py compares them
    "overlap",  # when a launch begins
    "f32_many",  # sums of f32_matvec for many rows
    "f32_rows",  # how the work of f32_matvec and expert_f32_matvec is shared out
    "q4_rows",  # the same of q4_matvec
    "q4_row",  # the same of q4_matvec for one row
    "row_input",  # how the inputs of q4_row come to it, normed
    "row_plan",  # which rows and columns of q4_row are whose
    "q4_chain",  # chains that q4_row is made of
    "project",  # how the work of fused_project is shared out
    "q4_sums",  # sums that q4_rows is made of
    "shares",  # which part of some work is whose
    "warp",  # as chain
    "digest",  # as above
    "elementary_tables",  # as above
    "map_elementary",  # the elementary functions over an array, for tests
    "map_elements",  # how these do that
    "map_variants",  # and the engine's own, under its variants
    "append_rows",  # moves bytes; the CPU engine assigns slices
    "move_element",  # twin of parity/inject.py
    "selftest",  # wrong on purpose where the build is wrong
}
# Functions of the shared headers that only one side needs.
FUNCTIONS_ALONE = {
    "elementary": {"map_elementary", "ucrt_f64"},
    "q4": {"four_pairs", "four_variant", "four_single", "four_ints"},  # a word of sixteen rows
}
# Many threads share the work, keys in tiles or rows at once: other functions; steps are equal.
OTHER_FUNCTIONS = {"attention", "attention_parts", "q4"}
# Swapped functions of one statement each: nothing to count.
WITHOUT_STEPS = {"variants"}
# Python has no pointer arithmetic: where a kernel gets a moved pointer, the reference gets these.
OFFSETS = ("at", "to")
# What a launch method takes beside the reference's arguments: memory that a kernel cannot make for
# itself, and how far apart rows stand, which an array of the reference knows.
LAUNCH_ONLY = ("scratch", "stride")
# A kernel `fused_<what>` does several ops in one launch, with their functions; its references are
# those ops' kernels: tests/engines/emu/test_fused_steps.py.
FUSED = "fused_"
# A kernel `<stem>_rows` is `<stem>` for many rows in a launch: same reference, same launch method.
ROWS = "_rows"

_STEP = re.compile(r"\s*(?:#|//) (step \d+: .*?)\s*")
_SECTION = r"\d+(?:\.\d+)*"
_CITED = re.compile(rf"\b[Cc]ontract ({_SECTION}(?:(?:,| and) *{_SECTION})*)")
_DEFINED = re.compile(rf"^## ({_SECTION})\.|^\*\*({_SECTION})[ *]", re.MULTILINE)
_FUNCTION = re.compile(
    r'^(?:extern "C" __global__ void(?: __launch_bounds__\(\d+(?:, \d+)?\))?'
    r"|__device__ (?:__forceinline__ )?[\w ]+?) (\w+)\(([^)]*)\)",
    re.MULTILINE,
)
_ADDED = re.compile(r"(?:int|long long) \w+|[\w ]+& \w+|float\* scratch")


@dataclass(frozen=True)
class Side:
    """One text of a twin: sections cited in its head, arguments and steps of each function."""

    cited: set[str]
    arguments: dict[str, list[str]]
    steps: list[tuple[str, str]]
    declared: dict[str, list[str]] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """Steps in order, whatever function they stand in."""
        return [text for _, text in self.steps]


def sections(contract: str) -> set[str]:
    """Numbers of the sections that a contract page has."""
    return {first or second for first, second in _DEFINED.findall(contract)}


def cited(head: str) -> set[str]:
    """Numbers of the sections that a head cites; remarks in parentheses are left out."""
    text = " ".join(head.replace("//", " ").split())
    while (shorter := re.sub(r" ?\([^()]*\)", "", text)) != text:
        text = shorter
    return {number for found in _CITED.findall(text) for number in re.findall(_SECTION, found)}


def read_reference(text: str) -> Side:
    """The Python side."""
    tree = ast.parse(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    starts = [(node.lineno, node.name) for node in functions]
    arguments = {node.name: [arg.arg for arg in node.args.args] for node in functions}
    return Side(cited(ast.get_docstring(tree) or ""), arguments, list(_steps(text, starts)))


def read_kernel(text: str) -> Side:
    """The CUDA side; ``declared`` has each argument as it is declared."""
    lines = takewhile(lambda line: line.startswith("//"), text.splitlines())
    starts, arguments, declared = [], {}, {}
    for found in _FUNCTION.finditer(text):
        name, inside = found.groups()
        starts.append((text.count("\n", 0, found.start()) + 1, name))
        declared[name] = [" ".join(part.split()) for part in inside.split(",") if part.strip()]
        arguments[name] = [re.findall(r"\w+", part)[-1] for part in declared[name]]
    return Side(cited("\n".join(lines)), arguments, list(_steps(text, starts)), declared)


def _steps(text: str, starts: Sequence[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := _STEP.fullmatch(line):
            yield [("", ""), *starts][sum(at <= number for at, _ in starts)][1], found[1]


def problems(
    stem: str,
    ref: Side,
    dut: Side,
    contract: Collection[str],
    launch: Sequence[str] | None = None,
) -> list[str]:
    """Every way in which two texts are no twins. ``launch``: arguments of the launch method of a
    kernel; None for a header."""
    found = [f"{stem}: no contract section {name}" for name in sorted(ref.cited - set(contract))]
    if not ref.cited or ref.cited != dut.cited:
        found.append(f"{stem}: ref cites {sorted(ref.cited)}, dut {sorted(dut.cited)}")
    if launch is None:
        found += _header_problems(stem, ref, dut)
    else:
        found += _launch_problems(stem, ref, dut, launch)
    if stem not in OTHER_FUNCTIONS:
        for name in dut.arguments:
            if (twin := base(name)) in ref.arguments:
                found += _argument_problems(f"{stem}: {name}", ref.arguments[twin], dut, name)
    return [*found, *_step_problems(stem, ref.texts, dut.texts)]


def base(stem: str) -> str:
    """The stem of the reference and of the launch method."""
    return stem.removesuffix(ROWS)


def _header_problems(stem: str, ref: Side, dut: Side) -> list[str]:
    if stem in OTHER_FUNCTIONS:
        return []
    alone = FUNCTIONS_ALONE.get(stem, set())
    sides = [[name for name in side.arguments if name not in alone] for side in (ref, dut)]
    found = [] if sides[0] == sides[1] else [f"{stem}: functions ref {sides[0]}, dut {sides[1]}"]
    if [name for name, _ in ref.steps] != [name for name, _ in dut.steps]:
        found.append(f"{stem}: the steps stand in other functions")
    return found


def _launch_problems(stem: str, ref: Side, dut: Side, launch: Sequence[str]) -> list[str]:
    arguments = ref.arguments.get(base(stem))
    found = [f"{stem}: ref has no {base(stem)}()"] if arguments is None else []
    if stem not in dut.arguments:
        found.append(f"{stem}: dut has no kernel {stem}")
    if [name for name in launch if name not in LAUNCH_ONLY] != arguments:
        found.append(f"{stem}: launched with {list(launch)}, ref has {arguments}")
    return found


def _argument_problems(where: str, ref: Sequence[str], dut: Side, name: str) -> list[str]:
    names, declared = dut.arguments[name], dut.declared[name]
    shared = [arg for arg in ref if arg not in OFFSETS]
    if names[: len(shared)] != shared:
        return [f"{where}: arguments ref {list(ref)}, dut {names}"]
    extra = [text for text in declared[len(shared) :] if not _ADDED.fullmatch(text)]
    return [f"{where}: dut adds {extra[0]}: no size, result or scratch"] if extra else []


def _step_problems(stem: str, ref: Sequence[str], dut: Sequence[str]) -> list[str]:
    if stem in WITHOUT_STEPS:
        return [f"{stem}: steps where none are expected"] if ref or dut else []
    if not ref or not dut:
        return [f"{stem}: no steps in {'ref' if not ref else 'dut'}"]
    if len(ref) != len(dut):
        return [f"{stem}: {len(ref)} steps in ref, {len(dut)} in dut"]
    pairs = zip(ref, dut, strict=True)
    return [f"{stem}: ref '{one}', dut '{other}'" for one, other in pairs if one != other]


def unpaired(ops: Path, kernels: Path) -> list[str]:
    """Files of either folder without a twin that are not listed above, and lists out of date."""
    refs = {path.stem for path in ops.glob("*.py")} - {"__init__"}
    duts = {path.stem for pattern in ("*.cu", "*.cuh") for path in kernels.glob(pattern)}
    found = [f"{stem}.py has no kernel" for stem in sorted(refs - OPS_ALONE - duts)]
    paired = (stem for stem in sorted(duts - KERNELS_ALONE) if not stem.startswith(FUSED))
    alone = (stem for stem in paired if base(stem) not in refs)
    found += [f"{stem}.cu has no reference" for stem in alone]
    gone = sorted((OPS_ALONE - refs) | (KERNELS_ALONE - duts))
    return found + [f"{stem} is listed as alone and is not there" for stem in gone]


def pairs(ops: Path, kernels: Path) -> dict[str, tuple[Path, Path]]:
    """Stem to both files of every twin."""
    found = {}
    for path in sorted([*kernels.glob("*.cu"), *kernels.glob("*.cuh")]):
        if path.stem not in KERNELS_ALONE and not path.stem.startswith(FUSED):
            found[path.stem] = (ops / f"{base(path.stem)}.py", path)
    return found
