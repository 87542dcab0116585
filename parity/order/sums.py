"""Which op is summed: families of ops found by name, and functions of the user's own.

An op is typed as ``FAMILY.NAME`` (``torch.linear``, ``numpy.sum``, ``cpu.rmsnorm``), its family an
entry point of the group ``parity.sums``, or as ``module:function``. ``@NAME=VALUE`` after it sets
an option of that family: ``torch.linear@row=3``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from parity.errors import InputError, ParityBug
from parity.registry import SUMS, find, plugins

if TYPE_CHECKING:
    from parity.order.op import SummingOp
    from parity.order.tree import Format, Terms

TERMS = ("products", "values", "squares")
DTYPES = ("f32", "bf16", "f16")
ASKED = "asked"  # what the key of an order file says of the shape, as options of the command
LARGEST = 1 << 20  # of K, N and M: beyond it one call no longer fits into memory

_FOREIGN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_NAMED = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_][\w.]*)", re.ASCII)
_REQUIRED = ("names", "make")


class SumFamily(Protocol):
    """Ops of one library. An entry point of ``parity.sums`` names the class; its name is the
    prefix that a user types before the dot."""

    def names(self) -> tuple[str, ...]:
        """Its ops, without the prefix: ``("linear", "mv")``. Imports nothing heavy."""
        ...

    def make(self, name: str, ask: Ask, M: int) -> SummingOp:
        """The op ``name`` (one of ``names()``) at its true shape: sums of ``ask.K`` terms,
        ``ask.N`` outputs, a batch of M rows.

        Raises InputError for what the op does not offer (``refuse_unknown`` for ``ask.settings``),
        and NotRunError where a package or the device is missing.
        """
        ...


@dataclass(frozen=True)
class Ask:
    """What is asked of one op, M apart. ``op``: as typed, options included; ``terms``: typed for a
    function of the user's own, else empty; ``threads``: 0 where not typed."""

    op: str
    K: int
    N: int
    dtype: Format = "f32"
    device: str = "cpu"
    terms: Terms | Literal[""] = ""
    threads: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The op without its options."""
        return self.op.partition("@")[0]

    @property
    def settings(self) -> dict[str, str]:
        """The options, and ``threads`` where ``--threads`` was typed."""
        return {**self.options, **({"threads": str(self.threads)} if self.threads else {})}


@dataclass(frozen=True)
class SumAsk:
    """A sum inside an engine: what it is called there ("k_proj") and the op that it is, as the
    engine itself runs it. The optional method ``sums_of(field, layer, rows)`` of an engine gives
    those behind a field. ``open``: the op for a batch of M rows."""

    what: str
    ask: Ask
    M: int
    open: Callable[[], SummingOp]


def asked_text(ask: Ask, M: int) -> str:
    """The options that open the op again; ``asked_of`` reads them."""
    text = f"--K {ask.K} --N {ask.N} --M {M} --dtype {ask.dtype} --device {ask.device}"
    if ask.terms:
        text += f" --terms {ask.terms}"
    return f"{text} --threads {ask.threads}" if ask.threads else text


def asked_of(op: str, text: str) -> tuple[Ask, int]:
    """The ask and the M of an op and the text of ``asked_text``; InputError for another text."""
    words = text.split()
    given = dict(zip(words[::2], words[1::2], strict=False))
    numbers = {name: given.get(f"--{name}", "0") for name in ("K", "N", "M", "threads")}
    sound = all(one.isascii() and one.isdecimal() and len(one) < 8 for one in numbers.values())
    if not sound or asked_text(made := _ask(op, given, numbers), int(numbers["M"])) != text:
        raise InputError(f"{op}: its shape cannot be read: {text!r}", "write the file again")
    return made, int(numbers["M"])


def _ask(op: str, given: Mapping[str, str], numbers: Mapping[str, str]) -> Ask:
    sizes = {name: int(numbers[name]) for name in ("K", "N", "threads")}
    kinds = {name: given.get(f"--{name}", "") for name in ("dtype", "device", "terms")}
    return Ask(op=op, options=parse_op(op), **sizes, **kinds)  # type: ignore[arg-type]


def parse_op(text: str) -> dict[str, str]:
    """The options of an op as typed; InputError for a malformed one."""
    head, *parts = text.split("@")
    if not (_FOREIGN.fullmatch(head) or _NAMED.fullmatch(head)):
        known = ", ".join(plugins(SUMS)) or "none"
        raise InputError(
            f"op {head!r} is no FAMILY.NAME and no module:function",
            f"write torch.linear or my_module:my_sum; families: {known}",
        )
    options: dict[str, str] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if not name or name in options:
            problem = f"the option {name} stands twice" if name else "an option without a name"
            raise InputError(f"op {text!r}: {problem}", "write @NAME=VALUE, each name once")
        options[name] = value
    return options


def open_op(ask: Ask, M: int) -> SummingOp:
    """The op of ``ask`` for a batch of M rows, ready to be called.

    Raises InputError for a family, name, option, module or function that does not exist, and
    NotRunError for one that this machine cannot run.
    """
    if _FOREIGN.fullmatch(ask.name):
        from parity.order.adapters.foreign import foreign_op

        return foreign_op(ask, M)
    family, name = _family(ask.name)
    if ask.terms:
        raise InputError(
            f"--terms {ask.terms}: {ask.name} is known", "--terms is for a module:function"
        )
    return family.make(name, ask, M)


def refuse_unknown(op: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """InputError for an option that ``op`` does not have."""
    for name in options:
        if name in known:
            continue
        if name == "threads":
            raise InputError(f"{op}: its threads cannot be set", "leave --threads out")
        listed = ", ".join(f"@{one}" for one in known if one != "threads") or "none"
        raise InputError(f"{op} has no option @{name}", f"options: {listed}")


def whole_number(op: str, options: Mapping[str, str], name: str, default: int, least: int) -> int:
    """The value of a whole-number option, at least ``least``; InputError for any other text."""
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and int(text) >= least):
        raise InputError(f"{op}: @{name}={text}: no whole number from {least}", "mend the option")
    return int(text)


def _family(op: str) -> tuple[SumFamily, str]:
    """The family of ``FAMILY.NAME``, checked, and the name."""
    found = _NAMED.fullmatch(op)
    if found is None:
        raise ParityBug(f"{op!r} was not parsed before it was opened")
    prefix, name = found.groups()
    plugin = find(SUMS, prefix)
    made = plugin.load()()
    missing = next((member for member in _REQUIRED if not hasattr(made, member)), "")
    if missing:
        raise ParityBug(f"{plugin.distribution}: sums {prefix} lacks {missing}")
    family: SumFamily = made
    names = family.names()
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {prefix}.{near[0]}? " if near else ""
        listed = ", ".join(f"{prefix}.{one}" for one in names)
        raise InputError(f"no op {op!r}", f"{hint}ops: {listed}")
    return family, name
