"""Elementary functions over float32, and who implements them.

An implementation is found by what the user types: the name of an installed one (entry-point group
``parity.functions``), ``module:function`` for a function of the user's own, or ``LIBRARY:SYMBOL``
for a ``float f(float)`` of a shared library.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from parity.elementary.foreign import ForeignFunction
from parity.elementary.tally import PairSource
from parity.errors import InputError, ParityBug
from parity.registry import FUNCTION_GROUP, find, plugins

FUNCTIONS = ("expf", "cosf", "sinf", "logf", "rsqrt", "sigmoid", "silu", "softplus")

# The installed implementation that calls a symbol of a shared library: it needs the symbol's name,
# so it is no name that a user types.
SYMBOL = "symbol"

Floats = npt.NDArray[np.float32]

_REQUIRED = ("name", "functions", "describe", "evaluate")
_LIBRARY = re.compile(r".+\.(?:so|dylib|dll)(?:\.[\d.]+)?:[A-Za-z_]\w*", re.ASCII)
_FOREIGN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)


class Implementation(Protocol):
    """One way to compute elementary functions. ``functions``: those of FUNCTIONS that it offers."""

    @property
    def name(self) -> str:
        """What a user types for it."""
        ...

    @property
    def functions(self) -> tuple[str, ...]:
        """The members of FUNCTIONS that ``evaluate`` takes."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Library, version, and whatever else decides the bits, label to text."""
        ...

    def evaluate(self, function: str, x: Floats) -> Floats:
        """``function`` of every element of x, (n,) float32, as a new array of x's shape.

        x may be a strided view, is not written, and reaches the implementation bit for bit: NaN
        payloads and subnormals included. ``function`` is one of ``functions``.
        """
        ...


@runtime_checkable
class ResidentImplementation(Implementation, Protocol):
    """One whose arguments and results can stay where they are computed, a GPU's memory.

    ``backend``: where that is; two implementations that hold the same object (``is``) share it.
    Its buffers are made by ``backend.empty`` and are float32 here.
    """

    backend: Any

    def evaluate_into(self, function: str, out: Any, x: Any) -> None:
        """``function`` of the n floats of buffer x, into buffer ``out`` of n floats; no wait."""
        ...

    def pair_source(self, function: str, dut: ResidentImplementation, bounded: bool) -> PairSource:
        """Pairs with ``dut``, which shares the backend, made and counted where they lie.

        ``bounded``: count results beyond 1 in size as well.
        """
        ...


def implementation_names() -> list[str]:
    """The names of all installed implementations, whether or not they can run here."""
    return [name for name in plugins(FUNCTION_GROUP) if name != SYMBOL]


def open_implementation(spec: str) -> Implementation:
    """The implementation that ``spec`` names, ready to run.

    Raises InputError for a name, module, library or symbol that does not exist, NotRunError for
    one that this machine cannot run.
    """
    if _LIBRARY.fullmatch(spec):
        return _made(SYMBOL, spec)
    if _FOREIGN.fullmatch(spec):
        return ForeignFunction(spec, FUNCTIONS)
    if spec == SYMBOL or ":" in spec or "/" in spec:
        raise InputError(
            f"implementation {spec!r} is no name, module:function or LIBRARY.so:SYMBOL",
            f"installed: {', '.join(implementation_names())}",
        )
    _require_known(spec)
    return _made(spec)


def require_function(implementation: Implementation, function: str) -> None:
    """InputError when ``implementation`` does not offer ``function``."""
    if function not in implementation.functions:
        raise InputError(
            f"implementation {implementation.name} does not offer {function!r}",
            f"it offers: {', '.join(implementation.functions)}",
        )


def _require_known(name: str) -> None:
    """The message of the registry, without the name that nobody can type."""
    names = implementation_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"no implementation {name!r}", f"{hint}installed: {', '.join(names) or 'none'}"
        )


def _made(name: str, *arguments: str) -> Implementation:
    plugin = find(FUNCTION_GROUP, name)
    made = plugin.load()(*arguments)
    missing = next((member for member in _REQUIRED if not hasattr(made, member)), "")
    if missing:
        raise ParityBug(f"{plugin.distribution}: implementation {name} lacks {missing}")
    return made  # type: ignore[no-any-return]
