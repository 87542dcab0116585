"""What a function in memory is made of, as a digest: its code and every value that it reads.

A compiler freezes the globals, closed-over values and helpers of a function into its machine code.
This follows them all from the objects that are loaded, whatever lies on disk by now, so that code
kept under such a digest cannot be that of another helper or of another value of a flag.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

LIBRARIES = ("numpy", "numba", "llvmlite")  # told by their versions
Parts = Iterator[bytes]
# Further objects that a value refers to, with what is to be said of it; None for an unknown one.
Expand = Callable[[Any], "tuple[str, tuple[Any, ...]] | None"]


def fingerprint(function: FunctionType, expand: Expand, reads: Reads | None = None) -> str:
    """sha256 (hex) of the code of ``function`` and, through ``expand``, of all that it refers to.

    ``expand`` explains what this module does not know, such as compiled functions; ``reads`` takes
    down every global that was looked at and, as long as none has changed, spares a second look.
    Raises TypeError for a value that nobody can tell: code that depends on it may not be kept.
    """
    return _Walk(expand, Reads() if reads is None else reads).function(function).hex()


class Reads:
    """Globals that functions read, each with the value it had then."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[dict[str, Any], Any, bytes]] = {}
        self.known: dict[FunctionType, bytes] = {}  # digests of functions that were walked

    def add(self, scope: dict[str, Any], name: str) -> None:
        """Take down ``name`` of a module's globals; its first value counts."""
        value = scope[name]
        self._seen.setdefault((id(scope), name), (scope, value, _content(value)))

    def changed(self) -> bool:
        """Whether one of them is another object by now, or an array with other content."""
        return any(
            scope.get(name) is not value or _content(value) != content
            for (_, name), (scope, value, content) in self._seen.items()
        )


def _content(value: Any) -> bytes:
    return value.tobytes() if isinstance(value, np.ndarray) else b""


class _Walk:
    """One walk. A function met inside itself is told by how far out that is; as this depends on
    where a circle was entered, what leads into one is not remembered."""

    def __init__(self, expand: Expand, reads: Reads) -> None:
        self.expand, self.reads = expand, reads
        self.inside: list[FunctionType] = []
        self.circles = 0  # how often several functions were found to call each other

    def function(self, function: FunctionType) -> bytes:
        if function in self.reads.known:
            return self.reads.known[function]
        if function in self.inside:
            out = len(self.inside) - self.inside.index(function)
            self.circles += out > 1
            return _told("again", out)
        before = self.circles
        self.inside.append(function)
        digest = hashlib.sha256(b"".join(self._function(function))).digest()
        self.inside.pop()
        if self.circles == before:
            self.reads.known[function] = digest
        return digest

    def value(self, value: Any) -> Parts:
        expanded = self.expand(value)
        if expanded is not None:
            yield _told("object", expanded[0])
            for part in expanded[1]:
                yield from self.value(part)
        elif isinstance(value, FunctionType):
            yield _told("function", self.function(value))
        elif isinstance(value, tuple | frozenset):
            items = value if isinstance(value, tuple) else sorted(value, key=repr)
            yield _told(type(value).__name__, len(value))
            for item in items:
                yield from self.value(item)
        else:
            yield _plain(value)

    def _function(self, function: FunctionType) -> Parts:
        yield from self._code(function.__code__)
        yield from self.value(function.__defaults__)
        for cell in function.__closure__ or ():
            yield from self.value(cell.cell_contents)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self.reads.add(function.__globals__, name)
                yield _told("global", name)
                yield from self._global(function.__globals__[name], function.__code__)

    def _global(self, value: Any, code: CodeType) -> Parts:
        if not isinstance(value, ModuleType):
            yield from self.value(value)
            return
        yield _told("module", value.__name__)
        if _of_a_library(value.__name__):
            return
        for name in sorted(_names(code)):
            if name in vars(value):
                self.reads.add(vars(value), name)
                yield _told("attribute", name)
                yield from self.value(vars(value)[name])

    def _code(self, code: CodeType) -> Parts:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        yield _told("code", code.co_code, names, code.co_flags, code.co_argcount)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._code(constant)
            else:
                yield from self.value(constant)


def _names(code: CodeType) -> set[str]:
    """Names that a code looks up, its inner functions too."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _plain(value: Any) -> bytes:
    if isinstance(value, float | complex):
        return _told(type(value).__name__, np.array(value).tobytes())
    if value is None or value is ... or isinstance(value, bool | int | str | bytes):
        return _told(type(value).__name__, value)
    if isinstance(value, np.ndarray | np.generic):
        return _told("array", value.dtype.str, value.shape, value.tobytes())
    if type(value).__module__ == "typing":
        return _told("typing", value)
    if callable(value):
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        module = getattr(value, "__module__", None) or "builtins"
        if name and _of_a_library(module):
            return _told("library", module, name)
    raise TypeError(f"nobody can tell what {value!r} is made of")


def _of_a_library(module: str) -> bool:
    """Whether a module is told by the version of Python or of a package that compiles."""
    root = module.partition(".")[0]
    return root in LIBRARIES or root in sys.stdlib_module_names


def _told(*what: Any) -> bytes:
    text = repr(what).encode("utf-8", "backslashreplace")
    return len(text).to_bytes(8, "little") + text
