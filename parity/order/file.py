"""Order files: an order as canonical JSON, with the key it holds for and the evidence for it.

The same order and evidence give the same bytes: keys are sorted, numbers are integers, a tree is
written in its one line where that gives it back, else nested. ``check`` is a digest over all the
rest, ``digest`` one over the order alone: a file that was cut or altered is refused by name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parity.errors import InputError
from parity.kinds import misfit
from parity.order.notation import parse, parse_leaves, sequence_text
from parity.order.rows import Rows, plain_rows, rows_of
from parity.order.shapes import expand, form_of_leaves, leaf_count, sequence
from parity.order.tree import Order, Tree
from parity.order.twin import require_known
from parity.order.words import exact_line
from parity.reading import text_of

if TYPE_CHECKING:
    from parity.order.answer import Answer

FORMAT = "parity-order"
VERSION = 1
AGAIN = "write it again: parity order OP --out FILE"
MOST_TERMS = 1 << 20

_NESTED = re.compile(r"\d{1,9}|[()]")


@dataclass(frozen=True)
class Asked:
    """How many of how many contradicted: pairs of a certificate, rows of noise."""

    asked: int
    contradicted: int


@dataclass(frozen=True)
class OrderFile:
    """An order of one op, for one key. ``origin``: where it was found, where that is no run of
    parity; ``certify``: pairs of leaves, ``noise``: rows beside the twin."""

    op: str
    key: dict[str, str]
    order: Order
    probes: int
    calls: int
    certify: Asked
    noise: Asked
    rows: tuple[Rows, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class _Plain:
    """An order as JSON has it. Sets of leaves and nodes are sequences in the tree's notation."""

    n: int
    tree: str
    terms: str
    dtype: str
    out: str
    fma: str
    wide: str
    fused: str
    narrow: str
    bits: int | None
    rounding: str
    stored: str
    post: str
    settings: dict[str, str]
    digest: str


@dataclass(frozen=True)
class _Body:
    """The fields of a file."""

    format: str
    version: int
    op: str
    key: dict[str, str]
    order: dict[str, Any]
    probes: int
    calls: int
    certify: dict[str, int]
    noise: dict[str, int]
    rows: list[dict[str, Any]]
    origin: str
    check: str = field(default="")


# --- writing --------------------------------------------------------------------------------------


def file_of(answer: Answer, op: str, key: dict[str, str], rows: Iterable[Rows] = ()) -> OrderFile:
    """The file of a green answer; InputError for any other, which nobody could replay."""
    if not answer.green or answer.order is None:
        raise InputError(f"{op}: {answer.verdict}", "only a tree is written to an order file")
    certify = answer.certify and Asked(answer.certify.asked, answer.certify.contradicted)
    noise = answer.noise and Asked(answer.noise.rows, answer.noise.unlike)
    return OrderFile(
        *(op, key, answer.order, answer.probes, answer.calls),
        certify or Asked(0, 0),
        noise or Asked(0, 0),
        tuple(rows),
    )


def to_text(found: OrderFile) -> str:
    """The text of an order file."""
    body = _Body(
        format=FORMAT,
        version=VERSION,
        op=found.op,
        key=found.key,
        order=plain_of(found.order),
        probes=found.probes,
        calls=found.calls,
        certify=asdict(found.certify),
        noise=asdict(found.noise),
        rows=[plain_rows(rows, found.order) for rows in found.rows],
        origin=found.origin,
    )
    plain = asdict(body)
    return _text({**plain, "check": _check(plain)})


def plain_of(order: Order) -> dict[str, Any]:
    """An order as plain data; ``order_of`` reads it."""
    return asdict(
        _Plain(
            n=order.tree.n,
            tree=exact_line(order.tree) or order.tree.text(),
            terms=order.terms,
            dtype=order.dtype,
            out=order.out,
            fma=_set_text(order.fma),
            wide=_set_text(order.wide),
            fused=_set_text(order.fused),
            narrow=_set_text(order.narrow),
            bits=order.bits,
            rounding=order.rounding,
            stored=order.stored,
            post=order.post,
            settings=dict(order.settings),
            digest=order.digest(),
        )
    )


def _set_text(members: frozenset[int]) -> str:
    return sequence_text(form_of_leaves(sorted(members)))


def _text(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _check(body: dict[str, Any]) -> str:
    """16 digits over everything else."""
    rest = {name: value for name, value in body.items() if name != "check"}
    return hashlib.sha256(_text(rest).encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- reading --------------------------------------------------------------------------------------


def read_order(path: Path) -> OrderFile:
    """Read an order file; InputError that names the file and what is wrong with it."""
    return from_text(text_of(path, "give an order file of parity", AGAIN), str(path))


def from_text(text: str, source: str) -> OrderFile:
    """The order in the text of a file; ``source`` names it in messages."""
    plain = _parsed(text, source)
    if plain.get("format") != FORMAT:
        raise InputError(f"{source}: no order file: its format is not {FORMAT}", AGAIN)
    if plain.get("version") != VERSION:
        version = repr(plain.get("version"))[:20]
        raise InputError(f"{source}: version {version}, this parity reads {VERSION}", AGAIN)
    body: _Body = _filled(_Body, plain, source)
    if body.check != _check(plain):
        raise _damaged(source, "its check does not fit what it holds")
    order = order_of(body.order, source)
    try:
        rows = tuple(rows_of(one, order) for one in body.rows)
    except ValueError as error:
        raise _damaged(source, f"rows: {error}") from error
    if min(body.probes, body.calls) < 0:
        raise _damaged(source, "probes or calls below 0")
    return OrderFile(
        op=body.op,
        key=body.key,
        order=order,
        probes=body.probes,
        calls=body.calls,
        certify=_asked(body.certify, "certify", source),
        noise=_asked(body.noise, "noise", source),
        rows=rows,
        origin=body.origin,
    )


def order_of(plain: dict[str, Any], where: str) -> Order:
    """The order of plain data; InputError naming ``where`` for what is none."""
    given: _Plain = _filled(_Plain, plain, where)
    if not 1 <= given.n <= MOST_TERMS:
        raise _damaged(where, f"n is {given.n}, not 1 to {MOST_TERMS}")
    try:
        tree = _tree(given)
        # What the texts may be is asked of the made order, so that one place knows it.
        order = Order(
            tree=tree,
            terms=cast(Any, given.terms),
            dtype=cast(Any, given.dtype),
            out=given.out,
            fma=_members(given.fma, 0, tree.n, "fma"),
            wide=_nodes(given.wide, tree, "wide"),
            fused=_nodes(given.fused, tree, "fused"),
            bits=given.bits,
            rounding=cast(Any, given.rounding),
            narrow=_nodes(given.narrow, tree, "narrow"),
            stored=cast(Any, given.stored),
            post=given.post,
            settings=tuple(sorted(given.settings.items())),
        )
        require_known(order)
    except (InputError, ValueError) as error:
        message = error.message if isinstance(error, InputError) else str(error)
        raise _damaged(where, message.removeprefix("order: ")) from error
    if order.digest() != given.digest:
        raise _damaged(
            where, f"its order has the digest {order.digest()}, not {given.digest[:20]!r}"
        )
    return order


def _asked(value: dict[str, int], name: str, source: str) -> Asked:
    found: Asked = _filled(Asked, value, f"{source}: {name}")
    if not 0 <= found.contradicted <= found.asked:
        raise _damaged(source, f"{name}: {found.contradicted} of {found.asked} contradicted")
    return found


def _parsed(text: str, source: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands there twice")
        return found

    def refused(constant: str) -> Any:
        raise ValueError(f"{constant} is no number")

    try:
        found = json.loads(text, object_pairs_hook=unique, parse_constant=refused)
    except (ValueError, RecursionError) as error:
        raise _damaged(source, f"no whole JSON text: {error}") from error
    if not isinstance(found, dict):
        raise _damaged(source, "no JSON object")
    return found


def _filled(kind: Any, plain: dict[str, Any], where: str) -> Any:
    """``kind`` from a JSON object with just its fields, each of its kind."""
    names = {one.name for one in fields(kind)}
    if odd := sorted(names ^ plain.keys()):
        told = "is unknown" if odd[0] in plain else "is missing"
        raise _damaged(where, f"{odd[0][:40]!r} {told}")
    found = kind(**plain)
    wrong = misfit(found, kind)
    if wrong is not None:
        raise _damaged(where, f"{wrong!r} is of another kind")
    return found


def _damaged(source: str, what: str) -> InputError:
    return InputError(f"{source}: damaged: {what}", AGAIN)


def _tree(given: _Plain) -> Tree:
    """Of the one line, or nested: two operands beside each other stand in no line."""
    if re.match(r"[(\s]*\d+ [\d(]", given.tree):
        nested, count = _nested(given.tree)
    else:
        form = parse(given.tree)
        count = leaf_count(form, given.n)
        nested = expand(form) if count == given.n else None
    if count != given.n:
        raise ValueError(
            f"its tree has {'more' if count > given.n else count} terms, n is {given.n}"
        )
    return Tree.of(nested)


def _nested(text: str) -> tuple[Any, int]:
    """Nested tuples of ``((0 1) 2)``, and how many leaves; of any depth."""
    if _NESTED.sub("", text).strip(" "):
        raise ValueError("its tree cannot be read")
    open_nodes: list[list[Any]] = [[]]
    count = 0
    for token in _NESTED.findall(text):
        if token == "(":
            open_nodes.append([])
        elif token != ")":
            open_nodes[-1].append(int(token))
            count += 1
        elif len(open_nodes) > 1:
            done = tuple(open_nodes.pop())
            open_nodes[-1].append(done)
        else:
            raise ValueError("its tree closes what it did not open")
    if len(open_nodes) != 1 or len(open_nodes[0]) != 1:
        raise ValueError("its tree is not whole")
    return open_nodes[0][0], count


def _nodes(text: str, tree: Tree, name: str) -> frozenset[int]:
    return _members(text, tree.n, tree.n + len(tree.children), name)


def _members(text: str, least: int, end: int, name: str) -> frozenset[int]:
    """The numbers of a sequence, each once, from ``least`` and below ``end``."""
    items = parse_leaves(text)
    room = end - least
    if sum(leaf_count(item, room) for item in items) > room:
        raise ValueError(f"{name} has more members than there are")
    members = [form.at + shift for form, shift in sequence(items, 0)]  # type: ignore[union-attr]
    if len(set(members)) != len(members):
        raise ValueError(f"{name} has a member twice")
    if members and not least <= min(members) <= max(members) < end:
        raise ValueError(f"{name} has a member that is not {least} to {end - 1}")
    return frozenset(members)
