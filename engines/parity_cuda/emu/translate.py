"""CUDA texts to C++ units for cuda_emu.h: shared memory, and the tables of kernels.

Two things need rewriting: a ``__shared__`` declaration becomes a reference into the memory of the
running block, and each unit ends with a table of its ``__global__`` functions. What is not
understood is refused by file and line, never guessed. Line numbers stay as they are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count

from parity.errors import InputError

_IGNORED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'",  # not after a digit: 1'000 is a number
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(ifdef|ifndef|if|elif|else|endif)\b(.*)$", re.MULTILINE)
_FOR_EMU = re.compile(r"ifdef\s+__CUDA_EMU__\s*|if\s+defined\s*\(?\s*__CUDA_EMU__\s*\)?\s*")
_NOT_FOR_EMU = re.compile(
    r"ifndef\s+__CUDA_EMU__\s*|if\s*!\s*defined\s*\(?\s*__CUDA_EMU__\s*\)?\s*|if\s+0\s*"
)
_NAME = r"[A-Za-z_]\w*"
_TYPE_WORD = rf"{_NAME}(?:\s*::\s*{_NAME}|\s*<[\w\s,:*+()-]*>)*"
_ALIGN = r"(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?"
_DECLARATOR = rf"{_NAME}\s*(?:\[[^\[\]]*\]\s*)*"
# A whole declaration without its semicolon, after directives that may stand before it.
_SHARED = re.compile(
    rf"(?P<before>\s*(?:#[^\n]*\n\s*)*)(?P<extern>extern\s+)?(?:static\s+)?{_ALIGN}__shared__\s+{_ALIGN}"
    rf"(?P<type>(?:{_TYPE_WORD}\s+)+)(?P<names>{_DECLARATOR}(?:,\s*{_DECLARATOR})*)"
)
_BOUNDS = r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_KERNEL = re.compile(rf"__global__\s+{_BOUNDS}void\s+{_BOUNDS}({_NAME})\s*\(")
_NO_FUNCTION = re.compile(r"\b(?:namespace|struct|class|union|enum)\b[^()]*$|\bextern\s*$")

_SHARED_FORMS = "write `__shared__ T name[N];` or `extern __shared__ T name[];` inside the function"
_PTX_FORM = "put it under `#ifndef __CUDA_EMU__`, beside C++ that gives the same bits"
_KERNEL_FORM = 'write `extern "C" __global__ void name(...)`, neither a template nor in a macro'


@dataclass(frozen=True)
class Unit:
    """One translation unit: its text, and the headers that it includes, by name."""

    text: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Translation:
    """``units``: one of each ``.cu``, by its name, and the ``main`` one that leads to the tables of
    all of them; what they were made from and offer."""

    units: dict[str, Unit]
    main: Unit
    files: tuple[str, ...]
    kernels: tuple[str, ...]


def translate(sources: Mapping[str, str]) -> Translation:
    """Turn CUDA texts by file name (``.cu``, ``.cuh``) into one unit a ``.cu``, in name order.

    Raises InputError where a shared array or a kernel is declared in a way not understood, for
    inline PTX outside ``#ifndef __CUDA_EMU__``, for two kernels of one name, and where the texts
    hold no kernel at all.
    """
    kernels: dict[str, dict[str, int]] = {}
    parts: dict[str, str] = {}
    for name in sorted(sources):
        code = _visible(sources[name])
        _refuse_ptx(name, code)
        kernels[name] = dict(_kernels(name, code))
        parts[name] = _numbered(name, _place_shared(name, sources[name], code))
    units: dict[str, Unit] = {}
    tables: list[tuple[str, int]] = []
    offered: dict[str, str] = {}
    for name in sorted(sources):
        if name.endswith(".cuh"):
            continue
        reached = _reached(sources, name)
        own: dict[str, tuple[str, int]] = {}
        for file in sorted(reached):  # a kernel of a header belongs to the first unit that has it
            own |= {each: (file, line) for each, line in kernels[file].items()}
        own = {each: place for each, place in own.items() if offered.get(each) != place[0]}
        _refuse_twins(own, offered)
        headers = {file: parts[file] for file in sorted(reached - {name})}
        units[name] = Unit(_unit(name, parts[name], own), headers)
        tables += [(_table_name(name), len(own))]
        offered |= {each: file for each, (file, _) in own.items()}
    if not offered:
        raise InputError(f"no __global__ function in {', '.join(sorted(sources))}", _KERNEL_FORM)
    return Translation(units, Unit(_main(tables), {}), tuple(parts), tuple(offered))


def _refuse_twins(own: Mapping[str, tuple[str, int]], offered: Mapping[str, str]) -> None:
    """A device has one kernel of a name in a module."""
    for kernel, (file, line) in own.items():
        if kernel in offered:
            raise InputError(
                f"{file}:{line}: a second kernel called {kernel}; {offered[kernel]} has one",
                "give one of them another name",
            )


def _reached(sources: Mapping[str, str], first: str) -> set[str]:
    """A ``.cu`` file and what it includes."""
    reached: set[str] = set()
    left = [first]
    while left:
        name = left.pop()
        reached.add(name)
        included = _INCLUDE.findall(sources[name])
        left += [each for each in included if each in sources and each not in reached]
    return reached


def _numbered(name: str, text: str, line: int = 1) -> str:
    """Make the compiler speak of this file and its lines."""
    return f'#line {line} "{name}"\n{text}\n'


def _unit(name: str, text: str, kernels: Mapping[str, tuple[str, int]]) -> str:
    """A file's unit. Its functions are its own, so that two units may include one header; each row
    of its table counts as the line that declares the kernel."""
    rows = (_numbered(file, f"EMU_KERNEL({each}),", line) for each, (file, line) in kernels.items())
    table = f"EMU_HIDDEN const emu::Kernel {_table_name(name)}[] = {{\n" + "".join(rows)
    body = f"namespace {{\n{text}}}  // namespace\n"
    return f'#include "cuda_emu.h"\n{body}{table}{{nullptr, nullptr, nullptr, 0}}}};\n'


def _table_name(name: str) -> str:
    """Of the file alone: a unit is the same whatever other files stand beside it."""
    return f"emu_table_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _main(tables: Sequence[tuple[str, int]]) -> str:
    """The unit with the array that launch.py reads, and what it calls."""
    declared = "".join(f"EMU_HIDDEN const emu::Kernel {name}[];\n" for name, _ in tables)
    rows = "".join(f"&{name}[{i}],\n" for name, number in tables for i in range(number))
    array = f"EMU_EXPORT const emu::Kernel* const emu_kernels[] = {{\n{rows}nullptr}};\n"
    return f'#define EMU_MAIN 1\n#include "cuda_emu.h"\n{declared}{array}'


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _visible(text: str) -> str:
    """Blank out comments, literals and what only the device sees; positions stay the same."""
    code = _IGNORED.sub(_blank, text)
    for start, end in reversed(list(_device_only(code))):
        code = code[:start] + re.sub(r"[^\n]", " ", code[start:end]) + code[end:]
    return code


class _Branch(Enum):
    UNKNOWN = 0  # the condition is not about the emulator
    LIVE = 1
    DEAD = 2
    OVER = 3  # dead, and so is every later branch of this #if

    def after(self, word: str) -> _Branch:
        """Return the state of the branch that ``else`` or ``elif`` opens."""
        if self in (_Branch.LIVE, _Branch.OVER):
            return _Branch.OVER
        return _Branch.LIVE if self is _Branch.DEAD and word == "else" else _Branch.UNKNOWN


def _device_only(code: str) -> Iterator[tuple[int, int]]:
    """Yield the spans that ``__CUDA_EMU__`` hides from the emulator."""
    branches: list[_Branch] = []
    start = 0
    for match in _DIRECTIVE.finditer(code):
        if _hidden(branches):
            yield start, match.start()
        start = match.end()
        word = match[1]
        if word.startswith("if"):
            branches.append(_branch(word + match[2]))
        elif branches and word == "endif":
            branches.pop()
        elif branches:
            branches[-1] = branches[-1].after(word)


def _hidden(branches: list[_Branch]) -> bool:
    return _Branch.DEAD in branches or _Branch.OVER in branches


def _branch(condition: str) -> _Branch:
    if _FOR_EMU.fullmatch(condition):
        return _Branch.LIVE
    return _Branch.DEAD if _NOT_FOR_EMU.fullmatch(condition) else _Branch.UNKNOWN


def _line(code: str, position: int) -> int:
    return code.count("\n", 0, position) + 1


def _refusal(name: str, code: str, position: int, what: str, next_step: str) -> InputError:
    shown = code[position:].split("\n", 1)[0].strip()
    return InputError(f"{name}:{_line(code, position)}: {what}: {shown}", next_step)


def _refuse_ptx(name: str, code: str) -> None:
    if found := re.search(r"\b(?:asm|__asm__|__asm)\b", code):
        what = "inline PTX does not run on a CPU"
        raise _refusal(name, code, found.start(), what, _PTX_FORM)


def _kernels(name: str, code: str) -> Iterator[tuple[str, int]]:
    for token in re.finditer(r"\b__global__\b", code):
        before = code[: token.start()]
        match = _KERNEL.match(code, token.start())
        start = _statement_start(code, token.start())
        in_macro = re.search(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\Z", before, re.MULTILINE)
        if match is None or in_macro or re.search(r"\btemplate\b", before[start:]):
            what = "this declaration of a kernel is not understood"
            raise _refusal(name, code, token.start(), what, _KERNEL_FORM)
        yield match[1], _line(code, token.start())


def _inside_function(code: str, position: int) -> bool:
    opened: list[bool] = []
    last = 0
    for mark in re.finditer(r"[{};]", code[:position]):
        if mark[0] == "{":
            opened.append(not _NO_FUNCTION.search(code[last : mark.start()]))
        elif mark[0] == "}" and opened:
            opened.pop()
        last = mark.end()
    return any(opened)


def _place_shared(name: str, text: str, code: str) -> str:
    """Rewrite every ``__shared__`` declaration of ``text``; ``code`` is its visible form."""
    numbers = count()  # two arrays of one function never share memory
    # From the last one to the first: the positions before it stay valid.
    for token in reversed(list(re.finditer(r"\b__shared__\b", code))):
        start, end = _statement_start(code, token.start()), code.find(";", token.end())
        match = _SHARED.fullmatch(code, start, end) if end > 0 else None
        statement = _shared_statement(match, numbers) if match else None
        if match is None or statement is None or not _inside_function(code, start):
            what = "this declaration of shared memory is not understood"
            raise _refusal(name, code, token.start(), what, _SHARED_FORMS)
        start = match.end("before")
        newlines = "\n" * code.count("\n", start, end)
        text = text[:start] + statement + newlines + text[end + 1 :]
    return text


def _statement_start(code: str, position: int) -> int:
    return max(code.rfind(mark, 0, position) for mark in ";{}") + 1


def _shared_statement(match: re.Match[str], numbers: Iterator[int]) -> str | None:
    """Return the C++ statement for one declaration; None where it is not understood."""
    kind, names = match["type"].strip(), re.findall(_DECLARATOR, match["names"])
    alignments = re.findall(r"(?:__align__|alignas)\s*\(([^()]*)\)", match[0])
    checks = "".join(f"EMU_SHARED_ALIGNMENT({value}) " for value in alignments)
    unsized = re.compile(rf"({_NAME})\s*\[\s*\]\s*")
    if match["extern"]:
        lone = unsized.fullmatch(match["names"])
        return checks + _dynamic(kind, lone[1]) if lone else None
    if any(unsized.match(each) for each in names):
        return None
    return checks + " ".join(_static(kind, each, next(numbers)) for each in names)


def _dynamic(kind: str, name: str) -> str:
    return f"{kind}* {name} = emu::shared_dynamic<{kind}>(EMU_SITE);"


def _static(kind: str, declarator: str, number: int) -> str:
    """Refer to a slot; its tag is a local type, so that template instances have one each."""
    name = declarator.split("[")[0].strip()
    dimensions = declarator.strip()[len(name) :].strip()
    tag, array = f"emu_slot_{number}", f"emu_array_{number}"
    return (
        f"struct {tag} {{}}; typedef {kind} {array}{dimensions}; "
        f"auto& {name} = emu::shared_static<{tag}, {array}>();"
    )
