"""CUDA texts to one C++ unit for cuda_emu.h: shared memory, and the table of kernels.

Two things need rewriting: a ``__shared__`` declaration becomes a reference into the memory of the
running block, and the unit ends with a table of its ``__global__`` functions. What is not
understood is refused by file and line, never guessed. Line numbers stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
    """One translation unit: its text, the headers beside it, what it was made from and offers."""

    text: str
    headers: dict[str, str]
    files: tuple[str, ...]
    kernels: tuple[str, ...]


def translate(sources: Mapping[str, str]) -> Unit:
    """Turn CUDA texts by file name (``.cu``, ``.cuh``) into one unit, ``.cu`` in name order.

    Raises InputError where a shared array or a kernel is declared in a way not understood, for
    inline PTX outside ``#ifndef __CUDA_EMU__``, and where the texts hold no kernel at all.
    """
    reached = _reached(sources)
    numbers = count()  # over all files: two arrays of one unit never share memory
    kernels: dict[str, tuple[str, int]] = {}
    parts: dict[str, str] = {}
    for name in sorted(sources):
        code = _visible(sources[name])
        _refuse_ptx(name, code)
        if name in reached:
            kernels |= {kernel: (name, line) for kernel, line in _kernels(name, code)}
        parts[name] = _numbered(name, _place_shared(name, sources[name], code, numbers))
    if not kernels:
        raise InputError(f"no __global__ function in {', '.join(sorted(sources))}", _KERNEL_FORM)
    headers = {name: text for name, text in parts.items() if name.endswith(".cuh")}
    units = [text for name, text in parts.items() if name not in headers]
    text = '#include "cuda_emu.h"\n' + "".join(units) + _table(kernels)
    return Unit(text, headers, tuple(parts), tuple(kernels))


def _reached(sources: Mapping[str, str]) -> set[str]:
    """The ``.cu`` files and what they include: a header that none does is in no unit."""
    reached: set[str] = set()
    left = [name for name in sources if not name.endswith(".cuh")]
    while left:
        name = left.pop()
        reached.add(name)
        included = _INCLUDE.findall(sources[name])
        left += [each for each in included if each in sources and each not in reached]
    return reached


def _numbered(name: str, text: str, line: int = 1) -> str:
    """Make the compiler speak of this file and its lines."""
    return f'#line {line} "{name}"\n{text}\n'


def _table(kernels: Mapping[str, tuple[str, int]]) -> str:
    """Give the array that launch.py reads; each row counts as the line that declares its kernel."""
    rows = (_numbered(file, f"EMU_KERNEL({name}),", line) for name, (file, line) in kernels.items())
    end = "{nullptr, nullptr, nullptr, 0}};\n"
    return 'extern "C" const emu::Kernel emu_kernels[] = {\n' + "".join(rows) + end


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


def _place_shared(name: str, text: str, code: str, numbers: Iterator[int]) -> str:
    """Rewrite every ``__shared__`` declaration of ``text``; ``code`` is its visible form."""
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
