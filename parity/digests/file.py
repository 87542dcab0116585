"""Digest trees as files (docs/digest.md): JSON, one line a field and one a position of digests.

Each field has a check of its own, so that a damaged file is refused by the field's name.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from parity.digests.key_layout import OUTSIDE, Block, Field, Layout, Span, Step
from parity.digests.tree import BITS, DigestTree, fold
from parity.dump import TensorType
from parity.errors import InputError
from parity.fnv import fnv1a64_array, hex16
from parity.keys import FREE, Key
from parity.kinds import misfit
from parity.reading import text_of

FORMAT = "parity-digest"
VERSION = 1
AGAIN = "write it again: parity digest DUMP -o FILE"


@dataclass(frozen=True)
class _Body:
    """The fields of a file after ``format`` and ``version``, with the kind of each."""

    header: dict[str, str]
    keys: int
    bits: int
    whole: str
    stop: int | None
    fields: list[list[list[str | None]]]  # lists of [name, type]
    steps: list[list[list[int]]]  # blocks [first layer, last layer, which list of fields]
    spans: list[list[str | int]]  # [segment, first position, last position, which step]
    links: list[str]  # base64, one text a position
    check: dict[str, str]  # of every field above


_NAMES = tuple(field.name for field in fields(_Body))


def is_digest_file(path: Path) -> bool:
    """Whether ``path`` holds JSON, which no dump does: its first character is a brace."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    except OSError:
        return False


def to_text(tree: DigestTree) -> str:
    """The text of a digest file."""
    body = _body(tree)
    lines = [f' "format": "{FORMAT}"', f' "version": {VERSION}']
    for name in _NAMES[:-2]:
        lines.append(f' "{name}": {_plain(getattr(body, name))}')
    links = ",\n".join(f"  {_plain(link)}" for link in body.links)
    lines.append(f' "links": [\n{links}\n ]')
    lines.append(f' "check": {_plain(body.check)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_digest(path: Path) -> DigestTree:
    """Read a digest file; raises InputError that names the file, and the line or field at fault."""
    text = text_of(path, "give a file of parity digest", AGAIN, "utf-8-sig")
    return from_text(text, str(path))


def from_text(text: str, source: str) -> DigestTree:
    """The tree in the text of a digest file; ``source`` names it in messages."""
    body = _checked(_parsed(text, source), source)
    try:
        return _tree(body, source)
    except ValueError as error:  # of base64 too
        raise _damaged(source, str(error)) from error
    except InputError as error:  # of a type or a key
        raise _damaged(source, error.message) from error


def _damaged(source: str, what: str) -> InputError:
    return InputError(f"{source}: damaged: {what}", AGAIN)


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check(value: Any) -> str:
    """The check of one field: FNV-1a-64 of its compact JSON text."""
    import numpy as np

    return hex16(fnv1a64_array(np.frombuffer(_plain(value).encode(), np.uint8)))


# --- writing -------------------------------------------------------------------------------------


def _body(tree: DigestTree) -> _Body:
    steps = [*dict.fromkeys(span.step for span in tree.layout.spans)]
    lists = [*dict.fromkeys(block.fields for step in steps for block in step)]
    at = {names: number for number, names in enumerate(lists)}
    values: dict[str, Any] = {
        "header": tree.header,
        "keys": len(tree),
        "bits": tree.bits,
        "whole": hex16(tree.whole),
        "stop": tree.stop,
        "fields": [[list(field) for field in names] for names in lists],
        "steps": [[[block.first, block.last, at[block.fields]] for block in s] for s in steps],
        "spans": [[*span[:3], steps.index(span.step)] for span in tree.layout.spans],
        "links": [*_encoded(tree)],
    }
    return _Body(**values, check={name: _check(value) for name, value in values.items()})


def _encoded(tree: DigestTree) -> Iterator[str]:
    size, begin = tree.bits // 8, 0
    for count in _counts(tree.layout):
        links = tree.links[begin : begin + count]
        data = b"".join(link.to_bytes(size, "big") for link in links)
        yield base64.b64encode(data).decode()
        begin += count


def _counts(layout: Layout) -> Iterator[int]:
    """Keys of each position."""
    for span in layout.spans:
        count = sum(block.size for block in span.step)
        yield from (count for _ in range(span.first, span.last + 1))


# --- reading -------------------------------------------------------------------------------------


def _parsed(text: str, source: str) -> dict[str, Any]:
    """The object in ``text``, of this format and version."""
    try:
        body = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, source))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise _damaged(source, f"not JSON at {where}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(source, "not JSON: a number or a nesting too large") from error
    if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
        raise InputError(f"{source}: not a {FORMAT} file", "give a file of parity digest")
    version = body.pop("version", None)
    if version != VERSION:
        raise InputError(
            f"{source}: version {version} of {FORMAT}, this parity reads {VERSION}",
            "read it with the parity that wrote it, or write it again",
        )
    return body


def _once(pairs: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _damaged(source, f"field {twice} stands twice")
    return found


def _checked(body: dict[str, Any], source: str) -> _Body:
    """The fields, each with its kind and its check."""
    for name in _NAMES:
        if name not in body:
            raise _damaged(source, f"field {name} is missing")
    unknown = [name for name in body if name not in _NAMES]
    if unknown:
        raise _damaged(source, f"field {unknown[0]} is unknown")
    checks = body["check"]
    for name in _NAMES[:-1]:
        if not isinstance(checks, dict) or checks.get(name) != _check(body[name]):
            raise _damaged(source, f"field {name} does not have its check")
    found = _Body(**body)
    misplaced = misfit(found, _Body)
    if misplaced is not None:
        raise _damaged(source, f"{misplaced}: a value of another kind")
    return found


def _tree(body: _Body, source: str) -> DigestTree:
    """Raises ValueError or InputError for fields that contradict each other."""
    if body.bits not in BITS:
        raise ValueError(f"field bits is {body.bits}, not {' or '.join(map(str, BITS))}")
    if re.fullmatch("[0-9a-f]{16}", body.whole) is None:
        raise ValueError("field whole is not 16 hexadecimal digits")
    layout, whole = _layout(body), int(body.whole, 16)
    links = [*_decoded(body, layout)]
    for span in layout.spans:
        _check_keys(span)
    if links and links[-1] != fold(whole, body.bits):
        raise ValueError("field whole is not the last of links")
    if body.stop is not None and not 0 <= body.stop < len(links):
        raise ValueError(f"field stop is {body.stop:,}, of {len(links):,} keys")
    return DigestTree(body.header, layout, links, whole, body.bits, body.stop, source)


def _layout(body: _Body) -> Layout:
    """The layout, by arithmetic alone: nothing here grows with a number in the file."""
    lists = [tuple(_field(pair) for pair in names) for names in body.fields]
    steps = [tuple(_block(block, lists) for block in blocks) for blocks in body.steps]
    layout = Layout(_span(span, steps) for span in body.spans)
    if len(layout) != body.keys:
        raise ValueError(
            f"field keys is {body.keys:,}, fields spans and steps have {len(layout):,}"
        )
    for before, after in pairwise(layout.spans):
        if before.segment == after.segment and after.first <= before.last:
            raise ValueError("field spans: positions do not rise")
    changes = [name for name, _ in groupby(span.segment for span in layout.spans)]
    if len(changes) != len(layout.segments):
        raise ValueError("field spans: a segment begins twice")
    return layout


def _field(pair: Sequence[str | None]) -> Field:
    if len(pair) != 2 or pair[0] is None:
        raise ValueError("field fields: not [name, type]")
    return pair[0], None if pair[1] is None else str(TensorType.parse(pair[1]))


def _block(block: Sequence[int], lists: Sequence[tuple[Field, ...]]) -> Block:
    if len(block) != 3:
        raise ValueError("field steps: not [first layer, last layer, fields]")
    first, last, which = block
    outside = first == last == OUTSIDE
    if not (outside or 0 <= first <= last) or not 0 <= which < len(lists) or not lists[which]:
        raise ValueError(f"field steps: layers {first} to {last}, list {which} of fields")
    return Block(first, last, lists[which])


def _span(span: Sequence[str | int], steps: Sequence[Step]) -> Span:
    if [*map(type, span)] != [str, int, int, int]:
        raise ValueError("field spans: not [segment, first, last, step]")
    segment, (first, last, which) = str(span[0]), map(int, span[1:])
    if not FREE <= first <= last or not 0 <= which < len(steps):
        raise ValueError(f"field spans: positions {first} to {last}, step {which}")
    return Span(segment, first, last, steps[which])


def _check_keys(span: Span) -> None:
    """Every key of a step stands there once, and has the form of one."""
    keys = Layout([span._replace(last=span.first)]).samples
    if len(set(keys)) != len(keys):
        raise ValueError("field steps: a key stands twice")
    bad = next((key for key in keys if Key.of_name(key.tag) != key), None)
    if bad is not None:
        raise ValueError(f"field fields: {bad.field!r} is the name of no key")


def _decoded(body: _Body, layout: Layout) -> Iterator[int]:
    positions = sum(span.last - span.first + 1 for span in layout.spans)
    if positions != len(body.links):
        raise ValueError(f"field links has {len(body.links):,} texts, for {positions:,} positions")
    size = body.bits // 8
    for number, (text, count) in enumerate(zip(body.links, _counts(layout), strict=True)):
        data = base64.b64decode(text, validate=True)
        if len(data) != count * size:
            held = f"{len(data):,} bytes for {count:,} keys"
            raise ValueError(f"field links: text {number} has {held}")
        for begin in range(0, len(data), size):
            yield int.from_bytes(data[begin : begin + size], "big")
